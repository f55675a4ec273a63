//! Linearizability: is there one order of all calls, each between its begin and its end, in which a
//! plain object would have answered the same?
//!
//! The search of Wing and Gong ("Testing and verifying concurrent objects", JPDC 1993) with the
//! memory of Lowe ("Testing for linearizability", CCPE 2017): a set of calls done and a state are
//! looked at once. Exponential at worst, so histories are short and of one object.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// A plain object, and what its calls do.
pub(crate) trait Specification {
    /// What it holds.
    type State: Clone + Eq + Hash;
    /// A call with its answer, or without one when the answer is unknown.
    type Step: Clone + Debug;

    /// As it is at first.
    fn begin(&self) -> Self::State;
    /// What it holds after the step; `None` when it would not have answered so.
    fn after(&self, state: &Self::State, step: &Self::Step) -> Option<Self::State>;
}

/// One call. Times are the places of events in one order.
#[derive(Clone, Debug)]
pub(crate) struct Call<T> {
    pub(crate) begin: u64,
    /// `None`: nobody knows whether or when it happened.
    pub(crate) end: Option<u64>,
    /// Perhaps it did not happen at all; but not after its end.
    pub(crate) is_optional: bool,
    pub(crate) step: T,
}

/// Calls of one history; more than that are not checked in useful time.
pub(crate) const CALLS_MAX: usize = 256;

/// Sets of calls looked at before a search is given up.
const LOOKS_MAX: usize = 300_000;

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// An order explains every answer.
    Explained,
    /// None does.
    Impossible,
    /// None was found in [`LOOKS_MAX`] looks: too many calls whose outcome nobody knows.
    Undecided,
}

/// Which calls of a history were done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Done([u128; 2]);

impl Done {
    fn has(self, call: usize) -> bool {
        self.0[call / 128] >> (call % 128) & 1 == 1
    }

    fn with(mut self, call: usize) -> Self {
        self.0[call / 128] |= 1 << (call % 128);
        self
    }
}

/// Looks for an order that explains every answer.
///
/// # Panics
/// With more than [`CALLS_MAX`] calls.
pub(crate) fn judge<S: Specification>(object: &S, calls: &[Call<S::Step>]) -> Verdict {
    assert!(calls.len() <= CALLS_MAX, "{} calls in one history", calls.len());
    let mut seen = HashSet::new();
    let mut open = vec![(Done::default(), object.begin())];
    while let Some((done, state)) = open.pop() {
        let left = || (0..calls.len()).filter(|call| !done.has(*call));
        if left().all(|call| calls[call].end.is_none()) {
            return Verdict::Explained;
        }
        if seen.len() > LOOKS_MAX {
            return Verdict::Undecided;
        }
        // Next can only be what began before every other one ended.
        let first_end = left().filter_map(|call| calls[call].end).min().unwrap_or(u64::MAX);
        // The likely ones last, where the search takes up: those that ended, in that order.
        let mut next: Vec<_> = left().filter(|call| calls[*call].begin < first_end).collect();
        next.sort_by_key(|call| std::cmp::Reverse(calls[*call].end.unwrap_or(u64::MAX)));
        for call in next {
            let left_out = calls[call].is_optional.then(|| state.clone());
            let after = object.after(&state, &calls[call].step);
            for after in left_out.into_iter().chain(after) {
                let next = (done.with(call), after);
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    Verdict::Impossible
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::register::{Register, RegisterStep};

    fn call(begin: u64, end: Option<u64>, step: RegisterStep) -> Call<RegisterStep> {
        Call { begin, end, is_optional: false, step }
    }

    fn check(calls: &[Call<RegisterStep>]) -> bool {
        judge(&Register, calls) == Verdict::Explained
    }

    #[test]
    fn overlapping_calls_may_be_seen_either_way() {
        let write = call(1, Some(4), RegisterStep::Write(7));
        assert!(check(&[write.clone(), call(2, Some(3), RegisterStep::Read(0))]));
        assert!(check(&[write, call(2, Some(3), RegisterStep::Read(7))]));
    }

    #[test]
    fn an_old_value_after_a_write_ended_is_a_violation() {
        let write = call(1, Some(2), RegisterStep::Write(7));
        assert!(!check(&[write, call(3, Some(4), RegisterStep::Read(0))]));
    }

    #[test]
    fn a_value_does_not_come_back() {
        let calls = [
            call(1, Some(8), RegisterStep::Write(7)),
            call(2, Some(3), RegisterStep::Read(7)),
            call(4, Some(5), RegisterStep::Read(0)),
        ];
        assert!(!check(&calls));
    }

    #[test]
    fn a_write_of_unknown_end_may_show_late_or_never() {
        let write = call(1, None, RegisterStep::Write(7));
        let read = |begin, value| call(begin, Some(begin + 1), RegisterStep::Read(value));
        assert!(check(&[write.clone(), read(3, 0), read(5, 0)]));
        assert!(check(&[write.clone(), read(3, 0), read(5, 7)]));
        assert!(!check(&[write, read(3, 7), read(5, 0)]));
    }

    #[test]
    fn a_write_that_may_be_lost_shows_in_time_or_never() {
        let write = Call { is_optional: true, ..call(1, Some(4), RegisterStep::Write(7)) };
        let read = |begin, value| call(begin, Some(begin + 1), RegisterStep::Read(value));
        assert!(check(&[write.clone(), read(5, 7)]));
        assert!(check(&[write.clone(), read(5, 0), read(7, 0)]));
        assert!(!check(&[write.clone(), read(5, 0), read(7, 7)]));
        let other = call(5, Some(6), RegisterStep::Write(8));
        assert!(!check(&[write, other, read(7, 7)]));
    }

    #[test]
    fn what_nobody_wrote_is_not_read() {
        assert!(!check(&[call(1, Some(2), RegisterStep::Read(9))]));
    }
}
