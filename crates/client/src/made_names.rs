//! Names that this mount made in directories in which nobody else has made or taken any.
//!
//! Of such a directory, made by this mount and granted to it, every name that is there is in this
//! list, so a name that is not in the list is not there: no question needs to be asked. Nor is one
//! needed for a name whose making was answered. Names that are being changed are asked about.
//!
//! Here: what is known, and what the kernel was told of it lately, so that it can be made to forget.
//! Source: `docs/design/001-coherence.md` "Names".

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hayase_layout::InodeId;
use hayase_wire::message::Name;

use crate::limits::{NAME_TOLD, NAMES_MADE_MAX};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct MadeNames {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    directories: HashMap<InodeId, HashMap<Name, Made>>,
    /// Of all directories.
    names: usize,
    /// Of all names, ever.
    changes: u64,
}

/// One change of a name: what is learnt of it late counts only when no other came after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change(u64);

/// A name that may be there.
#[derive(Debug, Default)]
struct Made {
    /// Of what, when that is certain.
    ino: Option<InodeId>,
    /// When the kernel was last told so from here.
    told: Option<Instant>,
    /// The last one that was asked for.
    change: Change,
}

/// What is known of a name without a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It is not there.
    Absent,
    /// It names this inode.
    Bound(InodeId),
    /// Ask.
    Nothing,
}

impl MadeNames {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `dir` is new, empty, and nobody else makes names in it.
    pub(crate) fn begin(&self, dir: InodeId) {
        self.lock().directories.insert(dir, HashMap::new());
    }

    /// A name is going to be made in `dir`. Before it is asked for.
    pub(crate) fn add(&self, dir: InodeId, name: &[u8]) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(names) = state.directories.get_mut(&dir) else { return };
        let change = Change::next(&mut state.changes);
        if let Some(made) = names.get_mut(name) {
            made.ino = None;
            made.change = change;
        } else if state.names >= NAMES_MADE_MAX {
            // Asking is always right.
            state.names -= names.len();
            state.directories.remove(&dir);
        } else {
            names.insert(name.to_vec(), Made { change, ..Made::default() });
            state.names += 1;
        }
    }

    /// What was added is there now, and names `ino`. Two processes of this node do not change a
    /// name at once: the kernel holds the directory's lock until it has this answer.
    pub(crate) fn bound(&self, dir: InodeId, name: &[u8], ino: InodeId) {
        if let Some(made) = self.lock().made(dir, name) {
            made.ino = Some(ino);
        }
    }

    /// A name is going to be taken away. Before it is asked for.
    pub(crate) fn unsure(&self, dir: InodeId, name: &[u8]) -> Change {
        let mut state = self.lock();
        let change = Change::next(&mut state.changes);
        if let Some(made) = state.made(dir, name) {
            made.ino = None;
            made.change = change;
        }
        change
    }

    /// This mount has removed a name, by this change. The kernel may have heard of it before us, and
    /// have made the name again since: then it stays.
    pub(crate) fn removed(&self, dir: InodeId, name: &[u8], by: Change) {
        let mut state = self.lock();
        let is_last = state.made(dir, name).is_some_and(|made| made.change == by);
        if is_last && let Some(names) = state.directories.get_mut(&dir) {
            names.remove(name);
            state.names -= 1;
        }
    }

    /// What is known of `name`, which the kernel is going to be told.
    pub(crate) fn find(&self, dir: InodeId, name: &[u8]) -> Known {
        let mut state = self.lock();
        let Some(names) = state.directories.get_mut(&dir) else { return Known::Nothing };
        match names.get_mut(name) {
            None => Known::Absent,
            Some(Made { ino: None, .. }) => Known::Nothing,
            Some(Made { ino: Some(ino), told, .. }) => {
                *told = Some(Instant::now());
                Known::Bound(*ino)
            }
        }
    }

    /// Somebody else makes or takes names in `dir`, or it is gone. Gives the names that the kernel
    /// may still know from here.
    pub(crate) fn end(&self, dir: InodeId) -> Vec<Name> {
        let mut state = self.lock();
        let Some(names) = state.directories.remove(&dir) else { return Vec::new() };
        state.names -= names.len();
        drop(state);
        let is_known = |made: &Made| made.told.is_some_and(|told| told.elapsed() < NAME_TOLD);
        names.into_iter().filter(|(_, made)| is_known(made)).map(|(name, _)| name).collect()
    }

    /// The server may not know any more what was granted.
    pub(crate) fn end_all(&self) {
        *self.lock() = State::default();
    }
}

