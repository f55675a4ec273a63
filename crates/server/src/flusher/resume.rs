//! Finishing the flushes of a job whose servers are gone, from its ledgers and parts alone.
//!
//! Blocking, one node's storage at a time. What was being flushed when the job died is flushed anew;
//! what came of that last try is known again by its size and time.

use std::collections::BTreeSet;
use std::sync::Arc;

use hayase_store::{FileState, Ledger, LedgerError, LedgerRecord, Parts};
use hayase_tier::Tier;
use hayase_wire::message::Refused;

use super::gather::{self, Committed};
use crate::cache::names::conflict_path;
use crate::cache::order::directory_of;
use crate::cache::paths::key;
use crate::cache::tier_refused;
use crate::cache::tombstones::version_at;
use crate::convert::part_refused;
use crate::node::libc_errno;
use crate::peer_service::inode::whole_part;

/// Second versions of one file that are tried before it is left as failed.
const CONFLICTS_MAX: usize = 2;

/// What became of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Its name in the tier, where it is now or should be.
    pub path: Vec<u8>,
    /// Bytes.
    pub bytes: u64,
    /// Under another name than it had, since the tier has a version of its own there.
    pub is_conflict: bool,
    /// The job had removed it: nothing of it is in the tier any more.
    pub is_removal: bool,
    /// Why it is still not durable; `None` when it is.
    pub failure: Option<Refused>,
}

/// Flushes everything that `ledger` says is not durable, and tells `told` of each file: first files, in
/// the order that renames want, then what was removed. `removed` are the tombstones of all nodes of the
/// job, whose versions new files of the same names may replace. The ledger is brought up to date file
/// by file, so that an interrupted run goes on where it was.
///
/// # Errors
/// When the ledger can not be written; failures of single files are told.
pub fn resume(
    ledger: &mut Ledger,
    parts: &Parts,
    tier: &Arc<dyn Tier>,
    removed: &[LedgerRecord],
    mut told: impl FnMut(Resumed),
) -> Result<(), LedgerError> {
    let left = ledger.records().filter(|record| !record.state.is_safe()).cloned();
    let (tombstones, mut files): (Vec<_>, Vec<_>) =
        left.partition(|record| record.state == FileState::Removed);
    files.sort_by_key(|record| (record.after, record.ino));
    // Directories of which something is not in the tier, for another reason than that it is full.
    let mut missing = BTreeSet::new();
    for record in files {
        let dir = directory_of(&record.path).to_vec();
        let is_behind = record.after > 0 && missing.contains(&dir);
        let failure = match is_behind {
            true => Some(Refused::because(
                libc_errno::EAGAIN,
                "it was renamed over another file after one that is not in the tier",
            )),
            false => resume_file(ledger, parts, &**tier, removed, record, &mut told)?,
        };
        if failure.is_some_and(|refused| !is_full(&refused)) {
            missing.insert(dir);
        }
    }
    for tombstone in tombstones {
        let dir = directory_of(&tombstone.path);
        let failure = match missing.contains(dir) {
            true => Some(Refused::because(
                libc_errno::EAGAIN,
                "it was removed after a file was written that is not in the tier",
            )),
            false => remove(&**tier, &tombstone).err(),
        };
        if failure.is_none() {
            ledger.remove(tombstone.ino)?;
            ledger.sync()?;
        }
        let path = tombstone.path;
        told(Resumed { path, bytes: 0, is_conflict: false, is_removal: true, failure });
    }
    Ok(())
}

/// Removing is how room is made: what finds none does not stand in its way.
fn is_full(refused: &Refused) -> bool {
    matches!(refused.errno, libc_errno::ENOSPC | libc_errno::EDQUOT)
}

fn remove(tier: &dyn Tier, tombstone: &LedgerRecord) -> Result<(), Refused> {
    let key = key(&tombstone.path)?;
    let found = version_at(tier, &key).map_err(|error| tier_refused(&error))?;
    match found.filter(|found| tombstone.is_ours(found.identity, found.size, found.mtime)) {
        Some(_) => tier.delete(&key).map_err(|error| tier_refused(&error)),
        None => Ok(()), // Gone, or somebody else's by now.
    }
}

