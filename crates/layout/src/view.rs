//! Views: a short list of runs, repeated for ever, as an MPI file view selects bytes.
//!
//! Here: view stream <-> file, in O(depth + log runs).
//! Not here: etypes and MPI datatypes (they come with MPI-IO).
//! Source: MPI 4.1, section 14.3 (file views); paper 001, figure 6.

use serde::{Deserialize, Serialize};

use crate::{
    ByteCount, Extent, GlobalOffset, Offset, Run, RunError, StreamExtent, StreamMap, StreamOffset,
    units::OFFSET_MAX,
};

/// Runs behind each other, tiled without end from the first selected byte on.
///
/// Invariants: at least one run; the first begins at 0; each begins at the end of the one before or
/// later; all end within the tile; the first tile ends at [`OFFSET_MAX`] or before. Two views that
/// select the same bytes of their tiles alike differ in `start` only, wherever their displacements were.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(
    try_from = "(GlobalOffset, ByteCount, Vec<Run>)",
    into = "(GlobalOffset, ByteCount, Vec<Run>)"
)]
pub struct View {
    /// The first selected byte.
    start: GlobalOffset,
    /// From one tile to the next: the extent of the filetype.
    tile: ByteCount,
    /// Counted from `start`.
    runs: Vec<Run>,
    /// Where each run begins in the tile's stream.
    firsts: Vec<u64>,
    /// Bytes selected in one tile.
    tile_len: u64,
}

/// Why runs are no view that this arithmetic can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// No byte is selected.
    #[error("a view selects at least one byte")]
    Empty,
    /// The bytes do not ascend, or some are selected twice.
    #[error("a view's bytes ascend, and none is selected twice")]
    Order,
    /// It would begin or end its first tile beyond what `off_t` can say.
    #[error("a view's first tile ends beyond the largest file offset")]
    TooFar(#[from] RunError),
}

impl View {
    /// `runs` count from `displacement` and repeat each `tile` bytes.
    ///
    /// Fails when the stream would not ascend. (MPI allows tiles that interlock; such a view is kept as
    /// what its calls select.)
    pub fn new(
        displacement: GlobalOffset,
        tile: ByteCount,
        runs: &[Run],
    ) -> Result<Self, ViewError> {
        let first = runs.first().ok_or(ViewError::Empty)?.start().0;
        if runs.windows(2).any(|pair| pair[1].start() < pair[0].span().end()) {
            return Err(ViewError::Order);
        }
        let end = runs.last().map_or(0, |last| last.span().end().0);
        if tile.0 < end - first {
            return Err(ViewError::Order);
        }
        let too_far = RunError::TooFar { start: displacement.0 };
        displacement.checked_add(ByteCount(end)).ok_or(too_far)?;
        let moved = |run: &Run| run.clone().starting_at(GlobalOffset(run.start().0 - first));
        let runs = runs.iter().map(moved).collect::<Result<Vec<_>, _>>()?;
        // Runs are disjoint and below `OFFSET_MAX`: so is the sum of their lengths.
        let mut tile_len = 0;
        let firsts = runs
            .iter()
            .map(|run| {
                tile_len += run.len().0;
                tile_len - run.len().0
            })
            .collect();
        Ok(Self { start: GlobalOffset(displacement.0 + first), tile, runs, firsts, tile_len })
    }

    /// The first selected byte.
    pub fn start(&self) -> GlobalOffset {
        self.start
    }

    /// From one tile to the next.
    pub fn tile(&self) -> ByteCount {
        self.tile
    }

    /// Bytes selected in one tile.
    pub fn tile_len(&self) -> ByteCount {
        ByteCount(self.tile_len)
    }

    /// One tile, counted from [`View::start`].
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Whether both are the same but for their start.
    pub fn has_shape_of(&self, other: &Self) -> bool {
        self.tile == other.tile && self.runs == other.runs
    }

    /// The part of the stream that begins at `start`, at most `len` long, that lies below [`OFFSET_MAX`].
    pub fn window(&self, start: StreamOffset, len: ByteCount) -> StreamExtent {
        let end = self.rank(GlobalOffset(OFFSET_MAX)).0;
        let start = start.0.min(end);
        StreamExtent::within_valid(start, start.saturating_add(len.0).min(end))
    }
}

