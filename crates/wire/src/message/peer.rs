//! Between servers.
//!
//! A request is sent on behalf of the sender's node: opens, grants and names looked up are booked
//! for it; where a third server acts for a node, the request names that `requester`, whose own
//! kernel already knows what it asked for and is not recalled. Every request may arrive twice (the sender repeats it under the same id after a broken
//! connection); those that are not idempotent by themselves are answered from the reply cache.

use std::time::Duration;

use hayase_layout::{InodeId, Layout, LocalOffset, NodeId, ServerId};
use serde::{Deserialize, Serialize};

use crate::transport::Address;

use super::{
    AreaUse, Attr, Close, Entry, Explained, FileKind, Flushed, Gathered, Grants, Holding, Imported,
    Lock, LockAnswer, LockHeld, LockRange, MembersNow, MetaChange, Moment, Name, NewNode, OnceId,
    Opened, Opening, RecordedStep, Refused, Room, ServerStatus, Shown, StillOpen, Succession,
    TierVersion, TimeSpec, XattrMode,
};

/// One part of a file, as its layout counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartRef {
    /// The file.
    pub ino: InodeId,
    /// Of the layout that this part belongs to.
    pub layout_epoch: u32,
    /// Place in the layout's list; 0 of a `Whole` file.
    pub index: u16,
}

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
    /// Nodes that looked it up a moment ago, and are told of its end.
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

