//! The name space against a model that anyone can believe: sets and maps, and a list of all states.
//!
//! Transactions of random operations are committed or dropped, synced, killed and cut off from
//! power. After each, everything that can be asked is compared; after a crash, with the state that
//! the surviving prefix of commits had.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hayase_layout::{InodeId, ServerId};
use proptest::prelude::*;

use super::testing::{at, file};
use super::*;
use crate::meta::MemoryStore;
use crate::namespace::{EntryRecord, FileKind, Namespace, NamespaceError, Txn};

const INOS: std::ops::Range<u64> = 2..6;
const DIRS: std::ops::Range<u64> = 1..3;
const NAMES: u8 = 4;

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    /// Number of names and last change.
    inodes: BTreeMap<u64, (u32, i64)>,
    /// Inode, directory, name.
    pointers: BTreeSet<(u64, u64, u8)>,
    entries: BTreeMap<(u64, u8), u64>,
    xattrs: BTreeMap<(u64, u8), u8>,
}

#[derive(Clone, Debug)]
enum Op {
    Create { ino: u64, dir: u64, name: u8 },
    Link { ino: u64, dir: u64, name: u8 },
    Unlink { ino: u64, dir: u64, name: u8, keep: bool },
    Relink { ino: u64, from: (u64, u8), to: (u64, u8) },
    RemoveInode { ino: u64 },
    Insert { dir: u64, name: u8, ino: u64 },
    Replace { dir: u64, name: u8, ino: u64 },
    RemoveEntry { dir: u64, name: u8 },
    SetXattr { ino: u64, name: u8, value: u8 },
    RemoveXattr { ino: u64, name: u8 },
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Op>),
    Drop(Vec<Op>),
    Sync,
    Kill,
    PowerCut { kept: usize },
}

