//! Names in directories, and what becomes of them between servers.

use hayase_layout::{InodeId, NodeId};
use serde::{Deserialize, Serialize};

use crate::message::{FileKind, Name};

/// What an entry binds a name to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The inode.
    pub ino: InodeId,
    /// Its kind, which never changes.
    pub kind: FileKind,
}

/// One name in one directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The directory.
    pub parent: InodeId,
    /// The name in it.
    pub name: Name,
}

/// One line of a shard's listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardEntry {
    /// Hash of the name, the order of the listing.
    pub cookie: u64,
    /// The name.
    pub name: Name,
    /// What it is bound to.
    pub binding: Binding,
}

/// A name that moves from the home of its directory to its shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedName {
    /// The name.
    pub name: Name,
    /// What it is bound to.
    pub binding: Binding,
    /// Nodes that looked it up a moment ago, and are notified when it is removed.
    pub known_by: Vec<NodeId>,
}

/// How a rename ended, for the shard of the old name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RenameEnd {
    /// The new name was not bound.
    Undone,
    /// It was; what it stands for may not know yet that it has another name.
    Committed,
    /// It was, and everybody knows.
    Counted,
}

/// A link that may have been counted longer than its name was bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftLink {
    /// The removal, at the shard.
    pub op: u64,
    /// Whose link.
    pub ino: InodeId,
    /// The name that is gone.
    pub place: Place,
}