/// A request of one server to another; the comment names the role that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerRequest {
    /// Any: are you there?
    Ping,
    /// Home: what the asking node holds there, first of all on meeting an incarnation. With the `last`
    /// batch all else that was asked for up to opening number `as_of` is over. `Reclaimed`.
    Reclaim { holding: Box<Holding>, as_of: u64 },
    /// Any: the asking server was started anew, and is to be found there. `LinksLeft`.
    Returned { addresses: Vec<Address> },
    /// Server 0: the asking server lives, and has taken the epoch `took`. `Members`.
    Beat { took: u64 },
    /// Any, from server 0: who is lost.
    Members(Box<MembersNow>),
    /// Any: a process of the asking node is gone; its requests are not repeated any more.
    ProcessGone { process: u64 },

    /// Shard: what is this name bound to? Books the name for the asking node for 2 s.
    Lookup(Place),
    /// Shard: bind a free name, unless operation `op` was given up (`Stale`).
    Insert { place: Place, binding: Binding, op: u64, once: Option<OnceId> },
    /// Shard, from the home of `ino`: did operation `op` ever bind this name to it? If not, it is given
    /// up here: an `Insert` of it that comes late is refused. `Outcome`.
    GiveUpInsert { place: Place, ino: InodeId, op: u64 },
    /// Shard: what was a request answered with that happened there once? `ENODATA` if it has not.
    Answered { once: OnceId },
    /// Shard: unbind, and tell the nodes that know the name. `Bound`: a link of the inode is gone too;
    /// `Unbound`: whoever asked takes it (`LinkDec`), so that no server waits for a third.
    Remove { place: Place, directory: bool, once: Option<OnceId> },
    /// Shard of the new name: the whole rename, as its coordinator.
    Rename { from: Place, to: Place, no_replace: bool, once: Option<OnceId> },
    /// Shard of the old name: hold this name for operation `op` and tell its binding.
    RenamePrepare { op: u64, place: Place, to: Place },
    /// Shard of the old name: unbind it or let it be, and release it.
    RenameFinish { op: u64, place: Place, moved: InodeId, end: RenameEnd, requester: NodeId },
    /// Shard of the new name: how did operation `op` go? `Outcome`.
    RenameOutcome { op: u64, to: Place },
    /// Home: does it count this name of `ino`? `Outcome`.
    HasName { ino: InodeId, place: Place },
    /// Any: does an operation there that is not finished, or only a rename, speak of this inode? `Outcome`.
    IsSpokenOf { ino: InodeId, by_renames: bool },
    /// Any: finish or undo the operation of this intent now.
    SettleIntent { op: u64 },
    /// Any: what these intents there speak of is done (of a new inode: its name is bound).
    Finished { ops: Vec<u64> },
    /// Shard: entries after `cookie` in cookie order. `all`: of a directory whose names are all there
    /// (`Spread` when they are not any more).
    List { dir: InodeId, cookie: u64, bytes: u32, all: bool },
    /// Shard, from the home of a directory whose names are about to be spread: these are yours, durably, when the home
    /// says to others that they are. `first`: and none but these. Of two such attempts the later one counts. The
    /// operations `given_up` bind no name there (`GiveUpInsert`).
    TakeNames { dir: InodeId, attempt: u64, first: bool, names: Vec<MovedName>, given_up: Vec<u64> },
    /// Shard: make its entries durable. `Outcome`: whether each of these names is bound to its inode there, or an
    /// operation that is not finished speaks of that.
    SyncNames { bound: Vec<(Place, InodeId)> },
    /// Shard, from the home of the directory: if nothing is in it, accept no more (`Empty`).
    DirFreeze { dir: InodeId },
    /// Shard: accept entries again.
    DirThaw { dir: InodeId },
    /// Node: forget a name.
    InvalName(Place),

    /// Home of the directory: the asking server is going to hold entries of it.
    DirGrant { dir: InodeId },
    /// Home of the directory: somebody of another node is going to make a name in it, so no mount may
    /// go on telling which names are not there.
    DirFree { dir: InodeId },
    /// Home of the directory: which servers hold entries of it? `Shards`, or `Kept`.
    DirShards { dir: InodeId },
    /// Home of the directory: entries changed then.
    DirTouch(Vec<(InodeId, TimeSpec)>),
    /// Home of the directory: what is it in?
    DirParent { dir: InodeId },
    /// Home of the directory: what is it called, and in what? For people.
    DirName { dir: InodeId },
    /// Home of the directory: freeze all shards; removed when all are empty, else `ENOTEMPTY`.
    DirRemove { dir: InodeId },
    /// Server 0: one directory rename at a time in the whole job.
    RenameLock { op: u64 },
    /// Server 0: the next one, please.
    RenameUnlock { op: u64 },

    /// Home to be: make the inode (and part); named later by `Insert`.
    CreateInode { node: NewNode, layout: Layout },
    /// Home: the name could not be bound; forget the inode.
    DropInode { ino: InodeId },
    /// Home.
    GetAttr { ino: InodeId },
    /// Home: several at once; `None` for those that are gone.
    GetAttrMany(Vec<InodeId>),
    /// Home.
    SetAttr { ino: InodeId, change: MetaChange },
    /// Home: one more name.
    LinkInc { ino: InodeId, place: Place, requester: NodeId, op: u64 },
    /// Home: one name less. `replaced`: another file has the name now.
    LinkDec { ino: InodeId, place: Place, requester: NodeId, replaced: bool },
    /// Home: the same for a name that is gone since some time: the home may have been told, and the name may be linked
    /// again. `Stale` while it does not know how a link of this name ended: then it is asked later.
    LinkDecLate { ino: InodeId, place: Place, requester: NodeId },
    /// Home: the name that `op` counted was not bound. Once: by then it may be counted for another.
    UndoLink { ino: InodeId, place: Place, requester: NodeId, op: u64 },
    /// Home: a name moved.
    Relink { ino: InodeId, op: u64, from: Place, to: Place, requester: NodeId },
    /// Home.
    ReadLink { ino: InodeId },
    /// Home: the asking node now has it open this way.
    Open { ino: InodeId, open: Opening, truncate: bool },
    /// Home: the asking node no longer has these open.
    Close(Vec<Close>),
    /// Home: as [`super::NodeRequest::Lock`], of a process of the asking node.
    Lock { ino: InodeId, process: u64, lock: Lock, ticket: Option<u64> },
    /// Home.
    Unlock { ino: InodeId, process: u64, owner: u64, range: LockRange },
    /// Home.
    TestLock { ino: InodeId, process: u64, lock: Lock },
    /// Home.
    CancelLock { ino: InodeId, process: u64, ticket: u64 },
    /// Home: a process of the asking node is gone; so is all that it holds and waits for.
    ReleaseLocks { process: u64 },
    /// Node: the lock of this ticket of a process is held now.
    LockGranted { process: u64, ticket: u64 },
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

    /// Home of a striped file: it reaches at least to `end` now. `Stale` after a truncate.
    Extend { ino: InodeId, end: u64, trunc_epoch: u32 },
    /// Home of a striped file: a truncate overtook a call, which begins anew. Answered as `GetAttr`;
    /// the next truncate lets it through first.
    Overtaken { ino: InodeId },
    /// Home of a striped file: how long is it?
    SizeOf { ino: InodeId },
    /// Home of a `Whole` file: as [`super::NodeRequest::Gather`], for a mount of the asking node.
    Gather { ino: InodeId, at: Option<u64>, len: u32 },
    /// Home of a `Whole` file: the payload, as [`super::NodeRequest::WriteGathered`]. `Stale` as for `Write`.
    WriteGathered { part: PartRef, offset: LocalOffset, trunc_epoch: u32, after: Gathered },
    /// Home of a `Whole` file: the payload goes to its end.
    Append { ino: InodeId },
    /// Home of a striped file: keep the next `len` bytes at the end for the asking node.
    AppendReserve { ino: InodeId, len: u32 },
    /// Home of a striped file: the bytes of a reservation are in the parts.
    AppendCommit { ino: InodeId, offset: u64, len: u32, trunc_epoch: u32 },
    /// Home.
    Allocate { ino: InodeId, mode: i32, offset: u64, len: u64 },
    /// Home.
    Seek { ino: InodeId, offset: u64, whence: u8 },

    /// Home of a recorded file: as [`super::NodeRequest::Recorded`]. `Stale` when it takes longer: ask
    /// again.
    Recorded { ino: InodeId, step: RecordedStep },
    /// Home of a recorded file: what its index says (from byte `from`), in encoded form.
    RecordedIndex { ino: InodeId, from: u64 },

    /// Part server: at most a payload; short at the end of the part.
    Read { part: PartRef, offset: LocalOffset, len: u32 },
    /// Part server: the payload. `Stale` when the part was truncated in a later epoch.
    Write { part: PartRef, offset: LocalOffset, trunc_epoch: u32 },
    /// Part server: cut or stretch; writes of earlier epochs are refused from now on.
    PartTruncate { part: PartRef, len: u64, trunc_epoch: u32 },
    /// Part server.
    PartSync { part: PartRef, data_only: bool },
    /// Part server.
    PartRemove { part: PartRef },
    /// Home of each: parts and indexes of a recorded file, and the names there, durable. With `only_look` nothing is
    /// written for it. `Broken`.
    SyncFiles { inos: Vec<InodeId>, only_look: bool },
    /// Part server: units of 512 bytes that it occupies.
    PartBlocks { part: PartRef },

    /// Any.
    StatFs,
    /// Any.
    Status,
    /// Home: of which of these is there no record, and will never be? `Gone`.
    WhichAreGone(Vec<InodeId>),

    /// Shard, of a directory in the cache area: what the tier has there, asked for so long ago. Names that are
    /// bound stay.
    CacheImport { dir: InodeId, entries: Vec<Imported>, age: Duration },
    /// Shard: the file of this name is not in the tier any more, or is another one: unbind it.
    CacheForget { place: Place, ino: InodeId },
    /// Home, of a name that was looked up: is the file still what the tier has? Asked of the tier when
    /// that was not done just now. `Ready(false)`: it is not, and nobody opens it any more.
    CacheCheck { ino: InodeId },
    /// Home: do not flush this file, its name is about to become another's. `Held`.
    CacheHold { ino: InodeId },
    /// Home: the file is about to be renamed, over another one if `is_over`, to where the tier has `over`:
    /// not to be flushed before (`Relink` says when it is done). With `undo` it was not. `follows`: the other one's place.
    CacheMove {
        ino: InodeId,
        is_over: bool,
        over: Option<TierVersion>,
        follows: Option<Succession>,
        undo: bool,
    },
    /// Home: the name is about to go; the file is not flushed for a while. `Shown`.
    CacheUnlink { ino: InodeId },
    /// Shard: the file `ino` gives this name up, under which the tier shows `shown`: a tombstone hides that
    /// until the tier does not have it any more.
    CacheBury { place: Place, ino: InodeId, shown: Shown },
    /// Home: does `ino` still have the name `path`, under which the tier has `shown`? If so it takes it
    /// for its own again. `Outcome`, `None` when it has another name, under which the tier does not have
    /// it yet.
    CacheStillNamed { ino: InodeId, path: Vec<u8>, shown: Shown },
    /// Shard: what do tombstones of this name hide? `Tombstones`. The file `ino` is about to take it over.
    CacheTombstones { place: Place, ino: InodeId },
    /// Shard: these tombstones of the name are not needed any more: a new file replaces what they hide.
    CacheReplaced { place: Place, tombstones: Vec<InodeId> },
    /// Shard: the directory is about to be removed: what its tombstones hide goes from the tier now.
    /// `Ready` when all has.
    CacheClear { dir: InodeId },
    /// Any: what the tier shows at `path`, if that server has sent it there for another file than `except`. `InTier`.
    CacheClaims { path: Vec<u8>, except: InodeId },
    /// Shard: this name, if it is still that of the file `gone`, which is no more, is that of `ino`.
    CacheTakeBack { place: Place, gone: InodeId, ino: InodeId },
    /// Any: whether the tier has all files of the directory at `path` (from the tier's root) that were
    /// there when this server's number was `before`; `None`: as of now. Those that are open for writing
    /// count only `with_open`. `Settled`.
    CacheSettled { path: Vec<u8>, before: Option<Moment>, with_open: bool },
    /// Home: fetch what is not here, since it will be written. `Ready` when all is.
    CacheFetch { ino: InodeId },
    /// Home: flush it, unless it is open for writing. `Flushed`.
    CacheFlush { ino: InodeId },
    /// Home: what was written so far comes to the tier, also while it is open. `Flushed`, or `Flushing`:
    /// ask again with what that says.
    CacheSync { ino: InodeId, round: Option<u64> },
    /// Home: give the room of a file back that is in the tier and not open. `Ready` when it is not here.
    CacheEvict { ino: InodeId },
}

