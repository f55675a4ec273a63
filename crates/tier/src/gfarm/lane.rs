//! Lanes: libgfarm in processes of its own, one call after the other in each, for a mount.
//!
//! Here: what is asked of a lane and what it answers. Rooms: [`frame`] (how that travels), [`serve`] (the process that calls
//! libgfarm), [`pool`] (who asks: several lanes, deadlines, ends).
//! Not here: inodes, opens of the kernel (`hayase_client::volume::gfarm`).
//!
//! libgfarm keeps one connection to the metadata server in a process, takes one request after the other through
//! it, and waits where it likes: for a server that is silent, in a loop while one comes back. No thread can be
//! taken out of that; a process can. So a mount has several, each with its own connection: a call that takes
//! longer than its deadline ends with its process, the others go on, and a new process takes its place.

mod frame;
mod pool;
mod serve;

use serde::{Deserialize, Serialize};

pub use pool::{FileId, Lanes, Lost, Opened, Spawn};
pub use serve::{Reply, serve, serve_by};

/// Seconds since 1970, and nanoseconds that count upwards.
pub type Time = (i64, u32);

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
}

/// What the metadata server tells about an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// Gfarm's number, given away again when the file is gone.
    pub ino: u64,
    /// Grows when other bytes are written.
    pub generation: u64,
    /// File, directory or link.
    pub kind: Kind,
    /// Permission bits, with the set-id bits.
    pub mode: u32,
    /// Names.
    pub nlink: u64,
    /// This host's number of the owner.
    pub uid: u32,
    /// This host's number of the group.
    pub gid: u32,
    /// Bytes, as of the last close.
    pub size: u64,
    /// Of the last read that Gfarm noted.
    pub atime: Time,
    /// Of the last change of bytes.
    pub mtime: Time,
    /// Of the last change of anything.
    pub ctime: Time,
}

/// A time that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// It stays.
    Keep,
    /// The server's clock.
    Now,
    /// This.
    To(Time),
}

/// Paths are libgfarm's: absolute, or URLs. Links at the end of a path are not followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the calls of libgfarm with these names, and their parameters")]
pub enum Request {
    Stat {
        path: Vec<u8>,
    },
    /// Of `most` names at most.
    List {
        path: Vec<u8>,
        most: usize,
    },
    ReadLink {
        path: Vec<u8>,
    },
    MakeDirectory {
        path: Vec<u8>,
        mode: u32,
    },
    RemoveDirectory {
        path: Vec<u8>,
    },
    Unlink {
        path: Vec<u8>,
    },
    Rename {
        from: Vec<u8>,
        to: Vec<u8>,
    },
    Link {
        from: Vec<u8>,
        to: Vec<u8>,
    },
    Symlink {
        target: Vec<u8>,
        path: Vec<u8>,
    },
    SetMode {
        path: Vec<u8>,
        mode: u32,
    },
    SetTimes {
        path: Vec<u8>,
        atime: SetTime,
        mtime: SetTime,
    },
    SetOwner {
        path: Vec<u8>,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    Xattr {
        path: Vec<u8>,
        name: Vec<u8>,
    },
    /// The value comes behind it.
    SetXattr {
        path: Vec<u8>,
        name: Vec<u8>,
        flags: i32,
    },
    Xattrs {
        path: Vec<u8>,
    },
    RemoveXattr {
        path: Vec<u8>,
        name: Vec<u8>,
    },
    Room {
        path: Vec<u8>,
    },
    /// A new file, open for reading and writing. Without a `place` at a file server it gets one with the first
    /// call about its bytes. With `like` the answer has these attributes, number and generation excepted; else the
    /// metadata server is asked for them, a request more.
    Create {
        path: Vec<u8>,
        mode: u32,
        place: bool,
        like: Option<Stat>,
    },
    Open {
        path: Vec<u8>,
        write: bool,
        truncate: bool,
    },
    Read {
        file: u64,
        offset: u64,
        len: u32,
    },
    /// The bytes come behind it.
    Write {
        file: u64,
        offset: u64,
    },
    Truncate {
        file: u64,
        len: u64,
    },
    Sync {
        file: u64,
    },
    /// `len`: sets the length first, which tells Gfarm of a change that it did not see.
    Close {
        file: u64,
        len: Option<u64>,
    },
}

/// Each request has one that fits; any may be [`Answer::Failed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "what the requests ask for")]
pub enum Answer {
    Done,
    Stat(Stat),
    Entries(Vec<(Vec<u8>, Stat)>),
    /// They come behind it.
    Bytes,
    /// In KiB.
    Room {
        used: u64,
        free: u64,
        files: u64,
    },
    /// With a descriptor beside it when the bytes lie on this host.
    Opened {
        file: u64,
        stat: Stat,
    },
    /// `broken`: a connection, so that another one may do.
    Failed {
        errno: i32,
        text: String,
        broken: bool,
    },
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut named =
            |what: &str, path: &[u8]| write!(f, "{what} {}", String::from_utf8_lossy(path));
        match self {
            Self::Stat { path } => named("stat", path),
            Self::List { path, .. } => named("list", path),
            Self::ReadLink { path } => named("read link", path),
            Self::MakeDirectory { path, .. } => named("make directory", path),
            Self::RemoveDirectory { path } => named("remove directory", path),
            Self::Unlink { path } => named("remove", path),
            Self::Rename { from, .. } => named("rename", from),
            Self::Link { from, .. } => named("link", from),
            Self::Symlink { path, .. } => named("make link", path),
            Self::SetMode { path, .. }
            | Self::SetTimes { path, .. }
            | Self::SetOwner { path, .. } => named("set attributes of", path),
            Self::Xattr { path, .. }
            | Self::SetXattr { path, .. }
            | Self::Xattrs { path }
            | Self::RemoveXattr { path, .. } => named("extended attributes of", path),
            Self::Room { path } => named("room of", path),
            Self::Create { path, .. } => named("create", path),
            Self::Open { path, .. } => named("open", path),
            Self::Read { offset, len, .. } => write!(f, "read {len} bytes at {offset}"),
            Self::Write { offset, .. } => write!(f, "write at {offset}"),
            Self::Truncate { len, .. } => write!(f, "set a length of {len} bytes"),
            Self::Sync { .. } => write!(f, "sync"),
            Self::Close { .. } => write!(f, "close"),
        }
    }
}

