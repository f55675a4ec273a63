//! Removals whose success the server tells the kernel itself: between that and the moment in which
//! this process hears of it, what it remembers may be old.
//!
//! Here: what is not believed meanwhile. Of the directory: attributes that the server was asked for.
//! Of files: anything remembered, since nobody here knows yet which file lost its name.
//! Source: `docs/design/001-coherence.md`, "Which process answers an unlink".

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hayase_layout::InodeId;
use hayase_wire::message::NodeRequest;

use super::{Area, wall_clock};
use crate::link::{HandOver, Handed};
use crate::volume::{Awaited, Told};

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

    fn begin(&self, dir: InodeId) {
        *self.lock().entry(dir).or_default() += 1;
        self.all.fetch_add(1, Ordering::SeqCst);
    }

    fn end(&self, dir: InodeId) {
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

impl Area {
    /// As [`crate::Volume::hand_over_removal`].
    pub(super) fn hand_over_removal(
        self: &Arc<Self>,
        parent: InodeId,
        name: &[u8],
        Awaited { unique, answer }: Awaited,
    ) {
        let change = self.made.unsure(parent, name);
        self.removals.begin(parent);
        // Before it happens: the kernel may ask for the directory before this process hears of it.
        self.entries_changed(parent, wall_clock());
        let request = NodeRequest::Remove { parent, name: name.to_vec(), directory: false };
        let (this, name) = (Arc::clone(self), name.to_vec());
        let end = move |handed| {
            let told = match handed {
                Handed::Told(ino) => {
                    this.removed(parent, &name, change, ino);
                    Told::ByServer
                }
                Handed::Answered(answer) => {
                    Told::Nothing(this.removal_answered(parent, &name, change, answer))
                }
                Handed::NotTaken => Told::NotTaken,
            };
            // What the directory looked like may have been asked for before it happened.
            this.inodes.lock(parent).stamps.stamp(parent, &this.moments);
            this.removals.end(parent);
            answer(told);
        };
        self.link.hand_over(HandOver { unique, request, end: Box::new(end) });
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