fn any_op() -> impl Strategy<Value = Op> {
    let name = || 0..NAMES;
    prop_oneof![
        (INOS, DIRS, name()).prop_map(|(ino, dir, name)| Op::Create { ino, dir, name }),
        (INOS, DIRS, name()).prop_map(|(ino, dir, name)| Op::Link { ino, dir, name }),
        (INOS, DIRS, name(), any::<bool>()).prop_map(|(ino, dir, name, keep)| Op::Unlink {
            ino,
            dir,
            name,
            keep
        }),
        (INOS, (DIRS, name()), (DIRS, name())).prop_map(|(ino, from, to)| Op::Relink {
            ino,
            from,
            to
        }),
        INOS.prop_map(|ino| Op::RemoveInode { ino }),
        (DIRS, name(), INOS).prop_map(|(dir, name, ino)| Op::Insert { dir, name, ino }),
        (DIRS, name(), INOS).prop_map(|(dir, name, ino)| Op::Replace { dir, name, ino }),
        (DIRS, name()).prop_map(|(dir, name)| Op::RemoveEntry { dir, name }),
        (INOS, name(), 0..3u8).prop_map(|(ino, name, value)| Op::SetXattr { ino, name, value }),
        (INOS, name()).prop_map(|(ino, name)| Op::RemoveXattr { ino, name }),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let ops = || proptest::collection::vec(any_op(), 1..5);
    prop_oneof![
        8 => ops().prop_map(Step::Commit),
        2 => ops().prop_map(Step::Drop),
        2 => Just(Step::Sync),
        1 => Just(Step::Kill),
        1 => (0..6usize).prop_map(|kept| Step::PowerCut { kept }),
    ]
}

fn bytes(name: u8) -> Vec<u8> {
    format!("name-{name}").into_bytes()
}

fn entry(ino: u64) -> EntryRecord {
    EntryRecord { ino: InodeId(ino), kind: FileKind::Regular }
}

impl Model {
    /// Does `op` here and in `txn`, and compares what both answer.
    fn apply(&mut self, txn: &mut Txn<'_>, op: &Op, clock: i64) -> Result<(), NamespaceError> {
        let now = at(clock);
        match op.clone() {
            Op::Create { ino, .. } if self.inodes.contains_key(&ino) => {} // numbers are used once
            Op::Create { ino, dir, name } => {
                let names = self.pointers.clone();
                assert!(!names.iter().any(|(owner, ..)| *owner == ino), "nothing was left of it");
                create(txn, &file(ino, dir, &bytes(name)), None)?;
                self.inodes.insert(ino, (1, 1));
                self.pointers.insert((ino, dir, name));
            }
            Op::Link { ino, dir, name } => {
                let result = link(txn, InodeId(ino), InodeId(dir), &bytes(name), now);
                let fresh =
                    self.inodes.contains_key(&ino) && self.pointers.insert((ino, dir, name));
                self.count(ino, if fresh { 1 } else { 0 }, clock, result);
            }
            Op::Unlink { ino, dir, name, keep } => {
                let nameless = if keep { Nameless::Orphan } else { Nameless::Removed };
                let result = unlink(txn, InodeId(ino), InodeId(dir), &bytes(name), now, nameless);
                let gone = self.pointers.remove(&(ino, dir, name));
                self.count(ino, if gone { -1 } else { 0 }, clock, result);
                if !keep && self.inodes.get(&ino).is_some_and(|(nlink, _)| *nlink == 0) {
                    self.forget(ino);
                }
            }
            Op::Relink { ino, from, to } => {
                let (old, new) = (bytes(from.1), bytes(to.1));
                if self.pointers.contains(&(ino, to.0, to.1)) {
                    return Ok(()); // two names of one file: the rename does nothing
                }
                let this = (InodeId(ino), clock.unsigned_abs());
                let result = relink(txn, this, (InodeId(from.0), &old), (InodeId(to.0), &new), now);
                if self.pointers.remove(&(ino, from.0, from.1)) {
                    self.pointers.insert((ino, to.0, to.1));
                    self.inodes.entry(ino).and_modify(|inode| inode.1 = clock);
                }
                self.count(ino, 0, clock, result);
            }
            Op::RemoveInode { ino } => {
                remove_inode(txn, InodeId(ino))?;
                self.forget(ino);
            }
            Op::Insert { dir, name, ino } => {
                let inserted = insert(txn, InodeId(dir), &bytes(name), entry(ino))?;
                let before = self.entries.get(&(dir, name)).copied();
                assert_eq!(inserted.err(), before.map(|ino| Exists(entry(ino))));
                self.entries.entry((dir, name)).or_insert(ino);
            }
            Op::Replace { dir, name, ino } => {
                let before = replace(txn, InodeId(dir), &bytes(name), entry(ino))?;
                assert_eq!(before, self.entries.insert((dir, name), ino).map(entry));
            }
            Op::RemoveEntry { dir, name } => {
                remove_entry(txn, InodeId(dir), &bytes(name));
                self.entries.remove(&(dir, name));
            }
            Op::SetXattr { ino, name, value } if self.inodes.contains_key(&ino) => {
                set_xattr(txn, InodeId(ino), &bytes(name), &[value], XattrMode::Set, now)?;
                self.xattrs.insert((ino, name), value);
                self.inodes.entry(ino).and_modify(|inode| inode.1 = clock);
            }
            Op::SetXattr { .. } => {}
            Op::RemoveXattr { ino, name } => {
                let removed = remove_xattr(txn, InodeId(ino), &bytes(name), now).is_ok();
                if removed {
                    self.inodes.entry(ino).and_modify(|inode| inode.1 = clock);
                }
                assert_eq!(removed, self.xattrs.remove(&(ino, name)).is_some());
            }
        }
        Ok(())
    }

    fn forget(&mut self, ino: u64) {
        self.inodes.remove(&ino);
        self.pointers.retain(|(owner, ..)| *owner != ino);
        self.xattrs.retain(|(owner, _), _| *owner != ino);
    }

    fn count(
        &mut self,
        ino: u64,
        change: i32,
        clock: i64,
        result: Result<crate::namespace::Inode, NamespaceError>,
    ) {
        match self.inodes.get_mut(&ino) {
            None => assert!(matches!(result, Err(NamespaceError::NoInode { .. })), "{result:?}"),
            Some((nlink, ctime)) => {
                *nlink = nlink.checked_add_signed(change).expect("names are counted");
                if change != 0 {
                    *ctime = clock;
                }
                let inode = result.expect("the inode is there");
                assert_eq!((inode.nlink, inode.ctime), (*nlink, at(*ctime)));
            }
        }
    }

    /// Everything that can be asked.
    fn check(&self, txn: &Txn<'_>) -> Result<(), NamespaceError> {
        for ino in INOS {
            let inode = get_inode(txn, InodeId(ino))?;
            let known = inode.map(|inode| (inode.nlink, inode.ctime.seconds));
            assert_eq!(known, self.inodes.get(&ino).copied(), "inode {ino}");
            let found: BTreeSet<_> = names_of(txn, InodeId(ino))?.into_iter().collect();
            let names = self.pointers.iter().filter(|(owner, ..)| *owner == ino);
            let names: BTreeSet<_> =
                names.map(|(_, dir, name)| (InodeId(*dir), bytes(*name))).collect();
            assert_eq!(found, names, "names of inode {ino}");
            let names: Vec<_> = self
                .xattrs
                .keys()
                .filter(|(owner, _)| *owner == ino)
                .map(|(_, n)| bytes(*n))
                .collect();
            match self.inodes.contains_key(&ino) {
                true => assert_eq!(list_xattr(txn, InodeId(ino))?, names, "inode {ino}"),
                false => assert!(list_xattr(txn, InodeId(ino)).is_err() && names.is_empty()),
            }
        }
        for ((ino, name), value) in &self.xattrs {
            assert_eq!(get_xattr(txn, InodeId(*ino), &bytes(*name))?, Some(vec![*value]));
        }
        let orphaned = self.inodes.iter().filter(|(_, (nlink, _))| *nlink == 0);
        let orphaned: Vec<_> = orphaned.map(|(ino, _)| InodeId(*ino)).collect();
        assert_eq!(orphans(txn, 100)?, orphaned);
        for dir in DIRS {
            self.check_directory(txn, dir)?;
        }
        Ok(())
    }

    fn check_directory(&self, txn: &Txn<'_>, dir: u64) -> Result<(), NamespaceError> {
        let entries = self.entries.iter().filter(|((of, _), _)| *of == dir);
        let mut expected: Vec<_> = entries
            .map(|((_, name), ino)| (cookie(&bytes(*name)), bytes(*name), entry(*ino)))
            .collect();
        expected.sort_by_key(|(cookie, ..)| *cookie);
        assert_eq!(is_empty(txn, InodeId(dir))?, expected.is_empty());
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let page = list(txn, InodeId(dir), after, 2)?;
            let Some((cookie, ..)) = page.last() else { break };
            after = *cookie;
            found.extend(page);
        }
        assert_eq!(found, expected, "directory {dir}");
        for (_, name, entry) in expected {
            assert_eq!(lookup(txn, InodeId(dir), &name)?, Some(entry));
        }
        Ok(())
    }
}

