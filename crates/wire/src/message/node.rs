//! Between a process and its own node's server, over the node's Unix socket.
//!
//! A process holds a few connections. Each carries one request at a time: the answer comes before
//! the next request is sent, so a reply needs no demultiplexer and wakes exactly the thread that
//! waits. Where many threads ask at once they share one, on which answers of many come together
//! ([`ClientRole::Multiplexed`]). One more connection, opened with [`ClientRole::Callback`], runs the other way: on it
//! the server sends [`Callback`]s and the process answers.
//!
//! Every request is acknowledged only when its effect survives the death of any process
//! (not of the machine: that is [`NodeRequest::Fsync`]).

use std::time::Duration;

use hayase_layout::{Acls, ByteCount, InodeId, NodeId, ServerId, StripePolicy};
use serde::{Deserialize, Serialize};

use super::CacheLine;
use super::open::{Access, Opening};
use super::{
    AreaUse, Attr, ChecksumLine, DirEntry, Entry, FileKind, Flushed, Grants, HeldLock, Holding,
    Lock, LockAnswer, LockHeld, LockRange, MetaChange, Name, Refused, Sample, ServerStatus,
    XattrMode,
};

/// What a connection is for; the first thing said on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientRole {
    /// Requests of a mount (holds grants, so it must have a callback connection) or of a library.
    Requests,
    /// The server asks, the process answers.
    Callback,
    /// Requests of many threads, each [`Numbered`], at most
    /// [`MULTIPLEXED_MAX`](crate::limits::MULTIPLEXED_MAX) unanswered; answers bear the number, and come
    /// in any order. A process has one at a time: it is welcomed when all that came on the last one is
    /// done, so that what was not answered there can be asked again.
    Multiplexed,
    /// A mount sends [`HandedOver`]s, as they come; the server sends [`HandedBack`]s. The kernel's
    /// device comes with the hello.
    HandOver,
}

/// A request or an answer on a connection of many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbered<T> {
    /// Which of this connection's requests.
    pub number: u64,
    pub message: T,
}

/// A request of the kernel whose success the server tells the kernel itself, by the mount's device:
/// who waits for it is woken by the server, and the mount hears of it later, of many at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    /// The kernel's number of the request.
    pub unique: u64,
    /// Today a [`NodeRequest::Remove`] in a [`NodeRequest::Once`]; anything else is answered by the mount.
    pub request: NodeRequest,
}

/// What became of requests that were handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedBack {
    /// The kernel knows: the request's number, and whose name was removed.
    pub told: Vec<(u64, InodeId)>,
    /// To be answered by the mount.
    pub answers: Vec<(u64, NodeReply)>,
}

/// Bytes of one arena slot of the asking process: `slot` as numbered in its arena, from the slot's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRange {
    pub slot: u32,
    pub len: u32,
}

/// What a mount may gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// From here.
    pub offset: u64,
    /// So many bytes.
    pub len: u32,
    /// Length of the file now.
    pub size: u64,
}

/// What is to be done after gathered bytes were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gathered {
    /// How long ago the last of them was: then the file was changed last.
    pub age: Duration,
    /// What was kept free for more of them is given back.
    pub is_last: bool,
}

/// The answer to a recall. Opens travel beside it: what its sender asked for later than it looked
/// ([`Opening::number`] above `as_of`) it does not speak of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StillOpen {
    pub access: Access,
    pub as_of: u64,
}

/// A new file of any kind. The name, owner and rights are what the kernel checked and computed
/// (umask applied or the parent's default list followed, and its set-gid).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewNode {
    pub parent: InodeId,
    pub name: Name,
    pub kind: FileKind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// Of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// The parent's policy: given to a new directory, obeyed for a new file. Where it is unknown, so are the lists of the
    /// parent, and the server that is asked lets the new file inherit them.
    pub policy: ParentPolicy,
    /// What it inherits of the parent's default list.
    pub acls: Option<Box<Acls>>,
    /// Refuse with `EEXIST` when the name exists; otherwise the existing file is returned (and opened).
    pub exclusive: bool,
    /// Open it in the same step.
    pub open: Option<Opening>,
}

