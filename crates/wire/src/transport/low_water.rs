//! `SO_RCVLOWAT`: how many bytes must wait before the receiver of a TCP stream is woken.
#![expect(unsafe_code, reason = "neither rustix nor tokio has this option")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets it; socket(7). The kernel wakes earlier when its buffer is full or the stream ends.
pub(super) fn set_low_water(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is open as long as it is borrowed, and the option's value is the `c_int`
    // that the pointer and the length say; the kernel reads it before the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            std::ptr::from_ref(&bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
