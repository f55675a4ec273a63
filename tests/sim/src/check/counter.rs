//! A counter that is read and written under a lock, one step at a time.

use super::linear::Specification;

/// Holds 0 at first.
pub(crate) struct Counter;

/// A call on it.
#[derive(Clone, Debug)]
pub(crate) enum CounterStep {
    /// With what it answered.
    Read(u64),
    /// One more than was read under the same lock: only that can have been there.
    WriteAfter(u64),
}

impl Specification for Counter {
    type State = u64;
    type Step = CounterStep;

    fn begin(&self) -> u64 {
        0
    }

    fn after(&self, state: &u64, step: &CounterStep) -> Option<u64> {
        match step {
            CounterStep::Read(value) => (value == state).then_some(*state),
            CounterStep::WriteAfter(value) => (value == state).then_some(*state + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::linear::{Call, Verdict, judge};

    fn verdict(steps: &[(u64, Option<u64>, CounterStep)]) -> Verdict {
        let call = |(begin, end, step): &(u64, Option<u64>, CounterStep)| Call {
            begin: *begin,
            end: *end,
            is_optional: false,
            step: step.clone(),
        };
        judge(&Counter, &steps.iter().map(call).collect::<Vec<_>>())
    }

    #[test]
    fn two_who_read_the_same_can_not_both_have_written() {
        use CounterStep::{Read, WriteAfter};
        let first = [(1, Some(2), Read(0)), (3, Some(4), WriteAfter(0))];
        let lost = [(5, Some(6), Read(0)), (7, Some(8), WriteAfter(0))];
        let next = [(5, Some(6), Read(1)), (7, Some(8), WriteAfter(1))];
        assert_eq!(verdict(&[first.clone(), next].concat()), Verdict::Explained);
        assert_eq!(verdict(&[first, lost].concat()), Verdict::Impossible);
    }

    #[test]
    fn a_write_that_was_not_answered_counts_once_or_not_at_all() {
        use CounterStep::{Read, WriteAfter};
        let unknown = (1, None, WriteAfter(0));
        for (seen, expected) in
            [(0, Verdict::Explained), (1, Verdict::Explained), (2, Verdict::Impossible)]
        {
            assert_eq!(verdict(&[unknown.clone(), (3, Some(4), Read(seen))]), expected);
        }
    }
}
