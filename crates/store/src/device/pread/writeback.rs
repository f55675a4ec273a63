//! `sync_file_range`: bytes on their way to the disk before anybody waits for them.
#![expect(unsafe_code, reason = "neither std nor rustix has sync_file_range(2)")]

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// Has the kernel begin to write `len` dirty bytes from `offset`. Waits only where the disk's queue
/// is full.
pub(super) fn begin(file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<(), Errno> {
    sync_file_range(file, (offset.cast_signed(), len.cast_signed()), libc::SYNC_FILE_RANGE_WRITE)
}

/// Waits for what is on its way to the disk; an error since the last look is told.
pub(super) fn check(file: BorrowedFd<'_>) -> Result<(), Errno> {
    sync_file_range(file, (0, 0), libc::SYNC_FILE_RANGE_WAIT_BEFORE)
}

/// Length 0 is all that follows.
fn sync_file_range(
    file: BorrowedFd<'_>,
    (offset, len): (i64, i64),
    flags: libc::c_uint,
) -> Result<(), Errno> {
    // SAFETY: the call takes integers and touches no memory of ours; the descriptor is open as long
    // as it is borrowed.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
