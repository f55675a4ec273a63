//! Families: records that differ only by a shift and by who wrote them.
//!
//! Block, cyclic and tile decompositions give each writer the same pattern, shifted by less than the
//! distance of two blocks. Such records are one family: a lookup walks the blocks of the first member and
//! finds the others of each block by binary search, so that its cost does not grow with the writers.

use std::{cmp::Ordering, sync::Arc};

use super::{Candidate, Standing};
use crate::{
    ByteCount, Epoch, Extent, GlobalOffset, LocalOffset, Run, StreamExtent, StreamMap,
    StreamOffset, View,
};

/// What a record selects bytes by.
#[derive(Clone, Debug)]
pub(super) enum Pattern {
    Run(Run),
    View(Arc<View>),
}

impl Pattern {
    pub(super) fn start(&self) -> GlobalOffset {
        match self {
            Self::Run(run) => run.start(),
            Self::View(view) => view.start(),
        }
    }

    /// Any total order in which patterns of equal shape are equal.
    fn compare_shapes(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Run(a), Self::Run(b)) => (a.block(), a.levels()).cmp(&(b.block(), b.levels())),
            (Self::View(a), Self::View(b)) if Arc::ptr_eq(a, b) => Ordering::Equal,
            (Self::View(a), Self::View(b)) => (a.tile(), a.runs()).cmp(&(b.tile(), b.runs())),
            (Self::Run(_), Self::View(_)) => Ordering::Less,
            (Self::View(_), Self::Run(_)) => Ordering::Greater,
        }
    }

    /// From one block to the next, where that is regular; members shifted by less than this share the
    /// walk of one block.
    fn pitch(&self) -> ByteCount {
        match self {
            Self::Run(run) => run.levels().first().map_or(ByteCount::ZERO, |level| level.stride),
            Self::View(view) => match view.runs() {
                [run] => run.levels().first().map_or(view.tile(), |level| level.stride),
                runs => {
                    let steps = runs.windows(2).map(|pair| pair[1].start().0 - pair[0].start().0);
                    let strides = runs.iter().flat_map(Run::levels).map(|level| level.stride.0);
                    ByteCount(steps.chain(strides).min().unwrap_or(view.tile().0))
                }
            },
        }
    }
}

impl StreamMap for Pattern {
    fn stretch(&self, offset: StreamOffset) -> Option<(GlobalOffset, ByteCount)> {
        match self {
            Self::Run(run) => run.stretch(offset),
            Self::View(view) => view.stretch(offset),
        }
    }

    fn rank(&self, offset: GlobalOffset) -> StreamOffset {
        match self {
            Self::Run(run) => run.rank(offset),
            Self::View(view) => view.rank(offset),
        }
    }

    fn walk(&self, window: StreamExtent, visit: &mut impl FnMut(Extent)) {
        match self {
            Self::Run(run) => run.walk(window, visit),
            Self::View(view) => view.walk(window, visit),
        }
    }
}

/// One record.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) pattern: Pattern,
    pub(super) window: StreamExtent,
    pub(super) part: u32,
    pub(super) place: LocalOffset,
    pub(super) standing: Standing,
}

impl Member {
    fn compare_families(&self, other: &Self) -> Ordering {
        self.pattern
            .compare_shapes(&other.pattern)
            .then(self.standing.epoch.cmp(&other.standing.epoch))
            .then(self.window.cmp(&other.window))
    }

    /// From its first byte to its last.
    pub(super) fn span(&self) -> Extent {
        let at = |offset| self.pattern.forward(StreamOffset(offset)).map(|offset| offset.0);
        let (first, last) = (at(self.window.start().0), at(self.window.end().0 - 1));
        let checked = "the window was checked against the pattern, and is not empty";
        Extent::within_valid(first.expect(checked), last.expect(checked) + 1)
    }
}

/// How a member differs from the first one.
#[derive(Clone, Copy, Debug)]
struct Sibling {
    shift: u64,
    part: u32,
    place: LocalOffset,
    standing: Standing,
}

/// Records of one epoch and one shape.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// Of the first member.
    pattern: Pattern,
    window: StreamExtent,
    /// By shift; the first is 0.
    siblings: Vec<Sibling>,
    /// No byte outside counts.
    reach: Extent,
}

