//! Kills and power cuts: the files as they are left at every byte of what was being written.

use std::fs;
use std::path::Path;

use hayase_container::{
    Container, ContainerError, Creation, Durability, Finished, Severity, Write, check,
};
use hayase_layout::GlobalOffset;

use super::{create, cyclic, merged_name, open, published, window};

/// Publishes four times (a view, offsets, a cut, a rewrite) without closing; the file after each, and the
/// length of the index then.
fn four_publications(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let container = create(path);
    let file = open(&container, 7, 0);
    let index = path.join("n0-p7-o0.index");
    let mut states = vec![(0, Vec::new())];
    let note = |states: &mut Vec<(u64, Vec<u8>)>| {
        states.push((fs::metadata(&index).unwrap().len(), published(path)));
    };
    let view = file.declare_view(&cyclic(2, 3, 9));
    file.write(Write::Through { view, window: window(0, 12) }, b"abcdefghijkl").unwrap();
    file.sync(Durability::Durable).unwrap();
    note(&mut states);
    for nth in 0..4u64 {
        file.write_at(GlobalOffset(40 + nth * 5), b"xy").unwrap();
    }
    file.sync(Durability::Durable).unwrap();
    note(&mut states);
    file.set_size(hayase_layout::ByteCount(47), file.proposed_epoch()).unwrap();
    note(&mut states);
    file.write_at(GlobalOffset(0), b"ZZZZZZ").unwrap();
    file.publish(Durability::Durable).unwrap();
    note(&mut states);
    states
}

/// What must be there when the index has so many bytes.
fn state_at(states: &[(u64, Vec<u8>)], len: u64) -> &(u64, Vec<u8>) {
    states.iter().rfind(|(end, _)| *end <= len).unwrap()
}

#[test]
fn an_index_that_ends_anywhere_keeps_what_was_published_before() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let states = four_publications(&path);
    let index = path.join("n0-p7-o0.index");
    let whole = fs::read(&index).unwrap();
    assert_eq!(states.len(), 5);
    for len in (0..=whole.len()).rev() {
        fs::write(&index, &whole[..len]).unwrap();
        let (end, expected) = state_at(&states, len as u64);
        assert_eq!(&published(&path), expected, "{len} bytes");
        let snapshot = Container::open(&path, Creation::Never).unwrap().load().unwrap();
        // A header alone is no publication, and nothing is torn behind it.
        let is_header = len == 64;
        let torn: Vec<_> = snapshot.torn().iter().map(|torn| (torn.at, torn.bytes)).collect();
        match len as u64 - end {
            0 => assert!(torn.is_empty()),
            _ if is_header => assert!(torn.is_empty()),
            _ => assert_eq!(
                torn.iter().map(|(at, bytes)| at + bytes).collect::<Vec<_>>(),
                [len as u64]
            ),
        }
        let report = check(&path).unwrap();
        assert!(report.is_sound(), "{len} bytes: {:?}", report.problems);
        assert!(report.problems.iter().any(|problem| problem.severity == Severity::Unpublished));
    }
}

#[test]
fn what_a_power_cut_leaves_behind_the_synced_blocks_does_not_count() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let states = four_publications(&path);
    let index = path.join("n0-p7-o0.index");
    let whole = fs::read(&index).unwrap();
    // The length is there, the bytes are not: zeros from anywhere in the last block on. Storage writes sectors: it leaves
    // no less of them.
    let (before, expected) = &states[3];
    for from in *before as usize..whole.len() - 8 {
        let mut bytes = whole.clone();
        bytes[from..].fill(0);
        if bytes == whole {
            continue; // the end of it is zeros anyway
        }
        fs::write(&index, &bytes).unwrap();
        assert_eq!(&published(&path), expected, "zeros from {from}");
    }
}

#[test]
fn an_index_goes_on_being_read_while_it_grows() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let states = four_publications(&path);
    let index = path.join("n0-p7-o0.index");
    let whole = fs::read(&index).unwrap();
    fs::write(&index, b"").unwrap();
    let container = Container::open(&path, Creation::Never).unwrap();
    let reader = open(&container, 8, 0);
    // One byte after the other, as a slow shared file system may show an append.
    for len in 1..=whole.len() {
        fs::write(&index, &whole[..len]).unwrap();
        let has_changed = reader.refresh().unwrap();
        let is_end = states.iter().any(|(end, _)| *end == len as u64);
        assert_eq!(has_changed, is_end, "{len} bytes");
        assert_eq!(super::read_all(&reader), state_at(&states, len as u64).1);
    }
}