impl Request {
    /// What is asked about, the first of two; empty for an open file.
    pub(crate) fn path(&self) -> &[u8] {
        match self {
            Self::Stat { path }
            | Self::List { path, .. }
            | Self::ReadLink { path }
            | Self::MakeDirectory { path, .. }
            | Self::RemoveDirectory { path }
            | Self::Unlink { path }
            | Self::Rename { from: path, .. }
            | Self::Link { from: path, .. }
            | Self::Symlink { path, .. }
            | Self::SetMode { path, .. }
            | Self::SetTimes { path, .. }
            | Self::SetOwner { path, .. }
            | Self::Xattr { path, .. }
            | Self::SetXattr { path, .. }
            | Self::Xattrs { path }
            | Self::RemoveXattr { path, .. }
            | Self::Room { path }
            | Self::Create { path, .. }
            | Self::Open { path, .. } => path,
            Self::Read { .. }
            | Self::Write { .. }
            | Self::Truncate { .. }
            | Self::Sync { .. }
            | Self::Close { .. } => &[],
        }
    }

    /// Whether doing it twice is doing it once: it may be asked again when nobody knows whether it was done.
    pub fn is_repeatable(&self) -> bool {
        match self {
            Self::Stat { .. }
            | Self::List { .. }
            | Self::ReadLink { .. }
            | Self::SetMode { .. }
            | Self::SetTimes { .. }
            | Self::SetOwner { .. }
            | Self::Xattr { .. }
            | Self::Xattrs { .. }
            | Self::Room { .. } => true,
            Self::SetXattr { flags, .. } => *flags == 0,
            Self::Open { truncate, .. } => !truncate,
            Self::MakeDirectory { .. }
            | Self::RemoveDirectory { .. }
            | Self::Unlink { .. }
            | Self::Rename { .. }
            | Self::Link { .. }
            | Self::Symlink { .. }
            | Self::RemoveXattr { .. }
            | Self::Create { .. }
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::Truncate { .. }
            | Self::Sync { .. }
            | Self::Close { .. } => false,
        }
    }
}