/// The policy of the directory in which something is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParentPolicy {
    /// As the asking node knows it, which it does where it may keep the directory's attributes.
    Known(Option<StripePolicy>),
    /// The server that is asked looks it up: spares who may keep nothing a question of its own.
    Unknown,
}

impl ParentPolicy {
    /// `None` where there is none or it is unknown.
    pub fn known(self) -> Option<StripePolicy> {
        match self {
            Self::Known(policy) => policy,
            Self::Unknown => None,
        }
    }
}

/// The answer to [`NodeRequest::Open`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    pub attr: Attr,
    /// CACHE and ATTR for this node from now on. CACHE for an open for writing only with
    /// [`OpenKind::RemoteCachedWriter`].
    pub grants: Grants,
    /// Somebody may write: an open of class R without CACHE must be a direct one.
    pub writing: bool,
    /// This reply carries the descriptor of the part (read-write, to be registered or used).
    pub descriptor: bool,
}

/// The answer to [`NodeRequest::Create`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    pub entry: Entry,
    /// False: the name was there already.
    pub new: bool,
    /// When an open was asked for.
    pub opened: Option<Opened>,
}

/// What this process no longer holds open: transitions to zero of its opens of an inode. As with
/// [`StillOpen`], opens asked for later ([`Opening::number`] above `as_of`) are not meant: a close
/// that arrives late, or twice, ends nothing that came after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close {
    pub ino: InodeId,
    pub access: Access,
    pub as_of: u64,
}

/// How a file is served and why, for `hayase explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    pub attr: Attr,
    /// The home's view: `idle`, `shared-read`, `writing`, with the reason when it lingers there.
    pub state: String,
    /// Nodes that have it open: (node, read, write, class).
    pub opens: Vec<(NodeId, bool, bool, String)>,
    /// Per part: server, bytes allocated.
    pub parts: Vec<(u16, u64)>,
    /// Of a file in `cache`: where its bytes are, in the words of [`CacheLine`], or `clean`, `durable` (a copy is here), `in-tier`.
    pub cache: Option<CacheLine>,
}

