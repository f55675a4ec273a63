//! Answers on their way to the kernel, so that an invalidation can let them pass first.
//!
//! An answer with attributes that may be kept is sent in three steps: begin here, ask the volume
//! whether they may still be kept, send. An invalidation first ends what the volume would say, then
//! waits here for the answers that had begun, then tells the kernel. So none slips in behind it.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use hayase_layout::InodeId;

use crate::inodes::shard_of;
use crate::limits::SHARDS;

/// See the module.
#[derive(Debug)]
pub(crate) struct Replies(Box<[RwLock<()>]>);

/// An answer is on its way while this lives; never across a call to the volume that may wait.
pub(crate) struct Begun<'a>(
    #[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'a, ()>,
);

impl Default for Replies {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| RwLock::default()).collect())
    }
}

impl Replies {
    /// From before the last look at what may be kept until the answer is written.
    pub(crate) fn begin(&self, ino: InodeId) -> Begun<'_> {
        Begun(self.0[shard_of(ino)].read().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`Replies::begin`] for answers about many inodes. Takes the locks in one order, and no
    /// thread holds another of them meanwhile, so this ends.
    pub(crate) fn begin_all(&self) -> Vec<Begun<'_>> {
        self.0
            .iter()
            .map(|lock| Begun(lock.read().unwrap_or_else(PoisonError::into_inner)))
            .collect()
    }

    /// Returns when all answers that had begun are written.
    pub(crate) fn let_pass(&self, ino: InodeId) {
        drop(self.0[shard_of(ino)].write().unwrap_or_else(PoisonError::into_inner));
    }
}
