//! What the ledger knows of one file of the cache area.

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};

use crate::namespace::Time;

/// One version of a file in the tier, as far as it can be told from others without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierVersion {
    /// Changes with the bytes; see `hayase_tier::ObjectMeta::identity`.
    pub identity: u64,
    /// Bytes.
    pub size: u64,
    /// Of the last change of the bytes.
    pub mtime: Time,
    /// Permission bits.
    pub mode: u32,
}

/// Where the bytes of a file are safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileState {
    /// In the tier, and not here: they are fetched when they are wanted.
    InTier,
    /// In the tier, and a copy here that the job has not changed.
    Clean,
    /// Here only: written by the job.
    Dirty,
    /// Here only, and on their way to the tier.
    Flushing,
    /// Written by the job and durable in the tier; a copy is here.
    Durable,
    /// Here only: the last try to flush them failed. It is tried again.
    Failed,
}

impl FileState {
    /// The tier has all that the job wrote.
    pub fn is_safe(self) -> bool {
        matches!(self, Self::InTier | Self::Clean | Self::Durable)
    }

    /// The part of this file holds all its bytes.
    pub fn is_here(self) -> bool {
        self != Self::InTier
    }

    /// One word, for people and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::InTier => "in-tier",
            Self::Clean => "clean",
            Self::Dirty => "dirty",
            Self::Flushing => "flushing",
            Self::Durable => "durable",
            Self::Failed => "failed",
        }
    }
}

/// One file. Its part is the only one of a `Whole` file of this server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRecord {
    /// Which.
    pub ino: InodeId,
    /// Its name in the tier, from the tier's root.
    pub path: Vec<u8>,
    /// Where its bytes are.
    pub state: FileState,
    /// How many there were when this was written down.
    pub bytes: u64,
    /// Permission bits that the tier is to show.
    pub mode: u32,
    /// What the tier has under `path`, as far as we know: what may be replaced.
    pub version: Option<TierVersion>,
    /// What the tier has under the name that the file is about to get, while it is being renamed.
    pub over: Option<TierVersion>,
    /// Size and time of the last version that was sent: what came of it a crash may have hidden.
    pub sent: Option<(u64, Time)>,
    /// Errno of the last failure; 0 after a success.
    pub errno: i32,
    /// Failures in a row.
    pub attempts: u32,
}

impl LedgerRecord {
    /// A file that the job has just made.
    pub fn new(ino: InodeId, path: Vec<u8>, mode: u32) -> Self {
        Self {
            ino,
            path,
            state: FileState::Dirty,
            bytes: 0,
            mode,
            version: None,
            over: None,
            sent: None,
            errno: 0,
            attempts: 0,
        }
    }
}
