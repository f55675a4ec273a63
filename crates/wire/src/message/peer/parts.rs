//! Requests that a server with a part of a file answers: its bytes.

use hayase_layout::{InodeId, LocalOffset};
use serde::{Deserialize, Serialize};

use super::part::PartRef;
use crate::message::Gathered;

/// Requests that a server with a part of a file answers: its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartRequest {
    /// Part server: at most a payload; short at the end of the part.
    Read { part: PartRef, offset: LocalOffset, len: u32 },
    /// Part server: the payload. `Stale` when the part was truncated in a later epoch.
    Write { part: PartRef, offset: LocalOffset, trunc_epoch: u32 },
    /// Home of a `Whole` file: the payload, as [`crate::message::NodeRequest::WriteGathered`]. `Stale` as for `Write`.
    WriteGathered { part: PartRef, offset: LocalOffset, trunc_epoch: u32, after: Gathered },
    /// Home of a `Whole` file: the payload goes to its end.
    Append { ino: InodeId },
    /// Part server: cut or stretch; writes of earlier epochs are refused from now on.
    Truncate { part: PartRef, len: u64, trunc_epoch: u32 },
    /// Part server.
    Sync { part: PartRef, data_only: bool },
    /// Part server.
    Remove { part: PartRef },
    /// Home of each: parts and indexes of a recorded file, and the names there, durable. With `only_look` nothing is
    /// written for it. `Broken`.
    SyncFiles { inos: Vec<InodeId>, only_look: bool },
    /// Part server: units of 512 bytes that it occupies.
    Blocks { part: PartRef },
}
