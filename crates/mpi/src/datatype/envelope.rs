//! What the library says of a type by its handle: how it was made and of how many arguments, its size and bounds.
//!
//! Source: MPI 4.1, sections 5.1.7, 5.1.8 and 5.1.13.

#![expect(unsafe_code, reason = "the library's functions")]

use std::ffi::c_int;

use crate::{
    abi::{Combiner, Handle, HandleWidth},
    error::Error,
    library::{abi, done, functions as mpi, objects},
};

/// How a type was made, and how many arguments of each kind its constructor had.
pub(super) struct Envelope {
    pub(super) integers: i64,
    pub(super) addresses: i64,
    pub(super) counts: i64,
    pub(super) datatypes: i64,
    pub(super) combiner: Combiner,
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

pub(super) fn envelope(datatype: Handle) -> Result<Envelope, Error> {
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

/// Bytes of a type without parts.
pub(super) fn size(datatype: Handle) -> Result<u64, Error> {
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
pub(super) fn true_extent(datatype: Handle) -> Result<(i64, i64), Error> {
    let (mut lb, mut extent) = (0_isize, 0_isize);
    // SAFETY: two variables of ours.
    let answer = unsafe { mpi::Type_get_true_extent(datatype, &raw mut lb, &raw mut extent) };
    done(answer, "MPI_Type_get_true_extent")?;
    Ok((lb as i64, extent as i64))
}
