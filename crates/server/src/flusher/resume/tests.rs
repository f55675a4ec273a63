//! Whole jobs, in memory: nodes with a ledger, parts and names, in front of one tier.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hayase_layout::acl::ACCESS_NAME;
use hayase_layout::{
    Acl, Acls, ByteCount, Extent, GlobalOffset, InodeId, Layout, LocalOffset, ServerId, StripeMap,
};
use hayase_store::namespace::{FileKind, Inode};
use hayase_store::ops::PartBytes;
use hayase_store::{
    Buried, MemoryDevice, MemoryStore, Namespace, PartId, Parts, PendingXattrs, TierVersion, Time,
    ops,
};
use hayase_tier::flaky::{Call, Fault};
use hayase_tier::{Action, Attributes, Flaky, Key, Memory, Precondition};
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::cache::version_of;
use crate::convert::whole_part;
use crate::flusher::gather;
use crate::limits::FLUSH_BYTES;

mod power;
mod rivals;
mod salvaged;

struct Node {
    ledger: Ledger,
    device: Arc<MemoryDevice>,
    names: Arc<MemoryStore>,
    left: LeftNode,
    tier: Arc<dyn Tier>,
}

impl Node {
    fn new(tier: Arc<dyn Tier>) -> Self {
        Self::of(ServerId(0), tier)
    }

    fn of(server: ServerId, tier: Arc<dyn Tier>) -> Self {
        let mut ledger = Ledger::open(Arc::new(MemoryDevice::new())).unwrap();
        ledger.begin_life("first").unwrap();
        let (device, names) = (Arc::new(MemoryDevice::new()), Arc::new(MemoryStore::new()));
        let opened = Namespace::open(names.clone(), server, Time::default()).unwrap();
        opened.begin_boot("first").unwrap();
        let left = left(server, &device, &names, "first");
        Self { ledger, device, names, left, tier }
    }

    /// Another life of its machine.
    fn boot(&mut self, boot: &str) {
        self.left = left(self.names().server(), &self.device, &self.names, boot);
    }

    fn names(&self) -> Namespace {
        let server = [0, 1, 2].map(ServerId).into_iter();
        let open = |server| Namespace::open(self.names.clone(), server, Time::default()).ok();
        server.filter_map(open).next().unwrap()
    }

    fn write(&mut self, ino: u64, path: &str, bytes: &[u8]) -> LedgerRecord {
        let ino = InodeId(ino).in_cache();
        let part = self.left.parts().create(whole_part(ino, 0)).unwrap();
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

    fn put(&self, path: &str, bytes: &[u8]) -> TierVersion {
        let key = Key::new(path).unwrap();
        let any = Precondition::Any;
        version_of(&self.tier.put(&key, Attributes::default(), bytes, any).unwrap())
    }
}

fn left(
    server: ServerId,
    device: &Arc<MemoryDevice>,
    names: &Arc<MemoryStore>,
    boot: &str,
) -> LeftNode {
    let (parts, names) = (Parts::open(device.clone(), 8), names.clone());
    LeftNode::new(server, parts, Box::new(move || Ok(Some(names.clone()))), boot.to_owned())
}

/// Those that are found.
struct Found<'a>(Vec<Option<&'a LeftNode>>);

impl LeftNodes for Found<'_> {
    fn node(&self, server: ServerId) -> Result<&LeftNode, Refused> {
        let found = self.0.get(usize::from(server.0)).copied().flatten();
        found.ok_or_else(|| Refused::because(libc_errno::ENXIO, "not found"))
    }
}

/// A whole job: the nodes have one tier.
fn resume(nodes: &mut [Node]) -> Vec<Resumed> {
    resume_without(nodes, None)
}

/// The same while the storage of one node is not there.
fn resume_without(nodes: &mut [Node], missing: Option<usize>) -> Vec<Resumed> {
    let records = nodes.iter().flat_map(|node| node.ledger.records().cloned());
    let mut job = ResumedJob::new(records.collect::<Vec<_>>());
    let mut told = Vec::new();
    let (mut ledgers, mut found) = (Vec::new(), Found(Vec::new()));
    for (index, Node { ledger, left, tier, .. }) in nodes.iter_mut().enumerate() {
        ledgers.push((index, ledger, tier));
        found.0.push((missing != Some(index)).then_some(&*left));
    }
    ledgers.retain(|(index, ..)| missing != Some(*index));
    for (index, ledger, tier) in &mut ledgers {
        let home = (ServerId(*index as u16), &mut **ledger);
        job.files(home, &found, &***tier, |file| told.push(file)).unwrap();
    }
    if missing.is_none() {
        for (_, ledger, tier) in &mut ledgers {
            job.removals(ledger, &***tier, |file| told.push(file)).unwrap();
        }
    }
    told
}

