//! A stream of the node's socket, watched for one direction only.
//!
//! A Unix socket calls itself writable whenever the other side has taken something, so a server that
//! watched for that too would be woken twice for each call.
#![expect(unsafe_code, reason = "tokio leaves it to the caller that the descriptor stays the same")]

use std::io;
use std::os::unix::net::UnixStream;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches `stream`, which must not block; inside a runtime.
pub(super) fn watch(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    // SAFETY: a `UnixStream` owns its descriptor, keeps it open and the same for its whole life, and
    // nobody takes it out of the `AsyncFd`, which lends it only by shared reference.
    Ok(unsafe { AsyncFd::register_with_interest(stream, interest) }?)
}