impl PeerRequest {
    /// The name that the request is about, of those that the server of that name answers: the home of the directory,
    /// or, once its names are spread (`Spread`), the shard.
    pub fn name(&self) -> Option<&Place> {
        match self {
            Self::Lookup(place)
            | Self::Insert { place, .. }
            | Self::GiveUpInsert { place, .. }
            | Self::Remove { place, .. }
            | Self::Rename { to: place, .. }
            | Self::RenamePrepare { place, .. }
            | Self::RenameFinish { place, .. }
            | Self::RenameOutcome { to: place, .. } => Some(place),
            _ => None,
        }
    }

    /// The name of a request that must happen once.
    pub fn once(&self) -> Option<OnceId> {
        match self {
            Self::Insert { once, .. }
            | Self::Remove { once, .. }
            | Self::Rename { once, .. }
            | Self::SetXattr { once, .. }
            | Self::RemoveXattr { once, .. } => *once,
            _ => None,
        }
    }
}

/// One life of a server's machine: another one after a power cut or a start of the machine, the same after the server
/// was killed or stopped. What was taken in one life and not synced in it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineLife(pub u64);

/// The answer of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerReply {
    /// Here.
    Pong,
    /// Not served: the asking node has not told this incarnation what it holds.
    NoSession { start_id: u64 },
    /// Who is lost.
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
    /// before it was, or nobody knows since the server was started anew.
    Settled { at: Moment, is_settled: bool, has_lost: bool },
}