/// One file, and why it failed.
fn resume_file(
    ledger: &mut Ledger,
    parts: &Parts,
    tier: &dyn Tier,
    removed: &[LedgerRecord],
    record: LedgerRecord,
    told: &mut impl FnMut(Resumed),
) -> Result<Option<Refused>, LedgerError> {
    let was = record.path.clone();
    let record = sending(parts, taken_over(tier, removed, record));
    ledger.put(record.clone())?;
    let (record, failure) = match flush(parts, tier, record.clone()) {
        Ok(durable) => (durable, None),
        Err(refused) => {
            let (state, errno) = (FileState::Failed, refused.errno);
            let attempts = record.attempts.saturating_add(1);
            (LedgerRecord { state, errno, attempts, ..record }, Some(refused))
        }
    };
    ledger.put(record.clone())?;
    ledger.sync()?;
    let LedgerRecord { path, bytes, .. } = record;
    let (is_conflict, is_removal) = (path != was, false);
    told(Resumed { is_conflict, is_removal, path, bytes, failure: failure.clone() });
    Ok(failure)
}

/// The record of a new file whose name had an earlier one: that one's version is the new one's to
/// replace. A tier that does not answer says so again when the file is sent.
fn taken_over(tier: &dyn Tier, removed: &[LedgerRecord], record: LedgerRecord) -> LedgerRecord {
    let mut hidden = removed.iter().filter(|tombstone| tombstone.path == record.path).peekable();
    if record.version.is_some() || hidden.peek().is_none() {
        return record;
    }
    let found = key(&record.path).ok().and_then(|key| version_at(tier, &key).ok().flatten());
    let is_hidden = |found: &hayase_store::TierVersion| {
        hidden.any(|tombstone| tombstone.is_ours(found.identity, found.size, found.mtime))
    };
    LedgerRecord { version: found.filter(is_hidden), ..record }
}

/// The record of a file whose last version is about to be sent: if the answer is lost, the next try
/// knows it again.
fn sending(parts: &Parts, record: LedgerRecord) -> LedgerRecord {
    let stat = parts.get(whole_part(record.ino, 0)).and_then(|part| part.stat());
    match (stat, record.sent) {
        // One that was sent before may have arrived: until it is known, it is the one to look for.
        (Ok(stat), None) => LedgerRecord { sent: Some(gather::mark_of(&stat)), ..record },
        _ => record,
    }
}

