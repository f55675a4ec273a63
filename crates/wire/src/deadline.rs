//! Times of this crate that nothing outside of a connection is ordered against, in one table.
//!
//! Here: pauses, and how long things within one process may take. Not here: durations of the protocol ([`crate::times`]);
//! sizes and counts ([`crate::limits`]); the deadline of a call comes from its caller.

use std::time::Duration;

/// Between two lines in the log about connections that were refused: anybody can make them.
pub const REFUSALS_PAUSE: Duration = Duration::from_secs(10);

/// An address that has not accepted within this time is tried together with the next one.
pub const CONNECT_STEP: Duration = Duration::from_millis(250);

/// First pause before a peer is tried again.
pub const RECONNECT_WAIT_MIN: Duration = Duration::from_millis(20);

/// Longest pause before a peer is tried again.
pub const RECONNECT_WAIT_MAX: Duration = Duration::from_millis(200);

/// Between two looks whether a server that is reached through a relay can be reached without.
pub const RELAY_LOOK: Duration = Duration::from_secs(10);

/// A call to a starting server waits for at least this long before it looks again whether the server still says so.
pub const STARTING_LOOK: Duration = Duration::from_millis(100);

/// Keep-alive of TCP: a link on which nothing travels is probed so often. Each server has two of them
/// for each other server, so that anything shorter would cost every kernel more in larger jobs.
pub const LINK_IDLE: Duration = Duration::from_secs(60);

/// Pause after `accept` failed (mostly: no descriptors left).
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Between two looks at a shared directory, first and longest.
pub const MEMBERS_POLL_MIN: Duration = Duration::from_millis(2);
/// See [`MEMBERS_POLL_MIN`].
pub const MEMBERS_POLL_MAX: Duration = Duration::from_millis(100);

/// A TCP connection whose round trip is no longer than this has a short way
/// ([`SEND_BUFFER_BYTES`](crate::limits::SEND_BUFFER_BYTES)).
pub const SHORT_TRIP: Duration = Duration::from_micros(200);
