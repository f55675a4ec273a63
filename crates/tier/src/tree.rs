//! What a tree holds besides objects: directories, also empty ones, and symbolic links.
//!
//! [`crate::Tier`] is about objects, and most callers need no more. A copy of a whole tree asks
//! [`crate::Tier::tree`] for this second contract; a store with flat names has none.
//!
//! Invariants: links are made, read and removed, never followed; nothing but a link is replaced by a
//! link, nothing but an empty directory is removed as one; `Ok` means durable, as in the first contract.

use std::time::SystemTime;

use crate::{Attributes, Key, TierError};

/// What a tier tells about a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryMeta {
    /// Permission bits.
    pub mode: u32,
    /// Time of the last change of its names.
    pub mtime: SystemTime,
}

/// Directories and symbolic links of a tier whose names form a tree.
pub trait Tree {
    /// Attributes of a directory; `NotObject` when something else stands there.
    fn directory(&self, key: &Key) -> Result<DirectoryMeta, TierError>;

    /// Makes the directory and those above it; one that is there already stays as it is.
    fn make_directory(&self, key: &Key) -> Result<(), TierError>;

    /// Sets what is `Some`. The time lasts until the next name in the directory comes or goes.
    fn set_directory(&self, key: &Key, attributes: Attributes) -> Result<(), TierError>;

    /// Removes an empty directory; `NotObject` when it is not empty or no directory.
    fn remove_directory(&self, key: &Key) -> Result<(), TierError>;

    /// What the symbolic link under `key` says, byte for byte; `NotObject` when it is none.
    fn link(&self, key: &Key) -> Result<Vec<u8>, TierError>;

    /// Makes a symbolic link, and the directories above it; replaces a link in one step, nothing else.
    fn make_link(&self, key: &Key, target: &[u8]) -> Result<(), TierError>;

    /// Removes a symbolic link; `NotObject` when it is none.
    fn remove_link(&self, key: &Key) -> Result<(), TierError>;
}
