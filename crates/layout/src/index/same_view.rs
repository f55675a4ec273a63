//! Reading with the view that wrote: one stretch of one part, whatever the number of blocks. Of one layer; of several:
//! [`super::judged`].
//!
//! A record through a view holds the bytes of its window behind each other. Where nothing else ever wrote
//! one of these bytes (the record is *alone*), whoever reads through an equal view needs no lookup per
//! block. Whether it is alone is found once, when it is asked for first, by arithmetic on one tile of each
//! record that comes near; where that is not simple, the answer is no, and lookups tell.
//! Source: paper 001, section 5.3.2 (reading with the same view touches the own part only).

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use super::{
    boxes::Boxes,
    family::{Family, Member, Pattern},
};
use crate::{
    Epoch, Extent, GlobalOffset, LocalExtent, LocalOffset, Run, StreamExtent, StreamMap,
    StreamOffset, View,
};

/// Runs of one tile that are compared with those of another as runs, each with each; more are compared block
/// by block.
const RUNS_MAX: usize = 64;

/// Blocks of one tile that are looked at; a tile of more is not simple.
const BLOCKS_MAX: usize = 1 << 14;

/// Blocks or runs that are compared to find whether one record is alone: milliseconds.
const COMPARED_MAX: usize = 1 << 22;

/// Records through views, by view, in order of their windows.
#[derive(Clone, Debug, Default)]
pub(super) struct SameView {
    views: HashMap<Arc<View>, usize>,
    /// Of each view.
    stretches: Vec<Vec<Stretch>>,
}

/// One record.
#[derive(Clone, Debug)]
struct Stretch {
    window: StreamExtent,
    span: Extent,
    part: u32,
    place: LocalOffset,
    /// In its layer.
    is_alone: OnceLock<bool>,
}

/// The record that holds the first byte of a window.
pub(super) struct At<'a> {
    view: &'a Arc<View>,
    /// Which view and record, in its layer.
    pub(super) slot: usize,
    pub(super) record: usize,
    stretch: &'a Stretch,
    /// What is in the window too.
    both: StreamExtent,
}

impl At<'_> {
    /// Whether no record of its own layer has one of its bytes, but itself; found once.
    pub(super) fn is_alone_in_layer(&self, families: &Boxes<Family>) -> bool {
        *self.stretch.is_alone.get_or_init(|| self.is_alone(families))
    }

    /// Whether no record of these has one of its bytes, but itself.
    pub(super) fn is_alone(&self, families: &Boxes<Family>) -> bool {
        self.stretch.is_alone(self.view, families)
    }

    /// Its part, and where the bytes that are in the window lie there.
    pub(super) fn place(&self) -> (u32, LocalExtent) {
        let Self { stretch, both, .. } = self;
        let to_place = |at: StreamOffset| stretch.place.0 + (at.0 - stretch.window.start().0);
        let local = LocalExtent::within_valid(to_place(both.start()), to_place(both.end()));
        (stretch.part, local)
    }
}

impl SameView {
    /// `bound` tells for an epoch where its bytes end.
    pub(super) fn gather(members: &[Member], bound: impl Fn(Epoch) -> GlobalOffset) -> Self {
        let mut gathered = Self::default();
        // Most records of a writer share one view: its runs are hashed once.
        let mut known: HashMap<*const View, usize> = HashMap::new();
        for member in members {
            let (Pattern::View(view), span) = (&member.pattern, member.span()) else { continue };
            if span.end() > bound(member.standing.epoch) {
                continue; // a cut took some of it
            }
            let slot = *known.entry(Arc::as_ptr(view)).or_insert_with(|| gathered.slot(view));
            let Member { window, part, place, .. } = *member;
            let stretch = Stretch { window, span, part, place, is_alone: OnceLock::new() };
            gathered.stretches[slot].push(stretch);
        }
        gathered.stretches.iter_mut().for_each(|all| all.sort_by_key(|stretch| stretch.window));
        gathered
    }

    fn slot(&mut self, view: &Arc<View>) -> usize {
        let next = self.stretches.len();
        let slot = *self.views.entry(Arc::clone(view)).or_insert(next);
        if slot == next {
            self.stretches.push(Vec::new());
        }
        slot
    }

    /// The record through an equal view in which the window begins.
    pub(super) fn at(&self, view: &View, window: StreamExtent) -> Option<At<'_>> {
        let (view, slot) = self.views.get_key_value(view)?;
        let all = &self.stretches[*slot];
        let behind = all.partition_point(|stretch| stretch.window.start() <= window.start());
        let record = behind.checked_sub(1)?;
        let stretch = &all[record];
        let both = stretch.window.intersect(window);
        let both = both.filter(|both| both.start() == window.start())?;
        Some(At { view, slot: *slot, record, stretch, both })
    }
}

impl Stretch {
    /// Whether no record of these has one of its bytes, but itself.
    fn is_alone(&self, view: &Arc<View>, families: &Boxes<Family>) -> bool {
        let own = Own {
            stretch: self,
            view,
            runs: runs_of_view(view, self.window),
            tile: OnceLock::new(),
        };
        let mut left = COMPARED_MAX;
        let mut is_alone = true;
        families.for_each(self.span, |family| {
            is_alone = is_alone && family.is_apart(&own, &mut left);
        });
        is_alone
    }
}

