//! Finishing the flushes of a job whose servers are gone, from its ledgers and parts alone.
//!
//! Rooms: [`left`] is what one node has left; [`file`] brings one file to the tier, [`striped`] and [`recorded`] read one
//! whose parts lie on several nodes, and [`send`] sends it; [`left_file`] is a file of a container. [`rivals`] are files of
//! one name. [`salvage`](self::salvage()) is for a ledger that can not be believed. Here: what is
//! resumed, and in which order.
//!
//! Blocking, the ledger of one node at a time: the files of all nodes, and then what was removed, which waits
//! for files of any node. What was being flushed when the job died is flushed anew; what came of that
//! last try is known again by its size and time. In doubt the tier keeps what it has.

use std::collections::{BTreeSet, HashMap};

use hayase_layout::{InodeId, ServerId};
use hayase_store::{FileState, Ledger, LedgerError, LedgerRecord};
use hayase_tier::{Tier, TierError};
use hayase_wire::message::Refused;

use super::leftovers;
use crate::cache::order::{directory_of, is_waited_for};
use crate::cache::paths::key;
use crate::cache::tier_refused;
use crate::cache::tombstones::version_at;
use crate::refusals::libc_errno;

mod file;
mod left;
mod left_file;
mod recorded;
mod rivals;
mod salvage;
mod send;
mod striped;

pub use self::left::{LeftNode, LeftNodes};
pub use self::salvage::{SalvagedFile, Salvaging, salvage};

use self::file::resume_file;
use self::rivals::{Claim, Rivals};

/// What became of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Its name in the tier, where it is now or should be.
    pub path: Vec<u8>,
    /// Bytes.
    pub bytes: u64,
    /// Which of the things that are resumed this is.
    pub what: Resuming,
    /// Why it is still not as the job wanted it; `None` when it is.
    pub failure: Option<Refused>,
}

/// What there is to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resuming {
    /// A file is brought to the tier.
    Flush,
    /// The same, under another name than it had: the tier has a version of its own there.
    Conflict,
    /// The job had removed it: nothing of it is in the tier any more.
    Removal,
    /// The job was about to remove or rename it when it died. Nobody knows whether that was done: the
    /// tier keeps it under the name that it had.
    Kept,
}

/// A job whose servers are gone, as all its ledgers together tell it. First the files of all nodes
/// ([`Self::files`]), then, if all nodes are here, what was removed ([`Self::removals`]).
pub struct ResumedJob {
    /// Tombstones of all nodes: the one of a name need not be where the next file of that name is.
    tombstones: Vec<LedgerRecord>,
    /// Names that files of the job had when it died.
    named: HashMap<InodeId, Vec<u8>>,
    /// Directories of which something is not in the tier that others [wait for](is_waited_for).
    missing: BTreeSet<Vec<u8>>,
    /// Files that are not in the tier.
    failed: BTreeSet<InodeId>,
    rivals: Rivals,
}

impl ResumedJob {
    /// Of the records of all ledgers that there are.
    pub fn new(records: impl IntoIterator<Item = LedgerRecord>) -> Self {
        let (mut tombstones, mut files) = (Vec::new(), Vec::new());
        for record in records {
            if record.state == FileState::Removed {
                tombstones.push(record);
            } else if !record.is_nameless {
                files.push(record);
            }
        }
        let rivals = Rivals::among(files.iter());
        let named = files.into_iter().map(|record| (record.ino, record.path)).collect();
        Self { tombstones, named, missing: BTreeSet::new(), failed: BTreeSet::new(), rivals }
    }

