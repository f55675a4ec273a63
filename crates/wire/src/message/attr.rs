//! Attributes and names, as they travel and as they are kept.

use hayase_layout::{Acls, InodeId, Layout, StripePolicy};
use serde::{Deserialize, Serialize};

/// One component of a path: 1 to 255 bytes, no `/`, no NUL. Not necessarily UTF-8.
pub type Name = Vec<u8>;

/// Seconds and nanoseconds since 1970, as in `struct timespec`; seconds may be negative.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct TimeSpec {
    pub seconds: i64,
    pub nanos: u32,
}

/// The seven kinds of `st_mode & S_IFMT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

/// What stat(2) tells, and what a node needs to serve the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    pub ino: InodeId,
    pub kind: FileKind,
    /// Permission bits, `0o7777` at most.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub nlink: u32,
    /// Bytes.
    pub size: u64,
    /// In units of 512 bytes, as `st_blocks`.
    pub blocks: u64,
    pub atime: TimeSpec,
    pub mtime: TimeSpec,
    pub ctime: TimeSpec,
    pub crtime: TimeSpec,
    pub layout: Layout,
    pub layout_epoch: u32,
    pub trunc_epoch: u32,
    /// Of a directory: how its new files are laid out.
    pub policy: Option<StripePolicy>,
    /// Its access control lists, as far as they say more than `mode`.
    pub acls: Option<Box<Acls>>,
}

/// What a node may keep in its caches until it is recalled, its session ends, or (ATTR) 30 s pass unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grants {
    /// Pages of the file. Of a directory that this mount has just made: which names are not in it.
    pub cache: bool,
    /// Attributes.
    pub attr: bool,
}

impl Grants {
    pub const NONE: Self = Self { cache: false, attr: false };
    pub const ALL: Self = Self { cache: true, attr: true };
}

/// A name found or made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub attr: Attr,
    pub grants: Grants,
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Where to continue after this entry: a hash of the name, never below 3 (0 start, 1 `.`, 2 `..`).
    pub cookie: u64,
    pub name: Name,
    pub ino: InodeId,
    pub kind: FileKind,
    /// With readdirplus, when it could be had at once.
    pub entry: Option<Entry>,
}

/// A time as utimensat(2) sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    Now,
    To(TimeSpec),
}

/// What chmod, chown, truncate and utimensat change; `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaChange {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// Of a directory: set (or take away) the layout of new files.
    pub policy: Option<Option<StripePolicy>>,
    /// Of a file: its bytes change by the hand of one without CAP_FSETID, so it no longer runs as its owner or group
    /// (as `FUSE_HANDLE_KILLPRIV_V2`). Nothing is changed where it has no such bits.
    pub kill_suidgid: bool,
}

/// Set-user-id.
const S_ISUID: u32 = 0o4000;
/// Set-group-id; without `S_IXGRP` it is none.
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o0010;

/// The mode of a file that was written by one without CAP_FSETID.
pub fn without_suidgid(mode: u32) -> u32 {
    let sgid = if mode & S_IXGRP != 0 { S_ISGID } else { 0 };
    mode & !(S_ISUID | sgid)
}

/// Flags of setxattr(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrMode {
    /// Make it or replace it.
    Set,
    /// `EEXIST` when it is there.
    Create,
    /// `ENODATA` when it is not.
    Replace,
}
