//! Every bound of this crate in one table.
//!
//! Here: sizes and counts. Not here: times ([`crate::deadline`]).

pub use crate::message::{BODY_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// Longest body of a frame before the session is authenticated.
pub const HELLO_BYTES_MAX: usize = 4096;

/// What a server says of its better way (UCX: the address of a worker, which names each device).
pub const OFFER_BYTES_MAX: usize = 3500;

/// What one receive may take beyond a header: bodies mostly fit, and little payload has to be copied.
pub const READ_AHEAD_BYTES: usize = 4096;

/// The most that TCP hands to a receiver at once.
pub const SEGMENT_BYTES: usize = 64 << 10;

/// A receiver of payload is woken when so much waits, or the rest: for each segment a wake-up would
/// cost as much as its bytes.
pub const LOW_WATER_BYTES: usize = 256 << 10;

/// Of each TCP connection between servers whose round trip is short: what waits in the kernel for its way, or is on it
/// (which takes up to twice as much memory). 512 KiB each 200 us are 2.6 GB/s.
pub const SEND_BUFFER_BYTES: usize = 512 << 10;

/// Calls of one kind (with or without payload) that may be unanswered at one peer.
pub const CREDITS_PER_PEER: usize = 16;

/// Calls of both kinds: a receiver keeps as many answers for each of its peers.
pub const CREDITS_PER_LINK: usize = 2 * CREDITS_PER_PEER;

/// Requests of one peer that a server works on at a time, over all its connections. More than
/// both kinds of credit of a link, so that requests of a lost connection do not hold up its successor.
pub const REQUESTS_PER_PEER_MAX: usize = 64;

/// Tasks of a connection that stay for its next requests. Each has room for the largest: some 10 KiB.
pub const IDLE_WORKERS_MAX: usize = 2;

/// Connections of one listener from which no first message has come that shows the secret. The oldest
/// is closed for a newer one: by then it has had as long as accepting all the others took.
pub const STRANGERS_MAX: usize = 512;

/// The same of those that have shown it, or repeat what another has shown, and do not have their
/// session yet. The oldest has had as long as answering all the others took.
pub const HANDSHAKES_MAX: usize = 512;

/// Authenticated connections of one listener; more are closed.
pub const CONNECTIONS_MAX: usize = 8192;

/// Connections among these that are passed on to another server. One more takes the place of the one that was idle for
/// longest, or is refused. Each holds at most a frame each way.
pub const RELAYS_MAX: usize = 256;

/// Connections that a relay makes to one server at a time: one to which nothing arrives is asked for by many.
pub const RELAY_CONNECTS_MAX: usize = 2;

/// Addresses of one server.
pub const ADDRESSES_MAX: usize = 16;

/// Largest arena: 1024 slots, 1 GiB of address space.
pub const ARENA_SLOTS_MAX: u32 = 1024;

/// Requests of one process that may be unanswered on the connection that its threads share; beyond it
/// they are asked on others.
pub const MULTIPLEXED_MAX: usize = 64;

/// What a channel of the node's socket keeps allocated for receiving.
pub const CHANNEL_BUFFER_BYTES: usize = 64 << 10;

/// Processes waiting to be accepted at the node's socket.
pub const NODE_BACKLOG: i32 = 128;

/// Largest `members.json`: 65,536 servers with a few addresses each.
pub const MEMBERS_BYTES_MAX: u64 = 64 << 20;

/// Requests of one mount that its server may answer to the kernel itself, under way at once; beyond it
/// they are asked in the usual way.
pub const HANDED_OVER_MAX: usize = 64;
