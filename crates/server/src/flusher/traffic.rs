//! What went between this server and the tier, for people.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::limits::{CONFLICTS_TOLD_MAX, RATE_STALE, RATE_WINDOW};

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
    /// Nothing has arrived for [`RATE_STALE`], though something was under way.
    is_stale: bool,
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

    /// Bytes per second to the tier, as it was while something was sent; 0 while that is not known.
    pub(crate) fn last_rate(&self) -> u64 {
        self.rate.get().bytes_per_second
    }

    /// The same for people; 0 also while the tier takes nothing.
    pub(crate) fn rate(&self) -> u64 {
        let rate = self.rate.get();
        if rate.is_stale { 0 } else { rate.bytes_per_second }
    }

    /// Called again and again: measures over windows in which something was under way and arrived.
    pub(crate) fn measure(&self) {
        let (mut rate, sent) = (self.rate.get(), self.sent());
        rate.since = match rate.since {
            _ if self.running.get() == 0 => None,
            None => Some((Instant::now(), sent)),
            Some((at, before)) if at.elapsed() >= RATE_WINDOW && sent > before => {
                let measured = (sent - before) as f64 / at.elapsed().as_secs_f64();
                rate.is_stale = false;
                // Half of what was known before, so that one slow second does not decide.
                rate.bytes_per_second = match rate.bytes_per_second {
                    0 => measured as u64,
                    known => (known + measured as u64) / 2,
                };
                Some((Instant::now(), sent))
            }
            Some((at, _)) => {
                rate.is_stale |= at.elapsed() >= RATE_STALE;
                rate.since
            }
        };
        self.rate.set(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tier_that_takes_nothing_has_no_rate() {
        let traffic = Traffic::default();
        let window = async |bytes: u64| {
            traffic.measure();
            traffic.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
            tokio::time::sleep(RATE_WINDOW).await;
            traffic.measure();
            traffic.rate()
        };
        assert_eq!(window(100).await, 0, "nothing is under way");
        traffic.running.set(1);
        assert_eq!(window(100).await, 100);
        assert_eq!(window(200).await, 150);
        assert_eq!(window(0).await, 150, "a large part may be on its way");
        tokio::time::sleep(RATE_STALE).await;
        assert_eq!(window(0).await, 0);
        assert_eq!(traffic.last_rate(), 150);
        let seconds = RATE_STALE.as_secs() + 3;
        assert_eq!(window(50 * seconds).await, 100, "over all that time");
        traffic.running.set(0);
        traffic.measure();
        assert_eq!(traffic.rate(), 100, "as it was when something went");
    }
}