/// One file; the record of what is durable then.
fn flush(parts: &Parts, tier: &dyn Tier, record: LedgerRecord) -> Result<LedgerRecord, Refused> {
    let part = parts.get(whole_part(record.ino, 0)).map_err(part_refused)?;
    let mut record = record;
    for _ in 0..=CONFLICTS_MAX {
        let path = key(&record.path)?;
        let sent = gather::send(tier, &part, &path, record.mode, &|_| ())?;
        let stat = sent.stat;
        let committed = gather::commit(tier, &path, &record, sent);
        match committed.map_err(|error| tier_refused(&error))? {
            Committed::Durable(version) => {
                let (state, version, bytes) = (FileState::Durable, Some(version), stat.size);
                let (sent, errno, attempts, after) = (None, 0, 0, 0);
                let known = LedgerRecord { state, version, sent, bytes, ..record };
                return Ok(LedgerRecord { errno, attempts, after, ..known });
            }
            Committed::Conflict => {
                record.path = conflict_path(&record.path, record.ino);
                (record.version, record.sent) = (None, None);
            }
        }
    }
    Err(Refused::because(libc_errno::EEXIST, "other versions are in the tier"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hayase_layout::{InodeId, LocalOffset};
    use hayase_store::{Buried, MemoryDevice};
    use hayase_tier::flaky::{Call, Fault};
    use hayase_tier::{Action, Attributes, Flaky, Key, Memory, Precondition, TierError};
    use rustix::io::Errno;

    use super::*;
    use crate::cache::version_of;

    struct Node {
        ledger: Ledger,
        parts: Parts,
        tier: Arc<dyn Tier>,
    }

    impl Node {
        fn new(tier: Arc<dyn Tier>) -> Self {
            let ledger = Ledger::open(Arc::new(MemoryDevice::new())).unwrap();
            Self { ledger, parts: Parts::open(Arc::new(MemoryDevice::new()), 8), tier }
        }

        fn write(&mut self, ino: u64, path: &str, bytes: &[u8]) -> LedgerRecord {
            let ino = InodeId(ino).in_cache();
            let part = self.parts.create(whole_part(ino, 0)).unwrap();
            part.write_at(LocalOffset(0), bytes).unwrap();
            LedgerRecord::new(ino, path.as_bytes().to_vec(), 0o640)
        }

        fn resume(&mut self) -> Vec<Resumed> {
            let mut told = Vec::new();
            let removed: Vec<_> = self
                .ledger
                .records()
                .filter(|one| one.state == FileState::Removed)
                .cloned()
                .collect();
            resume(&mut self.ledger, &self.parts, &self.tier, &removed, |file| told.push(file))
                .unwrap();
            told
        }

        fn read(&self, path: &str) -> Result<Vec<u8>, TierError> {
            let reader = self.tier.open(&Key::new(path).unwrap())?;
            let mut bytes = vec![0; 64];
            let read = reader.read_at(0, &mut bytes)?;
            bytes.truncate(read);
            Ok(bytes)
        }

        fn put(&self, path: &str, bytes: &[u8]) -> hayase_store::TierVersion {
            let key = Key::new(path).unwrap();
            let any = Precondition::Any;
            version_of(&self.tier.put(&key, Attributes::default(), bytes, any).unwrap())
        }
    }

    #[test]
    fn what_was_dirty_is_durable_afterwards_and_only_once() {
        let mut node = Node::new(Arc::new(Memory::new()));
        let record = node.write(3, "dir/new", b"bytes");
        node.ledger.put(record).unwrap();
        let told = node.resume();
        assert_eq!((told.len(), &told[0].failure), (1, &None));
        assert_eq!(node.read("dir/new").unwrap(), b"bytes");
        assert!(node.resume().is_empty());
    }

    #[test]
    fn the_version_that_was_known_is_replaced() {
        let mut node = Node::new(Arc::new(Memory::new()));
        let version = Some(node.put("f", b"old"));
        let record = node.write(3, "f", b"new");
        node.ledger.put(LedgerRecord { version, ..record }).unwrap();
        assert!(!node.resume()[0].is_conflict);
        assert_eq!(node.read("f").unwrap(), b"new");
    }

    #[test]
    fn another_version_stays_and_ours_is_beside_it() {
        let mut node = Node::new(Arc::new(Memory::new()));
        let version = Some(node.put("f", b"old"));
        node.put("f", b"theirs");
        let record = node.write(3, "f", b"ours");
        node.ledger.put(LedgerRecord { version, ..record }).unwrap();
        let told = node.resume();
        assert!(told[0].is_conflict && told[0].failure.is_none());
        assert_eq!(node.read("f").unwrap(), b"theirs");
        let beside = String::from_utf8(told[0].path.clone()).unwrap();
        assert_eq!(node.read(&beside).unwrap(), b"ours");
    }

    #[test]
    fn a_flush_that_a_crash_hid_is_no_conflict() {
        let mut node = Node::new(Arc::new(Memory::new()));
        let record = node.write(3, "f", b"ours");
        node.ledger.put(record.clone()).unwrap();
        node.resume();
        // The ledger as it was before the commit was told: sent, but not known to have arrived.
        let part = node.parts.get(whole_part(record.ino, 0)).unwrap();
        let sent = Some(gather::mark_of(&part.stat().unwrap()));
        node.ledger.put(LedgerRecord { state: FileState::Dirty, sent, ..record }).unwrap();
        let told = node.resume();
        assert!(!told[0].is_conflict && told[0].failure.is_none());
        assert_eq!(node.read("f").unwrap(), b"ours");
    }

    /// A tier whose first `count` calls of this kind fail.
    fn failing(at: Call, fault: Fault, count: usize) -> Arc<dyn Tier> {
        let failed = AtomicUsize::new(0);
        Arc::new(Flaky::new(Memory::new(), move |call| {
            let fails = call == at && failed.fetch_add(1, Ordering::Relaxed) < count;
            fails.then_some(fault)
        }))
    }

    #[test]
    fn each_fault_is_told_and_the_next_try_succeeds() {
        for action in [Action::Begin, Action::Write, Action::Commit, Action::Stat] {
            for (fault, errno) in [
                (Fault::Io, Errno::IO),
                (Fault::Quota, Errno::DQUOT),
                (Fault::Full, Errno::NOSPC),
                (Fault::Denied, Errno::ACCESS),
            ] {
                let mut node = Node::new(failing(Call::Begun(action), fault, 1));
                let record = node.write(3, "f", b"ours");
                node.ledger.put(record.clone()).unwrap();
                let told = node.resume();
                let failure = told[0].failure.as_ref().unwrap();
                assert_eq!(failure.errno, errno.raw_os_error(), "{action:?}");
                let known = node.ledger.get(record.ino).unwrap();
                assert_eq!((known.state, known.attempts), (FileState::Failed, 1));
                assert!(node.read("f").is_err(), "{action:?}: nothing of it is seen");
                assert_eq!(node.resume()[0].failure, None, "{action:?}");
                assert_eq!(node.read("f").unwrap(), b"ours");
            }
        }
    }

    #[test]
    fn an_answer_that_was_lost_after_the_commit_makes_no_second_version() {
        let mut node = Node::new(failing(Call::Done(Action::Commit), Fault::Io, 1));
        let record = node.write(3, "f", b"ours");
        node.ledger.put(record).unwrap();
        assert!(node.resume()[0].failure.is_some());
        let told = node.resume();
        assert!(told[0].failure.is_none() && !told[0].is_conflict);
        assert_eq!(node.read("f").unwrap(), b"ours");
    }

    fn tombstone(number: u64, path: &str, version: hayase_store::TierVersion) -> LedgerRecord {
        let buried = Buried { parent: InodeId::CACHE_ROOT, ino: InodeId(1).in_cache() };
        let number = InodeId(number).in_cache();
        LedgerRecord::tombstone(number, path.into(), buried, Some(version), None)
    }

    #[test]
    fn what_was_removed_goes_and_what_somebody_else_put_there_stays() {
        let mut node = Node::new(Arc::new(Memory::new()));
        for path in ["gone", "theirs"] {
            let version = node.put(path, b"old");
            node.ledger.put(tombstone(10 + path.len() as u64, path, version)).unwrap();
        }
        node.put("theirs", b"new");
        let told = node.resume();
        assert!(told.iter().all(|file| file.is_removal && file.failure.is_none()), "{told:?}");
        assert!(node.read("gone").is_err());
        assert_eq!(node.read("theirs").unwrap(), b"new");
        assert!(node.resume().is_empty());
    }

    #[test]
    fn a_new_file_takes_the_place_of_a_removed_one() {
        let mut node = Node::new(Arc::new(Memory::new()));
        let version = node.put("f", b"old");
        node.ledger.put(tombstone(10, "f", version)).unwrap();
        let record = node.write(3, "f", b"new");
        node.ledger.put(record).unwrap();
        let told = node.resume();
        assert!(told.iter().all(|file| file.failure.is_none() && !file.is_conflict), "{told:?}");
        assert_eq!(node.read("f").unwrap(), b"new");
    }

    /// The old checkpoint stays until the new one is there.
    #[test]
    fn a_removal_does_not_overtake_what_was_written_before_it() {
        for (fault, stays) in [(Fault::Io, true), (Fault::Full, false)] {
            let mut node = Node::new(failing(Call::Begun(Action::Write), fault, 1));
            let version = node.put("d/old", b"old");
            node.ledger.put(tombstone(10, "d/old", version)).unwrap();
            let record = node.write(3, "d/new", b"new");
            node.ledger.put(record).unwrap();
            let over = node.write(2, "d/renamed", b"pointer");
            node.ledger.put(LedgerRecord { after: 9, ..over }).unwrap();
            node.resume();
            assert_eq!(node.read("d/old").is_ok(), stays, "{fault:?}");
            assert_eq!(node.read("d/renamed").is_err(), stays, "{fault:?}");
            node.resume();
            assert!(node.read("d/old").is_err() && node.read("d/new").is_ok());
            assert_eq!(node.read("d/renamed").unwrap(), b"pointer");
        }
    }

    #[test]
    fn a_part_that_is_lost_is_told() {
        let mut node = Node::new(Arc::new(Memory::new()));
        let record = node.write(3, "f", b"ours");
        node.ledger.put(LedgerRecord { ino: InodeId(9).in_cache(), ..record }).unwrap();
        assert!(node.resume()[0].failure.is_some());
    }
}
