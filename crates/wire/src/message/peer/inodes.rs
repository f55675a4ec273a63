//! Requests that the home of an inode answers: attributes, opens, what a node may keep.

use hayase_layout::{InodeId, Layout};
use serde::{Deserialize, Serialize};

use crate::message::{Close, Grants, MetaChange, Name, NewNode, OnceId, Opening, XattrMode};

/// Requests that the home of an inode answers: attributes, opens, what a node may keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InodeRequest {
    /// Home to be: make the inode (and part); named later by `Insert`.
    Create { node: NewNode, layout: Layout },
    /// Home: the name could not be bound; forget the inode.
    Drop { ino: InodeId },
    /// Home.
    GetAttr { ino: InodeId },
    /// Home: several at once; `None` for those that are gone.
    GetAttrMany(Vec<InodeId>),
    /// Home.
    SetAttr { ino: InodeId, change: MetaChange },
    /// Home.
    ReadLink { ino: InodeId },
    /// Home: the asking node now has it open this way.
    Open { ino: InodeId, open: Opening, truncate: bool },
    /// Home: the asking node no longer has these open.
    Close(Vec<Close>),
    /// Home of a striped file: a truncate overtook a call, which is repeated. Answered as `GetAttr`;
    /// the next truncate lets it through first.
    Overtaken { ino: InodeId },
    /// Node: give back.
    Recall { ino: InodeId, bits: Grants },
    /// Home.
    GetXattr { ino: InodeId, name: Name },
    /// Home.
    SetXattr { ino: InodeId, name: Name, value: Vec<u8>, mode: XattrMode, once: Option<OnceId> },
    /// Home.
    ListXattr { ino: InodeId },
    /// Home.
    RemoveXattr { ino: InodeId, name: Name, once: Option<OnceId> },
    /// Home: parts, inode and names durable.
    Fsync { ino: InodeId, data_only: bool },
    /// Home.
    Explain { ino: InodeId },
    /// Home: of which of these is there no record, and will never be? `Gone`.
    WhichAreGone(Vec<InodeId>),
}
