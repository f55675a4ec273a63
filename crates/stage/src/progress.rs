//! What a watcher can see of a transfer while it runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::compare::Step;
use crate::item::Item;
use crate::pack::PackError;

/// Counts that only grow. Read them at any time, from any thread.
#[derive(Debug, Default)]
pub struct Progress {
    /// Names of the source looked at.
    pub found: AtomicU64,
    /// Bytes that have to be moved, as far as is known.
    pub bytes_wanted: AtomicU64,
    /// Items that have to be done, as far as is known.
    pub items_wanted: AtomicU64,
    /// Bytes that arrived; those of small files and of packs, which arrive together, when they are about to.
    pub bytes_moved: AtomicU64,
    /// Bytes of unfinished files that an earlier run had moved, and that are right.
    pub bytes_resumed: AtomicU64,
    /// Items done.
    pub items_done: AtomicU64,
    /// Items that were there already.
    pub items_kept: AtomicU64,
    /// Failures so far.
    pub failures: AtomicU64,
    /// The source was looked at whole: the wanted counts are final.
    pub is_planned: AtomicBool,
}

impl Progress {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// One of the counters, now.
    pub fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

/// Is told what happens, from several threads; may print, must not wait long.
pub trait Observer: Sync {
    /// A dry run would do this.
    fn would(&self, step: Step, item: &Item) {
        let _ = (step, item);
    }

    /// A dry run would remove this.
    fn would_remove(&self, item: &Item) {
        let _ = item;
    }

    /// This did not arrive, or could not be removed.
    fn failed(&self, name: &str, error: &PackError) {
        let _ = (name, error);
    }
}

/// Watches nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Observer for Silent {}