/// What happens to a recorded file. Each step does nothing the second time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordedStep {
    /// An empty file becomes one: its bytes are in this directory from now on. `EBUSY` when it is
    /// open, `EINVAL` when it is something else, `ENOENT` when the directory is no more.
    Begin { container: InodeId },
    /// A writer has published in the index of this name: readers see it when this is answered. Without
    /// a name it may be in any.
    Published { index: String },
    /// It becomes a `Whole` file, of at most `keep` bytes. `EBUSY` while MPI programs have it open.
    Flatten { keep: Option<u64> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeRequest {
    /// First on every connection. With `Requests` the frame carries the memfd of the arena (or
    /// none: then no request with a slot may follow). `process` is the same random number on all
    /// connections of one process; its opens end when its last connection does.
    Hello {
        version: u16,
        role: ClientRole,
        process: u64,
        arena_slots: u32,
        mount: bool,
        /// It was connected before, to this server or one that was here before it: what it holds
        /// comes with [`NodeRequest::Reclaim`], and nothing else of it is served before.
        returning: bool,
    },
    /// What this process holds. Answered by what of it is lost.
    Reclaim(Box<Holding>),
    /// A request that must happen once ([`super::OnceId`]).
    Once {
        slot: u32,
        number: u64,
        request: Box<NodeRequest>,
    },
    /// `ENOENT`; grants NAME for 2 s.
    Lookup {
        parent: InodeId,
        name: Name,
    },
    /// `ESTALE` when the inode is gone and this node does not have it open.
    GetAttr {
        ino: InodeId,
    },
    /// Recalls ATTR (and CACHE, when the size changes) of the other nodes before it answers.
    SetAttr {
        ino: InodeId,
        change: MetaChange,
    },
    Create(NewNode),
    Link {
        ino: InodeId,
        parent: InodeId,
        name: Name,
    },
    /// `ENOTDIR`/`EISDIR` by `directory`; open files live on until their last close.
    Remove {
        parent: InodeId,
        name: Name,
        directory: bool,
    },
    Rename {
        from: (InodeId, Name),
        to: (InodeId, Name),
        /// `RENAME_NOREPLACE`.
        no_replace: bool,
        /// `RENAME_EXCHANGE`: answered `EINVAL` in this version.
        exchange: bool,
    },
    ReadLink {
        ino: InodeId,
    },
    /// Entries after `cookie`, in cookie order, about `bytes` of names; empty at the end.
    ReadDir {
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    },
    /// This process now holds `ino` open this way (transitions from zero only). `truncate` is
    /// `O_TRUNC`, done inside. Waits for recalls of other nodes' caches.
    Open {
        ino: InodeId,
        open: Opening,
        truncate: bool,
    },
    /// Any number of transitions to zero.
    Close(Vec<Close>),
    /// A lock of bytes. With a ticket it waits where it must; the ticket is called
    /// ([`Callback::LockGranted`]) when it is held. Asked twice with one ticket it waits once.
    Lock {
        ino: InodeId,
        lock: Lock,
        ticket: Option<u64>,
    },
    /// Ends what `owner` holds of `range`.
    Unlock {
        ino: InodeId,
        owner: u64,
        range: LockRange,
    },
    /// What stands against a lock, if anything does.
    TestLock {
        ino: InodeId,
        lock: Lock,
    },
    /// A ticket is no longer wanted: `Cancelled`, unless it was granted before.
    CancelLock {
        ino: InodeId,
        ticket: u64,
    },
    /// At most a slot; short only at the end of the file. Bytes land at the slot's start.
    Read {
        ino: InodeId,
        offset: u64,
        into: SlotRange,
    },
    Write {
        ino: InodeId,
        offset: u64,
        from: SlotRange,
    },
    /// The asking mount is going to gather what is written from `at` on, up to the next multiple of `len` bytes, or (no
    /// `at`) `len` bytes from the end of the file on, and hands it on later ([`NodeRequest::WriteGathered`]), at the latest when it is
    /// recalled. Room is kept for it: `Gathering`. `EAGAIN` when anybody else may have to do with the file: then each
    /// write is sent at once.
    Gather {
        ino: InodeId,
        at: Option<u64>,
        len: u32,
    },
    /// Bytes that were gathered. Refused with `EIO` when the home has given up waiting for them and let others at the
    /// file: they are not written over what those wrote.
    WriteGathered {
        ino: InodeId,
        offset: u64,
        from: SlotRange,
        after: Gathered,
    },
    /// Written at the end of the file, wherever that is by now; answers where.
    Append {
        ino: InodeId,
        from: SlotRange,
    },
    /// Bits of fallocate(2); `EOPNOTSUPP` for what the layout can not do.
    Allocate {
        ino: InodeId,
        mode: i32,
        offset: u64,
        len: u64,
    },
    /// `SEEK_DATA` (3) or `SEEK_HOLE` (4).
    Seek {
        ino: InodeId,
        offset: u64,
        whence: u8,
    },
    /// Inside the servers, without the bytes passing this process; answers how many.
    CopyRange {
        from: (InodeId, u64),
        to: (InodeId, u64),
        len: u64,
    },
    /// Parts, inode and the file's names, or a directory's entries: survive a power cut afterwards.
    Fsync {
        ino: InodeId,
        data_only: bool,
    },
    GetXattr {
        ino: InodeId,
        name: Name,
    },
    SetXattr {
        ino: InodeId,
        name: Name,
        value: Vec<u8>,
        mode: XattrMode,
    },
    ListXattr {
        ino: InodeId,
    },
    RemoveXattr {
        ino: InodeId,
        name: Name,
    },
    /// Bytes of the `shared` area over all living servers.
    StatFs,
    Explain {
        ino: InodeId,
    },
    /// A file that MPI-IO keeps as one part per writer.
    Recorded {
        ino: InodeId,
        step: RecordedStep,
    },
    Status,
    /// What the server had done by which moment, for the job's report.
    History,
    /// Files that can not be reached because a node is lost, as far as this server knows their names:
    /// at most `max` of them by path, and how many there are.
    LostFiles {
        max: u32,
    },
    /// Bytes of the one server that keeps this private tree.
    StatFsOf {
        tree: InodeId,
    },
    /// Versions in the tier of which this server knows what they hold, of inodes above `after`: a page of
    /// them, `most` at most.
    Checksums {
        after: u64,
        most: u16,
    },
    /// A file of the cache area: how far is its flush? Begins it if nobody writes the file.
    Flush {
        ino: InodeId,
    },
    /// A file of the cache area that is in the tier: give its room on the nodes back. `EBUSY` when it
    /// is open, `EAGAIN` when the tier does not have it yet.
    Evict {
        ino: InodeId,
    },
}

impl NodeRequest {
    /// A second execution would be another answer, or another file system.
    pub fn happens_once(&self) -> bool {
        matches!(
            self,
            Self::Create(_)
                | Self::Link { .. }
                | Self::Remove { .. }
                | Self::Rename { .. }
                | Self::SetXattr { .. }
                | Self::RemoveXattr { .. }
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeReply {
    Welcome {
        node: NodeId,
        nodes: u16,
        slot: ByteCount,
        /// Of the server: another one than before means that it was started anew.
        start_id: u64,
    },
    /// Inodes of which something could not be given back to this process.
    Reclaimed {
        lost: Vec<InodeId>,
    },
    Entry(Entry),
    Attr {
        attr: Attr,
        grants: Grants,
    },
    Created(Box<Created>),
    /// Of [`NodeRequest::Remove`]: whose name it was (its cached attributes are old now).
    Removed {
        ino: InodeId,
    },
    /// Of [`NodeRequest::Rename`]: both inodes' cached attributes are old now.
    Renamed {
        moved: InodeId,
        replaced: Option<InodeId>,
    },
    Done,
    Target(Vec<u8>),
    Entries(Vec<DirEntry>),
    Opened(Box<Opened>),
    /// Bytes read, written or copied.
    Count(u32),
    /// Where an append landed, what a seek found.
    Offset(u64),
    /// Of [`NodeRequest::Gather`].
    Gathering(Room),
    Locked(LockAnswer),
    LockHeld(Option<LockHeld>),
    /// Of a lock that waited: it will not be granted any more.
    Cancelled(bool),
    Value(Vec<u8>),
    Names(Vec<Name>),
    StatFs(AreaUse),
    Explained(Box<Explained>),
    Status(Box<ServerStatus>),
    /// Oldest first.
    History(Vec<Sample>),
    /// By inode; empty when there are no more.
    Checksums(Vec<ChecksumLine>),
    LostFiles {
        paths: Vec<Name>,
        total: u64,
    },
    Refused(Refused),
    /// Of [`NodeRequest::Flush`].
    Flushed(Flushed),
}

/// What a server asks of a mount on its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Callback {
    /// Give back what is set: drop kernel caches, answer nothing from caches until granted anew,
    /// close lingering opens. Answered when done, with what this process keeps
    /// open (a lingering open does not count and is closed by this answer).
    Recall { ino: InodeId, bits: Grants },
    /// Forget a name; answered when done, or after 50 ms. `busy`: the kernel waits for this server with
    /// that directory locked, so it is not waited for.
    InvalName { parent: InodeId, name: Name, busy: bool },
    /// The lock of this ticket is held now.
    LockGranted { ticket: u64 },
    /// This server was started anew, or could not be reached for so long that what it granted is
    /// void: keep nothing of its inodes that was not asked for after this. Answered when done, which
    /// waits for calls of the kernel that are on their way.
    HomeLost { home: ServerId },
    /// What is locked at this server, and waited for? Answered at once.
    LocksAt { home: ServerId },
    /// This server was declared lost: nobody gets a lock there any more.
    HomeDead { home: ServerId },
    /// Something that was held of these inodes could not be given back.
    Lost { inodes: Vec<InodeId> },
    /// Are you there?
    Ping,
}

impl Callback {
    /// Whether its answer waits for the kernel, and so perhaps for calls that wait for a server.
    pub fn waits_for_kernel(&self) -> bool {
        match self {
            Self::Recall { .. } | Self::InvalName { .. } | Self::HomeLost { .. } => true,
            Self::LockGranted { .. }
            | Self::LocksAt { .. }
            | Self::HomeDead { .. }
            | Self::Lost { .. }
            | Self::Ping => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallbackReply {
    /// `gave_back`: what the process has gathered is at the file's home; it keeps nothing else in any case.
    Recalled {
        still_open: StillOpen,
        gave_back: bool,
    },
    Forgotten,
    Told,
    Holds {
        locks: Vec<HeldLock>,
    },
    Pong,
}
