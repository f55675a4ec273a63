//! Small parts that a compaction joins: what readers see, what a kill leaves.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hayase_container::{
    Access, Container, ContainerError, ContainerFile, Creation, Durability, Finished, Joining,
    check,
};
use hayase_layout::{ByteCount, Epoch, GlobalOffset};

use super::model::{EAGER, in_memory};
use super::{create, identity, merged_name, open, published, read_all};

/// All files of a directory.
type Files = BTreeMap<String, Vec<u8>>;

fn files(path: &Path) -> Files {
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    fs::read_dir(path).unwrap().map(entry).collect()
}

fn put(path: &Path, files: &Files) {
    let _ = fs::remove_dir_all(path);
    fs::create_dir(path).unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(path.join(name), bytes).unwrap());
}

fn parts(files: &Files) -> usize {
    files.keys().filter(|name| name.ends_with(".part")).count()
}

/// Writers of ranks that rise, each writes over a byte of the one before.
fn write(container: &Container, writers: std::ops::Range<u32>) {
    for number in writers {
        let file = open(container, number, number);
        for block in 0..3u64 {
            let at = GlobalOffset((block * 10 + u64::from(number)) * 4);
            file.write_at(at, &[b'0'.wrapping_add(number as u8); 5]).unwrap();
        }
        file.close(Durability::Durable).unwrap();
    }
}

#[test]
fn many_small_parts_become_one() {
    let top = in_memory();
    let path = top.path().join("F");
    let container = create(&path);
    for number in 0..70 {
        let file = open(&container, number, 0);
        file.write_at(GlobalOffset(u64::from(number) * 3), b"abc").unwrap();
        if number == 69 {
            file.write_at(GlobalOffset(1000), &vec![7; 1 << 20]).unwrap();
        }
        file.close(Durability::Written).unwrap();
    }
    let at_work = open(&container, 99, 0);
    at_work.write_at(GlobalOffset(500), b"at work").unwrap();
    at_work.publish(Durability::Written).unwrap();
    let expected = published(&path);
    let told = container.compact(Finished::Closed).unwrap();
    assert_eq!((told.parts_joined, told.parts_removed, told.writers), (69, 0, 70));
    // The new one, the large one, and the one that is being written.
    assert_eq!(parts(&files(&path)), 3);
    assert_eq!(published(&path), expected);
    assert_eq!(
        container.compact(Finished::Closed).unwrap().parts_joined,
        0,
        "nothing more to join"
    );
    at_work.write_at(GlobalOffset(507), b" still").unwrap();
    at_work.close(Durability::Written).unwrap();
    assert_eq!(published(&path)[500..513], *b"at work still");
}

#[test]
fn joins_are_bounded_and_take_the_smallest_first() {
    let top = in_memory();
    let path = top.path().join("F");
    let container = create(&path);
    for number in 0..4u32 {
        let file = open(&container, number, 0);
        let len = 100 << number;
        file.write_at(GlobalOffset(u64::from(number) * 1000), &vec![number as u8; len]).unwrap();
        file.close(Durability::Written).unwrap();
    }
    let expected = published(&path);
    let joining = |bytes| Joining { bytes_max: ByteCount(bytes), ..EAGER };
    let told = container.compact_joining(Finished::Closed, joining(299)).unwrap();
    assert_eq!(told.parts_joined, 0);
    let told = container.compact_joining(Finished::Closed, joining(700)).unwrap();
    assert_eq!((told.parts_joined, parts(&files(&path))), (3, 2));
    // What was joined is joined again.
    let told = container.compact_joining(Finished::Closed, joining(1500)).unwrap();
    assert_eq!((told.parts_joined, parts(&files(&path))), (2, 1));
    assert_eq!(published(&path), expected);
    write(&container, 4..8);
    let expected = published(&path);
    let few = Joining { joined_max: 3, ..EAGER };
    let told = container.compact_joining(Finished::Closed, few).unwrap();
    assert_eq!((told.parts_joined, parts(&files(&path))), (3, 3));
    assert_eq!(published(&path), expected);
}

#[test]
fn a_join_that_fails_keeps_no_index_from_being_merged() {
    let top = in_memory();
    let path = top.path().join("F");
    let container = create(&path);
    write(&container, 1..4);
    let expected = published(&path);
    // It can not be opened, and is neither missing nor short.
    let (part, elsewhere) = (path.join("n0-p3-o0.part"), top.path().join("part"));
    fs::rename(&part, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &part).unwrap();
    let told = container.compact_joining(Finished::Closed, EAGER).unwrap();
    assert_eq!((told.parts_joined, told.indexes_removed), (0, 3));
    assert!(told.not_joined.unwrap().contains("n0-p3-o0.part"));
    fs::remove_file(&part).unwrap();
    fs::rename(&elsewhere, &part).unwrap();
    let left = files(&path);
    assert_eq!((parts(&left), left.len()), (3, 6), "{:?}", left.keys());
    assert_eq!(published(&path), expected);
    let told = container.compact_joining(Finished::Closed, EAGER).unwrap();
    assert_eq!(told.parts_joined, 3);
    assert_eq!(published(&path), expected);
}

