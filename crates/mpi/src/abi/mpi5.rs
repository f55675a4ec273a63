//! The ABI of MPI 5.0 (`libmpi_abi.so`): handles are pointers, predefined ones small numbers.

use std::ffi::c_int;

use super::{
    Abi, AmodeBits, ArrayNumbers, Combiner, ErrorClass, HandleWidth, Objects, Predefined::Number,
};

pub(crate) static ABI: Abi = Abi {
    name: "the MPI 5 ABI",
    handle_width: HandleWidth::Pointer,
    objects: Objects {
        comm_null: Number(0x100),
        comm_self: Number(0x102),
        info_null: Number(0x130),
        file_null: Number(0x118),
        datatype_null: Number(0x200),
        byte: Number(0x247),
    },
    status_ignore: 0,
    seek_set: 403,
    seek_cur: 401,
    seek_end: 402,
    displacement_current: -1,
    amode: AmodeBits {
        append: 1,
        create: 2,
        delete_on_close: 4,
        excl: 8,
        rdonly: 16,
        rdwr: 32,
        sequential: 64,
        unique_open: 128,
        wronly: 256,
    },
    array: ArrayNumbers {
        order_c: 0xC,
        order_fortran: 0xF,
        block: 17,
        cyclic: 18,
        none: 16,
        default_argument: 19,
    },
    combiners: &COMBINERS,
    error_class,
};

const COMBINERS: [(c_int, Combiner); 17] = [
    (101, Combiner::Named),
    (102, Combiner::Dup),
    (103, Combiner::Contiguous),
    (104, Combiner::Vector),
    (105, Combiner::Hvector),
    (106, Combiner::Indexed),
    (107, Combiner::Hindexed),
    (108, Combiner::IndexedBlock),
    (109, Combiner::HindexedBlock),
    (110, Combiner::Struct),
    (111, Combiner::Subarray),
    (112, Combiner::Darray),
    (113, Combiner::F90),
    (114, Combiner::F90),
    (115, Combiner::F90),
    (116, Combiner::Resized),
    (117, Combiner::ValueIndex),
];

fn error_class(class: ErrorClass) -> c_int {
    match class {
        ErrorClass::Access => 20,
        ErrorClass::Arg => 13,
        ErrorClass::Count => 2,
        ErrorClass::FileExists => 28,
        ErrorClass::Intern => 17,
        ErrorClass::Io => 35,
        ErrorClass::NoSpace => 41,
        ErrorClass::NoSuchFile => 42,
        ErrorClass::Quota => 44,
        ErrorClass::ReadOnly => 45,
        ErrorClass::Type => 3,
        ErrorClass::UnsupportedDatarep => 54,
        ErrorClass::UnsupportedOperation => 55,
    }
}
