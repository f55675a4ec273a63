//! Inodes that the kernel knows, with its references.
//!
//! Node ids are inode numbers, so nothing is translated here. What is kept: how often the kernel
//! was told of an inode (it forgets by number of times), and where a directory was found, for the
//! `..` of listings.
//! Bounded by the kernel: an entry lives from its first answer to the forget of the last.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hayase_layout::InodeId;

use crate::limits::SHARDS;

#[derive(Debug)]
struct Known {
    lookups: u64,
    parent: InodeId,
}

/// The kernel's references.
#[derive(Debug)]
pub(crate) struct Inodes(Box<[Mutex<HashMap<InodeId, Known>>]>);

impl Default for Inodes {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl Inodes {
    fn lock(&self, ino: InodeId) -> MutexGuard<'_, HashMap<InodeId, Known>> {
        self.0[shard_of(ino)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer names `ino`, found in `parent`. Count it before the answer is sent.
    pub(crate) fn remember(&self, ino: InodeId, parent: InodeId) {
        let mut shard = self.lock(ino);
        let known = shard.entry(ino).or_insert(Known { lookups: 0, parent });
        known.lookups += 1;
        known.parent = parent;
    }

    /// The kernel gives back `lookups` references; true when these were the last.
    pub(crate) fn forget(&self, ino: InodeId, lookups: u64) -> bool {
        let mut shard = self.lock(ino);
        let Some(known) = shard.get_mut(&ino) else { return false };
        known.lookups = known.lookups.saturating_sub(lookups);
        let gone = known.lookups == 0;
        if gone {
            shard.remove(&ino);
        }
        gone
    }

    /// Whether the kernel may have the inode, or be about to.
    pub(crate) fn is_known(&self, ino: InodeId) -> bool {
        ino == InodeId::ROOT || self.lock(ino).contains_key(&ino)
    }

    /// The directory in which `ino` was found last.
    pub(crate) fn parent(&self, ino: InodeId) -> Option<InodeId> {
        self.lock(ino).get(&ino).map(|known| known.parent)
    }

    /// Inodes known.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}

/// Inode numbers of one home are consecutive: the low bits spread them.
pub(crate) fn shard_of(ino: InodeId) -> usize {
    (ino.0 ^ (ino.0 >> 48)) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_counted() {
        let (inodes, ino) = (Inodes::default(), InodeId(9));
        inodes.remember(ino, InodeId(1));
        inodes.remember(ino, InodeId(2));
        assert_eq!(inodes.parent(ino), Some(InodeId(2)));
        assert!(!inodes.forget(ino, 1));
        assert!(inodes.is_known(ino));
        assert!(inodes.forget(ino, 1));
        assert!(!inodes.is_known(ino));
        assert!(!inodes.forget(ino, 1), "a forget too many changes nothing");
        assert!(inodes.is_known(InodeId::ROOT));
    }

    #[test]
    fn nothing_is_left_of_what_was_forgotten() {
        let inodes = Inodes::default();
        for round in 0..10_000 {
            inodes.remember(InodeId(round % 100), InodeId::ROOT);
        }
        assert_eq!(inodes.len(), 100);
        for ino in 0..100 {
            assert!(inodes.forget(InodeId(ino), 100));
        }
        assert_eq!(inodes.len(), 0);
    }
}
