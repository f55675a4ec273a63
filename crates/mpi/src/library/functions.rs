//! The functions of the MPI library that are called here, with their types in C.
//!
//! Here: one table. Not here: what is asked of them (the other rooms of [`crate::library`], [`crate::datatype`]); what
//! the program's own calls are passed on to (`crate::exports`).

#![expect(unsafe_code, reason = "the library's functions")]
#![expect(clippy::too_many_arguments, reason = "they are MPI's")]

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::{
    abi::Handle,
    pointers::{Out, Text},
    real::{Original, symbol_name},
};

/// Called with a generalized request's state when it is waited for (MPI 4.1, section 13.2).
pub(crate) type QueryFunction = extern "C" fn(state: *mut c_void, status: *mut c_void) -> c_int;
/// When it is freed.
pub(crate) type FreeFunction = extern "C" fn(state: *mut c_void) -> c_int;
/// When it is cancelled.
pub(crate) type CancelFunction = extern "C" fn(state: *mut c_void, complete: c_int) -> c_int;
/// When a type with an attribute is copied (MPI 4.1, section 7.7.4).
pub(crate) type CopyAttribute =
    extern "C" fn(Handle, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
/// When it is freed. Of a communicator both have the same form.
pub(crate) type DeleteAttribute = extern "C" fn(Handle, c_int, *mut c_void, *mut c_void) -> c_int;

macro_rules! functions {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        #[cfg(feature = "static")]
        crate::linked::originals!("hayase_originals_functions": $($name)*);

        $(
            /// The function of this name; `None` when the library does not have it.
            ///
            /// # Safety
            /// Every pointer is valid for what MPI does with it.
            #[expect(non_snake_case, reason = "the names are MPI's")]
            pub(crate) unsafe fn $name($($arg: $ty),*) -> Option<c_int> {
                static ORIGINAL: Original = Original::new();
                const NAME: &CStr = symbol_name(concat!("PMPI_", stringify!($name), "\0"));
                // SAFETY: the library's function of this name has these parameters; an `int` handle is half a register.
                let function = unsafe { ORIGINAL.function::<extern "C" fn($($ty),*) -> c_int>(NAME) };
                function.map(|function| function($($arg),*))
            }
        )*
    };
}

