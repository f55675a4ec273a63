//! Requests that the home of an inode answers: how many names it has.

use hayase_layout::{InodeId, NodeId};
use serde::{Deserialize, Serialize};

use super::place::Place;

/// Requests that the home of an inode answers: how many names it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkRequest {
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
}
