//! Listings: what is asked for, and the pages it is answered in.

use crate::{Key, ObjectMeta};

/// Most entries of one page; a larger limit is taken as this one.
pub const LIST_ENTRIES_MAX: usize = 10_000;

/// How far a listing goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Every object below the prefix.
    All,
    /// Up to the next slash after the prefix; what lies deeper is one entry [`EntryKind::Directory`].
    One,
}

/// One question of [`crate::Tier::list`].
#[derive(Clone, Debug)]
pub struct ListRequest {
    /// Keys that begin with these bytes; ends with `/` to mean a directory; empty means all.
    pub prefix: Vec<u8>,
    /// How far down.
    pub depth: Depth,
    /// Only what comes after this name: the `next` of the page before, or `None` to begin.
    pub after: Option<Vec<u8>>,
    /// Most entries wanted, 1 to [`LIST_ENTRIES_MAX`].
    pub limit: usize,
    /// With [`Depth::All`]: also directories that have a mark ([`crate::Marks`]).
    pub marks: bool,
}

impl ListRequest {
    /// The first page of everything below `prefix`.
    pub fn all(prefix: impl Into<Vec<u8>>) -> Self {
        let (depth, limit) = (Depth::All, LIST_ENTRIES_MAX);
        Self { prefix: prefix.into(), depth, after: None, limit, marks: false }
    }

    /// The first page of one level below `prefix`.
    pub fn one_level(prefix: impl Into<Vec<u8>>) -> Self {
        Self { depth: Depth::One, ..Self::all(prefix) }
    }

    /// The question for the page after one that ended with `next`.
    pub fn continued(mut self, next: Vec<u8>) -> Self {
        self.after = Some(next);
        self
    }

    /// The limit within its bounds.
    pub fn bounded_limit(&self) -> usize {
        self.limit.clamp(1, LIST_ENTRIES_MAX)
    }
}

/// What stands under one name.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryKind {
    /// An object, with its attributes.
    Object(ObjectMeta),
    /// With [`Depth::One`]: something lies, or may lie, deeper; with marks: one that is marked. The name
    /// ends with `/`.
    Directory,
    /// A thing that is no object (symbolic link, device, socket): shown so that a copy of a tree can
    /// say what it leaves out; every call on it is refused.
    Other(&'static str),
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The full name, from the tier's root; of a directory with the slash at its end.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
}

impl Entry {
    /// The key, when this is an object.
    pub fn key(&self) -> Option<Key> {
        match self.kind {
            EntryKind::Object(_) => Key::new(&self.name).ok(),
            EntryKind::Directory | EntryKind::Other(_) => None,
        }
    }
}

/// One page: entries in bytewise order of their names, each name once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// At most the limit.
    pub entries: Vec<Entry>,
    /// Where the next page begins; `None` when this was the last.
    pub next: Option<Vec<u8>>,
}
