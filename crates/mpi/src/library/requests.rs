//! Requests that are complete when they are made, and statuses.
//!
//! A nonblocking call does its work at once (MPI allows it: the page cache takes the bytes), and gives a
//! generalized request, which the library's own MPI_Wait and MPI_Test know how to end.
//! Source: MPI 4.1, section 13.2 (generalized requests), 14.4.5.

#![expect(unsafe_code, reason = "the library's functions")]

use std::ffi::{c_int, c_void};

use super::{abi, done, functions as mpi, objects};
use crate::{
    abi::{Handle, HandleWidth},
    error::Error,
    pointers::{OutObject, Request, Status},
};

/// Says in `status` how many bytes were moved.
pub(crate) fn set_status(status: OutObject<'_, Status>, bytes: u64) -> Result<(), Error> {
    // SAFETY: the address of an MPI_Status, or that of none.
    unsafe { set_status_at(status.address(), bytes) }
}

/// # Safety
/// The address of an MPI_Status, or of none: null, or the one that says that it is ignored.
unsafe fn set_status_at(status: *mut c_void, bytes: u64) -> Result<(), Error> {
    if status.is_null() || status.addr() == abi()?.status_ignore {
        return Ok(());
    }
    let count = i64::try_from(bytes).map_err(|_| Error::internal("a count beyond 63 bits"))?;
    let byte = objects()?.byte;
    // SAFETY: as the caller says; the library's own functions know how long a status is.
    unsafe {
        let answer = mpi::Status_set_elements_x(status, byte, count);
        let answer = answer.or_else(|| mpi::Status_set_elements_c(status, byte, count));
        done(answer, "MPI_Status_set_elements_x")?;
        done(mpi::Status_set_cancelled(status, 0), "MPI_Status_set_cancelled")
    }
}

/// A request that has moved `bytes` already, into the program's variable.
pub(crate) fn complete(request: OutObject<'_, Request>, bytes: u64) -> Result<(), Error> {
    extern "C" fn query(state: *mut c_void, status: *mut c_void) -> c_int {
        // SAFETY: the library gives the address of a status; it may be ignored here too. The state is the number of bytes.
        let answer = unsafe { set_status_at(status, state as usize as u64) };
        answer.map_or_else(|error| error.code(), |()| 0)
    }
    extern "C" fn free(_state: *mut c_void) -> c_int {
        0
    }
    extern "C" fn cancel(_state: *mut c_void, _complete: c_int) -> c_int {
        0
    }
    let mut handle = 0_usize;
    let state = bytes as usize as *mut c_void;
    // SAFETY: the functions live as long as this library, and the state is no pointer.
    let started = unsafe { mpi::Grequest_start(query, free, cancel, state, &raw mut handle) };
    done(started, "MPI_Grequest_start")?;
    // SAFETY: the request was started above.
    let answer = unsafe { mpi::Grequest_complete(Handle::new(handle)) };
    done(answer, "MPI_Grequest_complete")?;
    let place = request.address();
    match abi()?.handle_width {
        // SAFETY: the address of an MPI_Request, an `int` here.
        HandleWidth::Int => unsafe { place.cast::<u32>().write_unaligned(handle as u32) },
        // SAFETY: as above, a pointer here.
        HandleWidth::Pointer => unsafe { place.cast::<usize>().write_unaligned(handle) },
    }
    Ok(())
}
