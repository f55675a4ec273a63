//! Requests about operations over several servers, and what is left of them.

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};

use super::place::Place;

/// Requests about operations over several servers, and what is left of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationRequest {
    /// Home: does it count this name of `ino`? `Outcome`.
    HasName { ino: InodeId, place: Place },
    /// Any: does an operation there that is not finished, or only a rename, speak of this inode? `Outcome`.
    IsSpokenOf { ino: InodeId, by_renames: bool },
    /// Any: finish or undo the operation of this intent now.
    Settle { op: u64 },
    /// Any: what these intents there speak of is done (of a new inode: its name is bound).
    Finished { ops: Vec<u64> },
    /// Server 0: one directory rename at a time in the whole job.
    RenameLock { op: u64 },
    /// Server 0: the next one, please.
    RenameUnlock { op: u64 },
}