/// Owner, user 7, group, mask and others: of mode 0660.
fn list() -> Acl {
    let bits = [(1_u16, 6_u16, u32::MAX), (2, 6, 7), (4, 0, u32::MAX), (16, 6, u32::MAX)];
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in bits.into_iter().chain([(32, 0, u32::MAX)]) {
        value.extend(tag.to_le_bytes());
        value.extend(bits.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Acl::parse(&value).unwrap().unwrap()
}

#[test]
fn a_file_comes_with_what_its_programs_gave_it() {
    let tier = Memory::new();
    let mut node = Node::new(Arc::new(tier.clone()));
    let xattrs = |pairs: &[(&str, Option<&str>)]| {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let pairs = pairs.iter().map(|(name, value)| (bytes(name), value.map(bytes)));
        pairs.collect::<hayase_tier::XattrChanges>()
    };
    let of_tier = [("user.a", Some("1")), ("user.b", Some("2"))];
    for path in ["theirs", "replaced"] {
        node.put(path, b"old");
        tier.change_user_xattrs(&Key::new(path).unwrap(), &xattrs(&of_tier)).unwrap();
    }
    let version = |path: &str| Some(version_of(&tier.stat(&Key::new(path).unwrap()).unwrap()));
    let mut changes = xattrs(&[("user.b", None), ("user.c", Some("3"))]);
    let list = list().to_value();
    changes.insert(ACCESS_NAME.to_vec(), Some(list.clone()));
    // One was the tier's and was changed, the other took the place of a removed one.
    for (ino, path, are_all) in [(7, "theirs", false), (8, "replaced", true)] {
        let xattrs = PendingXattrs { are_all, changes: changes.clone() };
        let record = node.write(ino, path, b"new");
        let (version, mode) = (version(path), 0o660);
        node.ledger.put(LedgerRecord { version, xattrs, mode, ..record }).unwrap();
    }
    assert!(node.resume().iter().all(|file| file.failure.is_none()));
    let check = |path: &str, expected: &[(&str, Option<&str>)]| {
        assert_eq!(node.read(path).unwrap(), b"new");
        let mut found = tier.user_xattrs(&Key::new(path).unwrap()).unwrap();
        assert_eq!(found.remove(ACCESS_NAME).as_ref(), Some(&list), "{path}");
        let found = found.into_iter().map(|(name, value)| (name, Some(value)));
        assert_eq!(found.collect::<hayase_tier::XattrChanges>(), xattrs(expected), "{path}");
    };
    check("theirs", &[("user.a", Some("1")), ("user.c", Some("3"))]);
    check("replaced", &[("user.c", Some("3"))]);
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
    let part = node.left.parts().get(whole_part(record.ino, 0)).unwrap();
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

fn tombstone(number: u64, path: &str, version: TierVersion) -> LedgerRecord {
    let (parent, ino) = (InodeId::CACHE_ROOT, InodeId(1).in_cache());
    let buried = Buried { parent, ino, is_renamed: false };
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

/// Another program replaces or removes the file after `resume` has looked at it, right before it removes it.
#[test]
fn what_replaces_a_removed_file_at_the_moment_of_its_removal_stays() {
    for replaces in [true, false] {
        let (below, key) = (Memory::new(), Key::new("f").unwrap());
        let (theirs, at) = (below.clone(), key.clone());
        let tier = Flaky::new(below.clone(), move |call| {
            if call == Call::Begun(Action::Delete) {
                let any = Precondition::Any;
                match replaces {
                    true => theirs.put(&at, Attributes::default(), b"theirs", any).map(drop),
                    false => theirs.delete(&at),
                }
                .unwrap();
            }
            None
        });
        let mut node = Node::new(Arc::new(tier));
        let version = node.put("f", b"ours");
        node.ledger.put(tombstone(10, "f", version)).unwrap();
        let told = node.resume();
        assert_eq!((told[0].what, &told[0].failure), (Resuming::Removal, &None), "{told:?}");
        assert_eq!(below.stat(&key).is_ok(), replaces);
        if replaces {
            assert_eq!(node.read("f").unwrap(), b"theirs");
        }
        assert!(node.resume().is_empty());
    }
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

/// Three nodes in front of a tier of their own, with a striped file `f` that nobody has synced.
fn striped(bytes: &[u8]) -> (Vec<Node>, LedgerRecord) {
    const STRIPE: ByteCount = ByteCount::kib(64);
    let tier: Arc<dyn Tier> = Arc::new(Memory::new());
    let servers = [0, 1, 2].map(ServerId).to_vec();
    let mut nodes: Vec<_> =
        servers.iter().map(|server| Node::of(*server, Arc::clone(&tier))).collect();
    let (ino, layout_epoch) = (InodeId(3).in_cache(), 4);
    let layout = Layout::Striped { stripe: STRIPE, servers: servers.clone() };
    let at = Time { seconds: 7, nanos: 0 };
    let inode = Inode {
        layout: layout.clone(),
        layout_epoch,
        size: bytes.len() as u64,
        ..Inode::new(ino, FileKind::Regular, at)
    };
    let names = nodes[0].names();
    let mut txn = names.begin();
    ops::create(&mut txn, &inode, None).unwrap();
    txn.commit().unwrap();
    let map = StripeMap::new(STRIPE, servers).unwrap();
    let extent = Extent::new(GlobalOffset(0), ByteCount(bytes.len() as u64)).unwrap();
    for piece in map.by_server(extent) {
        let node = &nodes[usize::from(piece.server.0)];
        let id = PartId { ino, epoch: layout_epoch, index: piece.part };
        let mut dealt = vec![0; piece.local.len().0 as usize];
        piece.gather(bytes, &mut dealt);
        let part = node.left.parts().create(id).unwrap();
        part.write_at(piece.local.start(), &dealt).unwrap();
        let names = node.names();
        let mut txn = names.begin();
        ops::note_bytes(&mut txn, id, PartBytes::Unsynced);
        txn.commit().unwrap();
    }
    let record = LedgerRecord { layout, ..LedgerRecord::new(ino, b"f".to_vec(), 0o640) };
    nodes[0].ledger.put(record.clone()).unwrap();
    (nodes, record)
}

/// Bytes in which each place is told from others.
fn counted(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251 + at) as u8).collect()
}

fn all_of(node: &Node, path: &str, len: usize) -> Vec<u8> {
    let reader = node.tier.open(&Key::new(path).unwrap()).unwrap();
    let mut bytes = vec![0; len + 1];
    let mut done = 0;
    loop {
        match reader.read_at(done as u64, &mut bytes[done..]).unwrap() {
            0 => break,
            read => done += read,
        }
    }
    bytes.truncate(done);
    bytes
}

/// The errno of the only file, of which nothing came to the tier, and which is left.
fn refusal(nodes: &[Node], told: &[Resumed], record: &LedgerRecord) -> i32 {
    let failure = told[0].failure.as_ref().unwrap();
    assert_eq!(told.len(), 1);
    assert!(nodes[0].read("f").is_err(), "nothing of it is seen");
    let known = nodes[0].ledger.get(record.ino).unwrap();
    assert_eq!((known.state, known.errno), (FileState::Failed, failure.errno));
    failure.errno
}

#[test]
fn a_striped_file_is_gathered_from_all_nodes() {
    for len in [1, 64 << 10, 3 * (64 << 10) + 1, FLUSH_BYTES as usize + 5] {
        let bytes = counted(len);
        let (mut nodes, record) = striped(&bytes);
        let told = resume(&mut nodes);
        assert_eq!((told.len(), &told[0].failure, told[0].bytes), (1, &None, len as u64));
        assert!(all_of(&nodes[0], "f", len) == bytes, "{len} bytes");
        let known = nodes[0].ledger.get(record.ino).unwrap();
        assert_eq!(known.state, FileState::Durable);
        assert_eq!(known.known_checksum(), Some(xxh3_64(&bytes)));
        assert!(resume(&mut nodes).is_empty());
    }
}

/// A part to which nothing was written is no part that is lost.
#[test]
fn holes_of_a_striped_file_are_zeros() {
    let (mut nodes, record) = striped(&counted(10));
    let names = nodes[0].names();
    let mut txn = names.begin();
    let inode = ops::get_inode(&txn, record.ino).unwrap().unwrap();
    ops::put_inode(&mut txn, &Inode { size: 200 << 10, ..inode }).unwrap();
    txn.commit().unwrap();
    drop(names);
    assert_eq!(resume(&mut nodes)[0].failure, None);
    let mut expected = counted(10);
    expected.resize(200 << 10, 0);
    assert!(all_of(&nodes[0], "f", 200 << 10) == expected);
}

#[test]
fn a_striped_file_waits_for_the_storage_of_all_its_nodes() {
    let bytes = counted(300 << 10);
    for missing in [1, 2] {
        let (mut nodes, record) = striped(&bytes);
        let told = resume_without(&mut nodes, Some(missing));
        assert_eq!(refusal(&nodes, &told, &record), libc_errno::ENXIO);
        assert_eq!(resume(&mut nodes)[0].failure, None);
        assert!(all_of(&nodes[0], "f", 300 << 10) == bytes);
    }
}

#[test]
fn a_striped_file_that_lost_bytes_with_the_power_is_not_sent() {
    let bytes = counted(300 << 10);
    for lost in [0, 1, 2] {
        let (mut nodes, record) = striped(&bytes);
        nodes[lost].boot("second");
        let told = resume(&mut nodes);
        assert_eq!(refusal(&nodes, &told, &record), libc_errno::ENODATA);
        assert!(told[0].failure.as_ref().unwrap().to_string().contains(&format!("node {lost}")));
        // Nor later, when the machine's life is known.
        let told = resume(&mut nodes);
        assert_eq!(refusal(&nodes, &told, &record), libc_errno::ENODATA);
    }
}

/// Found on another machine, or after a restart: what was made durable there is all there.
#[test]
fn parts_that_were_made_durable_outlive_the_power() {
    let bytes = counted(300 << 10);
    let (mut nodes, _) = striped(&bytes);
    for node in &mut nodes {
        node.left.seal(&mut node.ledger).unwrap();
        node.boot("second");
    }
    assert_eq!(resume(&mut nodes)[0].failure, None);
    assert!(all_of(&nodes[0], "f", 300 << 10) == bytes);
}

#[test]
fn parts_and_names_that_are_gone_are_no_holes() {
    let (mut nodes, record) = striped(&counted(300 << 10));
    nodes[1].left.parts().remove(PartId { ino: record.ino, epoch: 4, index: 1 }).unwrap();
    let told = resume(&mut nodes);
    assert_eq!(refusal(&nodes, &told, &record), libc_errno::EIO);
    for kept in [Some(Arc::new(MemoryStore::new())), None] {
        let (mut nodes, record) = striped(&counted(300 << 10));
        let parts = Parts::open(Arc::new(MemoryDevice::new()), 8);
        let open = move || Ok(kept.clone().map(|kept| kept as Arc<dyn hayase_store::MetaStore>));
        nodes[2].left = LeftNode::new(ServerId(2), parts, Box::new(open), "first".to_owned());
        let told = resume(&mut nodes);
        assert_eq!(refusal(&nodes, &told, &record), libc_errno::EIO);
    }
}

/// The inode was never synced, and the ledger was.
#[test]
fn a_striped_file_whose_home_forgot_it_is_told() {
    let (mut nodes, record) = striped(&counted(300 << 10));
    let names = nodes[0].names();
    let mut txn = names.begin();
    ops::remove_inode(&mut txn, record.ino).unwrap();
    txn.commit().unwrap();
    drop(names);
    let told = resume(&mut nodes);
    assert_eq!(refusal(&nodes, &told, &record), libc_errno::ENODATA);
}

#[test]
fn another_version_of_a_striped_file_stays_and_ours_is_beside_it() {
    let bytes = counted(300 << 10);
    let (mut nodes, _) = striped(&bytes);
    nodes[0].put("f", b"theirs");
    let told = resume(&mut nodes);
    assert!(told[0].what == Resuming::Conflict && told[0].failure.is_none());
    assert_eq!(nodes[0].read("f").unwrap(), b"theirs");
    let beside = String::from_utf8(told[0].path.clone()).unwrap();
    assert!(all_of(&nodes[0], &beside, 300 << 10) == bytes);
}

/// What is here under its number was cut short while it became whole.
#[test]
fn a_recorded_file_whose_home_forgot_it_is_told() {
    let mut node = Node::new(Arc::new(Memory::new()));
    let record = node.write(3, "f", b"some of its bytes");
    let layout = Layout::Recorded { container: InodeId(7) };
    let record = LedgerRecord { layout, ..record };
    node.ledger.put(record.clone()).unwrap();
    let told = node.resume();
    assert_eq!(refusal(&[node], &told, &record), libc_errno::ENODATA);
}

#[test]
fn a_part_that_is_lost_is_told() {
    let mut node = Node::new(Arc::new(Memory::new()));
    let record = node.write(3, "f", b"ours");
    node.ledger.put(LedgerRecord { ino: InodeId(9).in_cache(), ..record }).unwrap();
    assert!(node.resume()[0].failure.is_some());
}
