//! Damaged files: found, named, and never believed.

use std::fs;
use std::path::Path;

use hayase_container::{Container, ContainerError, Creation, Durability, Finished, check};
use hayase_layout::{ByteCount, GlobalOffset};

use super::{create, merged_name, open, published};

/// Every bit of the index of a writer that closed, and of one that was killed: of what was published as a whole nothing is
/// taken for what a kill tore off.
#[test]
fn no_flipped_bit_of_an_index_changes_what_is_read() {
    for closes in [true, false] {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("F");
        let container = create(&path);
        let file = open(&container, 7, 0);
        for nth in 0..3u64 {
            file.write_at(GlobalOffset(nth * 10), b"abcd").unwrap();
            file.sync(Durability::Durable).unwrap();
        }
        if closes {
            file.close(Durability::Durable).unwrap();
        }
        let index = path.join("n0-p7-o0.index");
        let good = fs::read(&index).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&index, &bytes).unwrap();
            match container.load() {
                Err(ContainerError::Corrupt { path, at: told, .. }) => {
                    assert_eq!(path, index);
                    assert!(told < good.len() as u64, "bit {bit}: {told}");
                }
                other => panic!("bit {bit}: {other:?}"),
            }
            assert!(!check(&path).unwrap().is_sound(), "bit {bit}");
        }
    }
}

/// Every bit and every end of the marks of a container and of a directory of containers.
#[test]
fn no_flipped_or_cut_mark_is_believed() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    create(&path);
    assert!(hayase_container::enable(top.path()).unwrap());
    let open_container = || Container::open(&path, Creation::Never).map(drop);
    let look_above = || hayase_container::enabled_above(&path).map(drop);
    let readers: [&dyn Fn() -> Result<(), ContainerError>; 2] = [&open_container, &look_above];
    let marks = [path.join(".hayase-container"), top.path().join(".hayase-containers")];
    for (mark, reader) in marks.iter().zip(readers) {
        let good = fs::read(mark).unwrap();
        let flip = |bit: usize| {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            bad
        };
        let flips = (0..good.len() * 8).map(flip);
        for bad in flips.chain((0..good.len()).map(|len| good[..len].to_vec())) {
            fs::write(mark, bad).unwrap();
            let error = reader().expect_err("a damaged mark was believed");
            assert!(matches!(error, ContainerError::Corrupt { .. }), "{error:?}");
        }
        fs::write(mark, good).unwrap();
        reader().unwrap();
    }
}

/// The same for a merged index: there nothing may be left out.
#[test]
fn no_flipped_bit_of_a_merged_index_is_believed() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    for number in 1..3 {
        let file = open(&container, number, 0);
        file.write_at(GlobalOffset(u64::from(number) * 10), b"abcd").unwrap();
        file.close(Durability::Durable).unwrap();
    }
    container.compact(Finished::Closed).unwrap();
    let index = path.join(merged_name(&path));
    let good = fs::read(&index).unwrap();
    let flip = |bit: usize| {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        bad
    };
    let flips = (0..good.len() * 8).map(flip);
    for (number, bad) in flips.chain((0..good.len()).map(|len| good[..len].to_vec())).enumerate() {
        fs::write(&index, &bad).unwrap();
        let loaded = container.load();
        assert!(matches!(loaded, Err(ContainerError::Corrupt { .. })), "{number}: {loaded:?}");
        assert!(!check(&path).unwrap().is_sound(), "{number}");
    }
}

#[test]
fn an_index_of_another_container_is_refused() {
    let top = tempfile::tempdir().unwrap();
    let (one, two) = (top.path().join("1"), top.path().join("2"));
    for path in [&one, &two] {
        let file = open(&create(path), 7, 0);
        file.write_at(GlobalOffset(0), b"abcd").unwrap();
        file.close(Durability::Durable).unwrap();
    }
    fs::copy(one.join("n0-p7-o0.index"), two.join("n0-p7-o0.index")).unwrap();
    let error = Container::open(&two, Creation::Never).unwrap().load().unwrap_err();
    assert!(error.to_string().contains("another container"), "{error}");
}

/// Writes another version into a mark or an index.
fn set_version(path: &Path, version: u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[8] = version;
    let digest = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &bytes[..56]);
    bytes[56..64].copy_from_slice(&digest.to_le_bytes());
    fs::write(path, &bytes).unwrap();
}

#[test]
fn a_container_of_version_1_is_read_written_and_compacted() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    let file = open(&container, 7, 0);
    file.write_at(GlobalOffset(0), b"old").unwrap();
    file.close(Durability::Durable).unwrap();
    set_version(&path.join(".hayase-container"), 1);
    set_version(&path.join("n0-p7-o0.index"), 1);
    let container = Container::open(&path, Creation::Never).unwrap();
    let file = open(&container, 8, 0);
    file.write_at(GlobalOffset(3), b" and new").unwrap();
    file.close(Durability::Durable).unwrap();
    assert_eq!(published(&path), b"old and new");
    container.compact_joining(Finished::Closed, super::model::EAGER).unwrap();
    assert_eq!(published(&path), b"old and new");
}

