//! Runs: a regular access pattern as start, block and nested strides, never as a list of blocks.
//!
//! Here: making, moving, repeating runs; view stream -> file and back in O(depth).
//! Not here: joining neighbours ([`fold`]), MPI datatypes (they come with MPI-IO), who wrote a byte last
//! ([`crate::index`]).
//! Source: MPI 4.1, section 14.3 (file views); Thakur, Gropp, Lusk 1999; paper 001, figure 6.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    ByteCount, Extent, GlobalOffset, Offset, StreamExtent, StreamMap, StreamOffset,
    units::OFFSET_MAX,
};

pub mod fold;
mod overlap;

/// Most levels of one run; HDF5 and PnetCDF need one per dimension of an array, and one for records.
pub const LEVELS_MAX: usize = 16;

/// A pattern repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Level {
    /// How often.
    pub count: u64,
    /// From the start of one repetition to the start of the next.
    pub stride: ByteCount,
}

/// Blocks of equal length at nested strides: at least one byte, ascending, no byte twice.
///
/// Invariants: `block >= 1`; each `count >= 2`; each stride is at least the span of what it repeats; it
/// ends at [`OFFSET_MAX`] or before; levels that could be one are one. So equal patterns that were
/// nested alike are equal values, and the stream is never longer than the file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(
    try_from = "(GlobalOffset, ByteCount, Vec<Level>)",
    into = "(GlobalOffset, ByteCount, Vec<Level>)"
)]
pub struct Run {
    start: GlobalOffset,
    block: ByteCount,
    /// The innermost first.
    levels: Vec<Level>,
}

/// Why numbers are no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// No byte is selected.
    #[error("a run selects at least one byte")]
    Empty,
    /// Blocks would overlap, or not ascend.
    #[error("a stride of {stride} bytes is shorter than the {span} bytes that it repeats")]
    Overlap {
        /// What was given.
        stride: u64,
        /// From the first byte that is repeated to the last.
        span: u64,
    },
    /// It would end beyond what `off_t` can say.
    #[error("a run from offset {start} on ends beyond the largest file offset")]
    TooFar {
        /// First byte.
        start: u64,
    },
    /// More levels than [`LEVELS_MAX`].
    #[error("a run has at most {LEVELS_MAX} levels of strides")]
    TooDeep,
}

impl Run {
    /// Blocks of `block` bytes, repeated by `levels`, the innermost first.
    ///
    /// Levels of one repetition vanish; blocks that touch become one block.
    pub fn new(start: GlobalOffset, block: ByteCount, levels: &[Level]) -> Result<Self, RunError> {
        if block.is_zero() {
            return Err(RunError::Empty);
        }
        let far = || RunError::TooFar { start: start.0 };
        start.checked_add(block).ok_or_else(far)?;
        let bare = Self { start, block, levels: Vec::new() };
        levels.iter().try_fold(bare, |run, level| run.repeat(level.count, level.stride))
    }

    /// The bytes of one extent; fails when there are none.
    pub fn contiguous(extent: Extent) -> Result<Self, RunError> {
        Self::new(extent.start(), extent.len(), &[])
    }

    /// This pattern `count` times, each `stride` behind the one before.
    pub fn repeat(mut self, count: u64, stride: ByteCount) -> Result<Self, RunError> {
        let span = self.span().len();
        match count {
            0 => return Err(RunError::Empty),
            1 => return Ok(self),
            _ if stride < span => {
                return Err(RunError::Overlap { stride: stride.0, span: span.0 });
            }
            _ => {}
        }
        // Where the last repetition ends. Nothing below overflows when this does not.
        (count - 1)
            .checked_mul(stride.0)
            .and_then(|last| last.checked_add(self.start.0)?.checked_add(span.0))
            .filter(|end| *end <= OFFSET_MAX)
            .ok_or(RunError::TooFar { start: self.start.0 })?;
        let depth = self.levels.len();
        match self.levels.last_mut() {
            None if stride == self.block => self.block = ByteCount(self.block.0 * count),
            // The product may be far beyond any stride.
            Some(inner) if inner.count.checked_mul(inner.stride.0) == Some(stride.0) => {
                inner.count *= count;
            }
            _ if depth == LEVELS_MAX => return Err(RunError::TooDeep),
            _ => self.levels.push(Level { count, stride }),
        }
        Ok(self)
    }

