//! Marks: objects that stand for what a store with flat names does not have, directories and links.
//!
//! Others keep them the same way, so their buckets are understood and ours by them: an empty object whose
//! name ends with a slash stands for a directory, an object whose mode says so for a symbolic link.
//! A store without marks has only objects; a tier with a [`crate::Tree`] needs none.
//!
//! Invariants: nothing is followed; a mark is replaced and removed like any object; removing the mark
//! of a directory removes nothing in it. Source: s3fs(1), and the directory markers of rclone(1).

use crate::{Attributes, Key, TierError};

/// Directories and symbolic links of a store, as objects. Listings show marks of directories as
/// [`crate::EntryKind::Directory`] where [`crate::ListRequest::marks`] asks for them; that an object
/// stands for a link tells [`crate::Reader::is_link`].
pub trait Marks {
    /// What the mark of a directory says; `Missing` without one. One request.
    fn directory(&self, key: &Key) -> Result<Attributes, TierError>;

    /// Makes the mark of a directory, or another one in its place.
    fn mark_directory(&self, key: &Key, attributes: Attributes) -> Result<(), TierError>;

    /// Removes the mark of a directory, if there is one.
    fn unmark_directory(&self, key: &Key) -> Result<(), TierError>;

    /// Makes an object that stands for a symbolic link and says `target`; replaces what is there.
    fn mark_link(&self, key: &Key, target: &[u8], attributes: Attributes) -> Result<(), TierError>;
}
