//! Two files that had one name, of which a power cut let both homes believe that they still do.

use hayase_store::Succession;
use hayase_store::namespace::EntryRecord;

use super::*;

const DIR: InodeId = InodeId::CACHE_ROOT;

/// Which file has the name `f` by its server; the home of the other one knows that it has none.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Owner {
    Earlier,
    Later,
    /// By its home the other file has the name too: one of both has lost a rename.
    LaterPerhaps,
    Unknown,
}

/// A job of two nodes. The earlier file is of node `earlier`, the later one of the other node; both were synced.
struct Scene {
    nodes: [Node; 2],
    earlier: LedgerRecord,
    later: LedgerRecord,
}

impl Scene {
    fn new(earlier: usize, owner: Owner) -> Self {
        let tier: Arc<dyn Tier> = Arc::new(Memory::new());
        let mut nodes = [0, 1].map(|server| Node::of(ServerId(server), Arc::clone(&tier)));
        let [earlier, later] = [(earlier, b"earlier"), (1 - earlier, b"later--")]
            .map(|(home, bytes)| written(&mut nodes[home], home as u64, bytes));
        let (ino, other) = match owner {
            Owner::Earlier => (Some(earlier.ino), Some(later.ino)),
            Owner::Later => (Some(later.ino), Some(earlier.ino)),
            Owner::LaterPerhaps => (Some(later.ino), None),
            Owner::Unknown => (None, None),
        };
        if let Some(other) = other {
            rename(&nodes, other, None);
        }
        let names = nodes[0].names();
        let mut txn = names.begin();
        ops::add_dir_shard(&mut txn, DIR, ServerId(0)).unwrap();
        if let Some(ino) = ino {
            let entry = EntryRecord { ino, kind: FileKind::Regular };
            ops::insert(&mut txn, DIR, b"f", entry).unwrap().unwrap();
        }
        txn.commit().unwrap();
        Self { nodes, earlier, later }
    }

    /// Another record of the earlier or the later file.
    fn known(&mut self, record: LedgerRecord) {
        let home = usize::from(record.ino.home().0);
        self.nodes[home].ledger.put(record).unwrap();
    }

    fn in_tier(&self) -> Vec<u8> {
        self.nodes[0].read("f").unwrap()
    }

    /// Names of second versions.
    fn conflicts(&self) -> impl Iterator<Item = String> {
        [self.earlier.ino, self.later.ino].into_iter().map(|ino| {
            let path = crate::cache::object_moves::conflict_paths(b"f", ino).next().unwrap();
            String::from_utf8(path).unwrap()
        })
    }

    /// Whether a second version is in the tier.
    fn has_conflict(&self) -> bool {
        self.conflicts().any(|name| self.nodes[0].read(&name).is_ok())
    }

    /// By the names of its home the later file is still `tmp`, under which it was written.
    fn later_has_another_name(&self) {
        let ino = self.later.ino;
        rename(&self.nodes, ino, Some((DIR, b"tmp".to_vec())));
        let names = self.nodes[0].names();
        let mut txn = names.begin();
        let entry = EntryRecord { ino, kind: FileKind::Regular };
        ops::insert(&mut txn, DIR, b"tmp", entry).unwrap().unwrap();
        txn.commit().unwrap();
    }

    /// Both versions, wherever they are.
    fn are_both_in_tier(&self) -> bool {
        let names = self.conflicts().chain(["f".to_owned()]);
        let found: Vec<_> = names.filter_map(|name| self.nodes[0].read(&name).ok()).collect();
        [&b"earlier"[..], b"later--"].iter().all(|bytes| found.iter().any(|found| found == bytes))
    }

    fn power_cut(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.boot("second"));
    }
}

/// A synced file `f` that its home believes to have its name.
fn written(node: &mut Node, home: u64, bytes: &[u8]) -> LedgerRecord {
    let record = node.write((home << 48) | 3, "f", bytes);
    let at = Time { seconds: 7, nanos: 0 };
    let inode =
        Inode { name: Some((DIR, b"f".to_vec())), ..Inode::new(record.ino, FileKind::Regular, at) };
    let names = node.names();
    let mut txn = names.begin();
    ops::create(&mut txn, &inode, None).unwrap();
    txn.commit().unwrap();
    let part = node.left.parts().get(whole_part(record.ino, 0)).unwrap();
    let record = LedgerRecord { synced: Some(part.stat().unwrap().into()), ..record };
    node.ledger.put(record.clone()).unwrap();
    record
}

