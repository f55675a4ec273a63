//! The suite that every [`MetaStore`] passes.
//!
//! Here: what can be seen through the trait. Not here: what survives a crash, which each store
//! proves in its own tests.

use std::collections::BTreeMap;

use super::{Batch, MetaStore};

/// Runs all checks, each on a new store made by `make`. Panics at the first that fails.
pub fn run(make: &dyn Fn() -> Box<dyn MetaStore>) {
    values_come_back(make().as_ref());
    batches_are_applied_in_order(make().as_ref());
    scans_are_bounded_and_ascending(make().as_ref());
    agrees_with_a_map(make().as_ref());
    readers_see_whole_batches(make().as_ref());
}

fn put(store: &dyn MetaStore, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(key.to_vec(), value.to_vec());
    store.commit(batch).expect("commit");
}

fn get(store: &dyn MetaStore, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).expect("get")
}

fn keys(store: &dyn MetaStore, prefix: &[u8], from: &[u8], limit: usize) -> Vec<Vec<u8>> {
    store.scan(prefix, from, limit).expect("scan").into_iter().map(|(key, _)| key).collect()
}

fn values_come_back(store: &dyn MetaStore) {
    assert_eq!(get(store, b"a"), None);
    put(store, b"a", b"1");
    put(store, b"ab", b"");
    put(store, b"\xff\xff", &vec![7; 70_000]);
    assert_eq!(get(store, b"a"), Some(b"1".to_vec()));
    assert_eq!(get(store, b"ab"), Some(vec![]));
    assert_eq!(get(store, b"\xff\xff"), Some(vec![7; 70_000]));
    put(store, b"a", b"2");
    assert_eq!(get(store, b"a"), Some(b"2".to_vec()));
    store.commit(Batch::new()).expect("an empty commit");
    store.sync().expect("sync");
    store.sync().expect("sync with nothing new");
}

fn batches_are_applied_in_order(store: &dyn MetaStore) {
    let mut batch = Batch::new();
    batch.put(b"a".to_vec(), b"1".to_vec());
    batch.delete(b"b".to_vec());
    batch.put(b"c".to_vec(), b"1".to_vec());
    batch.delete(b"c".to_vec());
    batch.delete(b"d".to_vec());
    batch.put(b"d".to_vec(), b"2".to_vec());
    batch.put(b"a".to_vec(), b"3".to_vec());
    store.commit(batch).expect("commit");
    assert_eq!(get(store, b"a"), Some(b"3".to_vec()), "the last change of a key counts");
    assert_eq!(get(store, b"c"), None);
    assert_eq!(get(store, b"d"), Some(b"2".to_vec()));
    assert_eq!(keys(store, b"", b"", 10), [b"a".to_vec(), b"d".to_vec()]);
}

fn scans_are_bounded_and_ascending(store: &dyn MetaStore) {
    for key in [&b"b2"[..], b"a", b"b", b"b1", b"b\xff", b"c", b"b\xff\xff"] {
        put(store, key, b"");
    }
    let all: [&[u8]; 5] = [b"b", b"b1", b"b2", b"b\xff", b"b\xff\xff"];
    assert_eq!(keys(store, b"b", b"", 10), all);
    assert_eq!(keys(store, b"b", b"b1", 10), all[1..], "from is inclusive");
    assert_eq!(keys(store, b"b", b"b10", 10), all[2..], "from need not be there");
    assert_eq!(keys(store, b"b", b"a", 2), all[..2], "from before the prefix");
    assert!(keys(store, b"b", b"c", 10).is_empty(), "from after the prefix");
    assert!(keys(store, b"b", b"", 0).is_empty());
    assert!(keys(store, b"bx", b"", 10).is_empty());
    assert_eq!(keys(store, b"", b"", 10).len(), 7, "no prefix: everything");
}

fn agrees_with_a_map(store: &dyn MetaStore) {
    let mut map = BTreeMap::new();
    let mut random = 1u64;
    for round in 0..2_000u32 {
        let mut batch = Batch::new();
        for _ in 0..3 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = vec![(random >> 40) as u8 % 16, (random >> 50) as u8 % 16];
            if random >> 62 == 0 {
                map.remove(&key);
                batch.delete(key);
            } else {
                map.insert(key.clone(), round.to_le_bytes().to_vec());
                batch.put(key, round.to_le_bytes().to_vec());
            }
        }
        store.commit(batch).expect("commit");
    }
    let all: Vec<_> = map.into_iter().collect();
    assert_eq!(store.scan(b"", b"", usize::MAX).expect("scan"), all);
}

fn readers_see_whole_batches(store: &dyn MetaStore) {
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..500u32 {
                let mut batch = Batch::new();
                for key in 0..8u8 {
                    batch.put(vec![key], round.to_le_bytes().to_vec());
                }
                store.commit(batch).expect("commit");
            }
        });
        while !writer.is_finished() {
            let pairs = store.scan(b"", b"", 100).expect("scan");
            let first = pairs.first().map(|(_, value)| value.clone());
            assert!(pairs.iter().all(|(_, value)| Some(value) == first.as_ref()), "a torn batch");
            assert!(pairs.is_empty() || pairs.len() == 8, "half a batch");
        }
    });
}
