//! What was synced of the journals of a store: looked at before it is opened, noted with each sync.
//!
//! Here: the order of looking, syncing and noting. Not here: the bytes of the note ([`super::lengths`]), following the
//! journals ([`super::tail`]), what damage is ([`super::journal`]).

use std::path::Path;
use std::sync::{Mutex, PoisonError};

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
    state: Mutex<(Tail, Lengths)>,
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
                Lengths::read(directory).map_err(fail)?.ok_or_else(|| unreadable(directory))?
            }
            None => return Err(unreadable(directory)),
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
        Ok(Synced { state: Mutex::new((tail, self.lengths)) })
    }
}

impl Synced {
    /// Runs `sync`, and notes what was written before it. Costs reading that, from memory, and one small write: no sync
    /// of its own.
    pub(super) fn note(&self, sync: impl FnOnce() -> fjall::Result<()>) -> fjall::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (tail, lengths) = &mut *state;
        let written = tail.lengths()?;
        sync()?;
        Ok(lengths.write(&written)?)
    }
}

fn begin(directory: &Path) -> Result<(), MetaError> {
    let made = std::fs::create_dir_all(directory).and_then(|()| Lengths::begin(directory));
    made.map_err(|source| MetaError::Io { action: "begin", path: directory.to_owned(), source })
}

fn unreadable(directory: &Path) -> MetaError {
    MetaError::Corrupt {
        path: directory.join(lengths::NAME),
        detail: "it says how much of the journals was synced, and is missing or can not be read"
            .to_owned(),
    }
}
