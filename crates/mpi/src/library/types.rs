//! What the library is asked about datatypes, and what is remembered with them.
//!
//! Here: envelopes and contents, sizes, bounds, copies; an attribute that holds what a type selects.
//! Not here: what contents mean ([`crate::datatype`]).
//! Source: MPI 4.1, sections 5.1.13 (decoding a datatype) and 7.7.4 (attributes of datatypes).

#![expect(unsafe_code, reason = "the library's functions")]

use std::{
    ffi::{c_int, c_void},
    ops::Deref,
    sync::{Arc, OnceLock},
};

use super::{abi, done, functions as mpi, objects};
use crate::{
    abi::{Combiner, ErrorClass, Handle, HandleWidth},
    datatype::Parsed,
    error::Error,
    memory::Memory,
    pointers::{OutObject, Type},
};

/// How a type was made, with the arguments of its constructor.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) combiner: Combiner,
    pub(crate) integers: Vec<c_int>,
    pub(crate) addresses: Vec<i64>,
    /// Of the constructors that end with `_c`; where there are any, there are no addresses.
    pub(crate) counts: Vec<i64>,
    pub(crate) datatypes: Vec<OwnedType>,
}

/// A type that is freed with its last holder; predefined ones are not.
#[derive(Debug)]
pub(crate) struct OwnedType {
    handle: Handle,
    is_named: bool,
}