    /// Flushes everything that `ledger`, of the node of `home`, says is not durable, in the order that renames
    /// want, from what `nodes` have left, and tells `told` of each file. The ledger is brought up to date file by file, so that an
    /// interrupted run goes on where it was. First goes what the node's server left unfinished in the tier,
    /// when that is attached for the same owner.
    ///
    /// # Errors
    /// When the ledger can not be written; failures of single files are told.
    pub fn files(
        &mut self,
        (home, ledger): (ServerId, &mut Ledger),
        nodes: &dyn LeftNodes,
        tier: &dyn Tier,
        mut told: impl FnMut(Resumed),
    ) -> Result<(), LedgerError> {
        let is_left = |record: &&LedgerRecord| {
            !record.state.is_safe() && record.state != FileState::Removed && !record.is_nameless
        };
        leftovers::sweep(tier, &leftovers::directories(ledger.records()));
        let mut files: Vec<_> = ledger.records().filter(is_left).cloned().collect();
        files.sort_by_key(|record| (record.after, record.ino));
        for record in files {
            let (ino, dir) = (record.ino, directory_of(&record.path).to_vec());
            let Claim::Over(rivals) = self.rivals.claim(&record, nodes, tier) else {
                tracing::info!(%ino, "another file has its name, and is in the tier");
                ledger.put(replaced(record))?;
                ledger.sync()?;
                continue;
            };
            let is_same_path = |earlier: &&LedgerRecord| earlier.path == record.path;
            let tombstones = self.tombstones.iter().filter(is_same_path).cloned();
            let earlier: Vec<_> = tombstones.chain(rivals).collect();
            let is_behind = record.after > 0 && self.missing.contains(&dir);
            let path = record.path.clone();
            let resumed = match is_behind {
                true => behind(
                    record,
                    "it was renamed over another file after one that is not in the tier",
                ),
                false => resume_file((home, ledger), nodes, tier, &earlier, record)?,
            };
            if let Some(now) = ledger.get(ino) {
                self.rivals.follow(&path, now);
            }
            if let Some(refused) = &resumed.failure {
                self.failed.insert(ino);
                if is_waited_for(refused.errno) {
                    self.missing.insert(dir);
                }
            }
            told(resumed);
        }
        Ok(())
    }

    /// Removes what the tombstones in `ledger`, of one node, hide. After [`Self::files`] of all nodes of
    /// the job: a version may be the last one of a file that is on any of them.
    ///
    /// # Errors
    /// When the ledger can not be written; failures of single removals are told.
    pub fn removals(
        &self,
        ledger: &mut Ledger,
        tier: &dyn Tier,
        mut told: impl FnMut(Resumed),
    ) -> Result<(), LedgerError> {
        let is_tombstone = |record: &&LedgerRecord| record.state == FileState::Removed;
        let tombstones: Vec<_> = ledger.records().filter(is_tombstone).cloned().collect();
        for tombstone in tombstones {
            let number = tombstone.ino;
            let resumed = self.remove(tier, tombstone);
            if resumed.failure.is_none() {
                ledger.remove(number)?;
                ledger.sync()?;
            }
            told(resumed);
        }
        Ok(())
    }

    fn remove(&self, tier: &dyn Tier, tombstone: LedgerRecord) -> Resumed {
        let buried = tombstone.buried.map(|buried| buried.ino);
        let named = buried.and_then(|ino| self.named.get(&ino));
        if self.missing.contains(directory_of(&tombstone.path)) {
            return behind(
                tombstone,
                "it was removed after a file was written that is not in the tier",
            );
        }
        if buried.is_some_and(|ino| self.failed.contains(&ino)) {
            return behind(tombstone, "it was renamed, and is not in the tier under its new name");
        }
        let (what, failure) = match remove(tier, &tombstone, named == Some(&tombstone.path)) {
            Ok(what) => (what, None),
            Err(refused) => (Resuming::Removal, Some(refused)),
        };
        Resumed { path: tombstone.path, bytes: 0, what, failure }
    }
}

/// The record of a file over which the job had renamed another one: nothing of it is left to flush.
fn replaced(record: LedgerRecord) -> LedgerRecord {
    let state = FileState::Clean;
    LedgerRecord { state, is_nameless: true, version: None, sent: None, errno: 0, ..record }
}

/// What may not be done yet.
fn behind(record: LedgerRecord, why: &str) -> Resumed {
    let what = match record.state {
        FileState::Removed => Resuming::Removal,
        _ => Resuming::Flush,
    };
    let failure = Some(Refused::because(libc_errno::EAGAIN, why));
    Resumed { path: record.path, bytes: record.bytes, what, failure }
}

/// `is_named`: by its home's record the file still has this name. The home had not heard of a new one, or
/// of the end of this one.
fn remove(tier: &dyn Tier, tombstone: &LedgerRecord, is_named: bool) -> Result<Resuming, Refused> {
    let key = key(&tombstone.path)?;
    let found = version_at(tier, &key).map_err(|error| tier_refused(&error))?;
    if is_named && found.is_some() {
        return Ok(Resuming::Kept);
    }
    let ours = found.filter(|at| tombstone.is_ours(at.identity, at.size, at.mtime));
    match ours.map(|at| tier.delete_version(&key, at.identity)) {
        // It is gone, or was replaced by another program before: nothing of ours is there.
        None | Some(Ok(()) | Err(TierError::Missing { .. })) => Ok(Resuming::Removal),
        Some(Err(TierError::Changed { .. })) => {
            tracing::warn!(%key, "another program replaced it while it was removed: that version stays");
            Ok(Resuming::Removal)
        }
        Some(Err(error)) => Err(tier_refused(&error)),
    }
}

#[cfg(test)]
mod tests;