/// Whoever is given the directory behind a file of an area does not see that file, and can not tell its home.
#[test]
fn parts_behind_a_file_of_an_area_stay_where_they_are() {
    let top = in_memory();
    let all = top.path().join(hayase_container::area::AREA_DIRECTORY);
    fs::create_dir(&all).unwrap();
    let (path, link) = (all.join("0002000000000017"), top.path().join("link"));
    write(&create(&path), 1..4);
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for path in [&path, &link] {
        let container = Container::open(path, Creation::Never).unwrap();
        let told = container.compact_joining(Finished::Closed, EAGER).unwrap();
        assert_eq!((told.parts_joined, parts(&files(path))), (0, 3));
    }
}

#[test]
fn a_join_that_is_killed_anywhere_loses_nothing() {
    let top = in_memory();
    let path = top.path().join("F");
    let container = create(&path);
    write(&container, 1..4);
    container.compact_joining(Finished::Closed, EAGER).unwrap();
    write(&container, 4..7);
    let expected = published(&path);
    let before = files(&path);
    let told = container.compact_joining(Finished::Closed, EAGER).unwrap();
    assert_eq!((told.parts_joined, told.indexes_removed), (4, 4));
    let after = files(&path);
    let is_new = |name: &&String| !before.contains_key(*name);
    let [merged, part] = after.keys().filter(is_new).collect::<Vec<_>>()[..] else { panic!() };

    // The order in which a compaction works: each state is what a kill, or a power cut, can leave.
    let mut state = before.clone();
    let mut states = vec![state.clone()];
    let begun = "merging-5eed00c0ffee0001".to_owned();
    for (name, bytes) in [(part, &after[part]), (&begun, &after[merged])] {
        for len in 0..=bytes.len() {
            state.insert(name.clone(), bytes[..len].to_vec());
            states.push(state.clone());
        }
    }
    state.remove(&begun);
    state.insert(merged.clone(), after[merged].clone());
    states.push(state.clone());
    let gone: Vec<_> = before.keys().filter(|name| !after.contains_key(*name)).collect();
    let (gone_parts, gone_indexes): (Vec<_>, Vec<_>) =
        gone.into_iter().partition(|name| name.ends_with(".part"));
    // A power cut keeps any of what was removed since the last sync.
    for names in [gone_indexes, gone_parts] {
        for kept in &names {
            let mut state = state.clone();
            state.retain(|name, _| name == *kept || !names.contains(&name));
            states.push(state);
        }
        for name in names {
            state.remove(name);
            states.push(state.clone());
        }
    }
    assert_eq!(state, after);
    for (nth, state) in states.iter().enumerate() {
        put(&path, state);
        assert_eq!(published(&path), expected, "state {nth}");
        let report = check(&path).unwrap();
        assert!(report.is_sound(), "state {nth}: {:?}", report.problems);
        // And the next compaction leaves nothing over.
        let container = Container::open(&path, Creation::Never).unwrap();
        container.compact_joining(Finished::All, EAGER).unwrap();
        assert_eq!(published(&path), expected, "state {nth}, compacted");
        let left = files(&path);
        assert_eq!((parts(&left), left.len()), (1, 4), "state {nth}: {:?}", left.keys());
        assert!(check(&path).unwrap().problems.is_empty());
    }
}

#[test]
fn of_two_compactions_at_once_the_later_part_counts() {
    let top = in_memory();
    let path = top.path().join("F");
    let container = create(&path);
    write(&container, 1..6);
    let expected = published(&path);
    let before = files(&path);
    let keep = Joining { parts_max: usize::MAX, ..EAGER };
    let of = |joining, number: u64| {
        put(&path, &before);
        let container = Container::open(&path, Creation::Never).unwrap();
        container.compact_joining(Finished::Closed, joining).unwrap();
        let mut after = files(&path);
        let merged = after.remove(&merged_name(&path)).unwrap();
        after.insert(format!("merged-800000000000000{number}.index"), merged);
        after
    };
    for (first, second) in [(EAGER, keep), (keep, EAGER), (EAGER, EAGER)] {
        // Each made its index, and removed what it knew of; what both know is gone.
        let mut both = of(first, 1);
        let more = of(second, 2);
        let is_known = |name: &String| before.contains_key(name);
        both.retain(|name, _| !is_known(name) || more.contains_key(name));
        let new = more.into_iter().filter(|(name, _)| !is_known(name));
        both.extend(new);
        put(&path, &both);
        assert_eq!(published(&path), expected);
        assert!(check(&path).unwrap().is_sound());
        let container = Container::open(&path, Creation::Never).unwrap();
        container.compact_joining(Finished::Closed, EAGER).unwrap();
        assert_eq!(published(&path), expected, "and compacted");
        assert_eq!(parts(&files(&path)), 1);
    }
}

