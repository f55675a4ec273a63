//! The library's own `MPI_File_` calls that are made here too: on the stub of a container, and error handlers.
//!
//! What the types of their arguments prove is all that these need, so they are safe; `None` is that the library does
//! not have the function. Not here: what passes the program's own calls on (`crate::exports`).

#![expect(unsafe_code, reason = "the library's functions")]

use std::ffi::c_int;

use super::functions as mpi;
use crate::{
    abi::Handle,
    pointers::{Out, Text},
};

/// Puts the handle into `fh`. Collective on `comm`.
pub(crate) fn open(
    comm: Handle,
    name: Text<'_>,
    amode: c_int,
    info: Handle,
    fh: Out<'_, Handle>,
) -> Option<c_int> {
    // SAFETY: a text that ends with a zero, and a variable for a handle.
    unsafe { mpi::File_open(comm, name, amode, info, fh) }
}

/// Of a handle that was opened; it is the null handle afterwards.
pub(crate) fn close(fh: Out<'_, Handle>) -> Option<c_int> {
    // SAFETY: a variable with a handle.
    unsafe { mpi::File_close(fh) }
}

pub(crate) fn delete(name: Text<'_>, info: Handle) -> Option<c_int> {
    // SAFETY: a text that ends with a zero.
    unsafe { mpi::File_delete(name, info) }
}

/// Calls the handler of `fh`, which may be a function of the program.
pub(crate) fn call_errhandler(fh: Handle, code: c_int) -> Option<c_int> {
    // SAFETY: no pointers.
    unsafe { mpi::File_call_errhandler(fh, code) }
}
