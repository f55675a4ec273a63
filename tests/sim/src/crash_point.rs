//! Names that stop at a commit, and the life of the server with them.
//!
//! A process that dies at a commit says nothing afterwards; a store that refuses commits makes its
//! server say a lot. So the first refused commit ends the life at once: whatever the server does
//! before its task is dropped, nobody hears of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hayase_store::meta::Pair;
use hayase_store::{Batch, MemoryStore, MetaError, MetaStore};
use tokio::sync::Notify;

/// Whether one life of a server goes on. What a dead one sends arrives nowhere.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    dead: AtomicBool,
    stopped: Notify,
}

impl Pulse {
    pub(crate) fn is_alive(&self) -> bool {
        !self.dead.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.stopped.notify_one();
    }

    /// Returns when the life is over.
    pub(crate) async fn stopped(&self) {
        self.stopped.notified().await;
    }
}

/// The names of one life.
pub(crate) struct MortalNames {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) pulse: Arc<Pulse>,
}

impl MortalNames {
    fn watch<T>(&self, done: Result<T, MetaError>) -> Result<T, MetaError> {
        if matches!(done, Err(MetaError::Stopped)) {
            self.pulse.stop();
        }
        done
    }
}

impl MetaStore for MortalNames {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        self.store.get(key)
    }

    fn scan(&self, prefix: &[u8], from: &[u8], limit: usize) -> Result<Vec<Pair>, MetaError> {
        self.store.scan(prefix, from, limit)
    }

    fn commit(&self, batch: Batch) -> Result<(), MetaError> {
        if !self.pulse.is_alive() {
            return Err(MetaError::Stopped);
        }
        self.watch(self.store.commit(batch))
    }

    fn sync(&self) -> Result<(), MetaError> {
        if !self.pulse.is_alive() {
            return Err(MetaError::Stopped);
        }
        self.watch(self.store.sync())
    }
}
