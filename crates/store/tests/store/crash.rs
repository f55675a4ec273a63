//! Power cuts in a model of storage that keeps as little as it may: random histories of creating,
//! writing, syncing, renaming over and unlinking files, then a cut that keeps a random prefix of the
//! commits and random ones of the unsynced changes of parts.
//!
//! What was synced is there, and every name that was ever synced with its file has its bytes: the
//! old ones or newer ones, never none. The names are one of the states that there were.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayase_layout::{InodeId, Layout, LocalOffset, ServerId};
use hayase_store::namespace::ops;
use hayase_store::{
    CrashDevice, EntryRecord, FileKind, Inode, MemoryStore, Namespace, PartId, Parts, Removal, Time,
};
use proptest::prelude::*;

const NAMES: u8 = 4;
const BLOCK: usize = 16;

#[derive(Clone, Debug)]
enum Step {
    Create(u8),
    Append(u8),
    Fsync(u8),
    Rename { from: u8, to: u8 },
    Unlink(u8),
    RemoveParts,
}

fn any_step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES;
    prop_oneof![
        3 => name().prop_map(Step::Create),
        4 => name().prop_map(Step::Append),
        3 => name().prop_map(Step::Fsync),
        2 => (name(), name()).prop_map(|(from, to)| Step::Rename { from, to }),
        1 => name().prop_map(Step::Unlink),
        1 => Just(Step::RemoveParts),
    ]
}

fn bytes_of(name: u8) -> Vec<u8> {
    vec![b'a' + name]
}

fn part_id(ino: InodeId) -> PartId {
    PartId { ino, epoch: 0, index: 0 }
}

fn inode(ino: InodeId, name: &[u8]) -> Inode {
    Inode {
        mode: 0o600,
        layout: Layout::Whole,
        name: Some((InodeId::ROOT, name.to_vec())),
        ..Inode::new(ino, FileKind::Regular, Time { seconds: 1, nanos: 0 })
    }
}

/// What the names mean, and what is known of each file: blocks written, and of those synced.
type Names = BTreeMap<u8, InodeId>;

struct Run {
    meta: Arc<MemoryStore>,
    device: Arc<CrashDevice>,
    names: Arc<Namespace>,
    parts: Arc<Parts>,
    removal: Removal,
    now: Names,
    /// The names after each commit since the last sync; the first is as of the sync.
    past: Vec<Names>,
    /// Blocks that were synced with the file; it has been made durable at least once.
    synced: BTreeMap<InodeId, u64>,
}

