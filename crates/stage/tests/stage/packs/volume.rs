//! A set that is looked at without unpacking shows the tree that was packed, or says what is wrong.

use std::collections::BTreeMap;

use hayase_stage::limits::{PIECES_BYTES, WHOLE_BYTES_MAX};
use hayase_stage::pack::{Compression, DIRECTORY, PackError, Row};
use hayase_stage::{Kind, Node, PackVolume, Place};
use proptest::prelude::*;

use super::{Entry, directory, file, link, master, memory, objects, put, write};

/// Bytes that no compression makes small and no two places share.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn tree() -> Vec<Vec<Entry>> {
    let small = |name: &str, seed| file(name, &noise(3000, seed));
    vec![
        vec![directory("d"), small("d/a", 1), file("d/empty", b""), link("d/link", b"../e/x\xff")],
        vec![small("e/f/g", 2), file("e/x", &noise(300_000, 3)), file("e/y", &vec![7; 2 << 20])],
        vec![file("large", &noise(2 * WHOLE_BYTES_MAX + 777, 4)), small("\u{e9}", 5)],
    ]
}

fn node(volume: &PackVolume, path: &str) -> Node {
    let find = |node, name: &str| volume.find(node, name.as_bytes()).unwrap();
    path.split('/').fold(PackVolume::ROOT, find)
}

fn read(volume: &PackVolume, node: Node, offset: u64, len: usize) -> Result<Vec<u8>, PackError> {
    let (mut read, mut calls) = (Vec::new(), 0);
    volume.read(node, offset, len, &mut |bytes| {
        read.extend_from_slice(bytes);
        calls += 1;
    })?;
    assert_eq!(calls, 1, "the sink is called once");
    Ok(read)
}

fn read_all(volume: &PackVolume, node: Node) -> Result<Vec<u8>, PackError> {
    let mut all = Vec::new();
    loop {
        let part = read(volume, node, all.len() as u64, 128 << 10)?;
        if part.is_empty() {
            return Ok(all);
        }
        all.extend(part);
    }
}

/// Every path below `node` and its bytes, or its link's target; directories end with a slash.
fn walk(volume: &PackVolume, node: Node, path: &[u8], out: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    for (name, child) in volume.children(node) {
        let path = [path, name].concat();
        match volume.shown(child).unwrap().kind {
            Kind::File { bytes } => {
                let all = read_all(volume, child).unwrap();
                assert_eq!(all.len() as u64, *bytes);
                out.insert(path, all);
            }
            Kind::Link { target } => drop(out.insert(path, target.to_vec())),
            Kind::Directory => {
                let below = [&path[..], b"/"].concat();
                walk(volume, child, &below, out);
                out.insert(below, Vec::new());
            }
        }
    }
}

fn expected() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut expected = BTreeMap::from([(b"e/".to_vec(), vec![]), (b"e/f/".to_vec(), vec![])]);
    for (item, data) in tree().concat() {
        let name = item.name.as_bytes().to_vec();
        match item.kind {
            Kind::File { .. } => expected.insert(name, data),
            Kind::Link { target } => expected.insert(name, target.to_vec()),
            Kind::Directory => expected.insert([&name[..], b"/"].concat(), Vec::new()),
        };
    }
    expected
}

#[test]
fn a_set_is_shown_as_the_tree_that_was_packed() {
    for (key, compression) in [
        (None, Compression::None),
        (None, Compression::Zstd(3)),
        (Some(master()), Compression::None),
        (Some(master()), Compression::Zstd(3)),
    ] {
        let place = memory();
        write(&place, key.as_ref(), &tree(), compression);
        let volume = PackVolume::open(&place, key.as_ref()).unwrap();
        for _ in 0..2 {
            let mut found = BTreeMap::new();
            walk(&volume, PackVolume::ROOT, b"", &mut found);
            assert_eq!(found, expected());
        }
        let shown = volume.shown(node(&volume, "d/a")).unwrap();
        assert_eq!((shown.mode, shown.mtime.seconds()), (0o640, 1_700_000_000));
        assert_eq!(volume.shown(node(&volume, "d")).unwrap().mode, 0o750);
        assert_eq!(volume.shown(node(&volume, "e")).unwrap().mode, 0o755, "no row names it");
        assert!(volume.find(PackVolume::ROOT, b"none").is_none());
    }
}

#[test]
fn the_key_is_the_same_as_for_every_other_reader() {
    let place = memory();
    assert!(matches!(PackVolume::open(&place, None), Err(PackError::NoPacks { .. })));
    write(&place, Some(&master()), &tree(), Compression::None);
    assert!(matches!(PackVolume::open(&place, None), Err(PackError::KeyMissing { .. })));
}

