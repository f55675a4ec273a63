//! What a server had done by which moment, in a list of bounded length: for `hayase report`.
//!
//! Here: which looks at the counters are kept (pure). Not here: the counters ([`super::Activity`]), how they are drawn
//! (`hayase::report`).
//!
//! Nothing wakes a server for this. It looks when it is asked for something anyway, or when a flush moves;
//! what it knew last before a pause is kept too, so that a pause is seen as one. A list that is full
//! keeps every second look from there on, so it spans the whole life of the server, whatever that is.

use hayase_wire::message::Sample;

use crate::limits::{HISTORY_PAUSE_MS, HISTORY_SAMPLES_MAX};

/// The looks that were kept, oldest first.
pub(super) struct History {
    kept: Vec<Sample>,
    /// The last look that was not kept (yet).
    last: Option<Sample>,
    /// Kept looks are at least so far apart; doubles when the list is full.
    pause_ms: u64,
}

impl Default for History {
    fn default() -> Self {
        Self { kept: Vec::new(), last: None, pause_ms: HISTORY_PAUSE_MS }
    }
}

impl History {
    /// Whether a look at `now_ms` would be kept: then it may cost something.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        self.kept.last().is_none_or(|kept| now_ms >= kept.at_ms.saturating_add(self.pause_ms))
    }

    /// Adds a look. O(1), but for one in [`HISTORY_SAMPLES_MAX`] / 2 kept ones.
    ///
    /// Where the clock was set back the look counts for the moment of the last one: those who draw
    /// the list take it as sorted.
    pub(super) fn look(&mut self, sample: Sample) {
        let latest_ms = self.newest().map_or(0, |newest| newest.at_ms);
        let sample = Sample { at_ms: sample.at_ms.max(latest_ms), ..sample };
        if !self.is_due(sample.at_ms) {
            self.last = Some(sample);
            return;
        }
        // Before a pause: what comes after it did not begin when that ended.
        if let Some(last) = self.last.take()
            && last.at_ms.saturating_add(self.pause_ms) < sample.at_ms
        {
            self.keep(last);
        }
        self.keep(sample);
    }

    fn keep(&mut self, sample: Sample) {
        if self.kept.len() >= HISTORY_SAMPLES_MAX {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.pause_ms = self.pause_ms.saturating_mul(2);
        }
        self.kept.push(sample);
    }

    pub(super) fn newest(&self) -> Option<Sample> {
        self.last.or(self.kept.last().copied())
    }

    /// All looks, oldest first, with the last one.
    pub(super) fn all(&self) -> Vec<Sample> {
        self.kept.iter().chain(&self.last).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(at_ms: u64) -> Sample {
        Sample { at_ms, requests: at_ms, ..Sample::default() }
    }

    fn looked(moments: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut history = History::default();
        moments.into_iter().for_each(|moment| history.look(at(moment)));
        history.all().iter().map(|sample| sample.at_ms).collect()
    }

    #[test]
    fn looks_are_a_pause_apart_and_the_last_one_is_known() {
        let pause = HISTORY_PAUSE_MS;
        assert_eq!(looked([0, 1, 2, pause, pause + 1, pause + 2]), [0, pause, pause + 2]);
    }

    #[test]
    fn what_was_known_before_a_pause_is_kept() {
        let pause = HISTORY_PAUSE_MS;
        assert_eq!(looked([0, 7, 9 * pause, 9 * pause + 1]), [0, 7, 9 * pause, 9 * pause + 1]);
    }

    #[test]
    fn a_clock_that_is_set_back_leaves_the_list_in_order() {
        let pause = HISTORY_PAUSE_MS;
        assert_eq!(looked([5 * pause, 5 * pause + 9, pause]), [5 * pause, 5 * pause + 9]);
        assert_eq!(looked([5 * pause, pause, 7 * pause]), [5 * pause, 5 * pause, 7 * pause]);
    }

    proptest! {
        /// Bounded, in order, and it spans all: the first look and the last one are there.
        #[test]
        fn a_history_spans_everything(steps in proptest::collection::vec(0..5000u64, 1..3000)) {
            let moments: Vec<u64> =
                steps.iter().scan(0, |now, step| { *now += step; Some(*now) }).collect();
            let kept = looked(moments.iter().copied());
            prop_assert!(kept.len() <= HISTORY_SAMPLES_MAX + 1);
            prop_assert!(kept.is_sorted());
            prop_assert_eq!(kept.first(), moments.first());
            prop_assert_eq!(kept.last(), moments.last());
        }
    }
}
