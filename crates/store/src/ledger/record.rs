//! What the ledger knows of one file of the cache area.

use hayase_layout::{InodeId, Layout};
use serde::{Deserialize, Serialize};

use super::PendingXattrs;
use crate::device::PartStat;
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
    /// The job has removed or renamed the file, and the tier still has it under this name: a tombstone.
    Removed,
}

impl FileState {
    /// The tier is as the job left the file.
    pub fn is_safe(self) -> bool {
        matches!(self, Self::InTier | Self::Clean | Self::Durable)
    }

    /// The part of this file holds all its bytes.
    pub fn is_here(self) -> bool {
        !matches!(self, Self::InTier | Self::Removed)
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
            Self::Removed => "removed",
        }
    }
}

/// The state of a file's part when it was made durable.
///
/// A power cut can not have changed a part that still has this size and these times: every write, truncate and
/// fallocate(2), also one that passes no server, changes the times. A write in place within the same tick of the
/// kernel's clock as the last one before the sync does not (Linux before 6.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synced {
    /// Bytes.
    pub size: u64,
    /// Of the last change of the bytes.
    pub mtime: Time,
    /// Of the last change of anything.
    pub ctime: Time,
}

impl From<PartStat> for Synced {
    /// Of a part that was looked at before a sync that succeeded.
    fn from(stat: PartStat) -> Self {
        let PartStat { size, mtime, ctime, .. } = stat;
        Self { size, mtime, ctime }
    }
}

/// The place of a file among those that had its name one after the other, each renamed over the one before. After a power
/// cut of every node it says which of two files that believe to have one name is the later one
/// (`docs/design/000-faults.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Succession {
    /// The first of them.
    pub first: InodeId,
    /// How many came before; 0 for the first one.
    pub number: u64,
}

impl Succession {
    /// The place of the file that is renamed over the one that has this place.
    #[must_use]
    pub fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }

    /// Whether the file of this place had the name before the one of `other`.
    pub fn is_before(self, other: Self) -> bool {
        self.first == other.first && self.number < other.number
    }
}

/// Whose name a tombstone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buried {
    /// The directory of the name.
    pub parent: InodeId,
    /// The file that had it.
    pub ino: InodeId,
    /// The file has another one, and may be renamed in the tier: until that has ended it may be seen there under both,
    /// and has another identity.
    pub is_renamed: bool,
}

/// One file whose home is this server. Of a `Whole` one its only part is here.
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
    /// The file is being renamed over another one, which the tier may not have yet.
    pub is_over: bool,
    /// Size and time of the last version that was sent: what came of it a crash may have hidden.
    pub sent: Option<(u64, Time)>,
    /// Errno of the last failure; 0 after a success.
    pub errno: i32,
    /// Failures in a row.
    pub attempts: u32,
    /// Completions of this server with lower numbers in the same directory come to the tier first; 0
    /// waits for none.
    pub after: u64,
    /// Removed or replaced by the job while it was open: `path` is not its own any more, and nothing of it
    /// comes to the tier.
    pub is_nameless: bool,
    /// Which version of the tier (its [`TierVersion::identity`]) holds bytes that we sent, and their XXH3:
    /// speaks of `version` as long as that has this identity.
    pub checksum: Option<(u64, u64)>,
    /// Of a tombstone, which has an inode number of its own and no part.
    pub buried: Option<Buried>,
    /// In which parts its bytes are, when they are here.
    pub layout: Layout,
    /// Extended attributes that the tier does not have yet.
    pub xattrs: PendingXattrs,
    /// How the part of a `Whole` file was when it was last made durable; `None`: never, as far as is known.
    pub synced: Option<Synced>,
    /// The storage has lost bytes of its parts: nothing of it is sent until it was emptied.
    pub is_broken: bool,
    /// Its place among the files that had its name; `None`: it is the first one, as far as is known.
    pub succession: Option<Succession>,
    /// The place that it is about to get, while it is being renamed over another file.
    pub follows: Option<Succession>,
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
            is_over: false,
            sent: None,
            errno: 0,
            attempts: 0,
            after: 0,
            is_nameless: false,
            checksum: None,
            buried: None,
            layout: Layout::Whole,
            xattrs: PendingXattrs { are_all: true, ..PendingXattrs::default() },
            synced: None,
            is_broken: false,
            succession: None,
            follows: None,
        }
    }

    /// Its place among the files that had its name.
    pub fn place(&self) -> Succession {
        self.succession.unwrap_or(Succession { first: self.ino, number: 0 })
    }

    /// What the tier's version has of extended attributes is the file's, but for what has changed since.
    pub fn has_xattrs_of_version(&self) -> bool {
        !self.xattrs.are_all && self.version.is_some() && !self.is_nameless
    }

    /// The tier's `version` of `path`, or the last one sent there, is to go.
    pub fn tombstone(
        number: InodeId,
        path: Vec<u8>,
        buried: Buried,
        version: Option<TierVersion>,
        sent: Option<(u64, Time)>,
    ) -> Self {
        let (state, buried) = (FileState::Removed, Some(buried));
        Self { state, version, sent, buried, ..Self::new(number, path, 0) }
    }

    /// XXH3 of the bytes that the tier holds of this file; `None` where it holds none that we sent.
    pub fn known_checksum(&self) -> Option<u64> {
        let (identity, checksum) = self.checksum?;
        self.version.is_some_and(|version| version.identity == identity).then_some(checksum)
    }

    /// The tier's version of the same bytes is `version` from here on: under another name, or with other
    /// attributes. What is known of the bytes stays known.
    pub fn same_bytes_in(&mut self, version: TierVersion) {
        if let Some(checksum) = self.known_checksum() {
            self.checksum = Some((version.identity, checksum));
        }
        self.version = Some(version);
    }

    /// What the tier shows under the path of this tombstone may be a file on its way to another name: what looks as it did.
    /// Good for not showing it, and not for removing it: a copy looks the same.
    pub fn may_be_on_its_way(&self, size: u64, mtime: Time) -> bool {
        let looks = |version: TierVersion| (version.size, version.mtime) == (size, mtime);
        self.buried.is_some_and(|buried| buried.is_renamed) && self.version.is_some_and(looks)
    }

    /// What the tier shows under the path is this file's: the version that is known, or the one that
    /// was sent last, if a crash hid that it arrived.
    pub fn is_ours(&self, identity: u64, size: u64, mtime: Time) -> bool {
        let known = self.version.is_some_and(|version| version.identity == identity);
        known || self.sent == Some((size, mtime))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_follows_the_bytes_to_their_next_version() {
        let at = |identity| {
            let mtime = Time { seconds: 0, nanos: 0 };
            TierVersion { identity, size: 1, mtime, mode: 0o600 }
        };
        let mut record = LedgerRecord::new(InodeId(7), b"f".to_vec(), 0o600);
        (record.version, record.checksum) = (Some(at(1)), Some((1, 99)));
        record.same_bytes_in(at(2));
        assert_eq!((record.version, record.known_checksum()), (Some(at(2)), Some(99)));
        record.version = Some(at(3));
        assert_eq!(record.known_checksum(), None);
        record.same_bytes_in(at(4));
        assert_eq!(record.known_checksum(), None);
    }
}
