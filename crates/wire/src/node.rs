//! The socket of a node: how its processes talk to its server.
//!
//! `node/listener.rs` and `node/channel.rs` are the server's half (async), `node/blocking.rs` the
//! process's (one thread, one channel), `node/frame.rs` the bytes of both. A message is 16 bytes of
//! header and a body, with at most one descriptor beside it; bulk bytes lie in the
//! [`crate::Arena`]. No codes and no encryption: the kernel says who is at the other end.
//!
//! On a channel one side asks and the other answers, in turn; which side asks is settled by its
//! first message ([`crate::message::ClientRole`]), and on some the messages pass each other.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

mod blocking;
mod channel;
mod frame;
mod listener;

pub use blocking::{BlockingChannel, Closer};
pub use channel::{NodeChannel, NodeSender, Outgoing};
pub use listener::NodeListener;

/// Who is at the other end, as the kernel saw it when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Process; 0 when it is in a namespace that we can not see.
    pub pid: i32,
}

/// Why processes of a node can not talk.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A server lives there.
    #[error("listen at {}: a server answers there already", .path.display())]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// Could not listen.
    #[error("listen at {}", .path.display())]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Could not take a connection.
    #[error("accept a connection of this node")]
    Accept {
        /// Why.
        source: io::Error,
    },
    /// Nobody answers there.
    #[error("connect to the server of this node at {}", .path.display())]
    Connect {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Of another user.
    #[error("process {pid} of user {uid} may not use this server")]
    Stranger {
        /// Its user.
        uid: u32,
        /// Its process.
        pid: i32,
    },
    /// The other side is gone.
    #[error("the other side closed the connection")]
    Closed,
    /// Not in time.
    #[error("no answer within {:?}", .after)]
    Timeout {
        /// What was waited.
        after: Duration,
    },
    /// An earlier error left it between two messages.
    #[error("the channel broke earlier")]
    Broken,
    /// What came is no message.
    #[error("message of this node's socket: {what}")]
    Malformed {
        /// How.
        what: &'static str,
    },
    /// The message is longer than allowed.
    #[error("message of {bytes} bytes, {} allowed", crate::limits::BODY_BYTES_MAX)]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// The connection broke.
    #[error("{action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl NodeError {
    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::InUse { .. } => Some("run `hayase down` for the job that runs there"),
            Self::Connect { .. } | Self::Closed => {
                Some("see `hayase status`; the server of this node may have ended")
            }
            Self::Stranger { .. } => Some("only the user who started the job may use it"),
            _ => None,
        }
    }
}
