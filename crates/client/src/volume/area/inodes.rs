//! The inodes that this node has something to remember about, in shards.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hayase_layout::InodeId;

use super::gathering::FileGathering;
use super::validated::Validated;
use crate::attributes::AttrCache;
use crate::grants::Stamps;
use crate::limits::{ATTRIBUTES_MAX, SHARDS};
use crate::open_file::OpenFile;

/// What this node knows of one inode that is open, lingering, or being opened.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) open: OpenFile,
    /// Of the part, in class L.
    pub(super) descriptor: Option<Arc<OwnedFd>>,
    /// CACHE is granted.
    pub(super) cache: bool,
    /// The kernel's pages all come from the time since CACHE was granted.
    pub(super) pages_valid: bool,
    pub(super) striped: bool,
    /// Where others may write it.
    pub(super) validated: Validated,
    /// From the first small write by messages on.
    pub(super) gathering: Option<Arc<FileGathering>>,
    /// The kernel may have changed the part without us.
    pub(super) written: bool,
    /// The closer looks at it then.
    pub(super) queued: Option<Instant>,
}

impl Node {
    /// Tells whether there was something to lose.
    pub(super) fn lose_cache(&mut self) -> bool {
        self.pages_valid = false;
        std::mem::take(&mut self.cache)
    }
}

/// One piece of the table.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) nodes: HashMap<InodeId, Node>,
    pub(super) attributes: AttrCache,
    pub(super) stamps: Stamps,
    /// Threads in [`InodeTable::wait`].
    waiting: usize,
}

#[derive(Debug)]
struct Slot {
    shard: Mutex<Shard>,
    /// A message about an inode of this shard was answered.
    answered: Condvar,
}

/// All pieces.
#[derive(Debug)]
pub(super) struct InodeTable(Box<[Slot]>);

impl Default for InodeTable {
    fn default() -> Self {
        let slot = |_| Slot {
            shard: Mutex::new(Shard {
                nodes: HashMap::new(),
                attributes: AttrCache::new(ATTRIBUTES_MAX / SHARDS),
                stamps: Stamps::default(),
                waiting: 0,
            }),
            answered: Condvar::new(),
        };
        Self((0..SHARDS).map(slot).collect())
    }
}

impl InodeTable {
    fn slot(&self, ino: InodeId) -> &Slot {
        let hash = ino.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
        &self.0[hash as usize % SHARDS]
    }

    pub(super) fn lock(&self, ino: InodeId) -> MutexGuard<'_, Shard> {
        self.slot(ino).shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until [`InodeTable::answered`] of a neighbour; may wake for nothing.
    pub(super) fn wait<'a>(
        &'a self,
        ino: InodeId,
        mut guard: MutexGuard<'a, Shard>,
    ) -> MutexGuard<'a, Shard> {
        guard.waiting += 1;
        let woken = self.slot(ino).answered.wait(guard);
        let mut guard = woken.unwrap_or_else(PoisonError::into_inner);
        guard.waiting -= 1;
        guard
    }

    /// Wakes who waits, which is a system call, and rarely anybody does.
    pub(super) fn answered(&self, ino: InodeId, guard: MutexGuard<'_, Shard>) {
        let is_awaited = guard.waiting > 0;
        drop(guard);
        if is_awaited {
            self.slot(ino).answered.notify_all();
        }
    }

    /// Every shard, locked one after the other.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&mut Shard)) {
        for slot in &self.0 {
            visit(&mut slot.shard.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}
