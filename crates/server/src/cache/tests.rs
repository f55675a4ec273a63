//! What the ledger of a server comes to.

use hayase_store::MemoryDevice;
use hayase_tier::Memory;

use super::*;

fn cache() -> Cache {
    let ledger = Ledger::open(Arc::new(MemoryDevice::new())).unwrap();
    let settings = CacheSettings {
        tier: Arc::new(Memory::new()),
        durable_at: DurableAt::Node,
        deadline: None,
    };
    Cache::open(settings, ledger).unwrap()
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
