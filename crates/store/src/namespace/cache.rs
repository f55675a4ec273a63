//! Decoded inodes that were used lately.
//!
//! Here: a map of two generations: when the young one is full it becomes the old one, and what is
//! used again moves back. Constant time, bounded, no list of uses.
//! Not here: who may put something in (only a commit or a read of the store).

use std::collections::HashMap;

use hayase_layout::InodeId;

use super::Inode;

/// Inodes of one generation; twice as many at most are kept (about 300 B each).
pub(super) const GENERATION_MAX: usize = 8 * 1024;

/// See the module header.
#[derive(Default)]
pub(super) struct InodeCache {
    young: HashMap<InodeId, Inode>,
    old: HashMap<InodeId, Inode>,
}

impl InodeCache {
    /// An empty cache.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// The inode, if it is here.
    pub(super) fn get(&mut self, ino: InodeId) -> Option<&Inode> {
        if let Some(inode) = self.old.remove(&ino) {
            self.put(inode);
        }
        self.young.get(&ino)
    }

    /// Keeps `inode`, in the place of what was known before.
    pub(super) fn put(&mut self, inode: Inode) {
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&inode.ino);
        self.young.insert(inode.ino, inode);
    }

    /// Forgets one inode.
    pub(super) fn remove(&mut self, ino: InodeId) {
        self.young.remove(&ino);
        self.old.remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use hayase_layout::InodeId;

    use super::*;
    use crate::namespace::{FileKind, Time};

    fn inode(counter: u64) -> Inode {
        Inode::new(InodeId(counter), FileKind::Regular, Time::default())
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mut cache = InodeCache::new();
        cache.put(inode(1));
        for counter in 2..100_000 {
            cache.put(inode(counter));
            if counter % 1000 == 0 {
                assert!(cache.get(InodeId(1)).is_some(), "used often, so kept");
            }
            assert!(cache.young.len() + cache.old.len() <= 2 * GENERATION_MAX);
        }
        assert!(cache.get(InodeId(2)).is_none(), "not used, so forgotten");
        cache.remove(InodeId(1));
        assert!(cache.get(InodeId(1)).is_none());
    }

    #[test]
    fn the_last_value_counts_in_both_generations() {
        let mut cache = InodeCache::new();
        cache.put(inode(1));
        (2..GENERATION_MAX as u64 + 3).for_each(|counter| cache.put(inode(counter)));
        cache.put(Inode { mode: 0o700, ..inode(1) });
        assert_eq!(cache.get(InodeId(1)).unwrap().mode, 0o700);
        cache.remove(InodeId(1));
        assert!(cache.get(InodeId(1)).is_none());
    }
}
