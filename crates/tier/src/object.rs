//! What is said of an object besides its bytes: by a writer, and by the tier.

use std::time::SystemTime;

use hayase_layout::ByteCount;

/// What a writer may say about an object besides its bytes; `None` leaves it to the tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits, `0o777` at most (set-id bits are not carried to shared storage).
    pub mode: Option<u32>,
    /// Time of the last change of the bytes; kept at least to the second.
    pub mtime: Option<SystemTime>,
}

/// What a tier tells about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Its length.
    pub size: ByteCount,
    /// Permission bits.
    pub mode: u32,
    /// Time of the last change of the bytes.
    pub mtime: SystemTime,
    /// Changes whenever other bytes are committed, and on most changes behind the tier's back
    /// (for a file: made of inode number, size and change time; for an object: of entity tag, size and
    /// time). Equal means unchanged bytes; different may mean that only attributes changed.
    pub identity: u64,
}
