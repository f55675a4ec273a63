//! Damaged files: found, named, and never believed.

use std::fs;

use hayase_container::{Container, ContainerError, Creation, Durability, Finished, check};
use hayase_layout::GlobalOffset;

use super::{create, open, published};

/// Every bit of the index of a writer that closed, one after the other.
#[test]
fn no_flipped_bit_of_a_closed_index_changes_what_is_read() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    let file = open(&container, 7, 0);
    for nth in 0..3u64 {
        file.write_at(GlobalOffset(nth * 10), b"abcd").unwrap();
        file.sync(Durability::Durable).unwrap();
    }
    file.close(Durability::Durable).unwrap();
    let expected = published(&path);
    let index = path.join("n0-p7-o0.index");
    let good = fs::read(&index).unwrap();
    let mut refused = 0;
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&index, &bytes).unwrap();
            match container.load() {
                Err(ContainerError::Corrupt { path, at: told, .. }) => {
                    assert_eq!(path, index);
                    assert!(told <= good.len() as u64);
                    assert!(!check(&top.path().join("F")).unwrap().is_sound());
                    refused += 1;
                }
                // The last block says only that the writer closed: without it, it has not.
                Ok(snapshot) => {
                    assert_eq!(snapshot.torn().len(), 1, "byte {at}");
                    assert_eq!(published(&path), expected, "byte {at}");
                }
                Err(error) => panic!("byte {at}: {error:?}"),
            }
        }
    }
    assert!(refused > good.len() * 8 / 2);
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
    let index = path.join("merged-0000000000000001.index");
    let good = fs::read(&index).unwrap();
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        fs::write(&index, &bytes).unwrap();
        assert!(matches!(container.load(), Err(ContainerError::Corrupt { .. })), "byte {at}");
        assert!(!check(&path).unwrap().is_sound(), "byte {at}");
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

#[test]
fn newer_formats_are_refused_with_their_number() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    create(&path);
    let mark = path.join(".hayase-container");
    let mut bytes = fs::read(&mark).unwrap();
    bytes[8] = 2;
    let digest = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &bytes[..56]);
    bytes[56..].copy_from_slice(&digest.to_le_bytes());
    fs::write(&mark, &bytes).unwrap();
    let error = Container::open(&path, Creation::Never).unwrap_err();
    assert!(matches!(error, ContainerError::NewerFormat { found: 2, known: 1, .. }), "{error:?}");
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