impl Change {
    fn next(changes: &mut u64) -> Self {
        *changes += 1;
        Self(*changes)
    }
}

impl State {
    fn made(&mut self, dir: InodeId, name: &[u8]) -> Option<&mut Made> {
        self.directories.get_mut(&dir)?.get_mut(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId(5);
    const OTHER: InodeId = InodeId(6);
    const FILE: InodeId = InodeId(7);

    #[test]
    fn only_what_was_made_can_be_there() {
        let made = MadeNames::default();
        assert_eq!(made.find(DIR, b"a"), Known::Nothing, "not granted: nothing is known");
        made.begin(DIR);
        assert_eq!(made.find(DIR, b"a"), Known::Absent);
        made.add(DIR, b"a");
        made.add(OTHER, b"b");
        assert_eq!(made.find(DIR, b"a"), Known::Nothing, "nobody has answered yet");
        assert_eq!(made.find(DIR, b"b"), Known::Absent);
        assert_eq!(made.find(OTHER, b"c"), Known::Nothing);
        for (dir, name) in [(DIR, b"a"), (OTHER, b"b")] {
            let change = made.unsure(dir, name);
            made.removed(dir, name, change);
        }
        assert_eq!(made.find(DIR, b"a"), Known::Absent);
        assert_eq!(made.lock().names, 0);
        made.end(DIR);
        assert_eq!(made.find(DIR, b"b"), Known::Nothing);
        made.begin(DIR);
        made.end_all();
        assert_eq!(made.find(DIR, b"b"), Known::Nothing);
    }

    #[test]
    fn what_was_answered_is_known_until_it_is_changed() {
        let made = MadeNames::default();
        made.bound(DIR, b"a", FILE);
        made.begin(DIR);
        made.bound(DIR, b"a", FILE);
        assert_eq!(made.find(DIR, b"a"), Known::Absent, "it was never going to be made");
        for name in [b"a", b"b"] {
            made.add(DIR, name);
            made.bound(DIR, name, FILE);
            assert_eq!(made.find(DIR, name), Known::Bound(FILE));
        }
        made.unsure(DIR, b"a");
        made.add(DIR, b"b");
        assert_eq!(made.find(DIR, b"a"), Known::Nothing, "being taken away");
        assert_eq!(made.find(DIR, b"b"), Known::Nothing, "being made anew, or over it");
    }

    /// Who removed it hears of that after the kernel, which may have let somebody make it again.
    #[test]
    fn a_removal_that_is_heard_of_late_ends_nothing_newer() {
        let made = MadeNames::default();
        made.begin(DIR);
        made.add(DIR, b"a");
        made.bound(DIR, b"a", FILE);
        let first = made.unsure(DIR, b"a");
        made.add(DIR, b"a");
        made.removed(DIR, b"a", first);
        assert_eq!(made.find(DIR, b"a"), Known::Nothing, "being made");
        made.bound(DIR, b"a", FILE);
        made.removed(DIR, b"a", first);
        assert_eq!(made.find(DIR, b"a"), Known::Bound(FILE));
        let second = made.unsure(DIR, b"a");
        made.removed(DIR, b"a", first);
        assert_eq!(made.find(DIR, b"a"), Known::Nothing, "being taken away by another");
        made.removed(DIR, b"a", second);
        assert_eq!(made.find(DIR, b"a"), Known::Absent);
    }

    #[test]
    fn the_end_names_what_the_kernel_was_told() {
        let made = MadeNames::default();
        made.begin(DIR);
        for name in [&b"told"[..], b"not told", b"removed"] {
            made.add(DIR, name);
            made.bound(DIR, name, FILE);
        }
        made.find(DIR, b"told");
        made.find(DIR, b"removed");
        let change = made.unsure(DIR, b"removed");
        made.removed(DIR, b"removed", change);
        assert_eq!(made.end(DIR), [b"told".to_vec()]);
        assert!(made.end(DIR).is_empty());
        assert_eq!(made.lock().names, 0);
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
        assert_eq!(made.find(DIR, b"x"), Known::Nothing, "given up");
        made.add(OTHER, b"a");
        assert_eq!(made.lock().names, 1);
        assert_eq!(made.find(OTHER, b"x"), Known::Absent);
    }
}
