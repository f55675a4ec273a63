//! Descriptors that are watched by the runtime for what tokio has no type of its own for.
//!
//! A Unix socket calls itself writable whenever the other side has taken something, so a server that
//! watched for that too would be woken twice for each call. A ring of the kernel is no socket at all.
#![expect(unsafe_code, reason = "tokio leaves it to the caller that the descriptor stays the same")]

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches `stream` for one direction only, which must not block; inside a runtime.
pub(crate) fn stream(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    // SAFETY: a `UnixStream` owns its descriptor, keeps it open and the same for its whole life, and
    // nobody takes it out of the `AsyncFd`, which lends it only by shared reference.
    Ok(unsafe { AsyncFd::register_with_interest(stream, interest) }?)
}

/// Watches anything that can be polled until it is readable; inside a runtime.
pub fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: as above; the caller can take the descriptor out only by ending the watch.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}
