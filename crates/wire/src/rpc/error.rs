//! Why a call failed, with the buffers it had.

use std::time::Duration;

use hayase_layout::ServerId;

use super::Returned;
use crate::handshake::HandshakeError;
use crate::session::SessionError;
use crate::transport::TransportError;

const SEE_LOG: &str = "see `hayase status` and the log of that server";

/// Why there is no connection to a server.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// None of its addresses answered.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// One answered, and would not talk to us.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The connection was lost.
    #[error("connection lost")]
    Lost(#[source] SessionError),
    /// It was lost without a word.
    #[error("connection closed by the peer")]
    Closed,
    /// It said nothing while calls waited.
    #[error("the peer was silent for {:?}", .after)]
    Silent {
        /// How long.
        after: Duration,
    },
    /// There is no address to try.
    #[error("no address of the server is known")]
    NoAddress,
    /// Nor does the server reach it that passes on what finds no way itself.
    #[error("not reached, nor through server {relay}: {why}")]
    NotRelayed {
        /// Which was asked.
        relay: ServerId,
        /// It has tried, and not only refused to.
        was_tried: bool,
        /// In its words.
        why: String,
    },
}

impl LinkError {
    /// Whether the peer was not heard of while it was waited for, rather than ending a connection.
    pub(super) fn is_silence(&self) -> bool {
        match self {
            Self::Silent { .. } => true,
            Self::Lost(error) => error.is_loss(),
            _ => false,
        }
    }

    /// Whether the peer said that it is starting.
    pub(super) fn is_starting(&self) -> bool {
        matches!(self, Self::Handshake(error) if error.is_starting())
    }

    /// Whether another try can not help: as of the handshake.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Handshake(error) if error.is_final())
    }

    /// Whether the server proved which one it is, and takes no connection of ours.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Handshake(HandshakeError::Refused { .. }))
    }

    /// What the user can try next.
    fn help(&self) -> Option<&'static str> {
        match self {
            Self::Handshake(error) => error.help(),
            Self::Transport(error) => error.help(),
            _ => None,
        }
    }

    /// Whether the peer may be there, and only the way to it is cut. Who refuses a connection has answered.
    pub(super) fn is_no_way(&self) -> bool {
        match self {
            Self::Transport(error) | Self::Handshake(HandshakeError::Transport(error)) => {
                error.is_loss()
            }
            _ => false,
        }
    }
}

/// Why a call has no answer. The request may have been carried out, unless `Refused`.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No connection until the deadline.
    #[error("call server {to}: not reached within {:?}", .waited)]
    Unreachable {
        /// Which server.
        to: ServerId,
        /// The whole deadline.
        waited: Duration,
        /// The last try; `None` when the first one did not end in time.
        source: Option<std::rc::Rc<LinkError>>,
        /// What was lent.
        buffers: Returned,
    },
    /// Connected, and no answer until the deadline.
    #[error("call server {to}: no answer within {:?}", .waited)]
    Deadline {
        /// Which server.
        to: ServerId,
        /// The whole deadline.
        waited: Duration,
        /// What was lent.
        buffers: Returned,
    },
    /// The server was started anew while it had the request; whether it was carried out is not known.
    #[error("call server {to}: it was restarted, and may or may not have carried out the request")]
    Restarted {
        /// Which server.
        to: ServerId,
        /// What was lent.
        buffers: Returned,
    },
    /// The peer is there and does not fit; at once, since waiting can not help.
    #[error("call server {to}: refused")]
    Refused {
        /// Which server.
        to: ServerId,
        /// Why.
        source: std::rc::Rc<LinkError>,
        /// What was lent.
        buffers: Returned,
    },
    /// The request or its answer is not within the protocol.
    #[error("call server {to}: {what}")]
    Protocol {
        /// Which server.
        to: ServerId,
        /// How.
        what: &'static str,
        /// What was lent.
        buffers: Returned,
    },
}

impl CallError {
    /// The server that was called.
    pub fn to(&self) -> ServerId {
        match self {
            Self::Unreachable { to, .. }
            | Self::Deadline { to, .. }
            | Self::Restarted { to, .. }
            | Self::Refused { to, .. }
            | Self::Protocol { to, .. } => *to,
        }
    }

    /// Takes what was lent: each buffer that no transport can touch any more. What is missing is
    /// dropped when the transport lets go of it.
    pub fn take_buffers(&mut self) -> Returned {
        match self {
            Self::Unreachable { buffers, .. }
            | Self::Deadline { buffers, .. }
            | Self::Restarted { buffers, .. }
            | Self::Refused { buffers, .. }
            | Self::Protocol { buffers, .. } => std::mem::take(buffers),
        }
    }

    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Refused { source, .. } => source.help(),
            Self::Unreachable { source, .. } => {
                source.as_ref().and_then(|source| source.help()).or(Some(SEE_LOG))
            }
            Self::Deadline { .. } => Some(SEE_LOG),
            Self::Restarted { .. } | Self::Protocol { .. } => None,
        }
    }
}

/// An error with its sources, on one line.
pub(super) struct Chain<'a>(pub(super) &'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
