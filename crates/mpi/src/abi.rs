//! What differs from one MPI library to the next: shapes of handles, numbers of constants.
//!
//! Here: the table of one library, the three that are known. Not here: calling it ([`crate::library`]).
//! Source: MPICH ABI (mpi.h of 3.1 and later), Open MPI 4 and 5 (mpi.h), MPI 5.0 chapter 20 (mpi_abi.h).
//!
//! An `MPI_File` is a pointer everywhere. The other handles are an `int` or a pointer; all of them pass
//! through registers, so a `usize` is right for both, as long as the upper half is cleared where it is
//! an `int` ([`Abi::handle`]). Only in memory do they differ in width.

#![expect(unsafe_code, reason = "what makes a number a handle")]

use std::ffi::c_int;

pub(crate) mod mpi5;
pub(crate) mod mpich;
pub(crate) mod ompi;

/// Any MPI handle, as the library's own functions take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub(crate) struct Handle(usize);

impl Handle {
    /// # Safety
    /// The library takes it as a handle: it has made it and not freed it, or it is one of its predefined ones. Those of
    /// a program come to [`crate::exports`] as they are: MPI obliges it to give valid ones.
    pub(crate) const unsafe fn new(raw: usize) -> Self {
        Self(raw)
    }

    /// As a number.
    pub(crate) const fn raw(self) -> usize {
        self.0
    }
}

/// Where the handles of predefined objects come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Predefined {
    /// A number.
    Number(usize),
    /// The address of an object that the library exports.
    Symbol(&'static str),
}

/// The predefined objects that are needed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Objects<T> {
    pub(crate) comm_null: T,
    pub(crate) comm_self: T,
    pub(crate) info_null: T,
    pub(crate) file_null: T,
    pub(crate) datatype_null: T,
    pub(crate) byte: T,
}

/// How wide an `MPI_Datatype` or `MPI_Request` is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleWidth {
    /// An `int`.
    Int,
    /// A pointer.
    Pointer,
}

/// How a type was made (MPI 4.1, section 5.1.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combiner {
    Named,
    Dup,
    Contiguous,
    Vector,
    Hvector,
    Indexed,
    Hindexed,
    IndexedBlock,
    HindexedBlock,
    Struct,
    Subarray,
    Darray,
    /// Of MPI_Type_create_f90_real and its two relatives: some basic type.
    F90,
    Resized,
    /// Of MPI_Type_get_value_index: a pair.
    ValueIndex,
}

/// Classes of errors that these calls give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    Access,
    Arg,
    Count,
    FileExists,
    Intern,
    Io,
    NoSpace,
    NoSuchFile,
    Quota,
    ReadOnly,
    Type,
    UnsupportedDatarep,
    UnsupportedOperation,
}

/// The bits of an access mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AmodeBits {
    pub(crate) create: c_int,
    pub(crate) rdonly: c_int,
    pub(crate) wronly: c_int,
    pub(crate) rdwr: c_int,
    pub(crate) delete_on_close: c_int,
    pub(crate) unique_open: c_int,
    pub(crate) excl: c_int,
    pub(crate) append: c_int,
    pub(crate) sequential: c_int,
}

/// Numbers of MPI_Type_create_darray and MPI_Type_create_subarray.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArrayNumbers {
    pub(crate) order_c: c_int,
    pub(crate) order_fortran: c_int,
    pub(crate) block: c_int,
    pub(crate) cyclic: c_int,
    pub(crate) none: c_int,
    pub(crate) default_argument: c_int,
}

/// One library's table.
#[derive(Debug)]
pub(crate) struct Abi {
    /// What people call it.
    pub(crate) name: &'static str,
    pub(crate) handle_width: HandleWidth,
    pub(crate) objects: Objects<Predefined>,
    /// `MPI_STATUS_IGNORE`, as an address.
    pub(crate) status_ignore: usize,
    pub(crate) seek_set: c_int,
    pub(crate) seek_cur: c_int,
    pub(crate) seek_end: c_int,
    /// `MPI_DISPLACEMENT_CURRENT`, of sequential files.
    pub(crate) displacement_current: i64,
    pub(crate) amode: AmodeBits,
    pub(crate) array: ArrayNumbers,
    /// Numbers of combiners; those of Fortran's old forms stand beside the new ones.
    pub(crate) combiners: &'static [(c_int, Combiner)],
    /// Of the order of [`ErrorClass`].
    pub(crate) error_class: fn(ErrorClass) -> c_int,
}

impl Abi {
    /// A handle as it came in a register.
    pub(crate) fn handle(&self, raw: Handle) -> Handle {
        match self.handle_width {
            HandleWidth::Int => Handle(raw.0 & 0xffff_ffff),
            HandleWidth::Pointer => raw,
        }
    }

    pub(crate) fn combiner(&self, number: c_int) -> Option<Combiner> {
        let found = self.combiners.iter().find(|(own, _)| *own == number);
        found.map(|(_, combiner)| *combiner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_say_each_thing_once() {
        for abi in [&mpich::ABI, &ompi::ABI, &mpi5::ABI] {
            let mut numbers: Vec<_> = abi.combiners.iter().map(|(number, _)| number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), abi.combiners.len(), "{}", abi.name);
            let bits = abi.amode;
            let all = [
                bits.create,
                bits.rdonly,
                bits.wronly,
                bits.rdwr,
                bits.delete_on_close,
                bits.unique_open,
                bits.excl,
                bits.append,
                bits.sequential,
            ];
            assert_eq!(all.iter().fold(0, |sum, bit| sum | bit), all.iter().sum::<c_int>());
            assert!(all.iter().all(|bit| bit.count_ones() == 1), "{}", abi.name);
        }
    }

    #[test]
    fn handles_that_are_ints_lose_what_their_registers_carried() {
        let raw = Handle(0xdead_beef_4c00_010d);
        assert_eq!(mpich::ABI.handle(raw), Handle(0x4c00_010d));
        assert_eq!(ompi::ABI.handle(raw), raw);
    }
}
