//! Folding: neighbours become one run, exactly, in any depth.
//!
//! Here: joining two runs, folding a list of extents or runs.
//! Not here: what a writer may fold while it writes ([`crate::record::Recorder`], one level only).

use super::{Level, Run};
use crate::{ByteCount, Extent, Offset};

impl Run {
    /// The one run that selects the bytes of this one and then those of `next`, where there is such a run
    /// of the same nesting: they touch, or `next` is one more repetition, or more of the same.
    ///
    /// O(depth). Checked, never guessed: no byte is added or lost.
    #[must_use]
    pub fn join(&self, next: &Self) -> Option<Self> {
        let distance = self.span().end().distance_to(next.start()).map(|gap| {
            ByteCount(self.span().len().0 + gap.0) // from start to start
        })?;
        if self.levels.is_empty() && next.levels.is_empty() && distance == self.block {
            let block = self.block.checked_add(next.block)?;
            return Self::new(self.start, block, &[]).ok();
        }
        if self.has_shape_of(next) {
            return self.clone().repeat(2, distance).ok();
        }
        let (core, outer) = self.peel();
        let (next_core, next_outer) = next.peel();
        let (level, count) = match (outer, next_outer) {
            (Some(level), _) if core.has_shape_of(next) => (level, level.count + 1),
            (_, Some(level)) if self.has_shape_of(&next_core) && distance == level.stride => {
                return self.clone().repeat(level.count + 1, level.stride).ok();
            }
            (Some(level), Some(more))
                if core.has_shape_of(&next_core) && level.stride == more.stride =>
            {
                (level, level.count + more.count)
            }
            _ => return None,
        };
        let behind_last = level.count.checked_mul(level.stride.0)?;
        (distance.0 == behind_last).then(|| core.repeat(count, level.stride).ok()).flatten()
    }

    /// What the outermost level repeats, and that level.
    fn peel(&self) -> (Self, Option<Level>) {
        let mut core = self.clone();
        let outer = core.levels.pop();
        (core, outer)
    }
}

/// As few runs as joining neighbours finds, in the order of `runs`.
///
/// O(depth) for each that is given, and no more: it is joined with the last one, that one perhaps with the
/// one before, and so on.
pub fn fold(runs: impl IntoIterator<Item = Run>) -> Vec<Run> {
    let mut folded: Vec<Run> = Vec::new();
    for mut last in runs {
        while let Some(joined) = folded.last().and_then(|run| run.join(&last)) {
            folded.pop();
            last = joined;
        }
        folded.push(last);
    }
    folded
}

/// The same for extents, in their order; empty ones vanish.
pub fn fold_extents(extents: impl IntoIterator<Item = Extent>) -> Vec<Run> {
    fold(extents.into_iter().filter_map(|extent| Run::contiguous(extent).ok()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{GlobalOffset, StreamMap, naive, run::tests::any_run};

    fn extent(start: u64, len: u64) -> Extent {
        Extent::new(GlobalOffset(start), ByteCount(len)).unwrap()
    }

    fn check(extents: &[(u64, u64)], expected: &str) {
        let folded = fold_extents(extents.iter().map(|(start, len)| extent(*start, *len)));
        let text: Vec<_> = folded.iter().map(ToString::to_string).collect();
        assert_eq!(text.join(" "), expected);
    }

    #[test]
    fn blocks_fold_into_runs() {
        check(&[], "");
        check(&[(3, 0)], "");
        check(&[(0, 4), (4, 9)], "0+13");
        check(&[(0, 4), (8, 4), (16, 4)], "0+4x3/8");
        check(&[(0, 4), (8, 4), (20, 4), (28, 4), (40, 4), (48, 4)], "0+4x2/8x3/20");
        check(&[(0, 4), (8, 4), (15, 4)], "0+4x2/8 15+4");
        check(&[(8, 4), (0, 4)], "8+4 0+4"); // order is kept: runs ascend
        check(&[(0, 4), (2, 4)], "0+4 2+4"); // and no byte is in a run twice
        check(&[(0, 4), (100, 2), (102, 2), (200, 4)], "0+4x3/100");
    }

    #[test]
    fn runs_join_where_one_run_says_both() {
        let run = |start, count| {
            let block = Run::contiguous(extent(start, 4)).unwrap();
            block.repeat(count, ByteCount(10)).unwrap()
        };
        let check = |first: &Run, next: &Run, expected: Option<&str>| {
            assert_eq!(first.join(next).map(|joined| joined.to_string()).as_deref(), expected);
        };
        check(&run(0, 2), &run(20, 1), Some("0+4x3/10"));
        check(&run(0, 1), &run(10, 2), Some("0+4x3/10"));
        check(&run(0, 1), &run(11, 2), None);
        check(&run(0, 2), &run(20, 3), Some("0+4x5/10"));
        check(&run(0, 2), &run(21, 3), None);
        check(&run(0, 2), &run(20, 2), Some("0+4x4/10"));
        check(&run(0, 2), &run(21, 2), Some("0+4x2/10x2/21"));
        check(&run(0, 2), &run(14, 1), None); // it touches, but blocks are of one length
        check(&run(20, 1), &run(0, 2), None);
    }

    #[test]
    fn a_block_of_an_array_folds_to_its_dimensions() {
        // 3 x 4 x 5 of an array of 10 x 10 x 10 elements of 8 bytes.
        let rows = (0..3).flat_map(|z| (0..4).map(move |y| extent((z * 100 + y * 10) * 8, 5 * 8)));
        let text: Vec<_> = fold_extents(rows).iter().map(ToString::to_string).collect();
        assert_eq!(text, ["0+40x4/80x3/800"]);
    }

    proptest! {
        #[test]
        fn folding_keeps_every_byte_in_order(
            blocks in prop::collection::vec((prop::sample::select(vec![0, 0, 4, 8, 3]), 1..5u64), 0..40)
        ) {
            let mut end = 0;
            let extents: Vec<_> = blocks.iter().map(|(gap, len)| {
                let extent = extent(end + gap, *len);
                end = extent.end().0;
                extent
            }).collect();
            let folded = fold_extents(extents.iter().copied());
            let expected: Vec<_> = extents.iter().flat_map(|extent| {
                (extent.start().0..extent.end().0).map(GlobalOffset)
            }).collect();
            prop_assert_eq!(folded.iter().flat_map(naive::run).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn the_blocks_of_a_run_fold_into_no_more_than_its_dimensions(run in any_run()) {
            let folded = fold_extents(run.extents(run.stream()));
            prop_assert_eq!(folded.iter().flat_map(naive::run).collect::<Vec<_>>(), naive::run(&run));
            // Where repetitions touch, blocks differ in length and folding finds what it can.
            let mut span = run.block();
            let is_dense = run.levels().iter().any(|level| {
                let touches = level.stride == span;
                span = ByteCount(span.0 + (level.count - 1) * level.stride.0);
                touches
            });
            prop_assert!(is_dense || folded == [run]);
        }

        #[test]
        fn joining_is_exact(run in any_run(), other in any_run(), gap in 0..20u64) {
            let behind = GlobalOffset(run.span().end().0 + gap);
            for next in [other.starting_at(behind).unwrap(), run.clone().starting_at(behind).unwrap()] {
                if let Some(joined) = run.join(&next) {
                    let expected = [naive::run(&run), naive::run(&next)].concat();
                    prop_assert_eq!(naive::run(&joined), expected);
                }
                prop_assert_eq!(next.join(&run), None);
            }
        }
    }
}
