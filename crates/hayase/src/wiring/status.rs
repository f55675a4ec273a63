//! Asking a node's server how it is.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

/// What a server tells, in words and plain numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Served {
    /// Its place among the members.
    pub(crate) server: u16,
    /// Milliseconds since it began.
    pub(crate) up_ms: u64,
    /// Changes with each start of it.
    pub(crate) start_id: u64,
    /// Bytes of its share of `shared`.
    pub(crate) shared_total: u64,
    /// Bytes left of it.
    pub(crate) shared_free: u64,
    /// Inodes of it; 0 when they are not bounded.
    pub(crate) inodes_total: u64,
    /// Inodes left.
    pub(crate) inodes_free: u64,
    /// `image` or `counted`.
    pub(crate) limiter: String,
    /// Processes that are connected.
    pub(crate) clients: u32,
    /// Files that somebody has open.
    pub(crate) files_open: u64,
    /// Requests since it began.
    pub(crate) requests: u64,
    /// Bytes that passed it on their way to readers.
    pub(crate) bytes_read: u64,
    /// Bytes that passed it on their way to parts.
    pub(crate) bytes_written: u64,
    /// Its memory.
    pub(crate) resident_bytes: u64,
    /// The other servers as it sees them.
    pub(crate) peers: Vec<Peer>,
}

/// One server as another sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Peer {
    /// Which.
    pub(crate) server: u16,
    /// `unconnected`, `connected`, `unreachable`.
    pub(crate) state: &'static str,
}

/// One question to the server behind `socket`.
pub(crate) fn server_status(_socket: &Path, _patience: Duration) -> anyhow::Result<Served> {
    anyhow::bail!("not wired yet")
}