/// The name of a file, as its home knows it.
fn rename(nodes: &[Node], ino: InodeId, name: Option<(InodeId, Vec<u8>)>) {
    let names = nodes[usize::from(ino.home().0)].names();
    let mut txn = names.begin();
    let inode = ops::get_inode(&txn, ino).unwrap().unwrap();
    ops::put_inode(&mut txn, &Inode { name, ..inode }).unwrap();
    txn.commit().unwrap();
}

/// With the earlier file on the node that is resumed first, and on the other one.
fn in_both_orders(check: impl Fn(usize)) {
    [0, 1].into_iter().for_each(check);
}

#[test]
fn the_file_that_has_the_name_is_the_one_in_the_tier() {
    in_both_orders(|earlier| {
        for (owner, bytes) in [(Owner::Later, b"later--"), (Owner::Earlier, b"earlier")] {
            let mut scene = Scene::new(earlier, owner);
            scene.power_cut();
            let told = resume(&mut scene.nodes);
            assert!(told.iter().all(|file| file.failure.is_none()), "{told:?}");
            assert_eq!(scene.in_tier(), bytes, "{earlier} {owner:?}");
            assert!(!scene.has_conflict(), "{earlier} {owner:?}");
            assert!(resume(&mut scene.nodes).is_empty(), "nothing is left");
            let mut records = scene.nodes.iter().flat_map(|node| node.ledger.records());
            assert!(records.all(|record| record.state.is_safe()), "{owner:?}");
        }
    });
}

/// The answer to its last flush was lost, or its home knows that it is there.
#[test]
fn a_version_of_the_earlier_file_in_the_tier_is_replaced() {
    in_both_orders(|earlier| {
        for is_known in [true, false] {
            let mut scene = Scene::new(earlier, Owner::Later);
            let version = scene.nodes[0].put("f", b"earlier");
            let known = match is_known {
                true => LedgerRecord { version: Some(version), ..scene.earlier.clone() },
                false => {
                    let sent = Some((version.size, version.mtime));
                    LedgerRecord { sent, state: FileState::Failed, ..scene.earlier.clone() }
                }
            };
            scene.known(known);
            scene.power_cut();
            resume(&mut scene.nodes);
            assert_eq!(scene.in_tier(), b"later--", "{earlier} {is_known}");
            assert!(!scene.has_conflict(), "{earlier} {is_known}");
        }
    });
}

/// The ledgers may be ahead of the names: a file that by these has another name has lost nothing.
#[test]
fn a_file_whose_names_are_behind_its_ledger_comes() {
    in_both_orders(|earlier| {
        for (owner, is_known) in [
            (Owner::Earlier, false),
            (Owner::Earlier, true),
            (Owner::LaterPerhaps, false),
            (Owner::LaterPerhaps, true),
        ] {
            let mut scene = Scene::new(earlier, owner);
            if owner == Owner::Earlier {
                scene.later_has_another_name();
            }
            if is_known {
                let version = Some(scene.nodes[0].put("f", b"earlier"));
                let state = FileState::Durable;
                scene.known(LedgerRecord { version, state, ..scene.earlier.clone() });
            }
            scene.power_cut();
            let told = resume(&mut scene.nodes);
            assert!(told.iter().all(|file| file.failure.is_none()), "{told:?}");
            assert!(scene.are_both_in_tier(), "{earlier} {owner:?} {is_known}: {told:?}");
        }
    });
}

#[test]
fn a_later_file_that_was_not_synced_does_not_keep_the_earlier_one_away() {
    in_both_orders(|earlier| {
        let mut scene = Scene::new(earlier, Owner::Later);
        scene.known(LedgerRecord { synced: None, ..scene.later.clone() });
        scene.power_cut();
        let told = resume(&mut scene.nodes);
        let failed: Vec<_> = told.iter().filter_map(|file| file.failure.as_ref()).collect();
        assert_eq!(failed.len(), 1, "{told:?}");
        assert_eq!(failed[0].errno, libc_errno::ENODATA);
        assert_eq!(scene.in_tier(), b"earlier", "{earlier}");
    });
}

