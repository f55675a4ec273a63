//! Finishing the flushes of a job whose servers are gone, from its ledgers and parts alone.
//!
//! Blocking, one node's storage at a time. What was being flushed when the job died is flushed anew;
//! what came of that last try is known again by its size and time.

use std::sync::Arc;

use hayase_store::{FileState, Ledger, LedgerError, LedgerRecord, Parts};
use hayase_tier::Tier;
use hayase_wire::message::Refused;

use super::gather::{self, Committed};
use crate::cache::names::conflict_path;
use crate::cache::paths::key;
use crate::cache::tier_refused;
use crate::convert::part_refused;
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
    /// Why it is still not durable; `None` when it is.
    pub failure: Option<Refused>,
}

/// Flushes everything that `ledger` says is not durable, and tells `told` of each file. The ledger is
/// brought up to date file by file, so that an interrupted run goes on where it was.
///
/// # Errors
/// When the ledger can not be written; failures of single files are told.
pub fn resume(
    ledger: &mut Ledger,
    parts: &Parts,
    tier: &Arc<dyn Tier>,
    mut told: impl FnMut(Resumed),
) -> Result<(), LedgerError> {
    let left: Vec<LedgerRecord> =
        ledger.records().filter(|record| !record.state.is_safe()).cloned().collect();
    for record in left {
        let was = record.path.clone();
        let record = sending(parts, record);
        ledger.put(record.clone())?;
        let (record, failure) = match flush(parts, &**tier, record.clone()) {
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
        told(Resumed { is_conflict: path != was, path, bytes, failure });
    }
    Ok(())
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
        let (stat, mark) = (sent.stat, gather::mark_of(&sent.stat));
        let committed = gather::commit(tier, &path, &record, sent);
        match committed.map_err(|error| tier_refused(&error))? {
            Committed::Durable(version) => {
                let (state, version, sent) = (FileState::Durable, Some(version), Some(mark));
                let (errno, attempts, bytes) = (0, 0, stat.size);
                return Ok(LedgerRecord { state, version, sent, errno, attempts, bytes, ..record });
            }
            Committed::Conflict => {
                record.path = conflict_path(&record.path, record.ino);
                (record.version, record.sent) = (None, None);
            }
        }
    }
    Err(Refused::because(crate::node::libc_errno::EEXIST, "other versions are in the tier"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hayase_layout::{InodeId, LocalOffset};
    use hayase_store::MemoryDevice;
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
            resume(&mut self.ledger, &self.parts, &self.tier, |file| told.push(file)).unwrap();
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
        let sent = node.ledger.get(record.ino).unwrap().sent;
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
            for (fault, errno) in
                [(Fault::Io, Errno::IO), (Fault::Quota, Errno::DQUOT), (Fault::Full, Errno::NOSPC)]
            {
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

    #[test]
    fn a_part_that_is_lost_is_told() {
        let mut node = Node::new(Arc::new(Memory::new()));
        let record = node.write(3, "f", b"ours");
        node.ledger.put(LedgerRecord { ino: InodeId(9).in_cache(), ..record }).unwrap();
        assert!(node.resume()[0].failure.is_some());
    }
}
