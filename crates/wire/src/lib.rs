//! What travels between processes, and how.
//!
//! Two kinds of connection. Server to server: [`PeerLink`] calls, a [`Service`] answers, over any
//! [`transport`] and inside an authenticated [`session`]. Process to the server of its own node:
//! [`NodeListener`], [`NodeChannel`] and [`BlockingChannel`] over a Unix socket, with bulk bytes
//! in a shared [`Arena`] and descriptors beside the messages. The messages of both are in
//! [`message`]; `FORMAT.md` draws every byte.
//!
//! Not here: what a request does (`hayase_server`), who asks for what (`hayase_client`).

#![deny(unsafe_code, clippy::undocumented_unsafe_blocks)]

#[expect(unsafe_code, reason = "maps the shared memory of an arena")]
pub mod arena;
pub mod buffer;
pub mod codec;
pub mod deadline;
pub mod handshake;
pub mod header;
pub mod kernel_device;
pub mod keys;
pub mod limits;
pub mod lock_ranges;
pub mod members;
#[expect(missing_docs, reason = "fields that are called what they are; the rest says more")]
pub mod message;
pub mod node;
pub mod region;
pub mod rpc;
pub mod secret;
pub mod session;
pub mod times;
pub mod transport;
pub mod watch;
pub mod workers;

pub use arena::{Arena, ArenaError, ArenaSlot, Slot};
pub use buffer::{BoxBuffer, Buffer, Loan};
pub use codec::{CodecError, decode, encode};
pub use handshake::{Credentials, HandshakeError, PeerIdentity};
pub use kernel_device::KernelDevice;
pub use keys::{KnownServer, KnownServers, PublicKey, ServerKey};
pub use members::{COORDINATOR, Member, Members, MembersError};
pub use node::{
    BlockingChannel, Closer, NodeChannel, NodeError, NodeListener, NodeSender, Outgoing,
    PeerCredentials,
};
pub use rpc::{
    Answer, CallError, Connector, LinkError, PeerLink, Presence, RequestId, Response, Returned,
    Service, put_off_listener, serve_connection, serve_listener,
};
pub use secret::{Secret, SecretError};
pub use transport::{Address, TransportError};
pub use workers::{Given, Workers};
