//! Descriptors that are watched by the runtime for what tokio has no type of its own for.
//!
//! A Unix socket calls itself writable whenever the other side has taken something, so a server that
//! watched for that too would be woken twice for each call. A ring of the kernel is no socket at all.
#![expect(unsafe_code, reason = "tokio leaves it to the caller that the descriptor stays the same")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that is watched, and stays the same meanwhile: it is lent only by shared reference.
///
/// ```compile_fail,E0599
/// # fn replace(mut ring: hayase_wire::watch::Watched<std::os::fd::OwnedFd>, other: std::os::fd::OwnedFd) {
/// *ring.get_mut() = other;
/// # }
/// ```
#[derive(Debug)]
pub struct Watched<T: AsRawFd>(AsyncFd<T>);

impl<T: AsRawFd> Watched<T> {
    /// What is watched.
    pub fn get_ref(&self) -> &T {
        self.0.get_ref()
    }

    /// Returns when there is something to read, or was since the last time: later arrivals are reported again.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.readable().await.map(|mut guard| guard.clear_ready())
    }

    /// The same of room to write.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.0.writable().await.map(|mut guard| guard.clear_ready())
    }
}

/// Watches `stream` for one direction only, which must not block; inside a runtime.
pub(crate) fn stream(stream: UnixStream, interest: Interest) -> io::Result<Watched<UnixStream>> {
    // SAFETY: a `UnixStream` owns its descriptor, keeps it open and the same for its whole life, and
    // nobody takes it out of `Watched`, which lends it only by shared reference.
    Ok(Watched(unsafe { AsyncFd::register_with_interest(stream, interest) }?))
}

/// Watches anything that can be polled until it is readable; inside a runtime.
pub fn readable(descriptor: OwnedFd) -> io::Result<Watched<OwnedFd>> {
    // SAFETY: as above.
    Ok(Watched(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?))
}
