//! Whether two runs share a byte, by arithmetic: never by listing what they select.
//!
//! Not here: who of two wins ([`crate::index`]).

use super::{Level, Run};

impl Run {
    /// Whether some byte is in both.
    ///
    /// O(2^depth) where their strides are equal, as in blocks of one array. Otherwise repetitions of one are
    /// compared with the other one by one: when more than `left` steps are needed the answer is `true`,
    /// and what was used is taken from it.
    pub(crate) fn may_overlap(&self, other: &Self, left: &mut usize) -> bool {
        self.pattern().may_overlap(other.pattern(), left)
    }

    fn pattern(&self) -> Pattern<'_> {
        Pattern { start: self.start.0.into(), block: self.block.0, levels: &self.levels }
    }
}

/// A run somewhere, also before the beginning of the file.
#[derive(Clone, Copy)]
struct Pattern<'a> {
    start: i128,
    block: u64,
    levels: &'a [Level],
}

impl<'a> Pattern<'a> {
    fn span(self) -> i128 {
        let reach = |level: &Level| i128::from(level.count - 1) * i128::from(level.stride.0);
        i128::from(self.block) + self.levels.iter().map(reach).sum::<i128>()
    }

    /// What the outermost level repeats, and that level.
    fn peel(self) -> Option<(Self, Level)> {
        let (outer, levels) = self.levels.split_last()?;
        Some((Self { levels, ..self }, *outer))
    }

    fn moved(self, by: i128) -> Self {
        Self { start: self.start + by, ..self }
    }

    fn may_overlap(self, other: Self, left: &mut usize) -> bool {
        let Some(rest) = left.checked_sub(1) else { return true };
        *left = rest;
        if self.start >= other.start + other.span() || other.start >= self.start + self.span() {
            return false;
        }
        match (self.peel(), other.peel()) {
            (None, None) => true,
            (Some((core, own)), Some((other_core, theirs))) if own.stride == theirs.stride => {
                // Of all pairs of repetitions only the distance matters.
                let counts = 1 - i128::from(own.count)..i128::from(theirs.count);
                core.may_overlap_one_of(other_core, i128::from(own.stride.0), counts, left)
            }
            (Some((core, own)), theirs)
                if theirs.is_none_or(|(_, theirs)| theirs.stride < own.stride) =>
            {
                let counts = 0..i128::from(own.count);
                other.may_overlap_one_of(core, i128::from(own.stride.0), counts, left)
            }
            (_, Some((other_core, theirs))) => {
                let counts = 0..i128::from(theirs.count);
                self.may_overlap_one_of(other_core, i128::from(theirs.stride.0), counts, left)
            }
            (Some(_), None) => true, // said above
        }
    }

    /// Whether it shares a byte with `other` moved by some multiple of `stride`.
    fn may_overlap_one_of(
        self,
        other: Self,
        stride: i128,
        counts: std::ops::Range<i128>,
        left: &mut usize,
    ) -> bool {
        // Those whose spans do: other.start + n * stride < own end, and its end behind the own start.
        let first = (self.start - other.start - other.span()).div_euclid(stride) + 1;
        let last = (self.start + self.span() - other.start - 1).div_euclid(stride);
        let (first, last) = (first.max(counts.start), last.min(counts.end - 1));
        let mut nth = first;
        while nth <= last {
            if self.may_overlap(other.moved(nth * stride), left) {
                return true;
            }
            nth += 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use crate::{ByteCount, GlobalOffset, Run, naive, run::tests::any_run};

    fn run(start: u64, block: u64, levels: &[(u64, u64)]) -> Run {
        let bare = Run::new(GlobalOffset(start), ByteCount(block), &[]).unwrap();
        levels
            .iter()
            .fold(bare, |run, (count, stride)| run.repeat(*count, ByteCount(*stride)).unwrap())
    }

    #[test]
    fn interlocked_runs_share_nothing() {
        let check = |a: &Run, b: &Run, start, expected| {
            let mut left = 100;
            let b = b.clone().starting_at(GlobalOffset(start)).unwrap();
            assert_eq!(a.may_overlap(&b, &mut left), expected, "{a} {b}");
        };
        let regions = run(0, 8, &[(65536, 32)]);
        check(&regions, &regions, 8, false);
        check(&regions, &regions, 24, false);
        check(&regions, &regions, 4, true);
        check(&regions, &regions, 65536 * 32, false);
        // Blocks of one array, side by side and on each other.
        let block = run(0, 40, &[(100, 400), (100, 40_000)]);
        check(&block, &block, 40, false);
        check(&block, &block, 39, true);
        check(&block, &block, 400 * 100, true);
        check(&block, &run(0, 5, &[]), 40, false);
        check(&block, &run(0, 500, &[]), 40, true);
        // More steps than it may take: perhaps.
        let mut left = 10;
        assert!(regions.may_overlap(&run(16, 4, &[(60_000, 33)]), &mut left));
        assert_eq!(left, 0);
    }

    proptest! {
        #[test]
        fn sharing_agrees_with_listing_each_byte(a in any_run(), b in any_run(), start in 0..300u64) {
            let own: BTreeSet<_> = naive::run(&a).into_iter().collect();
            for other in [b, a.clone()] {
                let moved = other.starting_at(GlobalOffset(start)).unwrap();
                let shared = naive::run(&moved).iter().any(|byte| own.contains(byte));
                prop_assert_eq!(a.may_overlap(&moved, &mut 100_000), shared);
            }
        }
    }
}
