//! A full disk under the names: refused early and clearly, files can be removed, and it heals, also where others fill it
//! between two looks.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use hayase_layout::ByteCount;
use hayase_store::{Batch, FjallStore, MetaError, MetaStore};
use rustix::fs::FallocateFlags;

use crate::mounted::{Mounted, skip};

const VALUE_BYTES: usize = 60_000;

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Incompressible, so that a table of them takes what it should.
fn value(number: u64) -> Vec<u8> {
    let mut random = number + 1;
    let next = |_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 56) as u8
    };
    (0..VALUE_BYTES).map(next).collect()
}

#[test]
fn a_full_disk_refuses_new_names_but_not_their_removal() {
    if skip("a_full_disk_refuses_new_names_but_not_their_removal") {
        return;
    }
    let mounted = Mounted::new(ByteCount::mib(300));
    let store = FjallStore::open(&mounted.root.join("meta")).unwrap();
    let ballast = File::create(mounted.root.join("ballast")).unwrap();
    rustix::fs::fallocate(&ballast, FallocateFlags::empty(), 0, 100 << 20).unwrap();
    let mut count = 0;
    let error = loop {
        let mut batch = Batch::new();
        batch.put(key(count), value(count));
        match store.commit(batch) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        assert!(count * (VALUE_BYTES as u64) < 400 << 20, "more than the disk holds");
    };
    assert!(matches!(error, MetaError::NoRoom { .. }), "{error}");
    assert_eq!(error.errno(), 28);
    assert!(error.help().unwrap().contains("remove files"));
    for number in 0..count / 2 {
        let mut batch = Batch::new();
        batch.delete(key(number));
        store.commit(batch).unwrap();
    }
    store.sync().unwrap();
    drop(ballast);
    std::fs::remove_file(mounted.root.join("ballast")).unwrap();
    // XFS gives the blocks back in the background.
    put_when_there_is_room(&store, count);
    drop(store);
    let store = FjallStore::open(&mounted.root.join("meta")).unwrap();
    let pairs = store.scan(&[], &[], usize::MAX).unwrap();
    assert_eq!(pairs.len() as u64, count - count / 2 + 1);
    for (number, pair) in (count / 2..=count).zip(pairs) {
        assert!(pair == (key(number), value(number)), "value {number} is another");
    }
}

/// XFS gives blocks back in the background.
fn put_when_there_is_room(store: &FjallStore, number: u64) {
    let start = Instant::now();
    while let Err(error) = put(store, number) {
        assert!(start.elapsed() < Duration::from_secs(20), "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn put_until_refused(store: &FjallStore, count: &mut u64) -> MetaError {
    let first = *count;
    loop {
        match put(store, *count) {
            Ok(()) => *count += 1,
            Err(error) => return error,
        }
        assert!(*count < first + 100, "more than the disk holds");
    }
}

fn put(store: &FjallStore, number: u64) -> Result<(), MetaError> {
    let mut batch = Batch::new();
    batch.put(key(number), value(number));
    store.commit(batch)
}

/// Takes all that the file system of `directory` has.
fn fill(directory: &Path) -> File {
    let file = File::create(directory.join("ballast")).unwrap();
    let mut end = 0;
    for step in (12..28).rev().map(|bits| 1 << bits) {
        while rustix::fs::fallocate(&file, FallocateFlags::empty(), end, step).is_ok() {
            end += step;
        }
    }
    file
}

#[test]
fn a_disk_that_others_fill_between_two_looks_loses_no_names() {
    if skip("a_disk_that_others_fill_between_two_looks_loses_no_names") {
        return;
    }
    let mounted = Mounted::new(ByteCount::mib(400));
    let meta = mounted.root.join("meta");
    let store = FjallStore::open_with_reserve(&meta).unwrap();
    put(&store, 0).unwrap();
    drop(fill(&mounted.root));
    // It was looked at when it had room.
    let mut count = 1;
    let error = put_until_refused(&store, &mut count);
    assert!(matches!(error, MetaError::Failed { is_whole: true, .. }), "{error:?}");
    let error = put(&store, count).unwrap_err();
    assert!(
        matches!(error, MetaError::Failed { is_whole: true, .. }),
        "until it is opened again: {error:?}"
    );
    drop(store);

    let store = FjallStore::open_with_reserve(&meta).expect("with the room that was kept");
    for number in 0..count {
        assert!(store.get(&key(number)).unwrap() == Some(value(number)), "{number} was answered");
    }
    let error = put_until_refused(&store, &mut count);
    assert!(matches!(error, MetaError::NoRoom { .. } | MetaError::Full { .. }), "{error:?}");
    let mut note = Batch::new();
    note.put(b"note".to_vec(), b"durable".to_vec());
    note.mark_essential();
    store.commit(note).expect("what became of bytes can be noted");
    for number in 0..count {
        let mut batch = Batch::new();
        batch.delete(key(number));
        store.commit(batch).unwrap();
    }
    store.sync().unwrap();
    std::fs::remove_file(mounted.root.join("ballast")).unwrap();
    let start = Instant::now();
    while !meta.join("reserve").exists() {
        put_when_there_is_room(&store, count + 1);
        assert!(start.elapsed() < Duration::from_secs(20), "the room is not kept again");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(store);
    let store = FjallStore::open_with_reserve(&meta).unwrap();
    assert_eq!(store.get(&key(count - 1)).unwrap(), None);
    assert!(store.get(&key(count + 1)).unwrap().is_some());
}

/// No room is kept where that would leave too little.
#[test]
fn names_grow_on_a_small_disk_too() {
    if skip("names_grow_on_a_small_disk_too") {
        return;
    }
    let mounted = Mounted::new(ByteCount::mib(300));
    let free = rustix::fs::statvfs(&mounted.root).map(|it| it.f_bavail * it.f_frsize).unwrap();
    let ballast = File::create(mounted.root.join("ballast")).unwrap();
    let taken = free - (100 << 20);
    rustix::fs::fallocate(&ballast, FallocateFlags::empty(), 0, taken).unwrap();
    for _ in 0..2 {
        let store = FjallStore::open_with_reserve(&mounted.root.join("meta")).unwrap();
        put(&store, 1).unwrap();
        assert!(!mounted.root.join("meta/reserve").exists());
    }
}
