//! The name space of a node whose store was damaged: each record may be anything.
//!
//! The input is a list of changes to a good store: which record, and what to write over it.

use std::sync::Arc;

use hayase_layout::{InodeId, ServerId};
use hayase_store::namespace::ops::{self, Intent, IntentKind};
use hayase_store::{
    Batch, EntryRecord, FileKind, Inode, MemoryStore, MetaStore, Namespace, NamespaceError, PartId,
    Time, Txn,
};

use super::{way, way_of};

const ME: ServerId = ServerId(0);
const NOW: Time = Time { seconds: 1, nanos: 0 };

/// Records that a good store of the test has at most.
const RECORDS_MAX: usize = 256;

pub(super) fn stores() -> Vec<Vec<u8>> {
    let changes = [&[0, 0, 0][..], &[1, 2, 4, 1, 2, 3, 4], &[3, 0, 1, 9, 4, 1, 2, 0, 0]];
    changes.map(<[u8]>::to_vec).to_vec()
}

/// A store with a little of everything.
fn good() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    let names = Namespace::open(Arc::clone(&store) as _, ME, NOW).expect("a new store");
    let mut txn = names.begin();
    fill(&mut txn).expect("a good store takes all of it");
    txn.commit().expect("memory");
    drop(names);
    store
}

fn fill(txn: &mut Txn<'_>) -> Result<(), NamespaceError> {
    for number in 2..6 {
        let ino = InodeId(number);
        let name = format!("file-{number}").into_bytes();
        let mut inode = Inode::new(ino, FileKind::Regular, NOW);
        inode.nlink = 0;
        let what = IntentKind::Create { ino, parent: InodeId::ROOT, name: name.clone() };
        ops::create(txn, &inode, Some(&Intent { id: number, what }))?;
        let entry = EntryRecord { ino, kind: FileKind::Regular };
        let _is_free = ops::insert(txn, InodeId::ROOT, &name, entry)?;
        ops::link(txn, ino, InodeId::ROOT, &name, NOW)?;
        ops::set_xattr(txn, ino, b"user.a", b"value", ops::XattrMode::Set, NOW)?;
        ops::note_part(txn, PartId { ino, epoch: 1, index: 0 });
    }
    let orphan = ops::Nameless::Orphan;
    ops::unlink(txn, InodeId(5), InodeId::ROOT, b"file-5", NOW, orphan)?;
    ops::grant_dir(txn, InodeId::ROOT)?;
    ops::add_dir_shard(txn, InodeId::ROOT, ServerId(1))
}

/// Writes over keys and values as the input says: record, kind of change, how many bytes, bytes.
fn damage(store: &MemoryStore, mut input: &[u8]) -> Option<()> {
    let mut take = |count: usize| {
        let (taken, rest) = input.split_at_checked(count)?;
        input = rest;
        Some(taken.to_vec())
    };
    loop {
        let [record, change, len] = take(3)?.try_into().ok()?;
        let records = store.scan(&[], &[], RECORDS_MAX).ok()?;
        let (key, value) = records.get(usize::from(record) % records.len())?.clone();
        let bytes = take(usize::from(len % 32))?;
        let mut batch = Batch::new();
        match change % 4 {
            0 => batch.put(key, bytes),
            1 => batch.put(key, [&value[..value.len() / 2], &bytes].concat()),
            2 => batch.put([&key[..1], &bytes].concat(), value),
            _ => batch.delete(key),
        }
        store.commit(batch).ok()?;
    }
}

/// Opens a damaged store and asks it everything.
pub(super) fn store(input: &[u8]) -> u64 {
    let store = good();
    let _ends_with_the_input = damage(&store, input);
    let names = match Namespace::open(store as _, ME, NOW) {
        Ok(names) => names,
        Err(error) => return way_of(Err::<(), _>(error), |()| 0),
    };
    let _may_refuse = names.allocate();
    let txn = names.begin();
    let mut ways = Vec::new();
    let mut note = |result: Result<usize, NamespaceError>| {
        ways.push(way_of(result, |count| *count as u64));
    };
    note(ops::intents(&txn).map(|found| found.len()));
    note(ops::orphans(&txn, 10).map(|found| found.len()));
    note(ops::inodes(&txn, None, 10).map(|found| found.len()));
    note(ops::part_notes(&txn, None, 10).map(|found| found.len()));
    note(ops::dir_shards(&txn, InodeId::ROOT).map(|found| found.len()));
    note(ops::list(&txn, InodeId::ROOT, 0, 10).map(|found| found.len()));
    for ino in (1..7).map(InodeId) {
        note(ops::get_inode(&txn, ino).map(|found| usize::from(found.is_some())));
        note(ops::names_of(&txn, ino).map(|found| found.len()));
        note(ops::list_xattr(&txn, ino).map(|found| found.len()));
        let name = format!("file-{}", ino.0);
        let found = ops::lookup(&txn, InodeId::ROOT, name.as_bytes());
        note(found.map(|found| usize::from(found.is_some())));
    }
    way(ways)
}
