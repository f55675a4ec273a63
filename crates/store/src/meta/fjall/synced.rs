//! What was synced of the journals of a store: looked at before it is opened, noted with each sync.
//!
//! Here: the order of looking, syncing and noting. Not here: the bytes of the note ([`super::lengths`]), following the
//! journals ([`super::tail`]), what damage is ([`super::journal`]).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, TryLockError};

use super::journal::{self, Last};
use super::lengths::{self, ByJournal, Lengths};
use super::tail::Tail;
use crate::meta::MetaError;

/// Made by fjall when a store is begun, after its first journal.
const VERSION: &str = "version";

/// A store that was looked at and may be opened.
pub(super) struct Found {
    lengths: Lengths,
    end: Last,
    earlier: ByJournal,
}

/// Of an open store.
pub(super) struct Synced {
    directory: PathBuf,
    state: Mutex<State>,
    /// The journal that was the newest when `state` could not be had.
    newest: Mutex<Option<Newest>>,
}

struct Newest {
    journal: u64,
    file: File,
}

struct State {
    tail: Tail,
    lengths: Lengths,
    has_warned: bool,
}

impl State {
    /// Where the next journal can not be opened or read, the one before it is still watched.
    fn follow(&mut self) {
        if let Err(error) = self.tail.lengths() {
            tracing::debug!(%error, "follow the journals of names");
        }
    }
}

impl Found {
    /// Checks the journals in `directory`, and begins the note of a store that is about to be made there.
    pub(super) fn check(directory: &Path) -> Result<Self, MetaError> {
        let fail = |source| MetaError::Io { action: "read", path: directory.to_owned(), source };
        let is_begun = std::fs::exists(directory.join(VERSION)).map_err(fail)?
            || !journal::journals(directory).map_err(fail)?.is_empty();
        let (lengths, synced) = match Lengths::read(directory).map_err(fail)? {
            Some(found) => found,
            // Nothing was ever synced: the power failed while it was made.
            None if !is_begun => {
                begin(directory)?;
                Lengths::read(directory).map_err(fail)?.ok_or_else(|| damaged(directory))?
            }
            None if std::fs::exists(directory.join(lengths::NAME)).map_err(fail)? => {
                return Err(damaged(directory));
            }
            None => return Err(not_there(directory)),
        };
        match journal::check(directory, &synced)? {
            Some((end, earlier)) => Ok(Self { lengths, end, earlier }),
            None if is_begun => Err(journal::missing(directory, 0)),
            None => Ok(Self { lengths, end: Last::default(), earlier: ByJournal::new() }),
        }
    }

    /// The store in `directory` was opened.
    pub(super) fn follow(self, directory: &Path) -> Result<Synced, MetaError> {
        let fail = |source| MetaError::Io { action: "open", path: directory.to_owned(), source };
        let tail = Tail::from(directory, self.end, self.earlier).map_err(fail)?;
        let state = State { tail, lengths: self.lengths, has_warned: false };
        let directory = directory.to_owned();
        Ok(Synced { directory, state: Mutex::new(state), newest: Mutex::default() })
    }
}

impl Synced {
    /// Opens the journal that is written now, so that [`Self::check`] sees its errors from here on. A sync that is
    /// under way is not waited for.
    pub(super) fn follow(&self) {
        match self.state.try_lock() {
            Ok(mut state) => state.follow(),
            Err(TryLockError::Poisoned(state)) => state.into_inner().follow(),
            Err(TryLockError::WouldBlock) => self.watch_newest(),
        }
    }

    /// The sync follows the journals itself when it has ended. By then the worker may have got an error of a
    /// journal that was begun meanwhile: this descriptor gets it too, and no later one does.
    fn watch_newest(&self) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let found = journal::journals(&self.directory).map(|mut journals| journals.pop());
        let opened = found.and_then(|found| match found {
            Some((journal, _)) if newest.as_ref().is_some_and(|it| it.journal == journal) => {
                Ok(None)
            }
            Some((journal, path)) => Ok(Some(Newest { journal, file: File::open(path)? })),
            None => Ok(None),
        });
        match opened {
            Ok(None) => {}
            Ok(opened) => *newest = opened,
            Err(error) => tracing::debug!(%error, "follow the journals of names"),
        }
    }

    /// Fails where the journal had an error of write-back that this descriptor has not reported yet. Waits for a sync
    /// that is under way, which may get the error instead.
    pub(super) fn check(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tail.file.sync_data()?;
        state.follow();
        state.tail.file.sync_data()?;
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.as_ref().map_or(Ok(()), |newest| newest.file.sync_data())
    }

    /// Runs `sync`, and notes what was written before it. It gets the journal that is written now, if that could be
    /// followed; fjall has synced those before it. Costs reading what was written, from memory, and one small write: no
    /// sync of its own.
    ///
    /// What programs wait for is the sync: where there is trouble with the note alone, it says less than was synced, and
    /// the next one catches up.
    pub(super) fn note(
        &self,
        sync: impl FnOnce(Option<&File>) -> fjall::Result<()>,
    ) -> fjall::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let written = state.tail.lengths();
        sync(written.is_ok().then_some(&state.tail.file))?;
        if let Err(error) = written.and_then(|written| state.lengths.write(&written))
            && !std::mem::replace(&mut state.has_warned, true)
        {
            let directory = state.tail.directory().display();
            tracing::warn!(%directory, %error, "names were synced, and how much of their journals is not noted");
        }
        state.follow();
        Ok(())
    }
}

