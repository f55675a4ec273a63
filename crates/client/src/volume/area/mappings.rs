//! When the pages of a file are dropped for the sake of its mappings.
//!
//! A mapping asks nobody whether its pages are still what the file holds; read(2) and stat(2) ask, and then the kernel
//! drops pages that are older itself. So they are dropped here where nobody asks.
//!
//! And only there: Linux ignores what GETATTR is answered if the pages of the file were dropped between question and answer
//! (`attr_version` in fs/fuse/inode.c), so that the read(2) that asked ends at the former length, over pages that may
//! not be dropped yet.

use std::time::Instant;

use hayase_wire::message::TimeSpec;

use crate::limits::MAPPING_LOOK;

/// What the kernel was answered about a file that others may write, and when its pages were dropped.
#[derive(Debug, Default)]
pub(super) struct Validated {
    /// Time and length of the last answer, and since when they are that.
    seen: Option<(TimeSpec, u64)>,
    since: Option<Instant>,
    answered: Option<Instant>,
    dropped: Option<Instant>,
}

impl Validated {
    /// Time and length as the kernel is answered; it compares them with what it knew.
    pub(super) fn answer(&mut self, seen: (TimeSpec, u64), now: Instant) {
        if self.seen != Some(seen) {
            self.seen = Some(seen);
            self.since = Some(now);
        }
        self.answered = Some(now);
    }

    /// Whether pages are to be dropped: nobody has asked for a while; or the file rests, and its last change may have
    /// had another in the same tick of the clock that stamps files before Linux 6.13, which no answer shows.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let is_past = |at: Option<Instant>| at.is_none_or(|at| now - at >= MAPPING_LOOK);
        let is_dropped_since = self.dropped >= self.since;
        is_past(self.answered) || (is_past(self.since) && !is_dropped_since)
    }

    /// They were, from `now` on.
    pub(super) fn drop_pages(&mut self, now: Instant) {
        self.dropped = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(times: u32) -> Instant {
        use std::sync::OnceLock;
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        *BEGIN.get_or_init(Instant::now) + MAPPING_LOOK * times / 10
    }

    fn changed(second: i64) -> (TimeSpec, u64) {
        (TimeSpec { seconds: second, nanos: 0 }, 7)
    }

    #[test]
    fn what_nobody_asks_for_is_dropped_at_each_look() {
        let mut pages = Validated::default();
        for look in 1..4 {
            assert!(pages.is_due(at(10 * look)));
            pages.drop_pages(at(10 * look));
        }
        pages.answer(changed(1), at(35));
        assert!(!pages.is_due(at(40)));
        assert!(pages.is_due(at(45)));
    }

    #[test]
    fn what_is_asked_for_all_the_time_is_dropped_once_after_each_rest() {
        let mut pages = Validated::default();
        let mut dropped = Vec::new();
        for tick in 1..100 {
            // It changes until 30, and again at 60.
            pages.answer(changed(i64::from(if tick < 60 { tick.min(30) } else { 60 })), at(tick));
            if tick % 10 == 0 && pages.is_due(at(tick)) {
                pages.drop_pages(at(tick));
                dropped.push(tick);
            }
        }
        assert_eq!(dropped, [40, 70]);
    }

    #[test]
    fn a_look_is_half_of_what_mappings_may_be_late() {
        assert!(MAPPING_LOOK * 2 <= Duration::from_secs(1));
    }
}
