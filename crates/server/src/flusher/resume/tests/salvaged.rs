//! What `hayase resume --salvage` brings of files whose parts lie on several nodes, and what it says of parts that are gone.

use std::collections::BTreeMap;

use super::*;

/// Salvages all nodes but `missing`; of their ledgers these records can still be read.
fn salvage_all(
    nodes: &[Node],
    records: &[LedgerRecord],
    missing: Option<usize>,
) -> Vec<SalvagedFile> {
    let is_here = |index: usize| missing != Some(index);
    let found = nodes.iter().enumerate().map(|(index, node)| is_here(index).then_some(&node.left));
    let found = Found(found.collect());
    let mut told = Vec::new();
    for (index, node) in nodes.iter().enumerate().filter(|(index, _)| is_here(*index)) {
        let home = ServerId(index as u16);
        let own = records.iter().filter(|record| record.ino.home() == home);
        let own: BTreeMap<_, _> = own.map(|record| (record.ino, record.clone())).collect();
        salvage("job", (home, &own), &found, &*node.tier, |file| told.push(file)).unwrap();
    }
    told
}

/// Why the only file was not brought.
fn lost(told: &[SalvagedFile]) -> String {
    assert_eq!(told.len(), 1, "{told:?}");
    match &told[0].what {
        Salvaging::Lost(refused) => refused.to_string(),
        other => panic!("{other:?}"),
    }
}

/// The names of the job say what the file is called.
fn name_it(node: &Node, record: &LedgerRecord) {
    let names = node.names();
    let inode = ops::get_inode(&names.begin(), record.ino).unwrap().unwrap();
    let name = Some((InodeId::CACHE_ROOT, record.path.clone()));
    let acls = Some(Box::new(Acls { access: Some(list()), ..Acls::default() }));
    let mut txn = names.begin();
    ops::create(&mut txn, &Inode { name, acls, nlink: 1, ..inode }, None).unwrap();
    txn.commit().unwrap();
}

#[test]
fn a_striped_file_is_salvaged_from_all_nodes_with_and_without_its_record() {
    let bytes = counted(300 << 10);
    for with_record in [true, false] {
        let (nodes, record) = striped(&bytes);
        name_it(&nodes[0], &record);
        let records = if with_record { vec![record] } else { Vec::new() };
        for expected in [Salvaging::Brought, Salvaging::Same] {
            let told = salvage_all(&nodes, &records, None);
            assert_eq!(told.len(), 1, "{told:?}");
            assert_eq!((&told[0].path[..], &told[0].what), (&b"f"[..], &expected));
            assert!(all_of(&nodes[0], "f", bytes.len()) == bytes);
            // Whether a record says so or not.
            let xattrs = nodes[0].tier.user_xattrs(&Key::new("f").unwrap()).unwrap();
            assert!(xattrs.contains_key(ACCESS_NAME), "its list");
        }
    }
}

#[test]
fn a_striped_file_of_which_something_is_gone_is_listed_as_not_salvaged() {
    let (nodes, record) = striped(&counted(300 << 10));
    let records = [record.clone()];
    assert!(lost(&salvage_all(&nodes, &records, Some(2))).contains("not found"));
    nodes[1].left.parts().remove(PartId { ino: record.ino, epoch: 4, index: 1 }).unwrap();
    assert!(lost(&salvage_all(&nodes, &records, None)).contains("is gone from the storage"));
    assert!(nodes[0].read("f").is_err(), "nothing of it is seen");
}

/// Also when the ledger said that the tier has it: what was lost of the ledger may be newer.
#[test]
fn records_whose_part_is_gone_are_listed_as_not_salvaged() {
    use FileState::{Clean, Dirty, Durable, Failed, Flushing, InTier, Removed};
    for (state, is_listed) in [
        (Dirty, true),
        (Flushing, true),
        (Durable, true),
        (Failed, true),
        (Clean, false),
        (InTier, false),
        (Removed, false),
    ] {
        let node = Node::new(Arc::new(Memory::new()));
        let record = LedgerRecord::new(InodeId(9).in_cache(), b"gone".to_vec(), 0o640);
        let told = salvage_all(&[node], &[LedgerRecord { state, ..record }], None);
        match is_listed {
            true => assert!(lost(&told).contains("its part is not there"), "{told:?}"),
            false => assert!(told.is_empty(), "{state:?}: {told:?}"),
        }
    }
}
