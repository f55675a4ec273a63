//! Requests about locks of processes, at the home of the file.

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};

use crate::message::{Lock, LockRange};

/// Requests about locks of processes, at the home of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockRequest {
    /// Home: as [`crate::message::NodeRequest::Lock`], of a process of the asking node.
    Lock { ino: InodeId, process: u64, lock: Lock, ticket: Option<u64> },
    /// Home.
    Unlock { ino: InodeId, process: u64, owner: u64, range: LockRange },
    /// Home.
    Test { ino: InodeId, process: u64, lock: Lock },
    /// Home.
    Cancel { ino: InodeId, process: u64, ticket: u64 },
    /// Home: a process of the asking node is gone; so is all that it holds and waits for.
    Release { process: u64 },
    /// Node: the lock of this ticket of a process is held now.
    Granted { process: u64, ticket: u64 },
}
