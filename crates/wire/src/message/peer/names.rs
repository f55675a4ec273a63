//! Requests that the server of a name answers: the home of its directory, or its shard once the names are spread.

use hayase_layout::{InodeId, NodeId};
use serde::{Deserialize, Serialize};

use super::place::{Binding, MovedName, Place, RenameEnd};
use crate::message::OnceId;

/// Requests that the server of a name answers: the home of its directory, or its shard once the names are spread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameRequest {
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
    /// `Unbound`: the sender takes it (`LinkDec`), so that no server waits for a third.
    Remove { place: Place, directory: bool, once: Option<OnceId> },
    /// Shard of the new name: the whole rename, as its coordinator.
    Rename { from: Place, to: Place, no_replace: bool, once: Option<OnceId> },
    /// Shard of the old name: hold this name for operation `op` and tell its binding.
    RenamePrepare { op: u64, place: Place, to: Place },
    /// Shard of the old name: unbind it or let it be, and release it.
    RenameFinish { op: u64, place: Place, moved: InodeId, end: RenameEnd, requester: NodeId },
    /// Shard of the new name: how did operation `op` go? `Outcome`.
    RenameOutcome { op: u64, to: Place },
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
}
