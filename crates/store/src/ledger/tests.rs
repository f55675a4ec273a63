//! Restarts, torn tails, damage and power cuts of the ledger.

use std::collections::BTreeMap;

use proptest::prelude::*;

use hayase_layout::LocalOffset;

use super::*;
use crate::device::{CrashDevice, MemoryDevice};
use crate::namespace::Time;

mod damage;

fn record(ino: u64, state: FileState, bytes: u64) -> LedgerRecord {
    let path = format!("dir/f{ino}").into_bytes();
    let xattrs = PendingXattrs::default();
    LedgerRecord { state, bytes, xattrs, ..LedgerRecord::new(InodeId(ino), path, 0o644) }
}

fn states(ledger: &Ledger) -> BTreeMap<u64, (FileState, u64)> {
    ledger.records().map(|record| (record.ino.0, (record.state, record.bytes))).collect()
}

/// As many as a record may have.
fn most_xattrs() -> PendingXattrs {
    let mut xattrs = PendingXattrs { are_all: true, ..PendingXattrs::default() };
    for number in 0_u16.. {
        let mut more = xattrs.clone();
        more.change(format!("user.{number}").into_bytes(), Some(vec![7; 300]));
        if more.bytes() > PENDING_XATTRS_BYTES_MAX {
            break;
        }
        xattrs = more;
    }
    xattrs
}

#[test]
fn records_are_there_again_after_a_restart() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let mut ledger = Ledger::open(Arc::clone(&device)).unwrap();
    let version = TierVersion {
        identity: 9,
        size: 5,
        mtime: Time { seconds: -3, nanos: 999_999_999 },
        mode: 0o600,
    };
    let full = LedgerRecord {
        version: Some(version),
        sent: Some((5, version.mtime)),
        errno: 28,
        attempts: 3,
        xattrs: most_xattrs(),
        ..record(7, FileState::Failed, 5)
    };
    ledger.put(full.clone()).unwrap();
    ledger.put(record(8, FileState::Dirty, 1)).unwrap();
    ledger.remove(InodeId(8)).unwrap();
    ledger.remove(InodeId(99)).unwrap();
    drop(ledger);
    let ledger = Ledger::open(device).unwrap();
    assert_eq!(ledger.get(InodeId(7)), Some(&full));
    assert_eq!(ledger.get(InodeId(8)), None);
}

fn inodes(ledger: &Ledger) -> Vec<u64> {
    states(ledger).into_keys().collect()
}

/// Also when only one copy was still written.
#[test]
fn a_torn_end_is_dropped_and_written_over() {
    for torn in [&[0, 1][..], &[0], &[1]] {
        let device = Arc::new(MemoryDevice::new());
        let mut ledger = Ledger::open(device.clone()).unwrap();
        ledger.put(record(1, FileState::Dirty, 1)).unwrap();
        ledger.put(record(2, FileState::Dirty, 2)).unwrap();
        for copy in torn {
            device.open(log_id(1, *copy)).unwrap().truncate(ledger.end - 1).unwrap();
        }
        let mut ledger = Ledger::open(device.clone()).unwrap();
        let left = if torn.len() == 2 { vec![1] } else { vec![1, 2] };
        assert_eq!(inodes(&ledger), left);
        ledger.put(record(3, FileState::Durable, 3)).unwrap();
        let ledger = Ledger::open(device.clone()).unwrap();
        assert_eq!(inodes(&ledger), [&left[..], &[3]].concat());
        assert_eq!(device.list().unwrap().len(), 2, "the copies of one log");
    }
}

/// Its server has written half a record just then, and goes on behind it.
#[test]
fn who_looks_at_a_ledger_changes_nothing() {
    let device = Arc::new(MemoryDevice::new());
    assert!(Ledger::look(&*device).unwrap().is_empty() && device.list().unwrap().is_empty());
    let mut ledger = Ledger::open(device.clone()).unwrap();
    ledger.put(record(1, FileState::Dirty, 1)).unwrap();
    ledger.sync().unwrap();
    let next = Frame::Put(Box::new(record(2, FileState::Dirty, 1)));
    let next = next.encode(Place { generation: 1, at: ledger.end as usize });
    let file = device.open(log_id(1, 0)).unwrap();
    for written in 0..next.len() {
        file.write_at(LocalOffset(ledger.end), &next[..written]).unwrap();
        let seen = Ledger::look(&*device).unwrap();
        assert_eq!(seen, [record(1, FileState::Dirty, 1)]);
        assert_eq!(file.stat().unwrap().size, ledger.end + written as u64, "nothing is cut off");
    }
}

/// What a failed write left behind the end is no damage, whatever is written there next.
#[test]
fn a_write_that_failed_is_written_over() {
    let device = Arc::new(MemoryDevice::new());
    let mut ledger = Ledger::open(device.clone()).unwrap();
    let long = LedgerRecord { xattrs: most_xattrs(), ..record(1, FileState::Dirty, 1) };
    let bytes = Frame::Put(Box::new(long)).encode(Place { generation: 1, at: ledger.end as usize });
    for copy in [0, 1] {
        let file = device.open(log_id(1, copy)).unwrap();
        file.write_at(LocalOffset(ledger.end), &bytes[..bytes.len() - 1]).unwrap();
    }
    ledger.is_dirty_behind = true;
    ledger.put(record(2, FileState::Dirty, 2)).unwrap();
    assert_eq!(inodes(&Ledger::open(device).unwrap()), [2]);
}