fn begin(directory: &Path) -> Result<(), MetaError> {
    let made = std::fs::create_dir_all(directory).and_then(|()| Lengths::begin(directory));
    made.map_err(|source| MetaError::Io { action: "begin", path: directory.to_owned(), source })
}

fn damaged(directory: &Path) -> MetaError {
    corrupt(directory, "can not be read")
}

fn not_there(directory: &Path) -> MetaError {
    let why = "is missing, or an earlier version of hayase wrote these names: resume with that";
    corrupt(directory, why)
}

fn corrupt(directory: &Path, why: &str) -> MetaError {
    let detail = format!("the note of what was synced of the journals {why}");
    MetaError::Corrupt { path: directory.join(lengths::NAME), detail }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};

    use super::*;
    use crate::meta::{Batch, FjallStore, MetaStore};

    fn put(store: &FjallStore, key: &[u8]) {
        let mut batch = Batch::new();
        batch.put(key.to_vec(), b"value".to_vec());
        store.commit(batch).unwrap();
    }

    fn noted(directory: &Path) -> u64 {
        Lengths::read(directory).unwrap().unwrap().1[&0]
    }

    /// A sync is not undone by trouble with its note, and a later note makes up for it.
    #[test]
    fn a_note_that_fails_is_no_failure_of_the_sync() {
        type Swap = fn(&mut State, File) -> File;
        let swap_note: Swap = |state, file| std::mem::replace(&mut state.lengths.file, file);
        let swap_journal: Swap = |state, file| std::mem::replace(&mut state.tail.file, file);
        for (swap, name, is_read) in
            [(swap_note, lengths::NAME, true), (swap_journal, "0.jnl", false)]
        {
            let dir = tempfile::tempdir().unwrap();
            let store = FjallStore::open(dir.path()).unwrap();
            put(&store, b"first");
            store.sync().unwrap();
            let before = noted(dir.path());
            let mut options = OpenOptions::new();
            let bad = options.read(is_read).write(!is_read).open(dir.path().join(name));
            let good = swap(&mut store.synced.state.lock().unwrap(), bad.unwrap());
            for _ in 0..2 {
                put(&store, b"second");
                store.sync().unwrap();
                assert_eq!(noted(dir.path()), before);
                assert!(store.synced.state.lock().unwrap().has_warned);
            }
            drop(swap(&mut store.synced.state.lock().unwrap(), good));
            put(&store, b"third");
            store.sync().unwrap();
            assert!(noted(dir.path()) > before);
            drop(store);
            let store = FjallStore::open(dir.path()).unwrap();
            assert!(store.get(b"third").unwrap().is_some());
        }
    }

    /// The worker syncs it, and an error of it is reported once.
    #[test]
    fn a_journal_that_is_begun_during_a_sync_is_watched_from_then_on() {
        const VALUE_BYTES: usize = 20_000;
        let dir = tempfile::tempdir().unwrap();
        let store = FjallStore::open(dir.path()).unwrap();
        let watched = || store.synced.newest.lock().unwrap().as_ref().map(|newest| newest.journal);
        let mut keys = 0_u32..;
        // As a sync does that takes so long.
        let syncing = store.synced.state.lock().unwrap();
        while watched() != Some(1) {
            assert!(!dir.path().join("2.jnl").exists(), "never watched");
            let mut batch = Batch::new();
            batch.put(keys.next().unwrap().to_le_bytes().to_vec(), vec![7; VALUE_BYTES]);
            store.commit(batch).unwrap();
        }
        assert!(dir.path().join("1.jnl").exists());
        drop(syncing);
        assert!(store.synced.check().is_ok());
        // A file of which a sync fails.
        let bad = File::open("/dev/null").unwrap();
        store.synced.newest.lock().unwrap().as_mut().unwrap().file = bad;
        assert!(store.synced.check().is_err());
    }
}
