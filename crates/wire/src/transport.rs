//! Transports: how frames get from one process to another, unprotected.
//!
//! A connection is a pair of halves that carry frames: 64 bytes of header, a body, a payload. The
//! receiver asks for the three in turn and says where the payload goes, so that bulk bytes land in
//! their slot without a copy in between, on streams as on fabrics that pull.
//! Not here: who is at the other end and whether a frame is genuine ([`crate::session`]).
//!
//! Contract of every transport, held by [`conformance`]: frames arrive whole and in order or the
//! connection fails; a future of `send` or `payload` that was dropped leaves the connection good
//! for nothing but dropping; once such a future is gone the transport touches its buffers no more, and where one is
//! forgotten nobody else gets what it uses ([`Loan`]; what was borrowed is copied);
//! dropping both halves closes, and the other side learns it at once; nothing waits for ever for a
//! peer whose machine vanished.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::buffer::Loan;
use crate::header::HEADER_BYTES;
use crate::message::Carrier;

pub mod conformance;
pub(crate) mod descriptor;
mod low_water;
pub mod memory;
mod round_trip;
mod stream;
mod tcp;
mod unix;

pub use memory::MemoryTransport;
pub use tcp::TcpTransport;
pub use unix::UnixTransport;

/// A future of this single-threaded side of the crate.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Where a server listens. As text: `tcp:10.0.0.7:4567`, `unix:/run/x.sock`, `memory:a`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// Port 0: any free one, when listening.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
    /// A name inside one [`MemoryTransport`].
    Memory(String),
}

/// Text that is no [`Address`].
#[derive(Debug, thiserror::Error)]
#[error("invalid address `{text}`: expected `tcp:IP:PORT`, `unix:PATH` or `memory:NAME`")]
pub struct AddressError {
    text: String,
}

/// Why bytes do not travel.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Somebody else listens there.
    #[error("listen at {at}: the address is in use")]
    InUse {
        /// Where.
        at: Address,
    },
    /// Could not listen.
    #[error("listen at {at}")]
    Listen {
        /// Where.
        at: Address,
        /// Why.
        source: io::Error,
    },
    /// Could not take a connection.
    #[error("accept a connection")]
    Accept {
        /// Why.
        source: io::Error,
    },
    /// Nobody answered.
    #[error("connect to {to}")]
    Connect {
        /// Where.
        to: Address,
        /// Why.
        source: io::Error,
    },
    /// Of a kind that this transport does not know.
    #[error("address {at} is not for this transport")]
    Foreign {
        /// Which.
        at: Address,
    },
    /// The connection broke.
    #[error("{action}")]
    Io {
        /// What was tried: `send a frame`, `receive a body`.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The peer closed in the middle of a frame.
    #[error("{action}: the connection ended in the middle of a frame")]
    Truncated {
        /// What was awaited.
        action: &'static str,
    },
}

impl TransportError {
    /// Of a buffer that a transport holds on to, since a future of its was forgotten.
    pub fn still_in_use() -> Self {
        let source = io::Error::other("an earlier transfer was never ended");
        Self::Io { action: "receive a payload", source }
    }

    /// Whether nothing came from the peer's machine: a timeout, told as what the network said last where it
    /// said something.
    pub(crate) fn is_loss(&self) -> bool {
        use std::io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
        let (Self::Io { source, .. } | Self::Connect { source, .. }) = self else { return false };
        matches!(source.kind(), TimedOut | HostUnreachable | NetworkUnreachable)
    }

    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::InUse { .. } => Some(
                "a server runs there already; `hayase down` it, or give another port or address",
            ),
            Self::Connect { .. } => Some("see `hayase status` and the log of that server"),
            _ => None,
        }
    }
}

/// Makes connections and listeners of one kind.
pub trait Transport: 'static {
    /// Starts listening; [`Listener::address`] tells where.
    fn listen<'a>(
        &'a self,
        at: &'a Address,
    ) -> LocalFuture<'a, Result<Box<dyn Listener>, TransportError>>;

    /// Connects within [`crate::times::CONNECT_WAIT`].
    fn connect<'a>(
        &'a self,
        to: &'a Address,
    ) -> LocalFuture<'a, Result<Connection, TransportError>>;
}

/// Takes connections.
pub trait Listener: 'static {
    /// The next connection. May be dropped and called again without losing one.
    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, TransportError>>;

    /// Where others connect to.
    fn address(&self) -> Address;
}

