//! Names that this mount made in directories in which nobody else has made any.
//!
//! Of such a directory, made by this mount and granted to it, every name that is there is in this
//! list, so a name that is not in the list is not there: no question needs to be asked. Names that
//! were moved away stay in the list; they are asked about.
//! Source: `docs/design/001-coherence.md` "Names".

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hayase_layout::InodeId;
use hayase_wire::message::Name;

use crate::limits::NAMES_MADE_MAX;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct MadeNames {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    directories: HashMap<InodeId, HashSet<Name>>,
    /// Of all directories.
    names: usize,
}

impl MadeNames {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `dir` is new, empty, and nobody else makes names in it.
    pub(crate) fn begin(&self, dir: InodeId) {
        self.lock().directories.insert(dir, HashSet::new());
    }

    /// A name is going to be made in `dir`. Before it is asked for.
    pub(crate) fn add(&self, dir: InodeId, name: &[u8]) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(names) = state.directories.get_mut(&dir) else { return };
        if state.names >= NAMES_MADE_MAX {
            // Asking is always right.
            state.names -= names.len();
            state.directories.remove(&dir);
        } else if names.insert(name.to_vec()) {
            state.names += 1;
        }
    }

    /// This mount has removed a name. The kernel lets nobody make it again before this is said: both
    /// hold the directory's lock.
    pub(crate) fn remove(&self, dir: InodeId, name: &[u8]) {
        let mut state = self.lock();
        let state = &mut *state;
        if state.directories.get_mut(&dir).is_some_and(|names| names.remove(name)) {
            state.names -= 1;
        }
    }

    /// Whether `name` is surely not in `dir`.
    pub(crate) fn lacks(&self, dir: InodeId, name: &[u8]) -> bool {
        self.lock().directories.get(&dir).is_some_and(|names| !names.contains(name))
    }

    /// Somebody else makes names in `dir`, or it is gone.
    pub(crate) fn end(&self, dir: InodeId) {
        let mut state = self.lock();
        if let Some(names) = state.directories.remove(&dir) {
            state.names -= names.len();
        }
    }

    /// The server may not know any more what was granted.
    pub(crate) fn end_all(&self) {
        *self.lock() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId(5);
    const OTHER: InodeId = InodeId(6);

    #[test]
    fn only_what_was_made_can_be_there() {
        let made = MadeNames::default();
        assert!(!made.lacks(DIR, b"a"), "not granted: nothing is known");
        made.begin(DIR);
        assert!(made.lacks(DIR, b"a"));
        made.add(DIR, b"a");
        made.add(OTHER, b"b");
        assert!(!made.lacks(DIR, b"a") && made.lacks(DIR, b"b") && !made.lacks(OTHER, b"c"));
        made.remove(DIR, b"a");
        made.remove(OTHER, b"b");
        assert!(made.lacks(DIR, b"a") && !made.lacks(OTHER, b"b"));
        assert_eq!(made.lock().names, 0);
        made.end(DIR);
        assert!(!made.lacks(DIR, b"b"));
        made.begin(DIR);
        made.end_all();
        assert!(!made.lacks(DIR, b"b"));
    }

    #[test]
    fn it_is_bounded() {
        let made = MadeNames::default();
        made.begin(DIR);
        made.begin(OTHER);
        for name in 0..2 * NAMES_MADE_MAX {
            made.add(DIR, name.to_string().as_bytes());
            assert!(made.lock().names <= NAMES_MADE_MAX);
        }
        assert!(!made.lacks(DIR, b"x"), "given up");
        made.add(OTHER, b"a");
        assert_eq!(made.lock().names, 1);
        assert!(made.lacks(OTHER, b"x"));
    }
}