/// Puts records into families. `bound` tells for an epoch where its bytes end.
pub(super) fn gather(
    mut members: Vec<Member>,
    bound: impl Fn(Epoch) -> GlobalOffset,
) -> Vec<Family> {
    members.sort_by(|a, b| {
        a.compare_families(b).then_with(|| a.pattern.start().cmp(&b.pattern.start()))
    });
    members
        .chunk_by(|a, b| a.compare_families(b).is_eq())
        .flat_map(|alike| {
            let pitch = alike[0].pattern.pitch().0;
            let bound = bound(alike[0].standing.epoch);
            split(alike, pitch).into_iter().map(move |members| Family::new(members, bound))
        })
        .collect()
}

/// Splits members, sorted by start, so that in each piece all begin less than `pitch` behind the first.
fn split(mut members: &[Member], pitch: u64) -> Vec<&[Member]> {
    let mut pieces = Vec::new();
    while let Some(first) = members.first() {
        let first = first.pattern.start().0;
        // At least the first one, whatever the pitch.
        let count =
            members.partition_point(|member| member.pattern.start().0 - first < pitch.max(1));
        let (piece, rest) = members.split_at(count);
        pieces.push(piece);
        members = rest;
    }
    pieces
}

impl Family {
    /// `members` are alike and sorted by start; at least one.
    fn new(members: &[Member], bound: GlobalOffset) -> Self {
        let first = &members[0];
        let start = first.pattern.start().0;
        let siblings: Vec<_> = members
            .iter()
            .map(|member| Sibling {
                shift: member.pattern.start().0 - start,
                part: member.part,
                place: member.place,
                standing: member.standing,
            })
            .collect();
        let end = members.last().map_or(GlobalOffset(0), |last| last.span().end());
        let end = end.min(bound).0;
        let reach = Extent::within_valid(first.span().start().0.min(end), end);
        Self { pattern: first.pattern.clone(), window: first.window, siblings, reach }
    }

    /// Of the first member.
    pub(super) fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Of each member.
    pub(super) fn window(&self) -> StreamExtent {
        self.window
    }

    /// How far each is shifted, its part, and its place there.
    pub(super) fn members(&self) -> impl Iterator<Item = (u64, u32, LocalOffset)> + '_ {
        self.siblings.iter().map(|sibling| (sibling.shift, sibling.part, sibling.place))
    }

    pub(super) fn reach(&self) -> Extent {
        self.reach
    }

    /// Adds every block of every member in `extent`.
    pub(super) fn candidates(&self, extent: Extent, found: &mut Vec<Candidate>) {
        let Some(extent) = extent.intersect(self.reach) else { return };
        let shift_max = self.siblings.last().map_or(0, |last| last.shift);
        let from = extent.start().0.saturating_sub(shift_max);
        let window = self.pattern.within(Extent::within_valid(from, extent.end().0));
        let Some(window) = window.intersect(self.window) else { return };
        let mut at = window.start().0 - self.window.start().0; // from the start of the record
        self.pattern.walk(window, &mut |block| {
            // Shifted by so much, it ends behind the start of `extent` and begins before its end.
            let least = (extent.start().0 + 1).saturating_sub(block.end().0);
            let behind = extent.end().0 - block.start().0;
            // Most blocks lie inside: all siblings touch, and nothing is to be searched for.
            let first = match least {
                0 => 0,
                _ => self.siblings.partition_point(|sibling| sibling.shift < least),
            };
            let touched = self.siblings[first..].iter().take_while(|next| next.shift < behind);
            for sibling in touched {
                let (start, end) = (block.start().0 + sibling.shift, block.end().0 + sibling.shift);
                let clipped = (start.max(extent.start().0), end.min(extent.end().0));
                found.push(Candidate {
                    extent: Extent::within_valid(clipped.0, clipped.1),
                    part: sibling.part,
                    place: LocalOffset(sibling.place.0 + at + (clipped.0 - start)),
                    standing: sibling.standing,
                });
            }
            at += block.len().0;
        });
    }
}
