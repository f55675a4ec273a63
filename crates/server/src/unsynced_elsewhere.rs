//! What the processes of this node wrote on other servers and have not synced: whether a power cut took it.
//!
//! A server that lost power between a write that it acknowledged and fsync(2) comes back with less than it had, and
//! syncing what is left succeeds. So the answer to a write says in which life of its machine the server took it, the
//! writer's node remembers the first one since its last fsync(2), and compares it with the life in which the server
//! synced: as the verifiers of WRITE and COMMIT in NFS (RFC 8881, 18.3 and 18.32). Where they differ, fsync(2) fails
//! with `EIO`, once; the next one tells of what is written from then on.
//!
//! A life ends with the power of the machine, or when it is started anew; a server that is killed or stopped leaves
//! what it took with the kernel. What a process writes on its own node dies with it, and is not remembered; nor are
//! striped files of the cache area, of which the servers themselves keep account ([`crate::data::unsynced`]).
//!
//! Invariant: what is written while a file is being synced stays remembered: that fsync(2) need not have seen it.
//!
//! Pure: no clock, no I/O. Kept in memory: a server that is killed forgets what its node wrote elsewhere.

use std::cell::RefCell;
use std::collections::HashMap;

use hayase_layout::{InodeId, ServerId};
use hayase_wire::message::MachineLife;

use crate::limits::UNSYNCED_ELSEWHERE_MAX;

/// See the module header.
#[derive(Default)]
pub(crate) struct UnsyncedElsewhere {
    files: RefCell<HashMap<InodeId, HashMap<ServerId, Written>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    /// In which the first of these writes was taken.
    life: MachineLife,
    /// A later one was taken in another.
    is_lost: bool,
    writes: u64,
}

/// What an fsync(2) that begins answers for.
pub(crate) struct Asked(HashMap<ServerId, Written>);

impl UnsyncedElsewhere {
    /// `server` has taken a write in this life. `is_open` tells which files are open for writing here: others are
    /// forgotten first where there are too many.
    pub(crate) fn written(
        &self,
        ino: InodeId,
        (server, life): (ServerId, MachineLife),
        is_open: impl Fn(InodeId) -> bool,
    ) {
        let mut files = self.files.borrow_mut();
        if files.len() >= UNSYNCED_ELSEWHERE_MAX && !files.contains_key(&ino) {
            files.retain(|ino, _| is_open(*ino));
            if files.len() >= UNSYNCED_ELSEWHERE_MAX {
                tracing::warn!(
                    "too many files are written: a power cut of one node may stay unnoticed"
                );
                files.clear();
            }
        }
        let first = Written { life, is_lost: false, writes: 0 };
        let written = files.entry(ino).or_default().entry(server).or_insert(first);
        written.is_lost |= written.life != life;
        written.writes += 1;
    }

    /// Before a file is synced.
    pub(crate) fn asked(&self, ino: InodeId) -> Asked {
        Asked(self.files.borrow().get(&ino).cloned().unwrap_or_default())
    }

    /// The file was synced, by servers in these lives; false when one of them had lost what was asked for. Either way
    /// that is told, and not remembered any more.
    pub(crate) fn synced(
        &self,
        ino: InodeId,
        Asked(asked): Asked,
        lives: &[(ServerId, MachineLife)],
    ) -> bool {
        let life_of = |server| lives.iter().find(|(of, _)| *of == server).map(|(_, life)| *life);
        // Who was not asked has no part of it any more: the bytes are elsewhere, and synced there.
        let is_kept = |server: &ServerId, was: &Written| {
            !was.is_lost && life_of(*server).is_none_or(|life| life == was.life)
        };
        let all_kept = asked.iter().all(|(server, was)| is_kept(server, was));
        let mut files = self.files.borrow_mut();
        let Some(now) = files.get_mut(&ino) else { return all_kept };
        for (server, was) in &asked {
            // What came meanwhile may be older than the sync or newer: its loss, if it is that, is told once more.
            if now.get(server).is_some_and(|written| written.writes == was.writes) {
                now.remove(server);
            }
        }
        if now.is_empty() {
            files.remove(&ino);
        }
        all_kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId(7);
    const OTHER: ServerId = ServerId(1);
    const THIRD: ServerId = ServerId(2);

    fn written(files: &UnsyncedElsewhere, server: ServerId, life: u64) {
        files.written(FILE, (server, MachineLife(life)), |_| true);
    }

    fn is_synced(files: &UnsyncedElsewhere, lives: &[(ServerId, u64)]) -> bool {
        let lives: Vec<_> = lives.iter().map(|(of, life)| (*of, MachineLife(*life))).collect();
        files.synced(FILE, files.asked(FILE), &lives)
    }

    #[test]
    fn a_power_cut_between_write_and_sync_is_told_once() {
        let files = UnsyncedElsewhere::default();
        written(&files, OTHER, 1);
        written(&files, THIRD, 5);
        assert!(!is_synced(&files, &[(OTHER, 2), (THIRD, 5)]));
        assert!(is_synced(&files, &[(OTHER, 2), (THIRD, 5)]));
        written(&files, OTHER, 2);
        assert!(is_synced(&files, &[(OTHER, 2), (THIRD, 6)]), "what the third had was synced");
        assert!(files.files.borrow().is_empty());
    }

    #[test]
    fn a_power_cut_between_two_writes_is_told() {
        let files = UnsyncedElsewhere::default();
        written(&files, OTHER, 1);
        written(&files, OTHER, 2);
        assert!(!is_synced(&files, &[(OTHER, 2)]));
        assert!(is_synced(&files, &[(OTHER, 2)]));
    }

    #[test]
    fn a_server_of_the_same_life_has_lost_nothing() {
        let files = UnsyncedElsewhere::default();
        written(&files, OTHER, 1);
        assert!(is_synced(&files, &[(OTHER, 1)]));
        written(&files, OTHER, 1);
        assert!(is_synced(&files, &[]), "it has no part of the file any more");
    }

    #[test]
    fn what_is_written_during_a_sync_is_not_forgotten() {
        let files = UnsyncedElsewhere::default();
        written(&files, OTHER, 1);
        let asked = files.asked(FILE);
        written(&files, OTHER, 1);
        assert!(files.synced(FILE, asked, &[(OTHER, MachineLife(1))]));
        assert!(!is_synced(&files, &[(OTHER, 2)]));
    }

    #[test]
    fn what_is_open_is_remembered_longest() {
        let files = UnsyncedElsewhere::default();
        written(&files, OTHER, 1);
        for ino in 100..100 + 2 * UNSYNCED_ELSEWHERE_MAX as u64 {
            files.written(InodeId(ino), (OTHER, MachineLife(1)), |ino| ino == FILE);
        }
        assert!(files.files.borrow().len() <= UNSYNCED_ELSEWHERE_MAX);
        assert!(!is_synced(&files, &[(OTHER, 2)]));
    }
}
