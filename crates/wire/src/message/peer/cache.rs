//! Requests about the cache area: what the tier has, and what it is to have.

use std::time::Duration;

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};

use super::place::Place;
use crate::message::{Imported, Moment, Shown, Succession, TierVersion};

/// Requests about the cache area: what the tier has, and what it is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheRequest {
    /// Shard, of a directory in the cache area: what the tier has there, asked for so long ago. Names that are
    /// bound stay.
    Import { dir: InodeId, entries: Vec<Imported>, age: Duration },
    /// Shard: the file of this name is not in the tier any more, or is another one: unbind it.
    Forget { place: Place, ino: InodeId },
    /// Home, of a name that was looked up: is the file still what the tier has? Asked of the tier when
    /// that was not done just now. `Ready(false)`: it is not, and nobody opens it any more.
    Check { ino: InodeId },
    /// Home: do not flush this file, its name is about to become another's. `Held`.
    Hold { ino: InodeId },
    /// Home: the file is about to be renamed, over another one if `is_over`, to where the tier has `over`:
    /// not to be flushed before (`Relink` says when it is done). With `undo` it was not. `follows`: the other one's place.
    Move {
        ino: InodeId,
        is_over: bool,
        over: Option<TierVersion>,
        follows: Option<Succession>,
        undo: bool,
    },
    /// Home: the name is about to go; the file is not flushed for a while. `Shown`.
    Unlink { ino: InodeId },
    /// Shard: the file `ino` gives this name up, under which the tier shows `shown`: a tombstone hides that
    /// until the tier does not have it any more.
    Bury { place: Place, ino: InodeId, shown: Shown },
    /// Home: does `ino` still have the name `path`, under which the tier has `shown`? If so it takes it
    /// for its own again. `Outcome`, `None` when it has another name, under which the tier does not have
    /// it yet.
    StillNamed { ino: InodeId, path: Vec<u8>, shown: Shown },
    /// Shard: what do tombstones of this name hide? `Tombstones`. The file `ino` is about to take it over.
    Tombstones { place: Place, ino: InodeId },
    /// Shard: these tombstones of the name are not needed any more: a new file replaces what they hide.
    Replaced { place: Place, tombstones: Vec<InodeId> },
    /// Shard: the directory is about to be removed: what its tombstones hide goes from the tier now.
    /// `Ready` when all has.
    Clear { dir: InodeId },
    /// Any: what the tier shows at `path`, if that server has sent it there for another file than `except`. `InTier`.
    Claims { path: Vec<u8>, except: InodeId },
    /// Shard: this name, if it is still that of the file `gone`, which is no more, is that of `ino`.
    TakeBack { place: Place, gone: InodeId, ino: InodeId },
    /// Any: whether the tier has all files of the directory at `path` (from the tier's root) that were
    /// there when this server's number was `before`; `None`: as of now. Those that are open for writing
    /// count only `with_open`. `Settled`.
    Settled { path: Vec<u8>, before: Option<Moment>, with_open: bool },
    /// Home: fetch what is not here, since it will be written. `Ready` when all is.
    Fetch { ino: InodeId },
    /// Home: flush it, unless it is open for writing. `Flushed`.
    Flush { ino: InodeId },
    /// Home: what was written so far is sent to the tier, even while it is open. `Flushed`, or `Flushing`:
    /// ask again with what that says.
    Sync { ino: InodeId, round: Option<u64> },
    /// Home: give the room of a file back that is in the tier and not open. `Ready` when it is not here.
    Evict { ino: InodeId },
}