#[test]
fn a_reader_finds_bytes_that_are_joined_while_it_has_the_file_open() {
    let top = in_memory();
    let path = top.path().join("F");
    let container = create(&path);
    write(&container, 1..6);
    let expected = published(&path);
    let (reader, writer) = (open(&container, 8, 0), open(&container, 9, 9));
    assert_eq!(reader.size().unwrap().get(), expected.len() as u64);
    writer.write_at(GlobalOffset(0), b"own").unwrap();
    writer.close(Durability::Written).unwrap();
    let told = container.compact_joining(Finished::Closed, EAGER).unwrap();
    assert_eq!(told.parts_joined, 6);
    let mut expected = expected;
    expected[..3].copy_from_slice(b"own");
    assert_eq!(read_all(&reader), expected);
    assert_eq!(read_all(&writer), expected, "its own part was joined too");
    // A part that is lost is an error all the same.
    let part = files(&path).into_keys().find(|name| name.ends_with(".part")).unwrap();
    fs::remove_file(path.join(part)).unwrap();
    assert!(open(&container, 10, 0).read_at(GlobalOffset(0), &mut [0; 4]).is_err());
}

#[test]
fn a_part_that_is_lost_keeps_no_other_from_being_joined() {
    let top = in_memory();
    let path = top.path().join("F");
    let container = create(&path);
    write(&container, 1..6);
    fs::remove_file(path.join("n0-p3-o0.part")).unwrap();
    let told = container.compact_joining(Finished::Closed, EAGER).unwrap();
    assert_eq!((told.parts_joined, parts(&files(&path))), (4, 1));
    let report = check(&path).unwrap();
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    assert!(report.problems[0].path.ends_with("n0-p3-o0.part"));
}

/// What an export and a flattening do: they read a moment that a compaction ends.
#[test]
fn a_reading_of_all_begins_again_where_parts_were_joined_meanwhile() {
    let top = in_memory();
    let path = top.path().join("F");
    let container = create(&path);
    write(&container, 1..6);
    let expected = published(&path);
    let mut turns = 0;
    let read = container.read_published(|reader, _| {
        turns += 1;
        if turns < 3 {
            write(&container, 5 + turns..6 + turns);
            container.compact_joining(Finished::Closed, EAGER).unwrap();
        }
        let mut bytes = vec![0; reader.size().get() as usize];
        reader.read_at(GlobalOffset(0), &mut bytes).map(|_| bytes)
    });
    let read = read.unwrap();
    assert_eq!((turns, &read), (3, &published(&path)));
    assert_eq!(read[4..24], expected[4..24]);

    // What is lost is lost.
    let part = files(&path).into_keys().find(|name| name.ends_with(".part")).unwrap();
    fs::remove_file(path.join(part)).unwrap();
    let mut turns = 0;
    let lost = container.read_published(|reader, _| {
        turns += 1;
        reader.read_at(GlobalOffset(4), &mut [0; 4])
    });
    assert!(matches!(lost, Err(ContainerError::MissingPart { .. })) && turns == 2, "one more look");
}

/// A file that is written once keeps its parts where they were written.
#[test]
fn the_last_to_close_joins_parts_only_of_a_file_that_was_opened_again_and_again() {
    let top = in_memory();
    let path = top.path().join("F");
    let container = create(&path);
    let mut written = 0;
    let mut close_many = |writers: u32| {
        for number in written..written + writers {
            let (who, epoch) = (identity(number, number), Some(Epoch(1)));
            let file = ContainerFile::open(container.clone(), Access::Write, who, epoch).unwrap();
            file.write_at(GlobalOffset(u64::from(number) * 4), &number.to_le_bytes()).unwrap();
            file.close(Durability::Written).unwrap();
        }
        written += writers;
        container.compact_when_many().unwrap()
    };
    assert_eq!(close_many(64), None);
    let told = close_many(200).unwrap();
    assert_eq!((told.indexes_removed, told.parts_joined), (264, 0));
    for _ in 1..8 {
        let told = close_many(264).unwrap();
        assert_eq!((told.indexes_removed, told.parts_joined), (264, 0));
    }
    let told = close_many(264).unwrap();
    assert_eq!((told.indexes_removed, told.parts_joined), (264 + 8, 264 * 9));
    let expected: Vec<u8> = (0..written).flat_map(u32::to_le_bytes).collect();
    assert!(published(&path) == expected);
}

/// Nobody merges the few others each time a file is closed.
#[test]
fn indexes_of_killed_writers_do_not_count_as_unmerged() {
    let top = in_memory();
    let container = create(&top.path().join("F"));
    for number in 0..80 {
        let file = open(&container, number, number);
        file.write_at(GlobalOffset(u64::from(number)), b"x").unwrap();
        file.publish(Durability::Written).unwrap();
        drop(file); // as if it were killed
    }
    write(&container, 80..140);
    assert_eq!(container.compact_when_many().unwrap(), None);
    write(&container, 140..145);
    let told = container.compact_when_many().unwrap().unwrap();
    assert_eq!((told.indexes_removed, told.open_writers), (65, 80));
}