    /// The same pattern with its first byte at `start`.
    pub fn starting_at(mut self, start: GlobalOffset) -> Result<Self, RunError> {
        start.checked_add(self.span().len()).ok_or(RunError::TooFar { start: start.0 })?;
        self.start = start;
        Ok(self)
    }

    /// First byte.
    pub fn start(&self) -> GlobalOffset {
        self.start
    }

    /// Bytes that lie behind each other.
    pub fn block(&self) -> ByteCount {
        self.block
    }

    /// How the block is repeated, the innermost first.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Number of bytes selected.
    pub fn len(&self) -> ByteCount {
        ByteCount(self.levels.iter().fold(self.block.0, |len, level| len * level.count))
    }

    /// Never: a run selects at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// From the first byte to the last.
    pub fn span(&self) -> Extent {
        let span = self
            .levels
            .iter()
            .fold(self.block.0, |span, level| span + (level.count - 1) * level.stride.0);
        Extent::within_valid(self.start.0, self.start.0 + span)
    }

    /// The whole stream.
    pub fn stream(&self) -> StreamExtent {
        StreamExtent::within_valid(0, self.len().0)
    }

    /// Whether both are the same but for their start.
    pub fn has_shape_of(&self, other: &Self) -> bool {
        self.block == other.block && self.levels == other.levels
    }
}

impl StreamMap for Run {
    fn stretch(&self, offset: StreamOffset) -> Option<(GlobalOffset, ByteCount)> {
        let (mut nth, inside) = (offset.0 / self.block.0, offset.0 % self.block.0);
        let mut start = self.start.0;
        for level in &self.levels {
            start += nth % level.count * level.stride.0;
            nth /= level.count;
        }
        (nth == 0).then(|| (GlobalOffset(start + inside), ByteCount(self.block.0 - inside)))
    }

    fn rank(&self, offset: GlobalOffset) -> StreamOffset {
        let (mut len, mut span) = (self.len().0, self.span().len().0);
        let mut rest = offset.0.saturating_sub(self.start.0).min(span);
        let mut rank = 0;
        for level in self.levels.iter().rev() {
            len /= level.count;
            span -= (level.count - 1) * level.stride.0;
            let nth = (rest / level.stride.0).min(level.count - 1);
            rank += nth * len;
            rest = (rest - nth * level.stride.0).min(span); // a gap counts as the end before it
        }
        StreamOffset(rank + rest)
    }

    fn walk(&self, window: StreamExtent, visit: &mut impl FnMut(Extent)) {
        let end = window.end().0.min(self.len().0);
        if window.start().0 < end {
            self.walk_from(0, window.start().0, end, &mut |start, len| {
                visit(Extent::within_valid(start, start + len));
            });
        }
    }
}

impl Run {
    /// Visits start and length of each block of the bytes `from..to` of its stream, `shift` bytes behind
    /// where they lie. Not empty, and inside of the stream.
    pub(crate) fn walk_from(
        &self,
        shift: u64,
        from: u64,
        to: u64,
        visit: &mut impl FnMut(u64, u64),
    ) {
        let (mut nth, mut inside) = (from / self.block.0, from % self.block.0);
        let mut start = self.start.0 + shift;
        // Which repetition of each level: counted along instead of divided for.
        let mut nths = [0; LEVELS_MAX];
        for (level, at) in self.levels.iter().zip(&mut nths) {
            *at = nth % level.count;
            nth /= level.count;
            start += *at * level.stride.0;
        }
        let mut left = to - from;
        loop {
            let len = (self.block.0 - inside).min(left);
            visit(start + inside, len);
            left -= len;
            if left == 0 {
                return;
            }
            inside = 0;
            for (level, at) in self.levels.iter().zip(&mut nths) {
                *at += 1;
                if *at < level.count {
                    start += level.stride.0;
                    break;
                }
                *at = 0;
                start -= (level.count - 1) * level.stride.0;
            }
        }
    }
}

