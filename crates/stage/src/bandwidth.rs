//! A limit of bytes per second over all streams.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that may go at once before the limit is felt, as time.
const BURST: Duration = Duration::from_millis(100);

/// Hands out time on the line, in the order of asking.
pub(crate) struct Bandwidth {
    bytes_per_second: Option<u64>,
    /// When the line is free again.
    free_at: Mutex<Instant>,
}

impl Bandwidth {
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, free_at: Mutex::new(Instant::now()) }
    }

    /// Returns when `bytes` may go.
    pub(crate) fn wait(&self, bytes: usize) {
        let Some(rate) = self.bytes_per_second else { return };
        let cost = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        let now = Instant::now();
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = (*free_at).max(now.checked_sub(BURST).unwrap_or(now));
        *free_at = begin + cost;
        drop(free_at);
        std::thread::sleep(begin.saturating_duration_since(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_goes_than_is_allowed() {
        let line = Bandwidth::new(Some(10_000_000));
        let begin = Instant::now();
        for _ in 0..30 {
            line.wait(100_000);
        }
        // 3 MB at 10 MB/s, less the burst and the last piece, which goes as soon as it may begin.
        assert!(begin.elapsed() >= Duration::from_millis(150));
    }
}
