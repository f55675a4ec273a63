//! The program's memory in the representation external32, big-endian IEEE: the library converts it.
//!
//! Source: MPI 4.1, sections 5.2 (packing) and 14.5.2.

#![expect(unsafe_code, reason = "the library's functions on the program's memory")]

use std::ffi::{c_int, c_void};

use super::Memory;
use crate::{
    abi::{ErrorClass, Handle},
    error::Error,
    library::{done, functions as mpi},
};

/// The representation, as `MPI_Pack_external` takes it.
const EXTERNAL32: *const std::ffi::c_char = c"external32".as_ptr();

/// A container keeps the sizes of memory: elements that are shorter in external32 would leave gaps.
pub(crate) fn require_size(datatype: Handle, bytes: u64) -> Result<(), Error> {
    let mut size = 0_isize;
    // SAFETY: a text that ends with a zero, and a variable of ours.
    let answer = unsafe { mpi::Pack_external_size(EXTERNAL32, 1, datatype, &raw mut size) };
    done(answer, "MPI_Pack_external_size")?;
    if u64::try_from(size) == Ok(bytes) {
        return Ok(());
    }
    let what = format!("external32 has {size} bytes for {bytes} of this datatype; use native");
    Err(Error::usual(ErrorClass::UnsupportedDatarep, what))
}

/// The program's data in external32; `target` is as long as they are there.
pub(crate) fn pack(memory: &Memory, target: &mut [u8]) -> Result<(), Error> {
    let count = converted(memory.count())?;
    let mut position = 0_isize;
    // SAFETY: the program's memory, see [`super::Memory::new`]; the call passes the target's length.
    let answer = unsafe {
        let (source, datatype) = (memory.address().0 as *const c_void, memory.datatype());
        let len = target.len() as isize;
        let target = target.as_mut_ptr().cast();
        mpi::Pack_external(EXTERNAL32, source, count, datatype, target, len, &raw mut position)
    };
    done(answer, "MPI_Pack_external")
}

/// The other way, of `count` elements, at most those of the memory.
pub(crate) fn unpack(source: &[u8], memory: &Memory, count: i64) -> Result<(), Error> {
    let count = converted(count.min(memory.count()))?;
    let mut position = 0_isize;
    // SAFETY: as above.
    let answer = unsafe {
        let (target, datatype) = (memory.address().0 as *mut c_void, memory.datatype());
        let len = source.len() as isize;
        let source = source.as_ptr().cast();
        mpi::Unpack_external(EXTERNAL32, source, len, &raw mut position, target, count, datatype)
    };
    done(answer, "MPI_Unpack_external")
}

fn converted(count: i64) -> Result<c_int, Error> {
    c_int::try_from(count).map_err(|_| Error::count("too many elements to convert"))
}