/// A build before version 2 wrote a merged index under its own name, numbered from 1 on. Killed while it did, it left
/// a part of it, and then the indexes that went into it are there.
#[test]
fn a_compaction_of_version_1_that_was_killed_does_not_count() {
    let top = super::model::in_memory();
    let path = top.path().join("F");
    let container = create(&path);
    let write = |number: u32, at: u64, bytes: &[u8]| {
        let file = open(&container, number, 0);
        file.write_at(GlobalOffset(at), bytes).unwrap();
        file.close(Durability::Durable).unwrap();
    };
    write(1, 0, b"first");
    write(2, 5, b" second");
    write(3, 50, b"third");
    let singles = [1, 2, 3].map(|number| path.join(format!("n0-p{number}-o0.index")));
    let kept = singles.each_ref().map(|single| fs::read(single).unwrap());
    container.compact(Finished::Closed).unwrap();
    let (merged, begun) =
        (path.join(merged_name(&path)), path.join("merged-0000000000000001.index"));
    set_version(&merged, 1);
    let whole = fs::read(&merged).unwrap();
    fs::remove_file(&merged).unwrap();
    let last_block = whole.windows(4).rposition(|bytes| bytes == b"HYBK").unwrap();
    for cuts in [false, true] {
        for len in (0..=last_block).rev() {
            singles.iter().zip(&kept).for_each(|(single, bytes)| fs::write(single, bytes).unwrap());
            write_parts(&path);
            fs::write(&begun, &whole[..len]).unwrap();
            if cuts {
                let file = open(&container, 4, 0);
                file.set_size(ByteCount(20), file.proposed_epoch()).unwrap();
                file.close(Durability::Durable).unwrap();
            }
            let require = |bytes: &[u8], when: &str| {
                assert_eq!(published(&path)[..12], *bytes, "{len} bytes, cuts: {cuts}, {when}");
                let report = check(&path).unwrap();
                assert!(report.is_sound(), "{len} bytes, {when}: {:?}", report.problems);
            };
            require(b"first second", "killed");
            // The last process to close merges the others all the same.
            container.compact_joining(Finished::Closed, super::model::EAGER).unwrap();
            require(b"first second", "compacted");
            assert!(begun.exists());
            container.compact(Finished::All).unwrap();
            require(b"first second", "compacted with all");
            assert!(!begun.exists() && check(&path).unwrap().problems.is_empty());
            // Alone it is what a compaction left that had ended.
            fs::remove_file(path.join(merged_name(&path))).unwrap();
            fs::write(&begun, &whole[..len]).unwrap();
            let loaded = container.load();
            assert!(matches!(loaded, Err(ContainerError::Corrupt { .. })), "{len}: {loaded:?}");
            assert!(!check(&path).unwrap().is_sound(), "{len}");
            fs::remove_file(&begun).unwrap();
        }
    }
}

/// The parts of three writers, and no joined ones.
fn write_parts(path: &Path) {
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().unwrap().ends_with(".part") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    for (number, bytes) in [(1, &b"first"[..]), (2, b" second"), (3, b"third")] {
        fs::write(path.join(format!("n0-p{number}-o0.part")), bytes).unwrap();
    }
}

#[test]
fn newer_formats_are_refused_with_their_number() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    create(&path);
    set_version(&path.join(".hayase-container"), 3);
    let error = Container::open(&path, Creation::Never).unwrap_err();
    assert!(matches!(error, ContainerError::NewerFormat { found: 3, known: 2, .. }), "{error:?}");
    assert!(error.help().unwrap().contains("version"));
}

/// A refresh that fails has read some indexes, and tells of them when it succeeds.
#[test]
fn a_refresh_that_failed_forgets_nothing() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    let reader = open(&container, 9, 0);
    reader.refresh().unwrap();
    for number in 1..3 {
        let file = open(&container, number, 0);
        file.write_at(GlobalOffset(u64::from(number) - 1), b"x").unwrap();
        file.close(Durability::Durable).unwrap();
    }
    let second = path.join("n0-p2-o0.index");
    let good = fs::read(&second).unwrap();
    fs::write(&second, [&b"?"[..], &good[1..]].concat()).unwrap();
    assert!(matches!(reader.refresh(), Err(ContainerError::Corrupt { .. })));
    fs::write(&second, &good).unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(super::read_all(&reader), b"xx");
    assert!(!reader.refresh().unwrap());
}
