//! Requests that the home of a file answers: its length, its end, who writes it.

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};

use crate::message::RecordedStep;

/// Requests that the home of a file answers: its length, its end, who writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRequest {
    /// Home of a striped file: it reaches at least to `end` now. `Stale` after a truncate.
    Extend { ino: InodeId, end: u64, trunc_epoch: u32 },
    /// Home of a striped file: how long is it?
    SizeOf { ino: InodeId },
    /// Home of a `Whole` file: as [`crate::message::NodeRequest::Gather`], for a mount of the asking node.
    Gather { ino: InodeId, at: Option<u64>, len: u32 },
    /// Home of a striped file: keep the next `len` bytes at the end for the asking node.
    AppendReserve { ino: InodeId, len: u32 },
    /// Home of a striped file: the bytes of a reservation are in the parts.
    AppendCommit { ino: InodeId, offset: u64, len: u32, trunc_epoch: u32 },
    /// Home.
    Allocate { ino: InodeId, mode: i32, offset: u64, len: u64 },
    /// Home.
    Seek { ino: InodeId, offset: u64, whence: u8 },
    /// Home of a recorded file: as [`crate::message::NodeRequest::Recorded`]. `Stale` when it takes longer: ask
    /// again.
    Recorded { ino: InodeId, step: RecordedStep },
    /// Home of a recorded file: what its index says (from byte `from`), in encoded form.
    RecordedIndex { ino: InodeId, from: u64 },
}