impl StreamMap for View {
    fn stretch(&self, offset: StreamOffset) -> Option<(GlobalOffset, ByteCount)> {
        let (nth, rest) = (offset.0 / self.tile_len, offset.0 % self.tile_len);
        let run = self.firsts.partition_point(|first| *first <= rest) - 1; // the first is 0
        let (inside, len) = self.runs[run].stretch(StreamOffset(rest - self.firsts[run]))?;
        let start = nth.checked_mul(self.tile.0)?.checked_add(self.start.0)?;
        let start = start.checked_add(inside.0).filter(|start| *start < OFFSET_MAX)?;
        Some((GlobalOffset(start), len.min(ByteCount(OFFSET_MAX - start))))
    }

    fn rank(&self, offset: GlobalOffset) -> StreamOffset {
        let rest = offset.0.saturating_sub(self.start.0);
        let (nth, rest) = (rest / self.tile.0, rest % self.tile.0);
        let run = self.runs.partition_point(|run| run.start().0 <= rest) - 1; // the first is at 0
        let inside = self.runs[run].rank(GlobalOffset(rest)).0;
        StreamOffset(nth * self.tile_len + self.firsts[run] + inside)
    }

    fn walk(&self, window: StreamExtent, visit: &mut impl FnMut(Extent)) {
        let window = self.window(window.start(), window.len());
        if window.is_empty() {
            return;
        }
        let (mut nth, mut rest) =
            (window.start().0 / self.tile_len, window.start().0 % self.tile_len);
        let mut left = window.len().0;
        let mut run = self.firsts.partition_point(|first| *first <= rest) - 1; // the first is 0
        while left > 0 {
            let base = self.start.0 + nth * self.tile.0;
            while run < self.runs.len() && left > 0 {
                let from = rest - self.firsts[run];
                let to = self.runs[run].len().0.min(from + left);
                self.runs[run].walk_from(base, from, to, &mut |start, len| {
                    visit(Extent::within_valid(start, start + len));
                });
                left -= to - from;
                rest += to - from;
                run += 1;
            }
            (nth, run, rest) = (nth + 1, 0, 0);
        }
    }
}

impl From<View> for (GlobalOffset, ByteCount, Vec<Run>) {
    fn from(view: View) -> Self {
        (view.start, view.tile, view.runs)
    }
}

impl TryFrom<(GlobalOffset, ByteCount, Vec<Run>)> for View {
    type Error = ViewError;

