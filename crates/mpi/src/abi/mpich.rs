//! MPICH and all that keep its ABI: Intel MPI, MVAPICH, Cray MPICH, ParaStation.

use std::ffi::c_int;

use super::{
    Abi, AmodeBits, ArrayNumbers, Combiner, ErrorClass, HandleWidth, Objects, Predefined::Number,
};

pub(crate) static ABI: Abi = Abi {
    name: "MPICH",
    handle_width: HandleWidth::Int,
    objects: Objects {
        comm_null: Number(0x0400_0000),
        comm_self: Number(0x4400_0001),
        info_null: Number(0x1c00_0000),
        file_null: Number(0),
        datatype_null: Number(0x0c00_0000),
        byte: Number(0x4c00_010d),
    },
    status_ignore: 1,
    seek_set: 600,
    seek_cur: 602,
    seek_end: 604,
    displacement_current: -54_278_278,
    amode: AMODE,
    array: ArrayNumbers {
        order_c: 56,
        order_fortran: 57,
        block: 121,
        cyclic: 122,
        none: 123,
        default_argument: -49767,
    },
    combiners: &COMBINERS,
    error_class,
};

/// ROMIO's, which Open MPI took over.
pub(super) const AMODE: AmodeBits = AmodeBits {
    create: 1,
    rdonly: 2,
    wronly: 4,
    rdwr: 8,
    delete_on_close: 16,
    unique_open: 32,
    excl: 64,
    append: 128,
    sequential: 256,
};

const COMBINERS: [(c_int, Combiner); 20] = [
    (1, Combiner::Named),
    (2, Combiner::Dup),
    (3, Combiner::Contiguous),
    (4, Combiner::Vector),
    (5, Combiner::Hvector),
    (6, Combiner::Hvector),
    (7, Combiner::Indexed),
    (8, Combiner::Hindexed),
    (9, Combiner::Hindexed),
    (10, Combiner::IndexedBlock),
    (11, Combiner::Struct),
    (12, Combiner::Struct),
    (13, Combiner::Subarray),
    (14, Combiner::Darray),
    (15, Combiner::F90),
    (16, Combiner::F90),
    (17, Combiner::F90),
    (18, Combiner::Resized),
    (19, Combiner::HindexedBlock),
    (20, Combiner::ValueIndex),
];

fn error_class(class: ErrorClass) -> c_int {
    match class {
        ErrorClass::Access => 20,
        ErrorClass::Arg => 12,
        ErrorClass::Count => 2,
        ErrorClass::FileExists => 25,
        ErrorClass::Intern => 16,
        ErrorClass::Io => 32,
        ErrorClass::NoSpace => 36,
        ErrorClass::NoSuchFile => 37,
        ErrorClass::Quota => 39,
        ErrorClass::ReadOnly => 40,
        ErrorClass::Type => 3,
        ErrorClass::UnsupportedDatarep => 43,
        ErrorClass::UnsupportedOperation => 44,
    }
}
