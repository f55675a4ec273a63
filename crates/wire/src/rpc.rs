//! Calls between servers: requests with a deadline, and the service that answers them.
//!
//! The caller's half: [`PeerLink`] in `rpc/link.rs` (connections, retries), `rpc/ways.rs` (addresses), `rpc/credit.rs` (how many
//! calls are under way, and their ids), `rpc/line.rs` (one connection while it lives), `rpc/call.rs`
//! (one call and its buffers).
//! The answering half: `rpc/serve.rs`, behind `rpc/door.rs` (who is let in).
//! Both: `rpc/relay.rs` (two that reach each other only through a third).
//!
//! Promises: every call ends by its deadline; a call whose connection is lost is sent again with
//! the same request id, so the service must know the last id of each credit ([`RequestId`]), and no
//! other; a buffer is given back only when no transport can touch it any more.

mod call;
mod credit;
mod door;
mod error;
mod line;
mod link;
mod places;
mod relay;
mod serve;
mod ways;

pub use call::{Answer, Returned};
pub use credit::RequestId;
pub use error::{CallError, LinkError};
pub use link::{Connector, PeerLink, Presence};
pub use serve::{Response, Service, put_off_listener, serve_connection, serve_listener};
