//! Reading with the view that wrote: one stretch of one part, whatever the number of blocks.
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
    Boxes,
    family::{Family, Member, Pattern},
};
use crate::{
    Epoch, Extent, GlobalOffset, LocalExtent, LocalOffset, StreamExtent, StreamMap, StreamOffset,
    View,
};

/// Blocks of one tile that are looked at; a tile of more is not simple.
const BLOCKS_MAX: usize = 1 << 14;

/// Blocks that are compared to find whether one record is alone: milliseconds.
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
    part: u16,
    place: LocalOffset,
    is_alone: OnceLock<bool>,
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

    /// Where the first bytes of `window` lie, as many as one record holds alone.
    pub(super) fn find(
        &self,
        view: &View,
        window: StreamExtent,
        families: &Boxes<Family>,
    ) -> Option<(u16, LocalExtent)> {
        let (view, slot) = self.views.get_key_value(view)?;
        let all = &self.stretches[*slot];
        let behind = all.partition_point(|stretch| stretch.window.start() <= window.start());
        let stretch = all[..behind].last()?;
        let both =
            stretch.window.intersect(window).filter(|both| both.start() == window.start())?;
        if !*stretch.is_alone.get_or_init(|| stretch.is_alone(view, families)) {
            return None;
        }
        let to_place = |at: StreamOffset| stretch.place.0 + (at.0 - stretch.window.start().0);
        let local = LocalExtent::within_valid(to_place(both.start()), to_place(both.end()));
        Some((stretch.part, local))
    }
}

impl Stretch {
    fn is_alone(&self, view: &Arc<View>, families: &Boxes<Family>) -> bool {
        let Some(own) = Tile::of_view(view) else { return false };
        let mut left = COMPARED_MAX;
        let mut is_alone = true;
        families.for_each(self.span, |family| {
            is_alone = is_alone && family.is_apart(self, view, &own, &mut left);
        });
        is_alone
    }
}

impl Family {
    /// Whether no member but the record itself has one of its bytes.
    fn is_apart(&self, own: &Stretch, view: &Arc<View>, tile: &Tile, left: &mut usize) -> bool {
        let pattern = self.pattern();
        let others =
            self.members().filter(|(_, part, place)| (*part, *place) != (own.part, own.place));
        // Windows of one stream share no byte of the file unless they share one of the stream.
        if let Pattern::View(other) = pattern
            && (Arc::ptr_eq(other, view) || other == view)
            && !self.window().overlaps(own.window)
        {
            let mut shifted = others.filter(|(shift, ..)| *shift != 0);
            return shifted.next().is_none();
        }
        let theirs = Tile::of(pattern);
        let start = pattern.start().0;
        let mut others = others;
        others.all(|(shift, ..)| match &theirs {
            Shape::Tiles(theirs) => tile.is_apart(theirs, start + shift, left),
            Shape::Extent(len) => {
                let extent = Extent::within_valid(start + shift, start + shift + len);
                let shared = view.within(extent).intersect(own.window);
                shared.is_none()
            }
            Shape::Other => false,
        })
    }
}

/// Blocks that repeat for ever, counted from the first byte.
struct Tile {
    start: u64,
    period: u64,
    /// Where each begins, and its length; ascending, within the period.
    blocks: Vec<(u64, u64)>,
}

enum Shape {
    Tiles(Tile),
    /// So many bytes behind each other.
    Extent(u64),
    Other,
}

impl Tile {
    fn of(pattern: &Pattern) -> Shape {
        match pattern {
            Pattern::View(view) => Self::of_view(view).map_or(Shape::Other, Shape::Tiles),
            Pattern::Run(run) => match run.levels() {
                [] => Shape::Extent(run.block().0),
                [level] => Shape::Tiles(Self {
                    start: run.start().0,
                    period: level.stride.0,
                    blocks: vec![(0, run.block().0)],
                }),
                _ => Shape::Other,
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
