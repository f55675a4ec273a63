//! Locks of bytes, as fcntl(2) and flock(2) ask for them.

use hayase_layout::NodeId;
use serde::{Deserialize, Serialize};

/// How bytes are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockKind {
    /// Others may hold it so too.
    Shared,
    /// Nobody else may hold it.
    Exclusive,
}

/// Bytes from `start` to `last`, both included; `u64::MAX` is the end, wherever that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockRange {
    pub start: u64,
    pub last: u64,
}

/// A lock that is asked for or held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// As the kernel of its node calls who holds it: a process, or an open file description.
    pub owner: u64,
    pub kind: LockKind,
    pub range: LockRange,
    /// For people and `F_GETLK`.
    pub pid: u32,
}

/// The answer to a lock: what stands against it is a refusal (`EAGAIN`, `EDEADLK`, `ENOLCK`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockAnswer {
    /// It is held.
    Granted,
    /// Its ticket will be called.
    Waits,
}

/// A lock in the way of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHeld {
    pub node: NodeId,
    pub kind: LockKind,
    pub range: LockRange,
    pub pid: u32,
}

impl LockKind {
    /// Whether two owners can not both hold the same bytes so.
    pub fn excludes(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

impl LockRange {
    /// The whole file, however long it becomes.
    pub const ALL: Self = Self { start: 0, last: u64::MAX };

    /// Whether they have a byte in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    /// Whether together they are one range.
    pub fn touches(self, other: Self) -> bool {
        self.start <= other.last.saturating_add(1) && other.start <= self.last.saturating_add(1)
    }
}
