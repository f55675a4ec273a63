//! Types that are held here: copies of the program's, which may free its own.

#![expect(unsafe_code, reason = "the library's functions")]

use std::ops::Deref;

use super::envelope::envelope;
use crate::{
    abi::{Combiner, Handle, HandleWidth},
    error::Error,
    library::{abi, done, functions as mpi},
    pointers::{OutObject, Type},
};

/// A type that is freed with its last holder; predefined ones are not.
#[derive(Debug)]
pub(crate) struct OwnedType {
    handle: Handle,
    is_named: bool,
}

impl OwnedType {
    /// A handle that the library has just given to us to free, unless the type `is_named`.
    pub(super) fn new(handle: Handle, is_named: bool) -> Self {
        Self { handle, is_named }
    }

    /// Some type that nobody frees.
    #[cfg(test)]
    pub(crate) fn named_for_tests() -> Self {
        // SAFETY: given to no library.
        Self::new(unsafe { Handle::new(0) }, true)
    }
}

impl Deref for OwnedType {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for OwnedType {
    fn drop(&mut self) {
        if !self.is_named {
            let mut handle = self.handle.raw();
            // SAFETY: the library gave this handle to us to free, and it is used no more. That it can not
            // be freed is no reason to fail.
            let _ = unsafe { mpi::Type_free(&raw mut handle) };
        }
    }
}

/// A holder of our own: the program may free its handle.
pub(crate) fn hold(datatype: Handle) -> Result<OwnedType, Error> {
    let datatype = abi()?.handle(datatype);
    if envelope(datatype)?.combiner == Combiner::Named {
        return Ok(OwnedType { handle: datatype, is_named: true });
    }
    let mut copy = 0_usize;
    // SAFETY: a variable of ours, wide enough for both kinds of handles.
    done(unsafe { mpi::Type_dup(datatype, &raw mut copy) }, "MPI_Type_dup")?;
    // SAFETY: made just now.
    Ok(OwnedType { handle: unsafe { Handle::new(copy) }, is_named: false })
}

/// Puts a handle for the program into its variable: a predefined one as it is, else a copy to free.
pub(crate) fn give(datatype: &OwnedType, target: OutObject<'_, Type>) -> Result<(), Error> {
    let copy = hold(datatype.handle)?;
    let (at, raw) = (target.address(), copy.handle.raw());
    if at.is_null() {
        return Ok(());
    }
    match abi()?.handle_width {
        // SAFETY: the address of an MPI_Datatype, an `int` here.
        HandleWidth::Int => unsafe { at.cast::<u32>().write_unaligned(raw as u32) },
        // SAFETY: as above, a pointer here.
        HandleWidth::Pointer => unsafe { at.cast::<usize>().write_unaligned(raw) },
    }
    std::mem::forget(copy); // the program frees it
    Ok(())
}
