//! Finishing the flushes of a job whose servers are gone, from its ledgers and parts alone.
//!
//! Blocking, one node's storage at a time: the files of all nodes, and then what was removed, which waits
//! for files of any node. What was being flushed when the job died is flushed anew; what came of that
//! last try is known again by its size and time. In doubt the tier keeps what it has.

use std::collections::{BTreeSet, HashMap};

use hayase_layout::{InodeId, Layout};
use hayase_store::{FileState, Ledger, LedgerError, LedgerRecord, Parts};
use hayase_tier::Tier;
use hayase_wire::message::Refused;

use super::gather::{self, Committed};
use super::leftovers;
use super::source::{PartSource, part_of};
use crate::cache::object_moves::conflict_paths;
use crate::cache::order::{directory_of, is_waited_for};
use crate::cache::paths::key;
use crate::cache::tier_refused;
use crate::cache::tombstones::version_at;
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
}

impl ResumedJob {
    /// Of the records of all ledgers that there are.
    pub fn new(records: impl IntoIterator<Item = LedgerRecord>) -> Self {
        let (mut tombstones, mut named) = (Vec::new(), HashMap::new());
        for record in records {
            if record.state == FileState::Removed {
                tombstones.push(record);
            } else if !record.is_nameless {
                named.insert(record.ino, record.path);
            }
        }
        Self { tombstones, named, missing: BTreeSet::new(), failed: BTreeSet::new() }
    }

    /// Flushes everything that `ledger`, of one node, says is not durable, in the order that renames
    /// want, and tells `told` of each file. The ledger is brought up to date file by file, so that an
    /// interrupted run goes on where it was. First goes what the node's server left unfinished in the tier,
    /// when that is attached for the same owner.
    ///
    /// # Errors
    /// When the ledger can not be written; failures of single files are told.
    pub fn files(
        &mut self,
        ledger: &mut Ledger,
        parts: &Parts,
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
            let is_behind = record.after > 0 && self.missing.contains(&dir);
            let resumed = match is_behind {
                true => behind(
                    record,
                    "it was renamed over another file after one that is not in the tier",
                ),
                false => resume_file(ledger, parts, tier, &self.tombstones, record)?,
            };
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
    // Else it is gone, or somebody else's by now.
    if found.is_some_and(|found| tombstone.is_ours(found.identity, found.size, found.mtime)) {
        tier.delete(&key).map_err(|error| tier_refused(&error))?;
    }
    Ok(Resuming::Removal)
}

/// One file.
fn resume_file(
    ledger: &mut Ledger,
    parts: &Parts,
    tier: &dyn Tier,
    removed: &[LedgerRecord],
    record: LedgerRecord,
) -> Result<Resumed, LedgerError> {
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
    let what = if path == was { Resuming::Flush } else { Resuming::Conflict };
    Ok(Resumed { path, bytes, what, failure })
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
        _ if record.layout != Layout::Whole => record,
        // One that was sent before may have arrived: until it is known, it is the one to look for.
        (Ok(stat), None) => LedgerRecord { sent: Some(gather::mark_of(&stat)), ..record },
        _ => record,
    }
}

