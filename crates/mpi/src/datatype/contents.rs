//! Asking the library for the arguments of the constructor that made a type.
//!
//! Source: MPI 4.1, section 5.1.13 (decoding a datatype).

#![expect(unsafe_code, reason = "the library's functions")]

use std::ffi::{c_int, c_void};

use super::{
    constructor::Constructor,
    envelope::{Envelope, envelope},
    owned::OwnedType,
};
use crate::{
    abi::{Combiner, Handle, HandleWidth},
    error::Error,
    library::{abi, done, functions as mpi},
};

/// How `datatype` was made, and of which types.
///
/// A named type (and others that have no parts) has no contents.
pub(super) fn contents(datatype: Handle) -> Result<(Constructor, Vec<OwnedType>), Error> {
    let Envelope { integers, addresses, counts, datatypes, combiner } = envelope(datatype)?;
    let of = |count: i64| usize::try_from(count).map_err(|_| Error::internal("a negative count"));
    let mut constructor = Constructor {
        combiner,
        integers: vec![0; of(integers)?],
        addresses: vec![0; of(addresses)?],
        counts: vec![0; of(counts)?],
    };
    if matches!(combiner, Combiner::Named | Combiner::F90 | Combiner::ValueIndex) {
        return Ok((constructor, Vec::new()));
    }
    let mut handles = vec![0_usize; of(datatypes)?]; // room for pointers is room for ints
    let places = constructor.addresses.as_mut_ptr().cast::<isize>();
    let types = handles.as_mut_ptr().cast::<c_void>();
    // SAFETY: the arrays are as long as the envelope says; an `MPI_Aint` has 64 bits here.
    let answer = unsafe {
        let large = mpi::Type_get_contents_c(
            datatype,
            integers,
            addresses,
            counts,
            datatypes,
            constructor.integers.as_mut_ptr(),
            places,
            constructor.counts.as_mut_ptr(),
            types,
        );
        large.or_else(|| {
            mpi::Type_get_contents(
                datatype,
                integers as c_int,
                addresses as c_int,
                datatypes as c_int,
                constructor.integers.as_mut_ptr(),
                places,
                types,
            )
        })
    };
    done(answer, "MPI_Type_get_contents")?;
    let mut inner = Vec::with_capacity(handles.len());
    for nth in 0..handles.len() {
        let handle = match abi()?.handle_width {
            HandleWidth::Pointer => handles[nth],
            // Two to a word, the first in the lower half.
            HandleWidth::Int => (handles[nth / 2] >> (32 * (nth % 2))) & 0xffff_ffff,
        };
        // SAFETY: the library gave it just now.
        let handle = unsafe { Handle::new(handle) };
        let is_named = envelope(handle)?.combiner == Combiner::Named;
        inner.push(OwnedType::new(handle, is_named));
    }
    Ok((constructor, inner))
}
