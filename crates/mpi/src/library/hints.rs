//! Hints: the values of an `MPI_Info`.

#![expect(unsafe_code, reason = "the library's functions")]

use std::ffi::{CStr, c_char, c_int};

use super::{abi, functions as mpi, objects};
use crate::{abi::Handle, error::Error};

/// Longest value that is read; every MPI has at most 1024 (`MPI_MAX_INFO_VAL`).
const VALUE_BYTES_MAX: usize = 1024;

/// The value of `key`; `None` when it is not there, or the info is null.
pub(crate) fn value(info: Handle, key: &CStr) -> Result<Option<String>, Error> {
    if abi()?.handle(info) == objects()?.info_null {
        return Ok(None);
    }
    let mut bytes = [0_u8; VALUE_BYTES_MAX + 1];
    let mut is_there: c_int = 0;
    let target = bytes.as_mut_ptr().cast::<c_char>();
    let len = VALUE_BYTES_MAX as c_int;
    // SAFETY: the key ends with a zero, and the buffer has room for the value and a zero.
    let answer = unsafe { mpi::Info_get(info, key.as_ptr(), len, target, &raw mut is_there) };
    let answer = answer.or_else(|| {
        let mut len = len;
        // SAFETY: as above; this one counts the zero, for which there is room.
        unsafe { mpi::Info_get_string(info, key.as_ptr(), &raw mut len, target, &raw mut is_there) }
    });
    super::done(answer, "MPI_Info_get")?;
    if is_there == 0 {
        return Ok(None);
    }
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Ok(Some(String::from_utf8_lossy(&bytes[..end]).into_owned()))
}