/// A server with its store: what it is now, and what it was after each commit since the last sync.
struct Run {
    store: Arc<MemoryStore>,
    namespace: Namespace,
    now: Model,
    past: Vec<Model>,
    clock: i64,
}

impl Run {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let namespace = Namespace::open(store.clone(), ServerId(0), at(0)).unwrap();
        Self { store, namespace, now: Model::default(), past: vec![Model::default()], clock: 1 }
    }

    fn step(&mut self, step: &Step) -> Result<(), NamespaceError> {
        match step {
            Step::Commit(ops) | Step::Drop(ops) => {
                let mut next = self.now.clone();
                let mut txn = self.namespace.begin();
                let before = self.store.unsynced();
                for op in ops {
                    self.clock += 1;
                    next.apply(&mut txn, op, self.clock)?;
                    next.check(&txn)?; // a transaction sees its own changes
                }
                if matches!(step, Step::Drop(_)) {
                    return Ok(());
                }
                txn.commit()?;
                self.now = next;
                match self.store.unsynced() - before {
                    0 => {} // nothing had changed
                    count => {
                        assert_eq!(count, 1, "a transaction is one batch");
                        self.past.push(self.now.clone());
                    }
                }
            }
            Step::Sync => {
                self.namespace.sync()?;
                self.past = vec![self.now.clone()];
            }
            Step::Kill => self.restart(self.store.after_kill())?,
            Step::PowerCut { kept } => {
                self.now = self.past[(*kept).min(self.past.len() - 1)].clone();
                self.past = vec![self.now.clone()];
                self.restart(self.store.after_power_cut(*kept))?;
            }
        }
        Ok(())
    }

    fn restart(&mut self, store: MemoryStore) -> Result<(), NamespaceError> {
        self.store = Arc::new(store);
        self.namespace = Namespace::open(self.store.clone(), ServerId(0), at(99))?;
        Ok(())
    }
}

proptest! {
    #[test]
    fn agrees_with_maps_also_after_crashes(steps in proptest::collection::vec(any_step(), 1..40)) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step).unwrap();
            run.now.check(&run.namespace.begin()).unwrap();
        }
    }
}
