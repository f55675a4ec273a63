//! The ordered key-value store that the name space lives in.
//!
//! Here: the trait, its batch, its errors. Rooms: [`fjall`] on storage, [`memory`] for tests (it
//! can die between commits and forget what was not synced), [`conformance`] which both pass.
//! Not here: what keys and values mean ([`crate::namespace`]).
//!
//! The contract, in words:
//! * a batch is applied as a whole or not at all, and readers see it as a whole;
//! * when `commit` returns, the batch survives the death of this process;
//! * when `sync` returns, everything committed before it survives a power cut; of what was
//!   committed later a prefix, in commit order, may survive.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use hayase_layout::ByteCount;

pub mod conformance;
pub mod fjall;
pub mod memory;

pub use self::fjall::FjallStore;
pub use self::memory::MemoryStore;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// An ordered map of bytes to bytes with atomic batches; the contract stands in the module header.
pub trait MetaStore: Send + Sync {
    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError>;

    /// Keys that start with `prefix` and are at least `from`, ascending, `limit` at most.
    fn scan(&self, prefix: &[u8], from: &[u8], limit: usize) -> Result<Vec<Pair>, MetaError>;

    /// Applies `batch` atomically; it survives kill -9 when this returns.
    ///
    /// After an error nothing of the batch is seen by readers.
    fn commit(&self, batch: Batch) -> Result<(), MetaError>;

    /// Makes all commits so far survive a power cut. Commits of other threads do not wait for it.
    fn sync(&self) -> Result<(), MetaError>;

    /// Whether commits come faster than the storage takes them: sooner or later one of them would have to wait for it.
    fn is_behind(&self) -> bool {
        false
    }

    /// Waits until the storage has what it is behind with: for callers that can wait before a commit, on a thread where nobody else
    /// waits.
    fn catch_up(&self) -> Result<(), MetaError> {
        Ok(())
    }
}

/// Changes that belong together, one for each key; a later change replaces an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    is_essential: bool,
}

impl Batch {
    /// An empty batch; committing it does nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.changes.insert(key, Some(value));
    }

    /// Removes `key` if it is there.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.changes.insert(key, None);
    }

    /// Says that bytes may be lost, or a server may not start, without it: a note of what became of bytes, or of which servers
    /// there are. It is small, and a disk that has no room for new names takes it as it takes removals.
    pub fn mark_essential(&mut self) {
        self.is_essential = true;
    }

    /// Whether it was marked so.
    pub(crate) fn is_essential(&self) -> bool {
        self.is_essential
    }

    /// What is to become of each key: a value, or `None` to delete it. Ascending by key.
    pub fn changes(&self) -> &BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        &self.changes
    }

    /// As [`Batch::changes`], owned.
    pub fn into_changes(self) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        self.changes
    }

    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Number of keys that change.
    pub fn len(&self) -> usize {
        self.changes.len()
    }
}

/// Why the key-value store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// The file system below has too little left; nothing was written.
    #[error("no room for names in {}: {free} free, {needed} kept back", .path.display())]
    NoRoom {
        /// Directory of the store.
        path: PathBuf,
        /// What the file system still has.
        free: ByteCount,
        /// What has to be left for the store to stay healthy.
        needed: ByteCount,
    },
    /// The room that is kept for names was used, and can not be had again; nothing was written.
    #[error("no room for names in {}", .path.display())]
    Full {
        /// Directory of the store.
        path: PathBuf,
        /// What the operating system said: the disk is full, or the user's quota is used up.
        source: io::Error,
    },
    /// A write failed. Whether it is there is known when the store has been opened again; until then it refuses all.
    #[error("{action} the names in {}", .path.display())]
    Failed {
        /// What was tried, a verb: "change".
        action: &'static str,
        /// Directory of the store.
        path: PathBuf,
        /// What was committed before is there. Otherwise some of it may be gone.
        is_whole: bool,
        /// Its answer.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("open the names in {}: in use by another process", .path.display())]
    Locked {
        /// Directory of the store.
        path: PathBuf,
    },
    /// Its files do not hold what was written.
    #[error("the names in {} are damaged: {detail}", .path.display())]
    Corrupt {
        /// Directory or file of the store.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// The operating system said no.
    #[error("{action} the names in {}", .path.display())]
    Io {
        /// What was tried, a verb: "open".
        action: &'static str,
        /// Directory of the store.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// A test's crash point was reached ([`MemoryStore::stop_after`]).
    #[error("the store stopped at a crash point")]
    Stopped,
}

impl MetaError {
    /// The nearest errno: `ENOSPC` stays `ENOSPC`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoRoom { .. } => libc::ENOSPC,
            Self::Locked { .. } => libc::EBUSY,
            Self::Corrupt { .. } | Self::Stopped => libc::EIO,
            Self::Full { source, .. } | Self::Io { source, .. } | Self::Failed { source, .. } => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
        }
    }

    /// Whether it could be done if the disk, or the user's quota, had room.
    pub fn is_full(&self) -> bool {
        match self {
            Self::NoRoom { .. } | Self::Full { .. } => true,
            Self::Failed { is_whole, source, .. } => *is_whole && says_full(source),
            Self::Io { source, .. } => says_full(source),
            Self::Locked { .. } | Self::Corrupt { .. } | Self::Stopped => false,
        }
    }

    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::NoRoom { .. } | Self::Full { .. } => {
                Some("remove files, or give the storage directory more room")
            }
            Self::Locked { .. } => Some(
                "a server of the same job still runs here: `hayase down`, or use another --storage",
            ),
            Self::Corrupt { .. } => Some(
                "this node's names can not be trusted: check its disk, then `hayase down --discard` and start again",
            ),
            Self::Io { .. } | Self::Failed { .. } | Self::Stopped => None,
        }
    }
}

/// What a file system says that has no room, or none for this user.
pub fn says_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}
