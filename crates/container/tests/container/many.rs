//! More writers than a 16-bit number counts.

use std::path::Path;

use hayase_container::{
    Access, Container, ContainerFile, Durability, Finished, Identity, Reader, Replace, check,
    export, next_opening,
};
use hayase_layout::{ByteCount, Epoch, GlobalOffset, NodeId, Rank};

use super::model::in_memory;
use super::{create, identity, published};

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

/// How often [`a_file_that_64_ranks_open_append_to_and_close_again_and_again_is_served`], unless `HAYASE_APPEND_ROUNDS`
/// says.
const ROUNDS: u32 = 300;

/// Of 64 processes that append to a log together: as `MPI_File_open` with `MPI_MODE_APPEND` and `MPI_File_close` do.
#[test]
fn a_file_that_64_ranks_open_append_to_and_close_again_and_again_is_served() {
    const RANKS: u32 = 64;
    let rounds = std::env::var("HAYASE_APPEND_ROUNDS").ok();
    let rounds = rounds.map_or(ROUNDS, |text| text.parse().unwrap());
    let top = in_memory();
    let path = top.path().join("F");
    let container = create(&path);
    let mut opened = Vec::new();
    for round in 0..rounds {
        let mut epoch = None;
        let mut end = 0;
        for rank in 0..RANKS {
            let who = Identity { opening: next_opening(), ..identity(7000 + rank, rank) };
            let file = ContainerFile::open(container.clone(), Access::Write, who, epoch).unwrap();
            if epoch.is_none() {
                file.require_room_for(RANKS as usize).unwrap();
                (epoch, end) = (Some(file.epoch()), file.size().unwrap().get());
                assert_eq!(end, u64::from(round * RANKS) * 4);
            }
            let at = GlobalOffset(end + u64::from(rank) * 4);
            file.write_at(at, &(round * RANKS + rank).to_le_bytes()).unwrap();
            opened.push(file);
        }
        opened.drain(..).for_each(|file| file.close(Durability::Written).unwrap());
        container.compact_when_many().unwrap();
        if round % 100 == 99 {
            // However often it was opened.
            let files = std::fs::read_dir(&path).unwrap().count();
            assert!(files <= 1400, "{files} files after {} rounds", round + 1);
        }
    }
    let expected: Vec<u8> = (0..rounds * RANKS).flat_map(u32::to_le_bytes).collect();
    assert!(published(&path) == expected);
    let told = container.compact(Finished::Closed).unwrap();
    assert_eq!(told.writers, (RANKS * rounds) as usize);
    assert!(published(&path) == expected, "compacted");
    assert!(check(&path).unwrap().is_sound());
}

#[test]
fn an_open_for_writing_knows_epoch_and_size_from_the_ends_of_merged_indexes() {
    let top = in_memory();
    let path = top.path().join("F");
    let container = create(&path);
    let open = |access| {
        let who = Identity { opening: next_opening(), ..identity(1, 0) };
        ContainerFile::open(container.clone(), access, who, None).unwrap()
    };
    type Step = fn(&ContainerFile);
    let steps: [(&str, Step); 4] = [
        ("written", |file| file.write_at(GlobalOffset(70), b"bytes").unwrap()),
        ("published", |file| file.publish(Durability::Written).unwrap()),
        ("longer", |file| file.preallocate(ByteCount(100)).unwrap()),
        ("cut", |file| file.set_size(ByteCount(72), file.proposed_epoch()).unwrap()),
    ];
    for (what, step) in steps {
        for merges in [false, true] {
            let file = open(Access::ReadWrite);
            step(&file);
            file.close(Durability::Written).unwrap();
            if merges {
                container.compact(Finished::Closed).unwrap();
            }
            let (all, light) = (open(Access::ReadWrite), open(Access::Write));
            assert_eq!(light.epoch(), all.epoch(), "{what}, merged: {merges}");
            assert_eq!(light.size().unwrap(), all.size().unwrap(), "{what}, merged: {merges}");
            // And what it writes itself counts.
            light.write_at(GlobalOffset(200), b"x").unwrap();
            assert_eq!(light.size().unwrap(), ByteCount(201));
        }
    }
}