/// One file; the record of what is durable then.
fn flush(parts: &Parts, tier: &dyn Tier, record: LedgerRecord) -> Result<LedgerRecord, Refused> {
    if record.layout != Layout::Whole {
        let why = "its parts lie on several nodes, whose servers are gone";
        return Err(Refused::because(libc_errno::EOPNOTSUPP, why));
    }
    let part = part_of(parts, record.ino)?;
    let mut record = record;
    let name = record.path.clone();
    let mut names = conflict_paths(&name, record.ino).take(CONFLICTS_MAX);
    loop {
        let path = key(&record.path)?;
        let source = PartSource::still(part.clone())?;
        let sent = gather::send(tier, &source, &path, record.mode, &|_| ())?;
        let (stat, checksum) = (sent.stat, sent.checksum);
        let committed = gather::commit(tier, &path, &record, sent);
        match committed.map_err(|error| tier_refused(&error))? {
            Committed::Durable(version) => {
                let (state, bytes) = (FileState::Durable, stat.size);
                let (sent, errno, attempts, after) = (None, 0, 0, 0);
                let checksum = Some((version.identity, checksum));
                let version = Some(version);
                let known = LedgerRecord { state, version, sent, bytes, checksum, ..record };
                return Ok(LedgerRecord { errno, attempts, after, ..known });
            }
            Committed::Conflict => {
                let Some(next) = names.next() else { break };
                record.path = next;
                (record.version, record.sent) = (None, None);
            }
        }
    }
    Err(Refused::because(libc_errno::EEXIST, "other versions are in the tier"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hayase_layout::LocalOffset;
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
            resume(std::slice::from_mut(self))
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

    /// A whole job: the nodes have one tier.
    fn resume(nodes: &mut [Node]) -> Vec<Resumed> {
        let records = nodes.iter().flat_map(|node| node.ledger.records().cloned());
        let mut job = ResumedJob::new(records.collect::<Vec<_>>());
        let mut told = Vec::new();
        for Node { ledger, parts, tier } in &mut *nodes {
            job.files(ledger, parts, &**tier, |file| told.push(file)).unwrap();
        }
        for Node { ledger, tier, .. } in nodes {
            job.removals(ledger, &**tier, |file| told.push(file)).unwrap();
        }
        told
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
        assert!(node.resume()[0].what == Resuming::Flush);
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
        assert!(told[0].what == Resuming::Conflict && told[0].failure.is_none());
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
        assert!(told[0].what == Resuming::Flush && told[0].failure.is_none());
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
        assert!(told[0].failure.is_none() && told[0].what == Resuming::Flush);
        assert_eq!(node.read("f").unwrap(), b"ours");
    }

    /// The checksum of ours would be told of theirs.
    #[test]
    fn what_replaces_a_version_right_after_its_commit_is_not_taken_for_it() {
        let (below, key) = (Memory::new(), Key::new("f").unwrap());
        let (theirs, at) = (below.clone(), key.clone());
        let tier = Flaky::new(below.clone(), move |call| {
            if call == Call::Done(Action::Commit) {
                let any = Precondition::Any;
                theirs.put(&at, Attributes::default(), b"theirs", any).unwrap();
            }
            None
        });
        let mut node = Node::new(Arc::new(tier));
        let record = node.write(3, "f", b"ours");
        node.ledger.put(record.clone()).unwrap();
        assert!(node.resume()[0].failure.is_none());
        let known = node.ledger.get(record.ino).unwrap();
        assert_ne!(known.version.unwrap().identity, below.stat(&key).unwrap().identity);
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
        assert!(
            told.iter().all(|file| file.what == Resuming::Removal && file.failure.is_none()),
            "{told:?}"
        );
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
        assert!(
            told.iter().all(|file| file.failure.is_none() && file.what != Resuming::Conflict),
            "{told:?}"
        );
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

    /// The tombstone is written before the home hears of the new name: in between the job dies.
    #[test]
    fn a_rename_that_was_cut_short_removes_nothing() {
        for state in [FileState::Durable, FileState::Clean, FileState::InTier, FileState::Dirty] {
            let mut node = Node::new(Arc::new(Memory::new()));
            let version = node.put("a", b"bytes");
            let record = node.write(1, "a", b"bytes");
            node.ledger.put(LedgerRecord { state, version: Some(version), ..record }).unwrap();
            node.ledger.put(tombstone(10, "a", version)).unwrap();
            let told = node.resume();
            assert_eq!(node.read("a").unwrap(), b"bytes", "{state:?}");
            assert_eq!(told.last().unwrap().what, Resuming::Kept);
            assert!(told.iter().all(|file| file.failure.is_none()));
            assert!(node.resume().is_empty(), "{state:?}");
        }
    }

    /// Removed while somebody had it open: its record is there, and its name is not.
    #[test]
    fn a_file_without_its_name_goes_from_the_tier_and_does_not_come_back() {
        let mut node = Node::new(Arc::new(Memory::new()));
        let version = node.put("a", b"bytes");
        let record = node.write(1, "a", b"more bytes");
        node.ledger.put(LedgerRecord { is_nameless: true, ..record }).unwrap();
        node.ledger.put(tombstone(10, "a", version)).unwrap();
        assert_eq!(node.resume()[0].what, Resuming::Removal);
        assert!(node.read("a").is_err());
    }

    /// The removal is of node 0, what has to come first of node 1.
    #[test]
    fn a_removal_waits_for_files_of_all_nodes() {
        let tier = failing(Call::Begun(Action::Write), Fault::Io, 1);
        let mut nodes = [Node::new(Arc::clone(&tier)), Node::new(tier)];
        let version = nodes[0].put("d/old", b"old");
        nodes[0].ledger.put(tombstone(10, "d/old", version)).unwrap();
        let record = nodes[1].write(3, "d/new", b"new");
        nodes[1].ledger.put(record).unwrap();
        resume(&mut nodes);
        assert_eq!(nodes[0].read("d/old").unwrap(), b"old");
        let told = resume(&mut nodes);
        assert!(told.iter().all(|file| file.failure.is_none()), "{told:?}");
        assert!(nodes[0].read("d/old").is_err() && nodes[0].read("d/new").is_ok());
    }

    /// What the tier has under the old name, in another directory, may be the last version there is.
    #[test]
    fn a_file_that_was_moved_is_in_the_tier_before_its_old_name_goes() {
        for fault in [Fault::Io, Fault::Full] {
            let mut node = Node::new(failing(Call::Begun(Action::Write), fault, 1));
            let version = node.put("d/f", b"old");
            node.ledger.put(tombstone(10, "d/f", version)).unwrap();
            let record = node.write(1, "e/f", b"new");
            node.ledger.put(record).unwrap();
            node.resume();
            assert_eq!(node.read("d/f").unwrap(), b"old", "{fault:?}");
            node.resume();
            assert!(node.read("d/f").is_err() && node.read("e/f").is_ok());
        }
    }

    /// Its first part is here, and is not the file.
    #[test]
    fn a_striped_file_is_kept_and_told() {
        let servers = vec![hayase_layout::ServerId(0), hayase_layout::ServerId(1)];
        let stripe = hayase_layout::ByteCount(4096);
        is_kept_and_told(Layout::Striped { stripe, servers });
    }

    /// What is here under its number was cut short while it became whole.
    #[test]
    fn a_recorded_file_is_kept_and_told() {
        is_kept_and_told(Layout::Recorded { container: InodeId(7) });
    }

    fn is_kept_and_told(layout: Layout) {
        let mut node = Node::new(Arc::new(Memory::new()));
        let record = node.write(3, "f", b"its first stripe");
        node.ledger.put(LedgerRecord { layout, ..record.clone() }).unwrap();
        let told = node.resume();
        let failure = told[0].failure.as_ref().unwrap();
        assert_eq!(failure.errno, Errno::OPNOTSUPP.raw_os_error());
        assert!(node.read("f").is_err());
        assert_eq!(node.ledger.get(record.ino).unwrap().state, FileState::Failed);
    }

    #[test]
    fn a_part_that_is_lost_is_told() {
        let mut node = Node::new(Arc::new(Memory::new()));
        let record = node.write(3, "f", b"ours");
        node.ledger.put(LedgerRecord { ino: InodeId(9).in_cache(), ..record }).unwrap();
        assert!(node.resume()[0].failure.is_some());
    }
}
