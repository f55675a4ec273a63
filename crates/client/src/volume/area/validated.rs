//! Pages of a file that others may write: when they were last validated, and when the kernel cannot be trusted to do that.
//!
//! Before a read(2) of an open that caches, Linux asks for attributes (GETATTR), and drops the pages when time or length has
//! changed. It ignores the answer, and reads on with the former length over the former pages, if between question and
//! answer it took another answer about the inode, or dropped pages of it (`attr_version` in fs/fuse/inode.c). So
//!
//! - where two threads ask at about the same time, and something has changed, the kernel is made to drop the pages and to
//!   know the new end before it is answered ([`Validated::answer`]);
//! - pages are dropped for the sake of mappings, which ask nobody, only where nobody else asks ([`Validated::is_due`]).

use std::time::{Duration, Instant};

use hayase_wire::message::TimeSpec;

use crate::limits::{ANSWERS_CROSS, MAPPING_LOOK};

/// What the kernel was answered about a file that others may write, and when its pages were dropped.
#[derive(Debug, Default)]
pub(super) struct Validated {
    /// The kernel has had an open that caches.
    pub(super) has_pages: bool,
    /// Time and length of the last answer, since when they are that, and whether the file was longer before.
    seen: Option<(TimeSpec, u64)>,
    since: Option<Instant>,
    was_longer: bool,
    /// The last answer, and the thread that asked.
    answered: Option<(Instant, u32)>,
    /// When two threads last asked so soon after each other that one answer may have overtaken the other.
    crossed: Option<Instant>,
    dropped: Option<Instant>,
}

impl Validated {
    /// The kernel is answered this about the file, for a thread `asker`. True when it may ignore the answer: then its pages
    /// are to be dropped, and the new end made known, before. (Of a file that has become shorter only an answer makes it
    /// know the end.)
    pub(super) fn answer(&mut self, seen: (TimeSpec, u64), asker: u32, now: Instant) -> bool {
        if let Some((at, other)) = self.answered
            && other != asker
            && now - at < ANSWERS_CROSS
        {
            self.crossed = Some(now);
        }
        self.answered = Some((now, asker));
        if self.seen != Some(seen) {
            self.was_longer = self.seen.is_some_and(|(_, len)| len > seen.1);
            self.seen = Some(seen);
            self.since = Some(now);
        }
        self.has_pages
            && !self.was_longer
            && is_within(ANSWERS_CROSS, self.crossed, now)
            && is_within(ANSWERS_CROSS, self.since, now)
    }

    /// Whether pages are to be dropped for mappings: nobody has asked for a while; or the file rests, and its last change
    /// may have had another in the same tick of the clock that stamps files before Linux 6.13, which no answer shows.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let is_asked_for = is_within(MAPPING_LOOK, self.answered.map(|(at, _)| at), now);
        let rests = !is_within(MAPPING_LOOK, self.since, now);
        !is_asked_for || (rests && self.dropped < self.since)
    }

    /// They were, from `now` on.
    pub(super) fn drop_pages(&mut self, now: Instant) {
        self.dropped = Some(now);
    }
}

fn is_within(time: Duration, at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now - at < time)
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
        assert!(!pages.answer(changed(1), 1, at(35)));
        assert!(!pages.is_due(at(40)));
        assert!(pages.is_due(at(45)));
    }

    #[test]
    fn what_is_asked_for_all_the_time_is_dropped_once_after_each_rest() {
        let mut pages = Validated::default();
        let mut dropped = Vec::new();
        for tick in 1..100 {
            // It changes until 30, and again at 60.
            let last = if tick < 60 { tick.min(30) } else { 60 };
            pages.answer(changed(i64::from(last)), 1, at(tick));
            if tick % 10 == 0 && pages.is_due(at(tick)) {
                pages.drop_pages(at(tick));
                dropped.push(tick);
            }
        }
        assert_eq!(dropped, [40, 70]);
    }

    #[test]
    fn a_change_that_two_threads_ask_for_is_made_known_before() {
        let mut pages = Validated { has_pages: true, ..Validated::default() };
        let len = |len| (TimeSpec { seconds: 1, nanos: 0 }, len);
        let (begin, step) = (at(0), Duration::from_millis(1));
        assert!(!pages.answer(len(10), 1, begin));
        assert!(!pages.answer(len(20), 1, begin + step), "a thread asks once it has its answer");
        assert!(
            pages.answer(len(20), 2, begin + 2 * step),
            "which is what the first may take only now"
        );
        assert!(pages.answer(len(30), 1, begin + 3 * step));
        assert!(pages.answer(len(30), 2, begin + 4 * step), "that may not be made known yet");
        assert!(!pages.answer(len(5), 1, begin + 5 * step), "shorter");
        assert!(!pages.answer(len(5), 2, begin + 6 * step));
        assert!(pages.answer(len(6), 2, begin + 7 * step));
        let later = begin + 7 * step + ANSWERS_CROSS;
        assert!(!pages.answer(len(6), 2, later), "nothing has changed for a while");
        assert!(
            !pages.answer(len(7), 2, later + ANSWERS_CROSS),
            "nobody else has asked for a while"
        );
        pages.has_pages = false;
        assert!(!pages.answer(len(8), 1, later + ANSWERS_CROSS + step), "every read asks");
    }

    #[test]
    fn a_look_is_half_of_what_mappings_may_be_late() {
        assert!(MAPPING_LOOK * 2 <= Duration::from_secs(1));
    }
}
