//! How far the cache area of a job is on its way to the tier, over all nodes together.

use hayase_layout::ByteCount;
use serde::Serialize;

use crate::count::counted;
use crate::moment;
use crate::wiring::status::CacheServed;

/// Characters of a bar.
const BAR: u64 = 20;

/// What is left, and how fast it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Drain {
    /// That the tier does not have.
    pub(crate) dirty_files: u64,
    pub(crate) dirty_bytes: u64,
    /// Of those, bytes that are on their way: the tier shows them when it has the whole file.
    pub(crate) sent_bytes: u64,
    /// Of those, files that somebody has open for writing: they go when they are closed.
    pub(crate) open_files: u64,
    /// That the tier got since the servers began.
    pub(crate) flushed_bytes: u64,
    /// Bytes per second that arrive in the tier now; `null` while none did for a while.
    rate: Option<u64>,
    /// Seconds until the slowest node is done at its own rate; absent while a rate is not known.
    done_in_s: Option<u64>,
    /// Seconds to the deadline of the job, where there is one.
    pub(crate) deadline_s: Option<u64>,
    /// Bytes that will not make it by then.
    pub(crate) misses_bytes: u64,
    /// Nodes that do not answer: what they have, and the tier does not, is not in these numbers.
    pub(crate) unknown_nodes: usize,
}

impl Drain {
    /// Of these nodes together, and of `unknown_nodes` that do not answer.
    pub(crate) fn of<'a>(
        caches: impl IntoIterator<Item = &'a CacheServed>,
        unknown_nodes: usize,
    ) -> Self {
        let done_in_s = (unknown_nodes == 0).then_some(0);
        let mut drain = Self { done_in_s, unknown_nodes, ..Self::default() };
        let mut rate = 0;
        for cache in caches {
            drain.dirty_files += cache.dirty_files;
            drain.dirty_bytes += cache.dirty_bytes;
            drain.sent_bytes += cache.sent_bytes;
            drain.open_files += cache.open_files;
            drain.flushed_bytes += cache.flushed_bytes;
            rate += cache.rate;
            drain.misses_bytes += cache.misses_bytes;
            drain.deadline_s = drain.deadline_s.or(cache.deadline_s);
            let to_send = cache.dirty_bytes.saturating_sub(cache.sent_bytes);
            let left = match (to_send, cache.rate) {
                (0, _) => Some(0),
                (_, 0) => None,
                (bytes, rate) => Some(bytes.div_ceil(rate)),
            };
            drain.done_in_s = drain.done_in_s.zip(left).map(|(one, other)| one.max(other));
        }
        drain.rate = (rate > 0).then_some(rate);
        drain
    }

    /// Seconds until nothing is left; `None` when nothing is, or nobody knows.
    pub(crate) fn left_s(&self) -> Option<u64> {
        self.done_in_s.filter(|_| self.dirty_bytes > 0)
    }

    /// Percent of what was written that the tier has, of what passed since the servers began, as far as they answer.
    pub(crate) fn percent(&self) -> u64 {
        let to_send = self.dirty_bytes.saturating_sub(self.sent_bytes);
        let all = u128::from(self.flushed_bytes) + u128::from(to_send);
        (u128::from(self.flushed_bytes) * 100).checked_div(all).map_or(100, |share| share as u64)
    }

    /// What the deadline of the job finds, and whether that is known to be bad.
    pub(crate) fn at_the_deadline(&self) -> (String, bool) {
        match (ByteCount(self.misses_bytes), self.done_in_s) {
            (ByteCount(0), Some(_)) => ("all of this can be in the tier by then".to_owned(), false),
            (ByteCount(0), None) => {
                ("whether all will be in the tier by then is not known".to_owned(), false)
            }
            (missed, _) => (format!("at this rate {missed} will not be in the tier then"), true),
        }
    }

    /// One line: a bar, what is left, and until when.
    pub(crate) fn in_words(&self, now_ms: u64) -> String {
        let full = (self.percent() * BAR / 100) as usize;
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(BAR as usize - full));
        match self.dirty_files {
            0 => self.without_bar(now_ms),
            _ => format!("[{bar}] {}", self.without_bar(now_ms)),
        }
    }

    /// The same, for a page that draws a bar of its own.
    pub(crate) fn without_bar(&self, now_ms: u64) -> String {
        let known = self.known(now_ms);
        match self.unknown_nodes {
            0 => known,
            1 => format!("{known}; 1 node does not answer, and what it has may not be in the tier"),
            nodes => {
                format!(
                    "{known}; {nodes} nodes do not answer, and what they have may not be in the tier"
                )
            }
        }
    }

    fn known(&self, now_ms: u64) -> String {
        let flushed = ByteCount(self.flushed_bytes);
        if self.dirty_files == 0 {
            return match self.unknown_nodes {
                0 if self.flushed_bytes == 0 => "everything is in the tier".to_owned(),
                0 => format!("everything is in the tier; {flushed} flushed"),
                _ => "it is unknown whether everything is in the tier".to_owned(),
            };
        }
        let end = match self.left_s() {
            Some(left) => {
                let at = moment::utc_clock(now_ms.saturating_add(left.saturating_mul(1000)));
                format!("done in {}, at {at}", moment::span(left))
            }
            None => "time left unknown".to_owned(),
        };
        let (percent, left, files) =
            (self.percent(), ByteCount(self.dirty_bytes), counted(self.dirty_files, "file"));
        format!("{percent} %: {left} in {files} left, {}, {end}", rate_in_words(self.rate))
    }
}

