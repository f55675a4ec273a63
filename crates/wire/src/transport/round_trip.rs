//! `TCP_INFO`: how long the way of a TCP stream is.
#![expect(unsafe_code, reason = "neither rustix nor tokio has this option")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// There and back, as the kernel has seen it so far: of a new connection, its greeting. tcp(7).
pub(super) fn round_trip(socket: BorrowedFd<'_>) -> io::Result<Duration> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as it is borrowed, and the kernel writes at most `len` bytes to `info`,
    // of which every value is valid.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed before, and whole numbers all.
    let info = unsafe { info.assume_init() };
    Ok(Duration::from_micros(info.tcpi_rtt.into()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_way_within_this_machine_is_short() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        for end in [stream, accepted] {
            let trip = round_trip(end.as_fd()).unwrap();
            assert!(trip > Duration::ZERO && trip < Duration::from_secs(1), "{trip:?}");
        }
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(round_trip(socket.as_fd()).is_err());
    }
}