    fn try_from(
        (start, tile, runs): (GlobalOffset, ByteCount, Vec<Run>),
    ) -> Result<Self, Self::Error> {
        Self::new(start, tile, &runs)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{naive, run::tests::any_run};

    fn run(start: u64, block: u64, count: u64, stride: u64) -> Run {
        let bare = Run::new(GlobalOffset(start), ByteCount(block), &[]).unwrap();
        bare.repeat(count, ByteCount(stride)).unwrap()
    }

    fn view(displacement: u64, tile: u64, runs: &[Run]) -> Result<View, ViewError> {
        View::new(GlobalOffset(displacement), ByteCount(tile), runs)
    }

    fn check(view: &View, (start, len): (u64, u64), expected: &str) {
        let window = view.window(StreamOffset(start), ByteCount(len));
        let text: Vec<_> = view.extents(window).map(|extent| extent.to_string()).collect();
        assert_eq!(text.join(" "), expected);
    }

    #[test]
    fn views_select_extents() {
        let cyclic = view(100, 12, &[run(4, 4, 1, 0)]).unwrap();
        check(&cyclic, (0, 12), "104..108 116..120 128..132");
        check(&cyclic, (3, 2), "107..108 116..117");
        check(&view(7, 4, &[run(0, 4, 1, 0)]).unwrap(), (5, 100), "12..112"); // no gaps: one extent
        let two = view(0, 32, &[run(0, 2, 3, 4), run(16, 8, 1, 0)]).unwrap();
        check(&two, (0, 20), "0..2 4..6 8..10 16..24 32..34 36..38 40..42");
        assert_eq!(cyclic, view(104, 12, &[run(0, 4, 1, 0)]).unwrap());
        let bytes = postcard::to_stdvec(&two).unwrap();
        assert_eq!(postcard::from_bytes::<View>(&bytes).unwrap(), two);
    }

    #[test]
    fn only_ascending_views_exist() {
        let check = |displacement, tile, runs: &[Run], error| {
            assert_eq!(view(displacement, tile, runs).err(), error);
        };
        check(0, 8, &[], Some(ViewError::Empty));
        check(0, 8, &[run(4, 4, 1, 0), run(0, 4, 1, 0)], Some(ViewError::Order));
        check(0, 8, &[run(0, 4, 1, 0), run(3, 4, 1, 0)], Some(ViewError::Order));
        check(0, 11, &[run(0, 4, 2, 8)], Some(ViewError::Order)); // tiles interlock
        check(0, 12, &[run(9, 4, 2, 8)], None); // but not where only the gap before is longer
        let far = RunError::TooFar { start: OFFSET_MAX - 3 };
        check(OFFSET_MAX - 3, 8, &[run(0, 4, 1, 0)], Some(ViewError::TooFar(far)));
    }

    #[test]
    fn streams_end_where_files_do() {
        let view = view(OFFSET_MAX - 10, 4, &[run(0, 2, 1, 0)]).unwrap();
        check(
            &view,
            (0, u64::MAX),
            &format!(
                "{}..{} {}..{} {}..{}",
                OFFSET_MAX - 10,
                OFFSET_MAX - 8,
                OFFSET_MAX - 6,
                OFFSET_MAX - 4,
                OFFSET_MAX - 2,
                OFFSET_MAX
            ),
        );
        assert_eq!(view.forward(StreamOffset(6)), None);
        assert_eq!(view.forward(StreamOffset(u64::MAX)), None);
        check(&view, (u64::MAX, u64::MAX), "");
    }

    prop_compose! {
        /// One to three runs, a few hundred bytes a tile.
        pub(crate) fn any_view()(
            displacement in 0..50u64, gap in 0..9u64,
            runs in prop::collection::vec((any_run(), 0..9u64), 1..4)
        ) -> View {
            let mut end = 0;
            let runs: Vec<_> = runs.into_iter().map(|(run, gap)| {
                let run = run.starting_at(GlobalOffset(end + gap)).unwrap();
                end = run.span().end().0;
                run
            }).collect();
            view(displacement, end + gap, &runs).unwrap()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn forward_and_backward_agree_with_listing_each_byte(view in any_view()) {
            let bytes = naive::view(&view, 3);
            for (at, offset) in (0..).map(StreamOffset).zip(&bytes) {
                prop_assert_eq!(view.forward(at), Some(*offset));
            }
            let mut before = 0;
            for offset in (0..bytes.last().unwrap().0).map(GlobalOffset) {
                prop_assert_eq!(view.rank(offset), StreamOffset(before as u64));
                let is_selected = bytes[before] == offset;
                let expected = is_selected.then_some(StreamOffset(before as u64));
                prop_assert_eq!(view.backward(offset), expected);
                before += usize::from(is_selected);
            }
        }

        #[test]
        fn windows_agree_with_listing_each_byte(view in any_view(), start in 0..300u64, len in 0..300u64) {
            let tiles = (start + len) / view.tile_len().0 + 1;
            let bytes = naive::view(&view, tiles);
            let window = view.window(StreamOffset(start), ByteCount(len));
            let extents: Vec<_> = view.extents(window).collect();
            let found: Vec<_> = extents.iter()
                .flat_map(|extent| (extent.start().0..extent.end().0).map(GlobalOffset))
                .collect();
            prop_assert_eq!(&found[..], &bytes[start as usize..(start + len) as usize]);
            prop_assert!(extents.windows(2).all(|pair| pair[0].end() < pair[1].start()));
            let mut walked = Vec::new();
            view.walk(window, &mut |extent| {
                walked.extend((extent.start().0..extent.end().0).map(GlobalOffset));
            });
            prop_assert_eq!(&walked, &found);

            let file = Extent::new(GlobalOffset(start), ByteCount(len)).unwrap();
            let within = view.within(file);
            let found: Vec<_> = (within.start().0..within.end().0)
                .map(|at| view.forward(StreamOffset(at)).unwrap())
                .collect();
            let bytes = naive::view(&view, (start + len) / view.tile().0 + 1);
            let expected: Vec<_> = bytes.into_iter().filter(|byte| file.contains(*byte)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