/// Bytes per second, for people.
fn rate_in_words(rate: Option<u64>) -> String {
    rate.map_or_else(|| "rate unknown".to_owned(), |rate| format!("{}/s", ByteCount(rate)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(dirty_bytes: u64, flushed_bytes: u64, rate: u64) -> CacheServed {
        let dirty_files = u64::from(dirty_bytes > 0);
        CacheServed { dirty_files, dirty_bytes, flushed_bytes, rate, ..CacheServed::default() }
    }

    #[test]
    fn the_slowest_node_decides_when_all_is_done() {
        let check = |caches: &[CacheServed], left: Option<u64>, percent: u64| {
            let drain = Drain::of(caches, 0);
            assert_eq!((drain.left_s(), drain.percent()), (left, percent), "{drain:?}");
        };
        check(&[cache(100, 0, 10), cache(100, 200, 50)], Some(10), 50);
        check(&[cache(101, 0, 10)], Some(11), 0);
        check(&[cache(100, 100, 10), cache(1, 0, 0)], None, 49);
        check(&[cache(0, 100, 0)], None, 100);
        check(&[], None, 100);
    }

    #[test]
    fn what_the_deadline_finds_is_known_only_with_a_rate() {
        let of = |cache: CacheServed, unknown| Drain::of(&[cache], unknown).at_the_deadline();
        assert_eq!(of(cache(100, 0, 10), 0).0, "all of this can be in the tier by then");
        let unknown = "whether all will be in the tier by then is not known";
        assert_eq!(of(cache(100, 0, 0), 0), (unknown.to_owned(), false));
        assert_eq!(of(cache(0, 0, 0), 1), (unknown.to_owned(), false));
        let late = CacheServed { misses_bytes: 1 << 20, ..cache(2 << 20, 0, 10) };
        assert_eq!(
            of(late, 0),
            ("at this rate 1 MiB will not be in the tier then".to_owned(), true)
        );
    }

    #[test]
    fn a_line_says_how_much_how_fast_and_until_when() {
        let drain = Drain::of(&[cache(1 << 20, 3 << 20, 1 << 18)], 0);
        let bar = "[###############-----] 75 %";
        assert_eq!(
            drain.in_words(0),
            format!("{bar}: 1 MiB in 1 file left, 256 KiB/s, done in 4 s, at 00:00:04 UTC")
        );
        let ends = Drain::of(&[cache(1, 0, 0)], 0).in_words(0);
        assert!(ends.ends_with("rate unknown, time left unknown"), "{ends}");
        let all = Drain::of(&[cache(0, 5, 0)], 0).in_words(0);
        assert!(all.starts_with("everything is in the tier"), "{all}");
    }

    #[test]
    fn nothing_is_said_to_be_in_the_tier_of_nodes_that_do_not_answer() {
        let words = |caches: &[CacheServed], unknown| Drain::of(caches, unknown).in_words(0);
        let unknown = "it is unknown whether everything is in the tier";
        let two = "2 nodes do not answer, and what they have may not be in the tier";
        assert_eq!(words(&[], 2), format!("{unknown}; {two}"));
        assert_eq!(words(&[cache(0, 5, 0)], 2), format!("{unknown}; {two}"));
        let some = words(&[cache(1, 0, 1)], 1);
        assert!(some.contains("1 B in 1 file left"), "{some}");
        assert!(some.contains("time left unknown; 1 node does not answer"), "{some}");
    }
}
