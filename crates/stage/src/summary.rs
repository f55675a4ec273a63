//! How a transfer ended: what arrived, what was there, what failed.

#[cfg(doc)]
use crate::Options;
#[cfg(doc)]
use crate::Share;
use crate::pack::{Index, PackError};

/// One name that did not arrive, or could not be removed.
#[derive(Debug)]
pub struct Failure {
    /// Relative to the tree.
    pub name: String,
    /// Why.
    pub error: PackError,
}

/// How a transfer ended.
#[derive(Debug, Default)]
pub struct Summary {
    /// Names of the source that were looked at, selected or not.
    pub found: u64,
    /// Items that were made or written over.
    pub copied: u64,
    /// Items that were there already.
    pub kept: u64,
    /// Items that differ, and that the rule of overwriting spared.
    pub spared: u64,
    /// Items removed at the target.
    pub removed: u64,
    /// Bytes of files that were moved.
    pub bytes_moved: u64,
    /// Bytes that were there already inside of files that were not finished.
    pub bytes_resumed: u64,
    /// Packs written.
    pub packs: u64,
    /// Of a [`Share`]: nodes that saw the same source have the same number here.
    pub seen: u32,
    /// Of a [`Share`] that makes packs: files that it put next to them, for [`Options::loose`]. An index without
    /// packs.
    pub loose: Index,
    /// Selected files that are large enough to be moved in parts.
    pub large: u64,
    /// Streams at the end: a good begin for the next time.
    pub streams: usize,
    /// Bytes of each part of a large file at the end, the same; 0 when nothing came in parts.
    pub part_bytes: u64,
    /// The most bytes of data that were held together, as they were counted against [`Options::memory`].
    pub memory_peak: u64,
    /// What did not arrive; the first [`FAILURES_LISTED_MAX`](crate::limits::FAILURES_LISTED_MAX).
    pub failures: Vec<Failure>,
    /// All of them.
    pub failures_total: u64,
    /// The transfer ended early, since going on had no sense.
    pub is_stopped: bool,
}

impl Summary {
    /// Everything that was asked for is at the target.
    pub fn is_complete(&self) -> bool {
        self.failures_total == 0 && !self.is_stopped
    }
}
