//! Open MPI 4 and 5: handles are addresses of objects, predefined ones are exported.

use std::ffi::c_int;

use super::{
    Abi, ArrayNumbers, Combiner, ErrorClass, HandleWidth, Objects, Predefined::Symbol, mpich::AMODE,
};

pub(crate) static ABI: Abi = Abi {
    name: "Open MPI",
    handle_width: HandleWidth::Pointer,
    objects: Objects {
        comm_null: Symbol("ompi_mpi_comm_null"),
        comm_self: Symbol("ompi_mpi_comm_self"),
        info_null: Symbol("ompi_mpi_info_null"),
        file_null: Symbol("ompi_mpi_file_null"),
        datatype_null: Symbol("ompi_mpi_datatype_null"),
        byte: Symbol("ompi_mpi_byte"),
    },
    status_ignore: 0,
    seek_set: 600,
    seek_cur: 602,
    seek_end: 604,
    displacement_current: -54_278_278,
    amode: AMODE,
    array: ArrayNumbers {
        order_c: 0,
        order_fortran: 1,
        block: 0,
        cyclic: 1,
        none: 2,
        default_argument: -1,
    },
    combiners: &COMBINERS,
    error_class,
};

const COMBINERS: [(c_int, Combiner); 20] = [
    (0, Combiner::Named),
    (1, Combiner::Dup),
    (2, Combiner::Contiguous),
    (3, Combiner::Vector),
    (4, Combiner::Hvector),
    (5, Combiner::Hvector),
    (6, Combiner::Indexed),
    (7, Combiner::Hindexed),
    (8, Combiner::Hindexed),
    (9, Combiner::IndexedBlock),
    (10, Combiner::Struct),
    (11, Combiner::Struct),
    (12, Combiner::Subarray),
    (13, Combiner::Darray),
    (14, Combiner::F90),
    (15, Combiner::F90),
    (16, Combiner::F90),
    (17, Combiner::Resized),
    (18, Combiner::HindexedBlock),
    (19, Combiner::ValueIndex),
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
        ErrorClass::UnsupportedDatarep => 51,
        ErrorClass::UnsupportedOperation => 52,
    }
}
