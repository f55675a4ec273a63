//! Resolving: of all that was written to an extent, what is to be read.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::Found;
use crate::{Epoch, Extent, GlobalOffset, LocalExtent, LocalOffset, Piece, ServerId};

/// How one record stands against another that selects the same byte. Larger wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) epoch: Epoch,
    /// By rank at open, then by writer id: the lower wins.
    pub(super) writer: u32,
    /// Where that writer's record begins in its part: the later wins.
    pub(super) place: LocalOffset,
}

impl Ord for Standing {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |own: &Self| (own.epoch, Reverse(own.writer), own.place);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Standing {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// One block of one record. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) extent: Extent,
    pub(super) part: u32,
    /// Where its first byte lies in the part.
    pub(super) place: LocalOffset,
    pub(super) standing: Standing,
}

/// What of `candidates`, all inside `extent`, is visible, and the holes between: into `found`, which is
/// emptied before. O(m) where they come in order and none overlaps another, O(m log m) otherwise.
pub(super) fn resolve(
    extent: Extent,
    candidates: &mut [Candidate],
    server: impl Fn(u32) -> ServerId,
    found: &mut Vec<Found>,
) {
    found.clear();
    let mut joined = Joined { found, origin: extent.start() };
    let is_simple = |pair: &[Candidate]| pair[0].extent.end() <= pair[1].extent.start();
    if candidates.windows(2).all(is_simple) {
        each_alone(extent, candidates, server, &mut joined);
    } else {
        candidates.sort_unstable_by_key(|candidate| candidate.extent.start());
        if candidates.windows(2).all(is_simple) {
            each_alone(extent, candidates, server, &mut joined);
        } else {
            winners(extent, candidates, server, &mut joined);
        }
    }
}

/// None overlaps another.
fn each_alone(
    extent: Extent,
    candidates: &[Candidate],
    server: impl Fn(u32) -> ServerId,
    joined: &mut Joined<'_>,
) {
    let mut at = extent.start().0;
    for candidate in candidates {
        let (start, end) = (candidate.extent.start().0, candidate.extent.end().0);
        if at < start {
            joined.push(Found::Hole(Extent::within_valid(at, start)));
        }
        joined.push(candidate.bytes(start, end, &server));
        at = end;
    }
    if at < extent.end().0 {
        joined.push(Found::Hole(Extent::within_valid(at, extent.end().0)));
    }
}

/// By order of where they begin.
fn winners(
    extent: Extent,
    candidates: &[Candidate],
    server: impl Fn(u32) -> ServerId,
    joined: &mut Joined<'_>,
) {
    let mut waiting = candidates.iter().peekable();
    let mut active: BinaryHeap<(Standing, u64, usize)> = BinaryHeap::new();
    let mut seen = 0;
    let mut at = extent.start().0;
    while at < extent.end().0 {
        while let Some(next) = waiting.next_if(|next| next.extent.start().0 <= at) {
            active.push((next.standing, next.extent.end().0, seen));
            seen += 1;
        }
        while active.peek().is_some_and(|(_, end, _)| *end <= at) {
            active.pop();
        }
        // What wins here wins until it ends, or until something else begins.
        let next = waiting.peek().map_or(extent.end().0, |next| next.extent.start().0);
        let Some((_, end, winner)) = active.peek() else {
            joined.push(Found::Hole(Extent::within_valid(at, next)));
            at = next;
            continue;
        };
        let end = next.min(*end);
        joined.push(candidates[*winner].bytes(at, end, &server));
        at = end;
    }
}

impl Candidate {
    /// Its bytes `start..end` of the file.
    fn bytes(&self, start: u64, end: u64, server: impl Fn(u32) -> ServerId) -> Found {
        let place = self.place.0 + (start - self.extent.start().0);
        Found::Bytes(Piece {
            part: self.part,
            server: server(self.part),
            local: LocalExtent::within_valid(place, place + (end - start)),
            extent: Extent::within_valid(start, end),
            buffer: 0, // when it is joined
        })
    }
}

/// Pieces in file order, neighbours that are one joined.
struct Joined<'a> {
    found: &'a mut Vec<Found>,
    origin: GlobalOffset,
}

impl Joined<'_> {
    fn push(&mut self, next: Found) {
        match (self.found.last_mut(), next) {
            (Some(Found::Hole(last)), Found::Hole(more)) => {
                *last = Extent::within_valid(last.start().0, more.end().0);
            }
            (Some(Found::Bytes(last)), Found::Bytes(more))
                if last.part == more.part && last.local.end() == more.local.start() =>
            {
                let start = last.extent.start().0;
                last.local = LocalExtent::within_valid(last.local.start().0, more.local.end().0);
                last.extent = Extent::within_valid(start, more.extent.end().0);
            }
            (_, Found::Bytes(mut piece)) => {
                piece.buffer = piece.extent.start().0 - self.origin.0;
                self.found.push(Found::Bytes(piece));
            }
            (_, hole) => self.found.push(hole),
        }
    }
}
