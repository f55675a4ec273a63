//! What a server answers another.

use hayase_layout::{InodeId, ServerId};
use serde::{Deserialize, Serialize};

use super::part::MachineLife;
use super::place::{Binding, LeftLink, Place, ShardEntry};
use crate::message::{
    AreaUse, Attr, Entry, Explained, Flushed, Grants, LockAnswer, LockHeld, MembersNow, Moment,
    Name, Opened, Refused, Room, ServerStatus, Shown, StillOpen, Succession, TierVersion,
};

/// The answer of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerReply {
    /// Here.
    Pong,
    /// Not served: the asking node has not told this incarnation what it holds.
    NoSession { start_id: u64 },
    /// Which servers are lost.
    Members(Box<MembersNow>),
    /// The asking incarnation was declared lost: nothing of it is served any more.
    Dead,
    /// Inodes of which something could not be given back.
    Reclaimed { lost: Vec<InodeId> },
    /// Links that the asking server's former incarnations were to take and may not have taken, of names
    /// of this shard.
    LinksLeft(Vec<LeftLink>),
    /// Nothing more to say.
    Done,
    /// The name's binding.
    Bound(Binding),
    /// The name is not bound any more, its inode does not know yet.
    Unbound { binding: Binding, op: u64 },
    /// Of a rename: whether the new name is bound; `None` while that is not decided. Of a name that a file
    /// has given up or not.
    Outcome(Option<bool>),
    /// What a rename moved, and what it replaced.
    Renamed { moved: InodeId, replaced: Option<InodeId> },
    /// It is bound already, to this.
    Exists(Binding),
    /// Entries, and whether the listing ends with them.
    Listing { entries: Vec<ShardEntry>, end: bool },
    /// Whether a directory's shard is empty (and now frozen).
    Empty(bool),
    /// Servers with entries of a directory.
    Shards(Vec<u16>),
    /// The home itself holds all entries of the directory.
    Kept,
    /// Not here: the names of the directory were spread, this one to its shard. They stay spread.
    Spread,
    /// The directory above; `None` for the root.
    Parent(Option<InodeId>),
    /// The name of a directory; `None` for the root.
    Named(Option<Place>),
    /// Attributes, and what the asking node may keep.
    Attr { attr: Attr, grants: Grants },
    /// In the order asked.
    Attrs(Vec<Option<Entry>>),
    /// An open.
    Opened(Box<Opened>),
    /// What the node still has open; whether its mounts have given back.
    Recalled { still_open: StillOpen, gave_back: bool },
    /// Of a lock.
    Locked(LockAnswer),
    /// What stands against a lock.
    LockHeld(Option<LockHeld>),
    /// Of a lock that waited: it will not be granted any more.
    Cancelled(bool),
    /// Of a symbolic link.
    Target(Vec<u8>),
    /// Of an xattr.
    Value(Vec<u8>),
    /// Of xattrs.
    Names(Vec<Name>),
    /// Bytes (or blocks) done.
    Count(u64),
    /// All bytes were taken, in this life of the server's machine.
    Written(MachineLife),
    /// All bytes were taken, at this place in the file, in this life of the server's machine.
    Appended { offset: u64, life: MachineLife },
    /// All that was taken before is durable: of each server that has a part, in which life it made it so.
    Synced(Vec<(ServerId, MachineLife)>),
    /// All files that were named are durable but for these, of which the storage has lost bytes.
    Broken(Vec<InodeId>),
    /// A place in the file, and the epoch in which it is one.
    Offset { offset: u64, trunc_epoch: u32 },
    /// What a mount of the asking node may gather.
    Gathering(Room),
    /// Length of a striped file.
    Size { size: u64, trunc_epoch: u32 },
    /// A piece of the index of a recorded file: of how many bytes in all, as of which publication, and
    /// the length of the file then.
    RecordedIndex { trunc_epoch: u32, size: u64, total: u64, bytes: Vec<u8> },
    /// The epoch has passed: ask the home again, repeat the whole call. Also: the file is recorded, and
    /// must be made whole before it is opened for writing or cut.
    Stale,
    /// Room.
    StatFs(AreaUse),
    /// For `hayase explain`.
    Explained(Box<Explained>),
    /// For `hayase status`.
    Status(Box<ServerStatus>),
    /// Inodes of which there is no record.
    Gone(Vec<InodeId>),
    /// Not done, and why.
    Refused(Refused),
    /// What the tier has under the name of a file.
    InTier(Option<TierVersion>),
    /// The same of a file whose name is about to become another's, and its place among those that had the name.
    Held { version: Option<TierVersion>, place: Succession },
    /// Whether that is so by now; otherwise ask again.
    Ready(bool),
    /// Of a flush.
    Flushed(Flushed),
    /// Not yet: the flush of this number, or a later one, will bring it.
    Flushing { round: u64 },
    /// What the tier may show of a file.
    Shown(Shown),
    /// Tombstones of a name.
    Tombstones(Vec<(InodeId, Shown)>),
    /// Whether files that were there at this moment are in the tier; and whether one of them was removed
    /// before it was, or nobody knows since the server was restarted.
    Settled { at: Moment, is_settled: bool, has_lost: bool },
}
