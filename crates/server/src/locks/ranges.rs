//! The ranges that one owner holds of one inode: split and merged as fcntl(2) says.

use hayase_wire::message::{LockKind, LockRange};

/// One range that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) range: LockRange,
    pub(crate) kind: LockKind,
    pub(crate) pid: u32,
}

/// By where they begin; disjoint.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<Held>);

impl Ranges {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn conflict(&self, range: LockRange, kind: LockKind) -> Option<Held> {
        let excludes = |held: &&Held| held.range.overlaps(range) && held.kind.excludes(kind);
        self.0.iter().find(excludes).copied()
    }

    /// Locks `range` so, whatever it was before.
    pub(super) fn set(&mut self, mut range: LockRange, kind: LockKind, pid: u32) {
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
        self.0.insert(at, Held { range, kind, pid });
    }

    /// Gives up `range`; what reaches beyond it on either side stays.
    pub(super) fn clear(&mut self, range: LockRange) {
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for held in self.0.drain(..) {
            if !held.range.overlaps(range) {
                left.push(held);
                continue;
            }
            if held.range.start < range.start {
                left.push(Held {
                    range: LockRange { last: range.start - 1, ..held.range },
                    ..held
                });
            }
            if held.range.last > range.last {
                left.push(Held {
                    range: LockRange { start: range.last + 1, ..held.range },
                    ..held
                });
            }
        }
        self.0 = left;
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.0.iter()
    }
}