impl From<Run> for (GlobalOffset, ByteCount, Vec<Level>) {
    fn from(run: Run) -> Self {
        (run.start, run.block, run.levels)
    }
}

impl TryFrom<(GlobalOffset, ByteCount, Vec<Level>)> for Run {
    type Error = RunError;

    fn try_from(
        (start, block, levels): (GlobalOffset, ByteCount, Vec<Level>),
    ) -> Result<Self, Self::Error> {
        Self::new(start, block, &levels)
    }
}

impl fmt::Display for Run {
    /// `start+block`, then `xCOUNT/STRIDE` for each level from the innermost on: `100+8x3/16x2/1000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.start, self.block.0)?;
        self.levels.iter().try_for_each(|level| write!(f, "x{}/{}", level.count, level.stride.0))
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::naive;

    fn make(start: u64, block: u64, levels: &[(u64, u64)]) -> Result<Run, RunError> {
        let level = |&(count, stride)| Level { count, stride: ByteCount(stride) };
        let levels: Vec<_> = levels.iter().map(level).collect();
        Run::new(GlobalOffset(start), ByteCount(block), &levels)
    }

    fn check(run: (u64, u64, &[(u64, u64)]), form: &str, extents: &str) {
        let run = make(run.0, run.1, run.2).unwrap();
        assert_eq!(run.to_string(), form);
        let text: Vec<_> = run.extents(run.stream()).map(|extent| extent.to_string()).collect();
        assert_eq!(text.join(" "), extents);
        let bytes = postcard::to_stdvec(&run).unwrap();
        assert_eq!(postcard::from_bytes::<Run>(&bytes).unwrap(), run);
    }

    #[test]
    fn strides_select_extents() {
        check((5, 3, &[]), "5+3", "5..8");
        check((0, 2, &[(3, 4)]), "0+2x3/4", "0..2 4..6 8..10");
        check((1, 2, &[(2, 4), (2, 10)]), "1+2x2/4x2/10", "1..3 5..7 11..13 15..17");
        check((0, 2, &[(3, 2)]), "0+6", "0..6"); // touching blocks coalesce
        check((0, 2, &[(1, 0), (2, 4)]), "0+2x2/4", "0..2 4..6"); // once is no repetition
        check((0, 2, &[(2, 4), (3, 8)]), "0+2x6/4", "0..2 4..6 8..10 12..14 16..18 20..22");
        check((0, 2, &[(2, 4), (2, 6)]), "0+2x2/4x2/6", "0..2 4..8 10..12"); // touch at the seam
    }

    #[test]
    fn only_sound_runs_exist() {
        let check = |block, levels: &[(u64, u64)], error| {
            assert_eq!(make(7, block, levels), Err(error), "{block} {levels:?}");
        };
        check(0, &[], RunError::Empty);
        check(1, &[(0, 8)], RunError::Empty);
        check(4, &[(2, 3)], RunError::Overlap { stride: 3, span: 4 });
        check(4, &[(3, 8), (2, 19)], RunError::Overlap { stride: 19, span: 20 });
        check(u64::MAX, &[], RunError::TooFar { start: 7 });
        check(1, &[(u64::MAX, 2)], RunError::TooFar { start: 7 });
        check(1, &[(2, u64::MAX)], RunError::TooFar { start: 7 });
        check(1, &[(u64::MAX, u64::MAX)], RunError::TooFar { start: 7 });
        check(1, &[(1 << 32, 1 << 32)], RunError::TooFar { start: 7 });
        let deep: Vec<_> = (0..17).map(|level| (2, 3 * 4u64.pow(level))).collect();
        check(1, &deep, RunError::TooDeep);
        assert!(make(7, 1, &deep[..16]).is_ok());
        assert!(make(OFFSET_MAX - 8, 8, &[]).is_ok());
        let far = make(7, 4, &[(3, 8)]).unwrap();
        assert!(far.clone().starting_at(GlobalOffset(OFFSET_MAX - 20)).is_ok());
        assert!(far.starting_at(GlobalOffset(OFFSET_MAX - 19)).is_err());
    }

