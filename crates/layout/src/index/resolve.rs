//! Resolving: of all that was written to an extent, what is to be read.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::Found;
use crate::{Epoch, Extent, GlobalOffset, LocalExtent, LocalOffset, Piece, ServerId};

/// How one record stands against another that selects the same byte. Larger wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) epoch: Epoch,
    /// By rank at open, then by writer id: the lower wins.
    pub(super) writer: u16,
    /// Which record of that writer: the later wins.
    pub(super) nth: u64,
}

impl Ord for Standing {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |own: &Self| (own.epoch, Reverse(own.writer), own.nth);
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
    pub(super) part: u16,
    /// Where its first byte lies in the part.
    pub(super) place: LocalOffset,
    pub(super) standing: Standing,
}

/// What of `candidates`, all inside `extent`, is visible; and the holes between. O(m log m).
pub(super) fn resolve(
    extent: Extent,
    mut candidates: Vec<Candidate>,
    server: impl Fn(u16) -> ServerId,
) -> Vec<Found> {
    candidates.sort_unstable_by_key(|candidate| candidate.extent.start());
    let mut found = Joined { found: Vec::new(), origin: extent.start() };
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
            found.push(Found::Hole(Extent::within_valid(at, next)));
            at = next;
            continue;
        };
        let (winner, end) = (&candidates[*winner], next.min(*end));
        let place = winner.place.0 + (at - winner.extent.start().0);
        found.push(Found::Bytes(Piece {
            part: winner.part,
            server: server(winner.part),
            local: LocalExtent::within_valid(place, place + (end - at)),
            extent: Extent::within_valid(at, end),
            buffer: at - extent.start().0,
        }));
        at = end;
    }
    found.found
}

/// Pieces in file order, neighbours that are one joined.
struct Joined {
    found: Vec<Found>,
    origin: GlobalOffset,
}

impl Joined {
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
                last.buffer = start - self.origin.0;
            }
            _ => self.found.push(next),
        }
    }
}
