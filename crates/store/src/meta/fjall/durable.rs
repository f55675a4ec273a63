//! Which commits are on storage for sure, so that nothing is synced twice.
//!
//! Here: counting commits, and leaving out a sync that has nothing to do. Not here: the sync itself.
//!
//! Whoever waits for a sync that began before its own commit waits for the next one, which is one for all
//! that came meanwhile (group commit).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// See the module.
#[derive(Debug)]
pub(super) struct Durable {
    /// Commits that were answered.
    committed: AtomicU64,
    /// Of these, how many survive a power cut. Locked while storage is synced.
    synced: Mutex<u64>,
}

impl Durable {
    /// Of a store that was just opened: what its last process committed may not be on storage.
    pub(super) fn new() -> Self {
        Self { committed: AtomicU64::new(1), synced: Mutex::new(0) }
    }

    /// A commit is in the journal; to be called before it is answered.
    pub(super) fn committed(&self) {
        self.committed.fetch_add(1, Ordering::AcqRel);
    }

    /// Runs `sync`, unless a sync that began after the last commit has ended well.
    pub(super) fn sync<E>(&self, sync: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let wanted = self.committed.load(Ordering::Acquire);
        // A panic leaves the count as it was: less than there is.
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if *synced >= wanted {
            return Ok(());
        }
        let now = self.committed.load(Ordering::Acquire);
        sync()?;
        *synced = now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn only_what_is_new_is_synced() {
        let (durable, syncs) = (Durable::new(), Cell::new(0));
        let sync = |answer: Result<(), ()>| {
            let run = || {
                syncs.set(syncs.get() + 1);
                answer
            };
            durable.sync(run)
        };
        sync(Ok(())).unwrap();
        assert_eq!(syncs.get(), 1, "of an earlier process");
        sync(Ok(())).unwrap();
        assert_eq!(syncs.get(), 1, "nothing new");
        durable.committed();
        sync(Err(())).unwrap_err();
        sync(Ok(())).unwrap();
        assert_eq!(syncs.get(), 3, "what failed is tried again");
        sync(Ok(())).unwrap();
        assert_eq!(syncs.get(), 3);
    }

    #[test]
    fn a_commit_during_a_sync_is_not_in_it() {
        let durable = Durable::new();
        durable
            .sync(|| {
                durable.committed();
                Ok::<(), ()>(())
            })
            .unwrap();
        let is_synced = Cell::new(false);
        durable
            .sync(|| {
                is_synced.set(true);
                Ok::<(), ()>(())
            })
            .unwrap();
        assert!(is_synced.get());
    }

    #[test]
    fn who_waits_for_a_sync_needs_no_other() {
        let (durable, syncs) = (Durable::new(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    durable
                        .sync(|| {
                            syncs.fetch_add(1, Ordering::Relaxed);
                            std::thread::sleep(std::time::Duration::from_millis(5));
                            Ok::<(), ()>(())
                        })
                        .unwrap();
                });
            }
        });
        assert_eq!(syncs.load(Ordering::Relaxed), 1);
    }
}
