//! A full disk under the names: refused early and clearly, files can be removed, and it heals.

use std::fs::File;
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
    let start = Instant::now();
    loop {
        let mut batch = Batch::new();
        batch.put(key(count), value(count));
        match store.commit(batch) {
            Ok(()) => break,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(20), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(store);
    let store = FjallStore::open(&mounted.root.join("meta")).unwrap();
    let pairs = store.scan(&[], &[], usize::MAX).unwrap();
    assert_eq!(pairs.len() as u64, count - count / 2 + 1);
    for (number, pair) in (count / 2..=count).zip(pairs) {
        assert!(pair == (key(number), value(number)), "value {number} is another");
    }
}
