//! What went between this server and the tier, for people.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::limits::{CONFLICTS_TOLD_MAX, RATE_WINDOW};

/// Counters since the server began.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) flushed_files: Cell<u64>,
    /// Counted by the threads that send.
    pub(crate) sent_bytes: Arc<AtomicU64>,
    pub(crate) fetched_bytes: Cell<u64>,
    /// Names of second versions.
    pub(crate) conflicts: RefCell<Vec<Vec<u8>>>,
    /// Files being sent.
    pub(crate) running: Cell<usize>,
    /// Tombstones in hand.
    pub(crate) removing: Cell<usize>,
    rate: Cell<Rate>,
}

#[derive(Clone, Copy, Default)]
struct Rate {
    since: Option<(Instant, u64)>,
    bytes_per_second: u64,
}

impl Traffic {
    pub(crate) fn fetched(&self, bytes: u64) {
        self.fetched_bytes.set(self.fetched_bytes.get() + bytes);
    }

    pub(crate) fn conflict(&self, path: Vec<u8>) {
        tracing::warn!(path = %String::from_utf8_lossy(&path), "two versions: both are kept");
        let mut conflicts = self.conflicts.borrow_mut();
        if conflicts.len() < CONFLICTS_TOLD_MAX && !conflicts.contains(&path) {
            conflicts.push(path);
        }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Bytes per second to the tier; measured only while something is sent.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.get().bytes_per_second
    }

    /// Called again and again: measures over windows in which something was under way.
    pub(crate) fn measure(&self) {
        let (mut rate, sent) = (self.rate.get(), self.sent());
        rate.since = match rate.since {
            _ if self.running.get() == 0 => None,
            None => Some((Instant::now(), sent)),
            Some((at, before)) if at.elapsed() >= RATE_WINDOW => {
                let measured = (sent - before) as f64 / at.elapsed().as_secs_f64();
                // Half of what was known before, so that one slow second does not decide.
                rate.bytes_per_second = match rate.bytes_per_second {
                    0 => measured as u64,
                    known => (known + measured as u64) / 2,
                };
                Some((Instant::now(), sent))
            }
            since => since,
        };
        self.rate.set(rate);
    }
}
