//! What servers tell each other, and people, of the cache area.

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};

use super::{FileKind, Name, TimeSpec};

/// One version of a file in the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierVersion {
    /// Changes with the bytes.
    pub identity: u64,
    pub size: u64,
    pub mtime: TimeSpec,
    pub mode: u32,
}

/// The place of a file among those that had its name one after the other, each renamed over the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Succession {
    /// The first of them.
    pub first: InodeId,
    /// How many came before; 0 for the first one.
    pub number: u64,
}

/// What of a file the tier may show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The version that is known to be there.
    pub version: Option<TierVersion>,
    /// Size and time of one that was sent, and of which nobody knows whether it arrived.
    pub sent: Option<(u64, TimeSpec)>,
}

/// A moment in the order of one server's files: numbers begin anew with each start of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Which start of the server.
    pub start: u64,
    pub number: u64,
}

/// A name of the tier that becomes an inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    pub name: Name,
    /// Regular, directory or symbolic link.
    pub kind: FileKind,
    /// Of a file.
    pub version: Option<TierVersion>,
    /// Of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Of a directory.
    pub mode: u32,
}

/// How far a flush has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flushed {
    /// The tier has all of it.
    Durable,
    /// Not yet: ask again.
    Pending,
    /// Somebody has it open for writing; it is flushed when it is closed.
    Open,
    /// The last try failed; it is tried again.
    Failed { errno: i32, attempts: u32 },
}

/// One file that the tier does not have, or not as the job wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheLine {
    /// From the tier's root.
    pub path: Vec<u8>,
    /// `dirty`, `flushing`, `failed`, `open`, `removed`.
    pub state: String,
    pub bytes: u64,
    /// Of the last failure; 0 when there was none.
    pub errno: i32,
    pub attempts: u32,
}

/// One version in the tier whose bytes were sent by a server, and what they were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksumLine {
    pub ino: u64,
    /// From the tier's root.
    pub path: Vec<u8>,
    /// Of the version, as the tier tells it.
    pub identity: u64,
    pub bytes: u64,
    /// XXH3, 64 bits, of all bytes; `None` where the tier has another version than the one that was sent,
    /// or gets one just now.
    pub checksum: Option<u64>,
}

/// The cache area of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// The tier, for people.
    pub tier: String,
    /// Files and bytes that the tier does not have yet.
    pub dirty_files: u64,
    pub dirty_bytes: u64,
    /// Of those, bytes that are on their way: the tier shows them when it has the whole file.
    pub sent_bytes: u64,
    /// Of those, files that somebody has open for writing.
    pub open_files: u64,
    /// Of those, files whose last try failed.
    pub failed_files: u64,
    /// Copies of what the tier has.
    pub clean_bytes: u64,
    /// Since this incarnation began.
    pub flushed_files: u64,
    pub flushed_bytes: u64,
    pub fetched_bytes: u64,
    /// Names under which our version was kept beside one that somebody else wrote.
    pub conflicts: Vec<Vec<u8>>,
    /// Bytes per second to the tier, over the last seconds in which something was flushed.
    pub rate: u64,
    /// Seconds until the deadline of the job, where one was given.
    pub deadline_s: Option<u64>,
    /// Bytes that will not make it by then at this rate.
    pub misses_bytes: u64,
    /// What is not durable, as far as it fits into a message.
    pub lines: Vec<CacheLine>,
}