/// A set of one file, changed by `damage`.
fn damaged(data: &[u8], sealed: bool, damage: impl Fn(&mut Vec<u8>)) -> PackVolume {
    let (place, key) = (memory(), sealed.then(master));
    write(&place, key.as_ref(), &[vec![file("f", data)]], Compression::None);
    for (name, mut bytes) in objects(&*place.tier) {
        if name.as_bytes().windows(5).any(|part| part == b"pack-") {
            damage(&mut bytes);
            put(&*place.tier, &name, &bytes);
        }
    }
    PackVolume::open(&place, key.as_ref()).unwrap()
}

#[test]
fn no_wrong_byte_of_a_small_file_is_handed_out() {
    for sealed in [false, true] {
        let volume = damaged(&noise(5000, 1), sealed, |bytes| bytes[2000] ^= 1);
        let error = read(&volume, node(&volume, "f"), 4000, 10).unwrap_err();
        assert!(matches!(error, PackError::Entry { .. } | PackError::Damaged { .. }), "{error}");
        let volume = damaged(&noise(5000, 1), sealed, |bytes| bytes.truncate(2000));
        assert!(read(&volume, node(&volume, "f"), 0, 10).is_err());
    }
}

#[test]
fn nobody_gets_to_the_end_of_a_large_file_with_a_wrong_byte() {
    let data = noise(3 * WHOLE_BYTES_MAX, 1);
    let at = 512 + 100;
    let volume = damaged(&data, false, |bytes| bytes[at] ^= 1);
    let f = node(&volume, "f");
    assert!(read_all(&volume, f).is_err());
    assert!(read(&volume, f, 2 << 20, 10).is_err(), "nor anything of it afterwards");
    let volume = damaged(&data, true, |bytes| bytes[at] ^= 1);
    let f = node(&volume, "f");
    assert!(read(&volume, f, 0, 10).is_err(), "a seal tells at once");
    assert_eq!(read(&volume, f, 2 << 20, 10).unwrap(), data[2 << 20..][..10]);
}

#[test]
fn a_loose_object_of_the_set_is_shown_and_a_changed_one_refused() {
    let place = memory();
    let data = noise(2 << 20, 9);
    let mut set = write(&place, None, &[vec![file("a", b"packed")]], Compression::None);
    put(&*place.tier, &place.key("b/loose").unwrap(), &data);
    let mut index = set.index.clone();
    let (item, _) = file("b/loose", &data);
    let crc32c = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &data) as u32;
    index.rows.push(Row { item, crc32c, location: None });
    let random = ring::rand::SystemRandom::new();
    set.commit(index, &random, std::time::SystemTime::now()).unwrap();
    let open = || PackVolume::open(&place, None).unwrap();
    let volume = open();
    assert_eq!(read_all(&volume, node(&volume, "b/loose")).unwrap(), data);
    put(&*place.tier, &place.key("b/loose").unwrap(), b"short");
    let volume = open();
    let error = read_all(&volume, node(&volume, "b/loose")).unwrap_err();
    assert!(matches!(error, PackError::Changed { .. }), "{error}");
}

#[test]
fn many_readers_of_more_than_is_kept_get_their_bytes() {
    let data = noise(PIECES_BYTES + (8 << 20), 3);
    let place = memory();
    write(&place, None, &[vec![file("f", &data)]], Compression::None);
    let volume = PackVolume::open(&place, None).unwrap();
    let f = node(&volume, "f");
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (volume, data) = (&volume, &data);
            scope.spawn(move || {
                let mut at = reader * (data.len() / 8);
                while at < data.len() {
                    let part = read(volume, f, at as u64, 1 << 20).unwrap();
                    assert!(part == data[at..at + part.len()], "at {at}");
                    at += part.len();
                }
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_range_is_what_the_file_holds(
        sealed: bool,
        zstd: bool,
        sizes in prop::collection::vec(prop_oneof![0usize..5000, 200_000usize..1_500_000], 1..5),
        reads in prop::collection::vec((any::<prop::sample::Index>(), 0u64..1_600_000, 0usize..1_100_000), 1..12),
    ) {
        let entries: Vec<_> =
            sizes.iter().enumerate().map(|(n, &len)| file(format!("f{n}"), &noise(len, n as u64))).collect();
        let (place, key): (Place, _) = (memory(), sealed.then(master));
        let compression = if zstd { Compression::Zstd(1) } else { Compression::None };
        write(&place, key.as_ref(), std::slice::from_ref(&entries), compression);
        let volume = PackVolume::open(&place, key.as_ref()).unwrap();
        for (which, offset, len) in reads {
            let which = which.index(entries.len());
            let data = &entries[which].1;
            let start = data.len().min(offset as usize);
            let end = data.len().min(start + len.min(WHOLE_BYTES_MAX));
            let bytes = read(&volume, node(&volume, &format!("f{which}")), offset, len).unwrap();
            prop_assert!(bytes == data[start..end], "{which} {offset} {len}");
        }
        prop_assert!(volume.find(PackVolume::ROOT, DIRECTORY.as_bytes()).is_none());
    }
}