/// Both halves of a connection.
pub struct Connection {
    /// Towards the peer.
    pub sender: Box<dyn FrameSender>,
    /// From the peer.
    pub receiver: Box<dyn FrameReceiver>,
    /// Who is at the other end, for people.
    pub peer: String,
    /// A better way, for when both know who they are.
    pub upgrade: Option<Box<dyn Upgrade>>,
}

/// A better way between two processes, taken where both have it and once they know each other.
///
/// The connection they met on stays as its side channel, which tells at once when the other side is gone. The frames
/// that follow are those of the same session: what protects them does not change.
pub trait Upgrade: 'static {
    /// What the other side must know; at most [`crate::limits::OFFER_BYTES_MAX`] bytes.
    fn offer(&self) -> Vec<u8>;

    /// What it is, for people.
    fn carrier(&self) -> Carrier;

    /// Goes on with `sender` and `receiver` as the side channel. `theirs` is the offer of the peer, whose frames
    /// may come the new way already.
    fn take(
        self: Box<Self>,
        theirs: &[u8],
        sender: Box<dyn FrameSender>,
        receiver: Box<dyn FrameReceiver>,
    ) -> Result<Halves, TransportError>;
}

/// The two halves of a connection.
pub type Halves = (Box<dyn FrameSender>, Box<dyn FrameReceiver>);

/// The sending half.
pub trait FrameSender: 'static {
    /// Hands the whole frame to the transport, with one system call where it fits.
    fn send<'a>(
        &'a mut self,
        header: &'a [u8; HEADER_BYTES],
        body: &'a [u8],
        payload: &'a [u8],
    ) -> LocalFuture<'a, Result<(), TransportError>>;

    /// The same of a payload that the transport may hold on to: those that use memory behind the call copy it
    /// otherwise.
    fn send_lent<'a>(
        &'a mut self,
        header: &'a [u8; HEADER_BYTES],
        body: &'a [u8],
        payload: &'a Loan,
    ) -> LocalFuture<'a, Result<(), TransportError>> {
        self.send(header, body, payload.bytes())
    }

    /// From now on both halves fail (`TimedOut`) when the peer's machine gave no sign of life for
    /// `wait`, also while nothing is sent. A transport within one machine has nothing to do.
    fn notice_loss_within(&self, wait: Duration) {
        let _ = wait;
    }
}

/// The receiving half; called in turn: header, body (when it has one), payload (until complete).
pub trait FrameReceiver: 'static {
    /// The next header; `None` when the peer closed after a whole frame.
    fn header(&mut self) -> LocalFuture<'_, Result<Option<[u8; HEADER_BYTES]>, TransportError>>;

    /// Fills `into` with the body.
    fn body<'a>(&'a mut self, into: &'a mut [u8]) -> LocalFuture<'a, Result<(), TransportError>>;

    /// Fills the start of `into` with the next bytes of the payload, at least one; says how many.
    /// `into` is no longer than what is left of the payload: a receiver may wait for all of it.
    fn payload<'a>(
        &'a mut self,
        into: &'a mut [u8],
    ) -> LocalFuture<'a, Result<usize, TransportError>>;

    /// The same behind the first `from` bytes of what the transport may hold on to: see [`FrameSender::send_lent`].
    fn payload_lent<'a>(
        &'a mut self,
        into: &'a mut Loan,
        from: usize,
    ) -> LocalFuture<'a, Result<usize, TransportError>> {
        match into.bytes_mut() {
            Some(bytes) => self.payload(&mut bytes[from..]),
            None => Box::pin(std::future::ready(Err(TransportError::still_in_use()))),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.peer)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Memory(name) => write!(f, "memory:{name}"),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError { text: text.to_owned() };
        match text.split_once(':').ok_or_else(error)? {
            ("tcp", rest) => rest.parse().map(Self::Tcp).map_err(|_| error()),
            ("unix", rest) if !rest.is_empty() => Ok(Self::Unix(rest.into())),
            ("memory", rest) if !rest.is_empty() => Ok(Self::Memory(rest.to_owned())),
            _ => Err(error()),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_their_text() {
        for text in ["tcp:127.0.0.1:80", "tcp:[::1]:9", "unix:/a/b c", "memory:x"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "tcp", "tcp:", "tcp:host:80", "tcp:1.2.3.4", "unix:", "udp:1.2.3.4:5"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
