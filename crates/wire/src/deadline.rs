//! Every time of this crate in one table.
//!
//! Here: how long things may take. Not here: sizes and counts ([`crate::limits`]); the deadline of
//! a call comes from its caller.

use std::time::Duration;

/// From the first byte to the last of a handshake.
pub const HANDSHAKE_WAIT: Duration = Duration::from_secs(2);

/// Between two lines in the log about connections that were refused: anybody can make them.
pub const REFUSALS_PAUSE: Duration = Duration::from_secs(10);

/// For one address of a peer to accept.
pub const CONNECT_WAIT: Duration = Duration::from_secs(1);

/// An address that has not accepted within this time is tried together with the next one.
pub const CONNECT_STEP: Duration = Duration::from_millis(250);

/// First pause before a peer is tried again.
pub const RECONNECT_WAIT_MIN: Duration = Duration::from_millis(20);

/// Longest pause before a peer is tried again.
pub const RECONNECT_WAIT_MAX: Duration = Duration::from_millis(200);

/// Between two looks whether a server that is reached through a relay can be reached without.
pub const RELAY_LOOK: Duration = Duration::from_secs(10);

/// A relay that did not reach a server is not asked for it again for so long: much shorter than a call may take, which is
/// to succeed when the server is back.
pub const RELAY_PAUSE: Duration = Duration::from_secs(1);

/// A call to a starting server waits for at least this long before it looks again whether the server still says so.
pub const STARTING_LOOK: Duration = Duration::from_millis(100);

/// Between two pings while calls are unanswered.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

/// A peer that owes answers and says nothing for so long is dead.
pub const SILENCE_MAX: Duration = Duration::from_secs(3);

/// A peer that stops in the middle of a frame, sending or receiving, is dead after this.
pub const STALL_MAX: Duration = Duration::from_secs(10);

/// User timeout of TCP: bytes on their way that no kernel acknowledges for so long mean that the link
/// was cut.
pub const LINK_LOSS_WAIT: Duration = Duration::from_secs(10);

/// Keep-alive of TCP: a link on which nothing travels is probed so often. Each server has two of them
/// for each other server, so that anything shorter would cost every kernel more in larger jobs.
pub const LINK_IDLE: Duration = Duration::from_secs(60);

/// A server whose kernel does not answer is gone after this, without a wake-up of either process while
/// it does: of the connections of the coordinator alone, and of those only the ones whose frames carry
/// no payload. The others may wait longer for a peer that takes nothing because its disk is slow.
pub const PEER_LOSS_WAIT: Duration = Duration::from_secs(2);

/// Pause after `accept` failed (mostly: no descriptors left).
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Between two looks at a shared directory, first and longest.
pub const MEMBERS_POLL_MIN: Duration = Duration::from_millis(2);
/// See [`MEMBERS_POLL_MIN`].
pub const MEMBERS_POLL_MAX: Duration = Duration::from_millis(100);

/// A TCP connection whose round trip is no longer than this has a short way
/// ([`SEND_BUFFER_BYTES`](crate::limits::SEND_BUFFER_BYTES)).
pub const SHORT_TRIP: Duration = Duration::from_micros(200);