/// A record that is compared with others.
struct Own<'a> {
    stretch: &'a Stretch,
    view: &'a Arc<View>,
    /// `None` where there are too many.
    runs: Option<Vec<Run>>,
    /// One tile, for records that have too many runs; `None` where that has too many blocks.
    tile: OnceLock<Option<Tile>>,
}

impl Family {
    /// Whether no member but the record itself has one of its bytes.
    fn is_apart(&self, own: &Own<'_>, left: &mut usize) -> bool {
        let Stretch { part, place, window, .. } = *own.stretch;
        let pattern = self.pattern();
        let mut others = self.members().filter(|(_, other, at)| (*other, *at) != (part, place));
        // Windows of one stream share no byte of the file unless they share one of the stream.
        if let Pattern::View(other) = pattern
            && (Arc::ptr_eq(other, own.view) || other == own.view)
            && !self.window().overlaps(window)
        {
            return others.all(|(shift, ..)| shift == 0);
        }
        let start = pattern.start().0;
        if let Pattern::Run(run) = pattern
            && run.levels().is_empty()
        {
            return others.all(|(shift, ..)| {
                let end = start + shift + run.block().0;
                own.view
                    .within(Extent::within_valid(start + shift, end))
                    .intersect(window)
                    .is_none()
            });
        }
        let theirs = match pattern {
            Pattern::Run(run) => Some(vec![run.clone()]),
            Pattern::View(view) => runs_of_view(view, self.window()),
        };
        match (&own.runs, theirs) {
            (Some(runs), Some(theirs)) => {
                others.all(|(shift, ..)| are_apart(runs, &theirs, shift, left))
            }
            _ => {
                let Some(tile) = own.tile.get_or_init(|| Tile::of_view(own.view)) else {
                    return false;
                };
                let Some(theirs) = Tile::of(pattern) else { return false };
                others.all(|(shift, ..)| tile.is_apart(&theirs, start + shift, left))
            }
        }
    }
}

/// The bytes of a window of a view, or more bytes of the same tiles, as few runs; `None` where that is not
/// possible.
fn runs_of_view(view: &View, window: StreamExtent) -> Option<Vec<Run>> {
    if view.runs().len() > RUNS_MAX {
        return None;
    }
    let (tile, len) = (view.tile(), view.tile_len().0);
    let (first, behind) = (window.start().0 / len, window.end().0.div_ceil(len));
    let at = view.start().0.checked_add(first.checked_mul(tile.0)?)?;
    let run = |run: &Run| {
        let moved = run.clone().starting_at(GlobalOffset(at.checked_add(run.start().0)?)).ok()?;
        moved.repeat(behind.checked_sub(first)?, tile).ok()
    };
    view.runs().iter().map(run).collect()
}

/// Whether no byte is in both when the others are shifted; false when it takes too long to tell.
fn are_apart(own: &[Run], others: &[Run], shift: u64, left: &mut usize) -> bool {
    others.iter().all(|other| {
        let start = GlobalOffset(other.start().0 + shift);
        let Ok(other) = other.clone().starting_at(start) else { return false };
        own.iter().all(|own| !own.may_overlap(&other, left))
    })
}

/// Blocks that repeat for ever, counted from the first byte.
struct Tile {
    start: u64,
    period: u64,
    /// Where each begins, and its length; ascending, within the period.
    blocks: Vec<(u64, u64)>,
}

impl Tile {
    fn of(pattern: &Pattern) -> Option<Self> {
        match pattern {
            Pattern::View(view) => Self::of_view(view),
            Pattern::Run(run) => match run.levels() {
                [level] => Some(Self {
                    start: run.start().0,
                    period: level.stride.0,
                    blocks: vec![(0, run.block().0)],
                }),
                _ => None,
            },
        }
    }

    fn of_view(view: &View) -> Option<Self> {
        let start = view.start().0;
        let tile = StreamExtent::within_valid(0, view.tile_len().0);
        let blocks: Vec<_> = view
            .extents(tile)
            .take(BLOCKS_MAX + 1)
            .map(|extent| (extent.start().0 - start, extent.len().0))
            .collect();
        let period = view.tile().0;
        (blocks.len() <= BLOCKS_MAX).then_some(Self { start, period, blocks })
    }

    /// Whether no byte is in both when the other begins at `start`; false when that is not simple, or
    /// more would have to be compared than is `left`.
    fn is_apart(&self, other: &Self, start: u64, left: &mut usize) -> bool {
        let work = self.blocks.len() + other.blocks.len();
        if self.period != other.period || *left < work {
            return false;
        }
        *left -= work;
        let period = self.period;
        // Where the other's first byte is within our period.
        let shift = (start % period + period - self.start % period) % period;
        let wrapped = other.blocks.partition_point(|(at, _)| at + shift < period);
        // The last block before the end of the period may reach over it, into the next one's beginning.
        let over = wrapped.checked_sub(1).map_or(0, |last| {
            let (at, len) = other.blocks[last];
            (at + shift + len).saturating_sub(period)
        });
        let turned = other.blocks[wrapped..].iter().map(|(at, len)| (at + shift - period, *len));
        let kept = other.blocks[..wrapped].iter().map(|(at, len)| (at + shift, *len));
        let mut theirs = [(0, over)].into_iter().chain(turned).chain(kept).peekable();
        self.blocks.iter().all(|(at, len)| {
            while theirs.next_if(|(theirs, len)| theirs + len <= *at).is_some() {}
            theirs.peek().is_none_or(|(theirs, _)| *theirs >= at + len)
        })
    }
}