    #[test]
    fn bytes_from_outside_are_checked_too() {
        let levels = vec![Level { count: 2, stride: ByteCount(1) }];
        let bytes = postcard::to_stdvec(&(GlobalOffset(0), ByteCount(4), levels)).unwrap();
        assert!(postcard::from_bytes::<Run>(&bytes).is_err());
    }

    prop_compose! {
        /// A few hundred bytes at most, in up to three levels; often dense at some seam.
        pub(crate) fn any_run()(
            start in 0..40u64, block in 1..6u64,
            levels in prop::collection::vec((1..5u64, prop_oneof![Just(0), 0..7u64]), 0..4)
        ) -> Run {
            let bare = make(start, block, &[]).unwrap();
            levels.into_iter().fold(bare, |run, (count, gap)| {
                let stride = ByteCount(run.span().len().0 + gap);
                run.repeat(count, stride).unwrap()
            })
        }
    }

    proptest! {
        #[test]
        fn forward_and_backward_agree_with_listing_each_byte(run in any_run()) {
            let bytes = naive::run(&run);
            prop_assert_eq!(run.len().0, bytes.len() as u64);
            for (at, offset) in (0..).map(StreamOffset).zip(&bytes) {
                prop_assert_eq!(run.forward(at), Some(*offset));
            }
            prop_assert_eq!(run.forward(StreamOffset(run.len().0)), None);
            for offset in (0..run.span().end().0 + 5).map(GlobalOffset) {
                let before = bytes.iter().filter(|byte| **byte < offset).count() as u64;
                prop_assert_eq!(run.rank(offset), StreamOffset(before));
                let found = bytes.iter().position(|byte| *byte == offset);
                prop_assert_eq!(run.backward(offset), found.map(|at| StreamOffset(at as u64)));
            }
        }

        #[test]
        fn windows_agree_with_listing_each_byte(run in any_run(), a in 0..200u64, b in 0..200u64) {
            let len = run.len().0;
            let (start, end) = (a.min(b).min(len), a.max(b).min(len));
            let expected = &naive::run(&run)[start as usize..end as usize];
            let window = StreamExtent::between(StreamOffset(start), StreamOffset(end)).unwrap();
            let extents: Vec<_> = run.extents(window).collect();
            let found: Vec<_> = extents
                .iter()
                .flat_map(|extent| (extent.start().0..extent.end().0).map(GlobalOffset))
                .collect();
            prop_assert_eq!(&found[..], expected);
            prop_assert!(extents.windows(2).all(|pair| pair[0].end() < pair[1].start()));
            let mut walked = Vec::new();
            run.walk(window, &mut |extent| {
                walked.extend((extent.start().0..extent.end().0).map(GlobalOffset));
            });
            prop_assert_eq!(&walked[..], expected);

            let file = Extent::between(GlobalOffset(a.min(b)), GlobalOffset(a.max(b))).unwrap();
            let within = run.within(file);
            let expected: Vec<_> =
                naive::run(&run).into_iter().filter(|byte| file.contains(*byte)).collect();
            let found: Vec<_> = (within.start().0..within.end().0)
                .map(|at| run.forward(StreamOffset(at)).unwrap())
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