impl Run {
    fn new() -> Self {
        let (meta, device) = (Arc::new(MemoryStore::new()), Arc::new(CrashDevice::new()));
        let time = Time { seconds: 0, nanos: 0 };
        let names = Arc::new(Namespace::open(meta.clone(), ServerId(0), time).unwrap());
        names.allocate().unwrap(); // reserves a block of numbers, so that no sync happens later
        let parts = Arc::new(Parts::open(device.clone(), 2));
        let removal = Removal::new(names.clone(), parts.clone());
        let (now, synced) = (Names::new(), BTreeMap::new());
        Self { meta, device, names, parts, removal, now, past: vec![Names::new()], synced }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Create(name) if !self.now.contains_key(&name) => self.create(name),
            Step::Append(name) => {
                if let Some(ino) = self.now.get(&name) {
                    let part = self.parts.get(part_id(*ino)).unwrap();
                    let block = part.stat().unwrap().size / BLOCK as u64;
                    part.append(&[block as u8 + 1; BLOCK]).unwrap();
                }
            }
            Step::Fsync(name) => {
                if let Some(ino) = self.now.get(&name).copied() {
                    let part = self.parts.get(part_id(ino)).unwrap();
                    part.sync(true).unwrap();
                    let blocks = part.stat().unwrap().size / BLOCK as u64;
                    self.names.sync().unwrap();
                    self.past = vec![self.now.clone()];
                    self.synced.insert(ino, blocks);
                }
            }
            Step::Rename { from, to } if from != to => self.rename(from, to),
            Step::Unlink(name) => self.unlink(name),
            Step::RemoveParts => {
                if self.removal.run().unwrap() > 0 {
                    self.past = vec![self.now.clone()];
                }
            }
            Step::Create(_) | Step::Rename { .. } => {}
        }
    }

    fn create(&mut self, name: u8) {
        let ino = self.names.allocate().unwrap();
        self.parts.create(part_id(ino)).unwrap();
        let (bytes, mut txn) = (bytes_of(name), self.names.begin());
        ops::create(&mut txn, &inode(ino, &bytes), None).unwrap();
        let entry = EntryRecord { ino, kind: FileKind::Regular };
        ops::insert(&mut txn, InodeId::ROOT, &bytes, entry).unwrap().unwrap();
        txn.commit().unwrap();
        self.now.insert(name, ino);
        self.past.push(self.now.clone());
    }

    fn rename(&mut self, from: u8, to: u8) {
        let Some(ino) = self.now.remove(&from) else { return };
        let (old, new) = (bytes_of(from), bytes_of(to));
        let time = Time { seconds: 2, nanos: 0 };
        let mut txn = self.names.begin();
        let entry = ops::lookup(&txn, InodeId::ROOT, &old).unwrap().unwrap();
        ops::remove_entry(&mut txn, InodeId::ROOT, &old);
        let victim = ops::replace(&mut txn, InodeId::ROOT, &new, entry).unwrap();
        let op = self.past.len() as u64 + 1;
        ops::relink(&mut txn, (ino, op), (InodeId::ROOT, &old), (InodeId::ROOT, &new), time)
            .unwrap();
        if let Some(victim) = victim {
            ops::remove_inode(&mut txn, victim.ino).unwrap();
        }
        txn.commit().unwrap();
        if let Some(victim) = victim {
            let _ = self.removal.push(part_id(victim.ino));
        }
        self.now.insert(to, ino);
        self.past.push(self.now.clone());
    }

    fn unlink(&mut self, name: u8) {
        let Some(ino) = self.now.remove(&name) else { return };
        let mut txn = self.names.begin();
        ops::remove_entry(&mut txn, InodeId::ROOT, &bytes_of(name));
        ops::remove_inode(&mut txn, ino).unwrap();
        txn.commit().unwrap();
        let _ = self.removal.push(part_id(ino));
        self.past.push(self.now.clone());
    }

    /// Cuts the power and looks at what is left.
    fn cut(&self, kept: usize, mut survivors: impl FnMut() -> bool) {
        let kept = kept % self.past.len();
        let meta = Arc::new(self.meta.after_power_cut(kept));
        let names = Namespace::open(meta, ServerId(0), Time { seconds: 9, nanos: 0 }).unwrap();
        let parts = Parts::open(Arc::new(self.device.after_power_cut(&mut survivors)), 4);
        let txn = names.begin();
        let found: Names = ops::list(&txn, InodeId::ROOT, 0, 100)
            .unwrap()
            .into_iter()
            .map(|(_, name, entry)| (name[0] - b'a', entry.ino))
            .collect();
        assert_eq!(found, self.past[kept], "the names are no state that there was");
        let linked: BTreeSet<_> = found.values().collect();
        assert_eq!(linked.len(), found.len());
        for (name, ino) in &found {
            assert!(ops::get_inode(&txn, *ino).unwrap().is_some(), "a name without inode");
            let Some(blocks) = self.synced.get(ino) else { continue };
            let part = parts.get(part_id(*ino)).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut bytes = vec![0; *blocks as usize * BLOCK];
            assert_eq!(part.read_at(LocalOffset(0), &mut bytes).unwrap(), bytes.len());
            for (number, block) in bytes.chunks(BLOCK).enumerate() {
                assert_eq!(block, [number as u8 + 1; BLOCK], "block {number} of file {name}");
            }
        }
    }
}

proptest! {
    #[test]
    fn a_power_cut_takes_back_nothing_synced(
        steps in proptest::collection::vec(any_step(), 1..40),
        kept in any::<usize>(),
        survivors in any::<u64>(),
    ) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
            let mut bits = survivors;
            run.cut(kept, || {
                bits = bits.rotate_left(1);
                bits & 1 == 1
            });
        }
    }
}