#[test]
fn a_part_that_is_too_short_is_an_error_never_zeros() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    let file = open(&container, 7, 0);
    file.write_at(GlobalOffset(0), b"0123456789").unwrap();
    file.close(Durability::Durable).unwrap();
    let part = path.join("n0-p7-o0.part");
    for len in (0..10).rev() {
        fs::OpenOptions::new().write(true).open(&part).unwrap().set_len(len).unwrap();
        let reader = open(&container, 8, 0);
        let mut buffer = [0; 10];
        let error = reader.read_at(GlobalOffset(0), &mut buffer).unwrap_err();
        assert!(
            matches!(error, ContainerError::ShortPart { needed: 10, found, .. } if found == len),
            "{error:?}"
        );
        let report = check(&path).unwrap();
        assert!(!report.is_sound());
        assert_eq!(
            (report.problems[0].path.clone(), report.problems[0].at),
            (part.clone(), Some(len))
        );
    }
    fs::remove_file(&part).unwrap();
    let error = open(&container, 8, 0).read_at(GlobalOffset(0), &mut [0; 10]).unwrap_err();
    assert!(matches!(error, ContainerError::MissingPart { .. }), "{error:?}");
    assert!(!check(&path).unwrap().is_sound());
}

/// A compaction that is killed after each of its steps, and after each byte of the merged index.
#[test]
fn a_compaction_that_is_killed_anywhere_loses_nothing() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    for number in 1..4u32 {
        let file = open(&container, number, number);
        for block in 0..5u64 {
            let at = GlobalOffset((block * 3 + u64::from(number)) * 4);
            file.write_at(at, &[number as u8; 4]).unwrap();
        }
        file.close(Durability::Durable).unwrap();
    }
    let expected = published(&path);
    let keep = |name: &str| fs::read(path.join(name)).unwrap();
    let names = [1, 2, 3].map(|number| format!("n0-p{number}-o0.index"));
    let indexes = names.each_ref().map(|name| keep(name));
    let told = container.compact(Finished::Closed).unwrap();
    assert_eq!((told.writers, told.indexes_removed), (3, 3));
    let merged = &merged_name(&path);
    let whole = keep(merged);

    // Before the old indexes are removed, with every length of the new one, which has no name of its own before it is
    // whole.
    names.iter().zip(&indexes).for_each(|(name, bytes)| fs::write(path.join(name), bytes).unwrap());
    fs::remove_file(path.join(merged)).unwrap();
    let begun = path.join("merging-5eed00c0ffee0001");
    for len in 0..=whole.len() {
        fs::write(&begun, &whole[..len]).unwrap();
        assert_eq!(published(&path), expected, "{len} bytes");
        assert!(check(&path).unwrap().is_sound());
    }
    fs::rename(&begun, path.join(merged)).unwrap();
    // While they are removed.
    for name in &names {
        fs::remove_file(path.join(name)).unwrap();
        assert_eq!(published(&path), expected);
        assert!(check(&path).unwrap().is_sound());
    }
    // A merged index whose end is gone is no compaction under way, whatever else is there.
    for others in [false, true] {
        for len in 0..whole.len() {
            fs::write(path.join(merged), &whole[..len]).unwrap();
            assert!(matches!(container.load(), Err(ContainerError::Corrupt { .. })), "{len} bytes");
            assert!(!check(&path).unwrap().is_sound(), "{len} bytes");
        }
        fs::write(path.join(merged), &whole).unwrap();
        assert_eq!(published(&path), expected, "with others: {others}");
        let put = |(name, bytes): (&String, &Vec<u8>)| fs::write(path.join(name), bytes).unwrap();
        names.iter().zip(&indexes).for_each(put);
    }
}

/// The incomplete index of a killed compaction stays, and later compactions work.
#[test]
fn a_compaction_behind_one_that_was_killed_loses_nothing() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("F");
    let container = create(&path);
    let write = |number: u32| {
        let file = open(&container, number, number);
        file.write_at(GlobalOffset(u64::from(number) * 4), &[number as u8; 4]).unwrap();
        file.close(Durability::Durable).unwrap();
    };
    (1..3).for_each(write);
    container.compact(Finished::Closed).unwrap();
    write(3);
    let begun = path.join("merging-5eed00c0ffee0001");
    let whole = fs::read(path.join(merged_name(&path))).unwrap();
    for len in 0..whole.len() {
        fs::write(&begun, &whole[..len]).unwrap();
        write(4 + len as u32);
        let expected = published(&path);
        container.compact(Finished::Closed).unwrap();
        assert_eq!(published(&path), expected, "behind {len} bytes");
        assert!(check(&path).unwrap().is_sound(), "behind {len} bytes");
    }
    let expected = published(&path);
    container.compact(Finished::All).unwrap();
    assert_eq!(published(&path), expected);
    assert!(!begun.exists());
}
