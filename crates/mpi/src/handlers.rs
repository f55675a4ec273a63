//! The error handlers of the program, called as the library calls them.
//!
//! Here: the handler of a file, and the one that files have before they are open. Not here: what an error is
//! ([`crate::error`]).
//! Source: MPI 4.1, section 14.7 (error handling).

use std::ffi::{CStr, c_int};

use crate::{
    abi::{Handle, ompi},
    entered::outside,
    error::Error,
    library::{self, files},
    pointers::Text,
};

/// Calls the file's error handler; what the program's call returns.
pub(crate) fn raise(fh: Handle, error: &Error) -> c_int {
    error.tell();
    let code = error.code();
    // The handler may be a function of the program, whose calls are the program's.
    outside(|| files::call_errhandler(fh, code));
    code
}

/// Through the handler that files have before they are open, that of `MPI_FILE_NULL`.
pub(crate) fn raise_on_none(error: &Error) -> c_int {
    let (Ok(abi), Ok(objects)) = (library::abi(), library::objects()) else {
        error.tell();
        return error.code();
    };
    if abi.name != ompi::ABI.name {
        return raise(objects.file_null, error);
    }
    // Open MPI takes MPI_File_call_errhandler of MPI_FILE_NULL for a mistake, and ends the program. What fails
    // by itself calls the handler: with a code of its own, that there is no such file.
    error.tell();
    outside(|| files::delete(Text::of(NO_FILE), objects.info_null));
    error.code()
}

/// Nothing can be there.
const NO_FILE: &CStr = c"/proc/self/fd/no such file";
