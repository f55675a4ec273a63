//! The end of the job: what will not be in the tier by then, and what this server says of its cache.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use hayase_layout::Layout;
use hayase_store::LedgerRecord;
use hayase_wire::message::{CacheLine, CacheStatus};

use crate::cache::Cache;
use crate::limits::{CACHE_LINES_BYTES_MAX, DEADLINE_RESERVE};
use crate::node::Node;

/// Bytes of `dirty` that will not be durable `left` seconds from now at `rate` bytes per second; 0
/// as long as no rate is known.
pub(crate) fn misses(dirty: u64, rate: u64, left: Duration) -> u64 {
    if rate == 0 {
        return 0;
    }
    dirty.saturating_sub((rate as f64 * left.as_secs_f64()) as u64)
}

impl Cache {
    /// Until the deadline; zero when it has passed.
    fn left(&self) -> Option<Duration> {
        let deadline = self.deadline?;
        Some(deadline.duration_since(SystemTime::now()).unwrap_or_default())
    }

    /// When that begins.
    pub(crate) fn late_in(&self) -> Option<Duration> {
        self.left().map(|left| left.saturating_sub(DEADLINE_RESERVE))
    }

    /// Files that are still open are flushed as they stand from here on.
    pub(crate) fn is_late(&self) -> bool {
        self.left().is_some_and(|left| left < DEADLINE_RESERVE)
    }
}

impl Node {
    /// Bytes of files on their way that the tier got already; it shows them when it has the whole file.
    fn sent_bytes(cache: &Cache) -> u64 {
        let sent = |ino| {
            let active = cache.active(ino);
            if active.is_flushing.get() { active.sent.load(Ordering::Relaxed) } else { 0 }
        };
        match cache.traffic.running.get() {
            0 => 0,
            _ => cache.not_durable().into_iter().map(sent).sum(),
        }
    }

    /// Says once in a while what will not make it.
    pub(crate) fn warn_in_time(&self, cache: &Cache) {
        let Some(left) = cache.left() else { return };
        let to_send = self.dirty_bytes(cache).saturating_sub(Self::sent_bytes(cache));
        let missed = misses(to_send, cache.traffic.last_rate(), left);
        if missed > 0 && !cache.has_warned.replace(true) {
            let seconds = left.as_secs();
            tracing::warn!(bytes = missed, seconds, "will not be in the tier at the deadline");
        }
        if missed == 0 {
            cache.has_warned.set(false);
        }
    }

    /// For `hayase status`.
    pub(crate) fn cache_status(&self) -> Option<Box<CacheStatus>> {
        let cache = self.cache.get()?;
        let (dirty_bytes, rate) = (self.dirty_bytes(cache), cache.traffic.rate());
        let sent_bytes = Self::sent_bytes(cache).min(dirty_bytes);
        let mut left = cache.records_where(|record| !record.state.is_safe());
        left.sort_by(|one, other| one.path.cmp(&other.path));
        let is_copy = |record: &LedgerRecord| record.state.is_safe() && record.state.is_here();
        let clean = cache.records_where(is_copy);
        let failed = left.iter().filter(|record| record.errno != 0).count();
        let open = left.iter().filter(|record| self.has_writers(record.ino)).count();
        let deadline = cache.left();
        Some(Box::new(CacheStatus {
            tier: cache.tier.describe(),
            dirty_files: left.len() as u64,
            dirty_bytes,
            sent_bytes,
            open_files: open as u64,
            failed_files: failed as u64,
            clean_bytes: clean.iter().map(|record| record.bytes).sum(),
            flushed_files: cache.traffic.flushed_files.get(),
            flushed_bytes: cache.traffic.sent(),
            fetched_bytes: cache.traffic.fetched_bytes.get(),
            conflicts: cache.traffic.conflicts.borrow().clone(),
            rate,
            deadline_s: deadline.map(|left| left.as_secs()),
            misses_bytes: deadline.map_or(0, |left| {
                misses(dirty_bytes - sent_bytes, cache.traffic.last_rate(), left)
            }),
            lines: self.lines(&left),
        }))
    }

    /// What is not durable, as far as it fits into a message.
    fn lines(&self, left: &[LedgerRecord]) -> Vec<CacheLine> {
        let mut room = CACHE_LINES_BYTES_MAX;
        let mut lines = Vec::new();
        for record in left {
            let state = if self.has_writers(record.ino) { "open" } else { record.state.word() };
            let Some(less) = room.checked_sub(record.path.len() + LINE_BYTES) else { break };
            room = less;
            let bytes = match record.layout {
                Layout::Whole => {
                    let part = self.data.parts.get(crate::convert::whole_part(record.ino, 0));
                    part.and_then(|part| part.stat()).ok().map(|stat| stat.size)
                }
                _ => self.meta.inode(record.ino).ok().map(|inode| inode.size),
            };
            lines.push(CacheLine {
                path: record.path.clone(),
                state: state.to_owned(),
                bytes: bytes.unwrap_or(record.bytes),
                errno: record.errno,
                attempts: record.attempts,
            });
        }
        lines
    }
}

/// A line without its path, encoded.
const LINE_BYTES: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_make_it_is_what_the_rate_leaves() {
        let check = |dirty, rate, seconds, expected| {
            assert_eq!(misses(dirty, rate, Duration::from_secs(seconds)), expected);
        };
        check(100, 10, 5, 50);
        check(100, 10, 10, 0);
        check(100, 10, 0, 100);
        check(100, 0, 5, 0); // nothing was measured yet: nothing is claimed
    }
}
