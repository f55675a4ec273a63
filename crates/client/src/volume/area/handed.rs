//! Removals whose success the server tells the kernel itself: between that and the moment in which
//! this process hears of it, what it remembers may be old.
//!
//! Here: what is not believed meanwhile. Of the directory: attributes that the server was asked for.
//! Of files: anything remembered, since nobody here knows yet which file lost its name.
//! Source: `docs/design/001-coherence.md`, "Which process answers an unlink".

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hayase_layout::InodeId;

/// Removals whose end was not heard yet, by directory.
#[derive(Debug, Default)]
pub(super) struct Removals {
    all: AtomicUsize,
    directories: Mutex<HashMap<InodeId, usize>>,
}

impl Removals {
    fn lock(&self) -> MutexGuard<'_, HashMap<InodeId, usize>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, dir: InodeId) {
        *self.lock().entry(dir).or_default() += 1;
        self.all.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn end(&self, dir: InodeId) {
        let mut directories = self.lock();
        if let Some(count) = directories.get_mut(&dir) {
            *count -= 1;
            if *count == 0 {
                directories.remove(&dir);
            }
        }
        self.all.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether names of this directory are being removed.
    pub(super) fn concern(&self, dir: InodeId) -> bool {
        self.all.load(Ordering::SeqCst) > 0 && self.lock().contains_key(&dir)
    }

    /// Whether what is remembered of a file may be of one that lost its name already: asked before it
    /// is looked up, since what is heard of then is forgotten first.
    pub(super) fn concern_files(&self) -> bool {
        self.all.load(Ordering::SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_concerned_until_the_last_of_its_removals_is_heard_of() {
        let (removals, dir, other) = (Removals::default(), InodeId(5), InodeId(6));
        assert!(!removals.concern(dir) && !removals.concern_files());
        for begun in [dir, dir, other] {
            removals.begin(begun);
        }
        removals.end(dir);
        assert!(removals.concern(dir) && removals.concern(other));
        removals.end(dir);
        assert!(!removals.concern(dir) && removals.concern(other) && removals.concern_files());
        removals.end(other);
        assert!(!removals.concern(other) && !removals.concern_files());
    }
}