/// Its place among the files of the name is durable before a rename over another one is answered.
#[test]
fn a_file_that_was_renamed_over_another_one_replaces_it_whatever_the_names_know() {
    in_both_orders(|earlier| {
        for (owner, number) in [(Owner::Unknown, 1), (Owner::LaterPerhaps, 1), (Owner::Unknown, 3)]
        {
            let mut scene = Scene::new(earlier, owner);
            let succession = Some(Succession { first: scene.earlier.ino, number });
            scene.known(LedgerRecord { succession, ..scene.later.clone() });
            scene.power_cut();
            let told = resume(&mut scene.nodes);
            assert!(told.iter().all(|file| file.failure.is_none()), "{told:?}");
            assert_eq!(scene.in_tier(), b"later--", "{earlier} {owner:?}");
            assert!(!scene.has_conflict(), "{earlier} {owner:?}");
            assert!(resume(&mut scene.nodes).is_empty(), "nothing is left");
        }
    });
}

/// The tier had the later file, which was renamed there, and then all nodes lost power.
#[test]
fn a_file_is_replaced_by_one_that_the_tier_has_under_its_new_name_already() {
    in_both_orders(|earlier| {
        let mut scene = Scene::new(earlier, Owner::Unknown);
        let version = scene.nodes[0].put("f", b"later--");
        let follows = Some(Succession { first: scene.earlier.ino, number: 1 });
        let (path, state) = (b"tmp".to_vec(), FileState::Durable);
        let later = LedgerRecord { path, state, follows, is_over: true, ..scene.later.clone() };
        scene.known(LedgerRecord { version: Some(version), ..later });
        scene.power_cut();
        resume(&mut scene.nodes);
        assert_eq!(scene.in_tier(), b"later--", "{earlier}");
        assert!(!scene.has_conflict(), "{earlier}");
    });
}

/// The answer to its flush was lost with the power.
#[test]
fn a_file_is_replaced_by_one_that_does_not_know_that_the_tier_has_it() {
    in_both_orders(|earlier| {
        let mut scene = Scene::new(earlier, Owner::Unknown);
        let before = scene.nodes[0].put("f", b"before");
        let known = LedgerRecord { version: Some(before), ..scene.earlier.clone() };
        scene.known(known);
        let now = scene.nodes[0].put("f", b"later--");
        let succession = Some(Succession { first: scene.earlier.ino, number: 1 });
        let (version, sent) = (Some(before), Some((now.size, now.mtime)));
        scene.known(LedgerRecord { succession, version, sent, ..scene.later.clone() });
        scene.power_cut();
        resume(&mut scene.nodes);
        assert_eq!(scene.in_tier(), b"later--", "{earlier}");
        assert!(!scene.has_conflict(), "{earlier}");
    });
}

#[test]
fn a_file_that_was_not_synced_does_not_keep_away_the_one_that_it_was_renamed_over() {
    in_both_orders(|earlier| {
        let mut scene = Scene::new(earlier, Owner::Unknown);
        let succession = Some(Succession { first: scene.earlier.ino, number: 1 });
        scene.known(LedgerRecord { succession, synced: None, ..scene.later.clone() });
        scene.power_cut();
        resume(&mut scene.nodes);
        assert_eq!(scene.in_tier(), b"earlier", "{earlier}");
    });
}

#[test]
fn a_version_of_somebody_else_stays_and_so_do_both_where_nobody_knows_the_owner() {
    in_both_orders(|earlier| {
        let mut scene = Scene::new(earlier, Owner::Later);
        scene.nodes[0].put("f", b"theirs");
        scene.power_cut();
        resume(&mut scene.nodes);
        assert_eq!(scene.in_tier(), b"theirs", "{earlier}");
        assert!(scene.has_conflict(), "{earlier}");

        let mut scene = Scene::new(earlier, Owner::Unknown);
        scene.power_cut();
        let told = resume(&mut scene.nodes);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(scene.has_conflict(), "{earlier}");
    });
}