#[cfg(test)]
impl OwnedType {
    /// Some type that nobody frees.
    pub(crate) fn named_for_tests() -> Self {
        // SAFETY: given to no library.
        Self { handle: unsafe { Handle::new(0) }, is_named: true }
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

/// Numbers of an envelope.
struct Envelope {
    integers: i64,
    addresses: i64,
    counts: i64,
    datatypes: i64,
    combiner: Combiner,
}

/// Fails for the null datatype, for which the library would end the program.
pub(crate) fn require_type(datatype: Handle) -> Result<(), Error> {
    let abi = abi()?;
    let is_null = abi.handle(datatype) == objects()?.datatype_null
        || (abi.handle_width == HandleWidth::Pointer && datatype.raw() == 0);
    match is_null {
        true => Err(Error::datatype("the null datatype")),
        false => Ok(()),
    }
}

fn envelope(datatype: Handle) -> Result<Envelope, Error> {
    require_type(datatype)?;
    let (mut integers, mut addresses, mut counts, mut datatypes) = (0_i64, 0_i64, 0_i64, 0_i64);
    let mut combiner: c_int = 0;
    // SAFETY: variables of ours, of the types that MPI says.
    let large = unsafe {
        mpi::Type_get_envelope_c(
            datatype,
            &raw mut integers,
            &raw mut addresses,
            &raw mut counts,
            &raw mut datatypes,
            &raw mut combiner,
        )
    };
    if large.is_some() {
        done(large, "MPI_Type_get_envelope_c")?;
    } else {
        let mut numbers: [c_int; 3] = [0; 3];
        let [of_integers, of_addresses, of_datatypes] = &mut numbers;
        // SAFETY: as above.
        let small = unsafe {
            mpi::Type_get_envelope(
                datatype,
                of_integers,
                of_addresses,
                of_datatypes,
                &raw mut combiner,
            )
        };
        done(small, "MPI_Type_get_envelope")?;
        (integers, addresses, datatypes) =
            (numbers[0].into(), numbers[1].into(), numbers[2].into());
    }
    let combiner = abi()?.combiner(combiner);
    let combiner =
        combiner.ok_or(Error::datatype("a datatype made in a way that is not known here"))?;
    Ok(Envelope { integers, addresses, counts, datatypes, combiner })
}

/// How `datatype` was made.
///
/// A named type (and others that have no parts) has no contents.
pub(crate) fn contents(datatype: Handle) -> Result<Contents, Error> {
    let Envelope { integers, addresses, counts, datatypes, combiner } = envelope(datatype)?;
    let of = |count: i64| usize::try_from(count).map_err(|_| Error::internal("a negative count"));
    let mut contents = Contents {
        combiner,
        integers: vec![0; of(integers)?],
        addresses: vec![0; of(addresses)?],
        counts: vec![0; of(counts)?],
        datatypes: Vec::new(),
    };
    if matches!(combiner, Combiner::Named | Combiner::F90 | Combiner::ValueIndex) {
        return Ok(contents);
    }
    let mut handles = vec![0_usize; of(datatypes)?]; // room for pointers is room for ints
    let places = contents.addresses.as_mut_ptr().cast::<isize>();
    let types = handles.as_mut_ptr().cast::<c_void>();
    // SAFETY: the arrays are as long as the envelope says; an `MPI_Aint` has 64 bits here.
    let answer = unsafe {
        let large = mpi::Type_get_contents_c(
            datatype,
            integers,
            addresses,
            counts,
            datatypes,
            contents.integers.as_mut_ptr(),
            places,
            contents.counts.as_mut_ptr(),
            types,
        );
        large.or_else(|| {
            mpi::Type_get_contents(
                datatype,
                integers as c_int,
                addresses as c_int,
                datatypes as c_int,
                contents.integers.as_mut_ptr(),
                places,
                types,
            )
        })
    };
    done(answer, "MPI_Type_get_contents")?;
    for nth in 0..handles.len() {
        let handle = match abi()?.handle_width {
            HandleWidth::Pointer => handles[nth],
            // Two to a word, the first in the lower half.
            HandleWidth::Int => (handles[nth / 2] >> (32 * (nth % 2))) & 0xffff_ffff,
        };
        // SAFETY: the library gave it just now.
        let handle = unsafe { Handle::new(handle) };
        let is_named = envelope(handle)?.combiner == Combiner::Named;
        contents.datatypes.push(OwnedType { handle, is_named });
    }
    Ok(contents)
}

/// Bytes of a type without parts.
pub(crate) fn size(datatype: Handle) -> Result<u64, Error> {
    let mut size: c_int = 0;
    // SAFETY: a variable of ours.
    done(unsafe { mpi::Type_size(datatype, &raw mut size) }, "MPI_Type_size")?;
    u64::try_from(size).map_err(|_| Error::datatype("a datatype of negative size"))
}

/// Lower bound and extent.
pub(crate) fn extent(datatype: Handle) -> Result<(i64, i64), Error> {
    let (mut lb, mut extent) = (0_isize, 0_isize);
    // SAFETY: two variables of ours.
    let answer = unsafe { mpi::Type_get_extent(datatype, &raw mut lb, &raw mut extent) };
    done(answer, "MPI_Type_get_extent")?;
    Ok((lb as i64, extent as i64))
}

/// From the first byte to behind the last one.
pub(crate) fn true_extent(datatype: Handle) -> Result<(i64, i64), Error> {
    let (mut lb, mut extent) = (0_isize, 0_isize);
    // SAFETY: two variables of ours.
    let answer = unsafe { mpi::Type_get_true_extent(datatype, &raw mut lb, &raw mut extent) };
    done(answer, "MPI_Type_get_true_extent")?;
    Ok((lb as i64, extent as i64))
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

/// The key under which types hold what they select; `None` where the library gives none.
fn keyval() -> Option<c_int> {
    extern "C" fn copy(
        _datatype: Handle,
        _keyval: c_int,
        _state: *mut c_void,
        _value: *mut c_void,
        _copied: *mut c_void,
        flag: *mut c_int,
    ) -> c_int {
        // SAFETY: the library gives the address of an `int`.
        unsafe { flag.write(0) };
        0
    }
    extern "C" fn delete(
        _datatype: Handle,
        _keyval: c_int,
        value: *mut c_void,
        _state: *mut c_void,
    ) -> c_int {
        // SAFETY: `remember` made it from an Arc, and the library lets go of it here.
        drop(unsafe { Arc::from_raw(value.cast::<Parsed>()) });
        0
    }
    static KEYVAL: OnceLock<Option<c_int>> = OnceLock::new();
    *KEYVAL.get_or_init(|| {
        let mut keyval: c_int = 0;
        // SAFETY: a variable of ours; the functions live as long as this library.
        let answer =
            unsafe { mpi::Type_create_keyval(copy, delete, &raw mut keyval, std::ptr::null_mut()) };
        (answer == Some(0)).then_some(keyval)
    })
}

/// What was remembered with `datatype`. The library forgets it when the type is freed, so a handle that
/// is used again for another type can not be mistaken for it.
pub(crate) fn recall(datatype: Handle) -> Option<Arc<Parsed>> {
    let keyval = keyval()?;
    let (mut value, mut is_there) = (std::ptr::null_mut::<c_void>(), 0);
    // SAFETY: two variables of ours.
    let answer = unsafe { mpi::Type_get_attr(datatype, keyval, &raw mut value, &raw mut is_there) };
    if answer != Some(0) || is_there == 0 {
        return None;
    }
    let parsed = value.cast::<Parsed>().cast_const();
    // SAFETY: `remember` made it from an Arc that the type holds; this is one holder more.
    unsafe {
        Arc::increment_strong_count(parsed);
        Some(Arc::from_raw(parsed))
    }
}

/// Remembers what `datatype` selects, as long as it lives.
pub(crate) fn remember(datatype: Handle, parsed: &Arc<Parsed>) {
    let Some(keyval) = keyval() else { return };
    let value = Arc::into_raw(Arc::clone(parsed));
    // SAFETY: `delete` above takes the value back. Where it can not be set, nobody else has it.
    unsafe {
        if mpi::Type_set_attr(datatype, keyval, value.cast_mut().cast()) != Some(0) {
            drop(Arc::from_raw(value));
        }
    }
}

/// What `MPI_Pack_external` is told.
const EXTERNAL32: *const std::ffi::c_char = c"external32".as_ptr();

/// A container keeps the sizes of memory: elements that are shorter in external32 would leave gaps.
pub(crate) fn require_external_size(datatype: Handle, bytes: u64) -> Result<(), Error> {
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
pub(crate) fn pack_external(memory: &Memory, target: &mut [u8]) -> Result<(), Error> {
    let count = converted(memory.count())?;
    let mut position = 0_isize;
    // SAFETY: the program's memory, see [`Memory::new`]; the call passes the target's length.
    let answer = unsafe {
        let (source, datatype) = (memory.address().0 as *const c_void, memory.datatype());
        let len = target.len() as isize;
        let target = target.as_mut_ptr().cast();
        mpi::Pack_external(EXTERNAL32, source, count, datatype, target, len, &raw mut position)
    };
    done(answer, "MPI_Pack_external")
}

/// The other way, of `count` elements, at most those of the memory.
pub(crate) fn unpack_external(source: &[u8], memory: &Memory, count: i64) -> Result<(), Error> {
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
