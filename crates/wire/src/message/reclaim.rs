//! What is told again after a server was started anew, and how often a request happens.
//!
//! A home keeps opens and locks in memory only: after a restart those who hold them tell it.

use hayase_layout::{InodeId, ServerId};
use serde::{Deserialize, Serialize};

use super::{Lock, Opening};

/// Names a request that must happen once, however often it is sent, on whichever way, also when
/// servers were started anew in between. A process has one request at a time in a slot, and numbers
/// them; so the last answer of each slot is all that has to be remembered.
///
/// Source: RFC 8881, 2.10.6 (slots of an NFSv4.1 session).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OnceId {
    pub process: u64,
    pub slot: u32,
    pub number: u64,
}

/// An open that its holder still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldOpen {
    pub ino: InodeId,
    pub open: Opening,
}

/// A lock that its holder still has, or (with a ticket) waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLock {
    pub ino: InodeId,
    pub process: u64,
    pub lock: Lock,
    pub ticket: Option<u64>,
}

/// Some of what a process or a node holds; all of it has been told with the `last` of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    pub opens: Vec<HeldOpen>,
    pub locks: Vec<HeldLock>,
    pub last: bool,
}

impl Holding {
    /// In messages of at most [`Holding::BATCH`] items, one at least.
    pub fn in_batches(opens: &[HeldOpen], locks: &[HeldLock]) -> Vec<Self> {
        let opens = opens
            .chunks(Self::BATCH)
            .map(|opens| Self { opens: opens.to_vec(), ..Self::default() });
        let locks = locks
            .chunks(Self::BATCH)
            .map(|locks| Self { locks: locks.to_vec(), ..Self::default() });
        let mut batches: Vec<Self> = opens.chain(locks).collect();
        match batches.last_mut() {
            Some(batch) => batch.last = true,
            None => batches.push(Self { last: true, ..Self::default() }),
        }
        batches
    }

    /// Items in one message: well below the longest body.
    pub const BATCH: usize = 2048;
}

/// Who is lost, as server 0 declared it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersNow {
    /// Grows with each change.
    pub epoch: u64,
    /// Incarnations that were declared lost, and have not been followed by another.
    pub lost: Vec<(ServerId, u64)>,
    /// Every living server has taken this epoch.
    pub released: u64,
    /// Of each server that was declared lost and is back: the last incarnation that was.
    pub returned: Vec<(ServerId, u64)>,
}

impl MembersNow {
    /// Whether this incarnation was declared lost.
    pub fn is_lost(&self, server: ServerId, start_id: u64) -> bool {
        self.lost.contains(&(server, start_id))
    }

    /// The last incarnation of a server that was declared lost, if another one is back.
    pub fn loss_of(&self, server: ServerId) -> Option<u64> {
        self.returned.iter().find(|(back, _)| *back == server).map(|(_, lost)| *lost)
    }

    /// Whether both name the same incarnations, in the same epoch.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.lost == other.lost && self.returned == other.returned
    }

    /// A server that was declared lost is back; false when it was not.
    pub fn is_back(&mut self, server: ServerId) -> bool {
        let Some(lost) = self.lost.iter().filter(|(lost, _)| *lost == server).max().copied() else {
            return false;
        };
        self.lost.retain(|(lost, _)| *lost != server);
        self.returned.retain(|(back, _)| *back != server);
        self.returned.push(lost);
        true
    }

    /// Whether a server was declared lost and no other incarnation of it is back.
    pub fn is_server_lost(&self, server: ServerId) -> bool {
        self.lost.iter().any(|(lost, _)| *lost == server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Access, BODY_BYTES_MAX, LockKind, LockRange, OpenKind};

    #[test]
    fn batches_hold_everything_and_fit() {
        let open = Opening { access: Access::default(), kind: OpenKind::Remote, number: u64::MAX };
        let opens = vec![HeldOpen { ino: InodeId(u64::MAX), open }; 2 * Holding::BATCH + 1];
        let (kind, range) = (LockKind::Shared, LockRange { start: u64::MAX, last: u64::MAX });
        let lock = Lock { owner: u64::MAX, kind, range, pid: u32::MAX };
        let (ino, process, ticket) = (InodeId(u64::MAX), u64::MAX, Some(u64::MAX));
        let locks = vec![HeldLock { ino, process, lock, ticket }; Holding::BATCH];
        let batches = Holding::in_batches(&opens, &locks);
        assert_eq!(batches.iter().map(|batch| batch.opens.len()).sum::<usize>(), opens.len());
        assert_eq!(batches.iter().map(|batch| batch.locks.len()).sum::<usize>(), locks.len());
        let last: Vec<bool> = batches.iter().map(|batch| batch.last).collect();
        assert_eq!(last, [false, false, false, true]);
        for batch in batches {
            assert!(crate::encode(&batch).unwrap().len() < BODY_BYTES_MAX);
        }
        assert_eq!(Holding::in_batches(&[], &[]), [Holding { last: true, ..Holding::default() }]);
    }
}
