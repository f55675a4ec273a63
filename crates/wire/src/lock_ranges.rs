//! The ranges that one owner holds of one inode: split and merged as fcntl(2) says.
//!
//! Kept at the home of the inode, which decides by them, and by the process that holds them, which
//! tells them again to a home that was started anew.

use crate::message::{LockKind, LockRange};

/// One range that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRange {
    /// The bytes.
    pub range: LockRange,
    /// How.
    pub kind: LockKind,
    /// For people and `F_GETLK`.
    pub pid: u32,
}

/// By where they begin; disjoint.
#[derive(Debug, Default)]
pub struct LockRanges(Vec<HeldRange>);

impl LockRanges {
    /// How many ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Nothing is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first that stands against such a lock of another owner.
    pub fn conflict(&self, range: LockRange, kind: LockKind) -> Option<HeldRange> {
        let excludes = |held: &&HeldRange| held.range.overlaps(range) && held.kind.excludes(kind);
        self.0.iter().find(excludes).copied()
    }

    /// Whether all of `range` is held, at least so.
    pub fn covers(&self, range: LockRange, kind: LockKind) -> bool {
        let strong = |held: &&HeldRange| kind == LockKind::Shared || held.kind == kind;
        let mut next = range.start;
        for held in self.0.iter().filter(strong) {
            if held.range.start > next {
                return false;
            }
            if held.range.last >= range.last {
                return true;
            }
            next = next.max(held.range.last.saturating_add(1));
        }
        false
    }

    /// Locks `range` so, whatever it was before.
    pub fn set(&mut self, mut range: LockRange, kind: LockKind, pid: u32) {
        self.clear(range);
        self.0.retain(|held| {
            let merges = held.kind == kind && held.range.touches(range);
            if merges {
                range.start = range.start.min(held.range.start);
                range.last = range.last.max(held.range.last);
            }
            !merges
        });
        let at = self.0.partition_point(|held| held.range.start < range.start);
        self.0.insert(at, HeldRange { range, kind, pid });
    }

    /// Gives up `range`; what reaches beyond it on either side stays.
    pub fn clear(&mut self, range: LockRange) {
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for held in self.0.drain(..) {
            if !held.range.overlaps(range) {
                left.push(held);
                continue;
            }
            if held.range.start < range.start {
                left.push(HeldRange {
                    range: LockRange { last: range.start - 1, ..held.range },
                    ..held
                });
            }
            if held.range.last > range.last {
                left.push(HeldRange {
                    range: LockRange { start: range.last + 1, ..held.range },
                    ..held
                });
            }
        }
        self.0 = left;
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &HeldRange> {
        self.0.iter()
    }
}
