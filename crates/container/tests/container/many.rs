//! More writers than a 16-bit number counts.

use std::path::Path;

use hayase_container::{
    Access, Container, ContainerFile, Durability, Finished, Identity, Reader, Replace, check,
    export,
};
use hayase_layout::{Epoch, GlobalOffset, NodeId, Rank};

use super::create;
use super::model::in_memory;

/// As many processes of a large machine: each writes its bytes, and closes.
const WRITERS: u32 = 100_000;

/// Bytes of each, of which the last is not written: a hole.
const BYTES: u64 = 8;

fn write_by(container: &Container, writers: std::ops::Range<u32>, epoch: Epoch) {
    for rank in writers {
        let who = Identity {
            node: NodeId((rank / 48) as u16),
            process: rank,
            opening: 0,
            rank: Rank(rank),
        };
        let file = ContainerFile::open(container.clone(), Access::Write, who, Some(epoch)).unwrap();
        let at = GlobalOffset(u64::from(rank) * BYTES);
        file.write_at(at, &u64::from(rank).to_le_bytes()[..7]).unwrap();
        file.close(Durability::Written).unwrap();
    }
}

fn expected(writers: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..writers).flat_map(|rank| u64::from(rank).to_le_bytes()).collect();
    bytes.pop(); // a hole at the end is no byte of the file
    bytes
}

/// What a reader and an export find in it.
fn require_bytes(container: &Container, target: &Path, expected: &[u8], when: &str) {
    let reader = Reader::new(container, &container.load().unwrap()).unwrap();
    let mut bytes = vec![0xee; expected.len() + 1];
    let read = reader.read_at(GlobalOffset(0), &mut bytes).unwrap();
    assert!(bytes[..read] == *expected, "read {when}");
    export(&reader, target, Replace::Yes, &mut |_| {}).unwrap();
    assert!(std::fs::read(target).unwrap() == expected, "exported {when}");
}

#[test]
fn a_hundred_thousand_writers_are_written_read_compacted_and_exported() {
    let top = in_memory();
    let (path, target) = (top.path().join("F"), top.path().join("flat"));
    let container = create(&path);
    write_by(&container, 0..WRITERS, Epoch(1));
    let expected = expected(WRITERS);
    require_bytes(&container, &target, &expected, "as it was written");

    let told = container.compact(Finished::Closed).unwrap();
    let all = WRITERS as usize;
    assert_eq!((told.writers, told.indexes_removed, told.parts_joined), (all, all, all));
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 4, "mark, stub, an index and a part");
    require_bytes(&container, &target, &expected, "compacted");
    let report = check(&path).unwrap();
    assert!(report.is_sound() && report.writers == all, "{:?}", report.problems);
}