functions! {
    File_open(comm: Handle, name: Text<'_>, amode: c_int, info: Handle, fh: Out<'_, Handle>);
    File_close(fh: Out<'_, Handle>);
    File_delete(name: Text<'_>, info: Handle);
    File_call_errhandler(fh: Handle, code: c_int);
    Comm_rank(comm: Handle, rank: *mut c_int);
    Comm_size(comm: Handle, size: *mut c_int);
    Comm_test_inter(comm: Handle, flag: *mut c_int);
    Comm_dup(comm: Handle, copy: *mut usize);
    Comm_free(comm: *mut usize);
    Comm_group(comm: Handle, group: *mut c_void);
    Comm_idup(comm: Handle, copy: *mut usize, request: *mut usize);
    Comm_create_keyval(
        copy: CopyAttribute, delete: DeleteAttribute, keyval: *mut c_int, state: *mut c_void,
    );
    Comm_set_attr(comm: Handle, keyval: c_int, value: *mut c_void);
    Comm_get_attr(comm: Handle, keyval: c_int, value: *mut *mut c_void, flag: *mut c_int);
    Comm_free_keyval(keyval: *mut c_int);
    Test(request: *mut usize, flag: *mut c_int, status: *mut c_void);
    Barrier(comm: Handle);
    Bcast(buffer: *mut c_void, count: c_int, datatype: Handle, root: c_int, comm: Handle);
    Ibcast(
        buffer: *mut c_void, count: c_int, datatype: Handle, root: c_int, comm: Handle,
        request: *mut usize,
    );
    Gather(
        source: *const c_void, source_count: c_int, source_type: Handle,
        target: *mut c_void, target_count: c_int, target_type: Handle, root: c_int, comm: Handle,
    );
    Igather(
        source: *const c_void, source_count: c_int, source_type: Handle,
        target: *mut c_void, target_count: c_int, target_type: Handle, root: c_int, comm: Handle,
        request: *mut usize,
    );
    Allgather(
        source: *const c_void, source_count: c_int, source_type: Handle,
        target: *mut c_void, target_count: c_int, target_type: Handle, comm: Handle,
    );
    Iallgather(
        source: *const c_void, source_count: c_int, source_type: Handle,
        target: *mut c_void, target_count: c_int, target_type: Handle, comm: Handle,
        request: *mut usize,
    );
    Alltoall(
        source: *const c_void, source_count: c_int, source_type: Handle,
        target: *mut c_void, target_count: c_int, target_type: Handle, comm: Handle,
    );
    Alltoallv(
        source: *const c_void, source_counts: *const c_int, source_places: *const c_int,
        source_type: Handle,
        target: *mut c_void, target_counts: *const c_int, target_places: *const c_int,
        target_type: Handle, comm: Handle,
    );
    Info_get(info: Handle, key: *const c_char, len: c_int, value: *mut c_char, flag: *mut c_int);
    Info_get_string(
        info: Handle, key: *const c_char, len: *mut c_int, value: *mut c_char, flag: *mut c_int,
    );
    Type_size(datatype: Handle, size: *mut c_int);
    Type_get_extent(datatype: Handle, lb: *mut isize, extent: *mut isize);
    Type_get_true_extent(datatype: Handle, lb: *mut isize, extent: *mut isize);
    Type_dup(datatype: Handle, copy: *mut usize);
    Type_free(datatype: *mut usize);
    Type_get_envelope(
        datatype: Handle, integers: *mut c_int, addresses: *mut c_int, datatypes: *mut c_int,
        combiner: *mut c_int,
    );
    Type_get_contents(
        datatype: Handle, integers_max: c_int, addresses_max: c_int, datatypes_max: c_int,
        integers: *mut c_int, addresses: *mut isize, datatypes: *mut c_void,
    );
    Type_get_envelope_c(
        datatype: Handle, integers: *mut i64, addresses: *mut i64, counts: *mut i64,
        datatypes: *mut i64, combiner: *mut c_int,
    );
    Type_get_contents_c(
        datatype: Handle, integers_max: i64, addresses_max: i64, counts_max: i64,
        datatypes_max: i64, integers: *mut c_int, addresses: *mut isize, counts: *mut i64,
        datatypes: *mut c_void,
    );
    Type_create_keyval(
        copy: CopyAttribute, delete: DeleteAttribute, keyval: *mut c_int, state: *mut c_void,
    );
    Type_set_attr(datatype: Handle, keyval: c_int, value: *mut c_void);
    Type_get_attr(datatype: Handle, keyval: c_int, value: *mut *mut c_void, flag: *mut c_int);
    Grequest_start(
        query: QueryFunction, free: FreeFunction, cancel: CancelFunction, state: *mut c_void,
        request: *mut usize,
    );
    Grequest_complete(request: Handle);
    Status_set_elements_x(status: *mut c_void, datatype: Handle, count: i64);
    Status_set_elements_c(status: *mut c_void, datatype: Handle, count: i64);
    Status_set_cancelled(status: *mut c_void, flag: c_int);
    Pack_external_size(datarep: *const c_char, count: c_int, datatype: Handle, size: *mut isize);
    Pack_external(
        datarep: *const c_char, source: *const c_void, count: c_int, datatype: Handle,
        target: *mut c_void, target_bytes: isize, position: *mut isize,
    );
    Unpack_external(
        datarep: *const c_char, source: *const c_void, source_bytes: isize, position: *mut isize,
        target: *mut c_void, count: c_int, datatype: Handle,
    );
}

#[cfg(feature = "static")]
crate::linked::may_be_missing!(
    Info_get_string Type_get_envelope_c Type_get_contents_c Status_set_elements_c
);