/// One write of each copy for a record; one sync of each and one slot of each header for a sync, none when nothing came.
#[test]
fn a_ledger_that_is_synced_is_not_synced_again() {
    let device = Arc::new(CrashDevice::new());
    let mut ledger = Ledger::open(device.clone()).unwrap();
    ledger.put(record(1, FileState::Dirty, 1)).unwrap();
    let before = ledger.unsynced().unwrap();
    ledger.put(record(2, FileState::Dirty, 1)).unwrap();
    ledger.sync().unwrap();
    before.sync().unwrap();
    let left = Ledger::open(Arc::new(device.after_power_cut(|| false))).unwrap();
    assert_eq!(inodes(&left), [1, 2]);
}

#[test]
fn a_long_log_is_rewritten() {
    let device = Arc::new(MemoryDevice::new());
    let mut ledger = Ledger::open(device.clone()).unwrap();
    for bytes in 0..40_000 {
        ledger.put(record(bytes % 3, FileState::Dirty, bytes)).unwrap();
    }
    assert!(ledger.copies.generation() > 1 && ledger.end < COMPACT_BYTES_MIN + 1024);
    assert_eq!(device.list().unwrap().len(), 2);
    let expected = states(&ledger);
    assert_eq!(states(&Ledger::open(device).unwrap()), expected);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64, FileState),
    Remove(u64),
    Sync,
    Compact,
}

fn any_step() -> impl Strategy<Value = Step> {
    let state = prop_oneof![
        Just(FileState::Dirty),
        Just(FileState::Flushing),
        Just(FileState::Durable),
        Just(FileState::Failed)
    ];
    prop_oneof![
        6 => (0..4u64, state).prop_map(|(ino, state)| Step::Put(ino, state)),
        1 => (0..4u64).prop_map(Step::Remove),
        2 => Just(Step::Sync),
        1 => Just(Step::Compact),
    ]
}

proptest! {
    /// After a power cut the ledger is one of the states that it had, at or after the last sync: no
    /// record that was synced is missing, none is made of two.
    #[test]
    fn a_power_cut_leaves_a_state_that_there_was(
        steps in proptest::collection::vec(any_step(), 0..40),
        survivors in proptest::collection::vec(any::<bool>(), 64),
    ) {
        let device = Arc::new(CrashDevice::new());
        let mut ledger = Ledger::open(device.clone()).unwrap();
        let mut since_sync = vec![states(&ledger)];
        for (bytes, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put(ino, state) => ledger.put(record(ino, state, bytes as u64)).unwrap(),
                Step::Remove(ino) => ledger.remove(InodeId(ino)).unwrap(),
                Step::Sync => ledger.sync().unwrap(),
                Step::Compact => ledger.compact().unwrap(),
            }
            if matches!(step, Step::Sync | Step::Compact) {
                since_sync.clear();
            }
            since_sync.push(states(&ledger));
        }
        let mut survivors = survivors.into_iter().cycle();
        let left = device.after_power_cut(|| survivors.next().unwrap_or(false));
        let after = states(&Ledger::open(Arc::new(left)).unwrap());
        prop_assert!(since_sync.contains(&after), "{after:?} is none of {since_sync:?}");
    }
}

#[test]
fn the_life_of_the_machine_outlives_a_rewrite_and_a_power_cut() {
    let device = Arc::new(CrashDevice::new());
    let mut ledger = Ledger::open(device.clone()).unwrap();
    assert_eq!(ledger.life(), None);
    assert!(!ledger.begin_life("first").unwrap(), "there was none before");
    ledger.compact().unwrap();
    assert!(!ledger.begin_life("first").unwrap());
    let mut ledger = Ledger::open(Arc::new(device.after_power_cut(|| false))).unwrap();
    assert_eq!(ledger.life(), Some("first"));
    assert!(ledger.begin_life("second").unwrap());
}

/// The kernel tells such an error once, and reads the old bytes from then on.
#[test]
fn what_a_failed_sync_lost_is_written_to_another_log() {
    let device = Arc::new(CrashDevice::new());
    let mut ledger = Ledger::open(device.clone()).unwrap();
    ledger.put(record(1, FileState::Dirty, 10)).unwrap();
    let earlier = ledger.unsynced().unwrap();
    device.fail_syncs(1);
    ledger.sync().unwrap_err();
    earlier.sync().unwrap_err();
    ledger.put(record(2, FileState::Dirty, 20)).unwrap();
    ledger.sync().unwrap();
    assert!(earlier.sync().is_err(), "its log is not in use any more");
    let left = Ledger::open(Arc::new(device.after_power_cut(|| false))).unwrap();
    assert_eq!(inodes(&left), [1, 2]);
    // As long as the storage fails, so does the ledger.
    device.fail_syncs(100);
    ledger.put(record(3, FileState::Dirty, 30)).unwrap();
    ledger.sync().unwrap_err();
    ledger.sync().unwrap_err();
    device.fail_syncs(0);
    ledger.sync().unwrap();
    let left = Ledger::open(Arc::new(device.after_power_cut(|| false))).unwrap();
    assert_eq!(inodes(&left), [1, 2, 3]);
}
