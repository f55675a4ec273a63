//! Removing parts only when the end of their names is safe.
//!
//! A file is unlinked by a commit that a power cut may take back. If its part went at once, the file
//! system below might keep that removal and lose the commit: the old name would be back without its
//! bytes, also after a rename that should have replaced one whole file by another.
//!
//! Here: a queue; one sync of the names serves all parts that wait.
//! Not here: which parts nobody needs any more (the server); parts that never had a name may go at
//! once ([`Parts::remove`]).

use std::sync::{Arc, Mutex, MutexGuard};

use super::{PartError, PartId, Parts};
use crate::namespace::{Namespace, NamespaceError};

/// Parts on their way out. See the module header.
pub struct Removal {
    names: Arc<Namespace>,
    parts: Arc<Parts>,
    waiting: Mutex<Vec<PartId>>,
    /// Held while a batch is removed, so that who returns from [`Removal::run`] knows that it is done.
    running: Mutex<()>,
}

/// Why a batch could not be removed. Its parts stay in the queue, or on storage for the next start.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    /// The names could not be synced; nothing was removed.
    #[error("make the end of names safe before their parts are removed")]
    Names(#[from] NamespaceError),
    /// Some part could not be removed.
    #[error("remove parts that nobody needs")]
    Part(#[from] PartError),
}

impl Removal {
    /// An empty queue.
    pub fn new(names: Arc<Namespace>, parts: Arc<Parts>) -> Self {
        Self { names, parts, waiting: Mutex::default(), running: Mutex::default() }
    }

    /// Puts a part into the queue; the commit that ends its name has returned. `true` when it is
    /// the first: then somebody has to call [`Removal::run`] soon, on a thread that may wait.
    #[must_use]
    pub fn push(&self, part: PartId) -> bool {
        let mut waiting = self.waiting();
        waiting.push(part);
        waiting.len() == 1
    }

    /// Syncs the names, then removes all parts that were in the queue; returns how many.
    ///
    /// A part that can not be removed does not keep the others; the first error is returned.
    pub fn run(&self) -> Result<usize, RemovalError> {
        let _alone = self.running.lock().expect("no holder of this lock panics");
        let batch = std::mem::take(&mut *self.waiting());
        if batch.is_empty() {
            return Ok(0);
        }
        if let Err(error) = self.names.sync() {
            self.waiting().extend(batch);
            return Err(error.into());
        }
        let results: Vec<_> = batch.iter().map(|part| self.parts.remove(*part)).collect();
        results.into_iter().collect::<Result<Vec<()>, _>>()?;
        Ok(batch.len())
    }

    /// Parts in the queue.
    pub fn waiting_count(&self) -> usize {
        self.waiting().len()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<PartId>> {
        self.waiting.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use hayase_layout::{InodeId, ServerId};

    use super::*;
    use crate::device::MemoryDevice;
    use crate::meta::MemoryStore;
    use crate::namespace::ops::{self, testing};

    fn id(ino: u64) -> PartId {
        PartId { ino: InodeId(ino), epoch: 0, index: 0 }
    }

    #[test]
    fn parts_go_after_their_names_are_safe() {
        let store = Arc::new(MemoryStore::new());
        let names = Namespace::open(store.clone(), ServerId(0), testing::at(0)).unwrap();
        let names = Arc::new(names);
        let parts = Arc::new(Parts::open(Arc::new(MemoryDevice::new()), 4));
        let removal = Removal::new(names.clone(), parts.clone());
        (1..=3).for_each(|ino| drop(parts.create(id(ino)).unwrap()));
        let mut txn = names.begin();
        ops::put_inode(&mut txn, &testing::file(1, 1, b"a")).unwrap();
        txn.commit().unwrap();
        assert!(removal.push(id(1)), "the first one wakes somebody");
        assert!(!removal.push(id(2)));
        assert_eq!(parts.list().unwrap().len(), 3, "nothing goes before the sync");
        store.stop_after(0);
        assert!(matches!(removal.run(), Err(RemovalError::Names(_))));
        assert_eq!((removal.waiting_count(), parts.list().unwrap().len()), (2, 3));
        store.stop_after(9);
        assert_eq!(removal.run().unwrap(), 2);
        assert_eq!(store.unsynced(), 0, "the names were synced");
        assert_eq!(parts.list().unwrap(), [id(3)]);
        assert_eq!(removal.run().unwrap(), 0);
        assert!(removal.push(id(3)));
    }
}
