//! Bounds and times of connections over UCX.

use std::time::Duration;

/// Frames of a connection that may wait for a receiver that does not read.
pub(super) const FRAMES_AHEAD_MAX: u64 = 32;

/// Workers that a process makes: one, and one more after each time that a connection ended though both processes live.
/// Later connections stay on TCP.
pub(super) const WORKERS_MAX: usize = 32;

/// Memory that may be kept registered, which devices keep resident: a server's slots, and those slots of its processes'
/// arenas whose bytes go to other nodes.
pub(super) const REGISTERED_BYTES_MAX: usize = 1 << 30;

/// Payloads up to this travel with their message: a copy costs less than a rendezvous.
pub(super) const PAYLOAD_ALONG_MAX: usize = 4096;

/// For the last frames of a peer that closed, which went another way than the news of it.
pub(super) const LAST_FRAMES_WAIT: Duration = Duration::from_secs(1);

/// For the news of how a connection ended that failed.
pub(super) const END_WAIT: Duration = Duration::from_millis(500);

/// For the library to let go of a buffer once its endpoint is closed by force: an operation within this process.
pub(super) const LET_GO_WAIT: Duration = Duration::from_secs(10);

/// For what the library still has on its way when its last connection ends; the thread waits.
pub(super) const WORKER_END_WAIT: Duration = Duration::from_millis(50);
