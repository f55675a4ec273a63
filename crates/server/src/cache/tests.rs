//! What the ledger of a server comes to.

use hayase_store::{Device, MemoryDevice};
use hayase_tier::Memory;

use super::*;
use crate::limits::FLUSH_LOOK_FILES;

fn cache() -> Cache {
    opened(Arc::new(MemoryDevice::new()), "first")
}

fn opened(device: Arc<dyn Device>, life: &str) -> Cache {
    let ledger = Ledger::open(device).unwrap();
    let settings = CacheSettings {
        tier: Arc::new(Memory::new()),
        durable_at: DurableAt::Node,
        deadline: None,
        flush_open: None,
    };
    Cache::open(settings, ledger, life, &Rc::new(Disk::Here)).unwrap()
}

fn file(ino: u64, path: &str) -> LedgerRecord {
    LedgerRecord::new(InodeId(ino).in_cache(), path.into(), 0o640)
}

/// A flush that was on its way when the name went, and its failure, must not bring the file back.
#[test]
fn a_file_without_its_name_is_never_dirty_again() {
    let cache = cache();
    let record = file(3, "f");
    let ino = record.ino;
    cache.put(record.clone()).unwrap();
    cache.lost_its_name(ino).unwrap();
    assert!(cache.not_durable().is_empty());
    cache.becomes_dirty(ino).unwrap();
    for state in [FileState::Dirty, FileState::Flushing, FileState::Failed] {
        // As it was known before the name went.
        cache.put(LedgerRecord { state, ..record.clone() }).unwrap();
        assert!(cache.not_durable().is_empty(), "{state:?}");
        assert_eq!(cache.record(ino).unwrap().state, FileState::Clean);
    }
    cache.ended(ino);
    cache.put(record).unwrap();
    assert_eq!(cache.not_durable(), [ino], "the number of another file");
}

/// The home and the shard are back where it had its name, and the ledger is not.
#[test]
fn a_file_that_has_its_name_again_comes_to_the_tier() {
    let check = |record: LedgerRecord, expected: FileState| {
        let (cache, ino) = (cache(), record.ino);
        cache.put(record).unwrap();
        cache.lost_its_name(ino).unwrap();
        cache.has_its_name_again(cache.record(ino).unwrap()).unwrap();
        let again = cache.record(ino).unwrap();
        assert_eq!((again.state, again.is_nameless), (expected, false));
        assert_eq!(cache.not_durable().is_empty(), expected.is_safe());
        cache.update(ino, |record| record.state = FileState::Dirty).unwrap();
        assert_eq!(cache.not_durable(), [ino]);
    };
    let mtime = Time { seconds: 1, nanos: 0 };
    let version = Some(hayase_store::TierVersion { identity: 4, size: 1, mtime, mode: 0o640 });
    for state in [FileState::Dirty, FileState::Flushing, FileState::Failed] {
        check(LedgerRecord { state, version, ..file(3, "f") }, FileState::Dirty);
    }
    for state in [FileState::Durable, FileState::InTier] {
        check(LedgerRecord { state, version, ..file(3, "f") }, state);
    }
}

/// A removal waits for a file: however many do, the file is found.
#[test]
fn tombstones_do_not_hide_the_files_that_they_wait_for() {
    let cache = cache();
    let dir = |number: u64| InodeId(50_000 + number % 2).in_cache();
    let tombstone = |number: u64| {
        let (parent, ino) = (dir(number), InodeId(1).in_cache());
        let buried = hayase_store::Buried { parent, ino, is_renamed: false };
        let path = format!("d{}/{number}", number % 2).into_bytes();
        LedgerRecord::tombstone(InodeId(number).in_cache(), path, buried, None, None)
    };
    for number in 100..100 + 2 * FLUSH_LOOK_FILES as u64 {
        cache.bury(&tombstone(number)).unwrap();
    }
    let record = file(90_000, "new");
    cache.put(record.clone()).unwrap();
    assert_eq!(cache.not_durable_after(InodeId(0), FLUSH_LOOK_FILES), [record.ino]);
    let window = cache.tombstones_after(InodeId(0), FLUSH_LOOK_FILES);
    assert_eq!(window.len(), FLUSH_LOOK_FILES);
    let last = *window.last().unwrap();
    assert!(cache.tombstones_after(last, FLUSH_LOOK_FILES).iter().all(|number| *number > last));
    assert_eq!(cache.tombstones_of(b"d0/100").len(), 1);
    cache.unbury(&tombstone(100));
    assert!(cache.tombstones_of(b"d0/100").is_empty());
    assert_eq!(cache.tombstones_after(InodeId(0), 1), [InodeId(101).in_cache()]);
}

/// The server of the file may stay away for long in the middle of a rename in the tier, and that of the name be started
/// again: the tier shows the file under both names, and with an identity that nobody knows.
#[test]
fn the_old_name_of_a_renamed_file_stays_hidden_over_a_restart() {
    let at = |seconds| Time { seconds, nanos: 5 };
    let version =
        |identity, size, mtime| hayase_store::TierVersion { identity, size, mtime, mode: 0o640 };
    for is_renamed in [true, false] {
        let device = Arc::new(MemoryDevice::new());
        let known = Some(version(4, 7, at(1)));
        let (parent, ino) = (InodeId::CACHE_ROOT, InodeId(1).in_cache());
        let buried = hayase_store::Buried { parent, ino, is_renamed };
        let number = InodeId(100).in_cache();
        let tombstone = LedgerRecord::tombstone(number, b"f".to_vec(), buried, known, None);
        opened(Arc::clone(&device) as _, "first").bury(&tombstone).unwrap();
        let cache = opened(device, "first");
        assert!(cache.hides(b"f", &version(4, 7, at(1))));
        assert_eq!(cache.hides(b"f", &version(5, 7, at(1))), is_renamed);
        for other in [version(5, 8, at(1)), version(5, 7, at(2))] {
            assert!(!cache.hides(b"f", &other), "somebody else's");
        }
        assert!(!cache.hides(b"g", &version(5, 7, at(1))), "another name");
        cache.unbury(&tombstone);
        assert!(!cache.hides(b"f", &version(5, 7, at(1))));
    }
}

/// Nobody syncs a copy, and the record that calls it clean may be durable.
#[test]
fn copies_are_fetched_again_after_a_power_cut() {
    let device = Arc::new(MemoryDevice::new());
    let mtime = Time { seconds: 1, nanos: 0 };
    let version = Some(hayase_store::TierVersion { identity: 4, size: 1, mtime, mode: 0o640 });
    let states = [FileState::Clean, FileState::Durable, FileState::Dirty];
    let open = |life: &str, expected: [FileState; 3]| {
        let cache = opened(Arc::clone(&device) as _, life);
        for (ino, state) in (3..).zip(states) {
            let path = format!("f{ino}");
            let record = LedgerRecord { state, version, ..file(ino, &path) };
            if cache.record(record.ino).is_none() {
                cache.put(record).unwrap();
            }
        }
        let now = [3, 4, 5].map(|ino| cache.state(InodeId(ino).in_cache()).unwrap());
        assert_eq!(now, expected, "{life}");
    };
    open("first", states);
    open("first", states);
    open("second", [FileState::InTier, FileState::InTier, FileState::Dirty]);
}
