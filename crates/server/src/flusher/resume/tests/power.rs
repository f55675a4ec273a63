//! What comes to the tier after a restart of the machine.

use hayase_store::CrashDevice;
use proptest::prelude::*;

use super::*;

/// A file of a version that the tier has, written in the machine's first life.
fn changed(node: &mut Node) -> LedgerRecord {
    let version = Some(node.put("f", b"good"));
    let record = LedgerRecord { version, ..node.write(3, "f", b"ours") };
    node.ledger.put(record.clone()).unwrap();
    record
}

fn synced(node: &Node, record: &LedgerRecord) -> LedgerRecord {
    let part = node.left.parts().get(whole_part(record.ino, 0)).unwrap();
    let synced = Some(part.stat().unwrap().into());
    LedgerRecord { synced, ..record.clone() }
}

fn expect_stays(node: &mut Node) {
    for round in 0..2 {
        let told = node.resume();
        let failure = told[0].failure.as_ref().expect("it is not sent");
        assert_eq!(failure.errno, libc_errno::ENODATA, "round {round}: {failure}");
        assert!(failure.to_string().contains("--salvage"), "{failure}");
        assert_eq!(node.read("f").unwrap(), b"good");
        let ino = InodeId(3).in_cache();
        node.left.parts().get(whole_part(ino, 0)).expect("its part stays");
    }
}

#[test]
fn what_was_never_synced_replaces_nothing_after_a_power_cut() {
    let mut node = Node::new(Arc::new(Memory::new()));
    changed(&mut node);
    node.boot("second");
    expect_stays(&mut node);
}

#[test]
fn what_was_written_after_the_last_sync_replaces_nothing_after_a_power_cut() {
    let mut node = Node::new(Arc::new(Memory::new()));
    let record = changed(&mut node);
    node.ledger.put(synced(&node, &record)).unwrap();
    let part = node.left.parts().get(whole_part(record.ino, 0)).unwrap();
    part.write_at(LocalOffset(0), b"torn").unwrap();
    node.boot("second");
    expect_stays(&mut node);
}

#[test]
fn what_was_synced_comes_after_a_power_cut() {
    let mut node = Node::new(Arc::new(Memory::new()));
    let record = changed(&mut node);
    node.ledger.put(synced(&node, &record)).unwrap();
    node.boot("second");
    assert_eq!(node.resume()[0].failure, None);
    assert_eq!(node.read("f").unwrap(), b"ours");
}

/// Also what a resume could not send, and what `down` kept.
#[test]
fn what_was_made_durable_before_the_machine_went_comes_after_it() {
    for is_sealed in [false, true] {
        let mut node = Node::new(failing(Call::Begun(Action::Stat), Fault::Io, 1));
        changed(&mut node);
        match is_sealed {
            true => node.left.seal(&mut node.ledger).unwrap(),
            false => assert!(node.resume()[0].failure.is_some()),
        }
        node.boot("second");
        if is_sealed {
            assert!(node.resume()[0].failure.is_some(), "the tier fails once");
        }
        assert_eq!(node.resume()[0].failure, None);
        assert_eq!(node.read("f").unwrap(), b"ours");
    }
}

/// What one program does to its file, before the power of its node fails.
#[derive(Clone, Debug)]
enum Step {
    Write {
        offset: u64,
        byte: u8,
    },
    Truncate(u64),
    /// As the server answers fsync(2).
    Sync,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u64..4, any::<u8>()).prop_map(|(offset, byte)| Step::Write { offset, byte }),
        1 => (0u64..6).prop_map(Step::Truncate),
        2 => Just(Step::Sync),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 0..12)
}

proptest! {
    /// The file in the tier is the good version, or what the program had synced last, whatever the storage kept of what
    /// was written since; and what was synced, and left alone, is there.
    #[test]
    fn only_what_was_synced_comes_after_a_power_cut(
        steps in steps(),
        survivors in proptest::collection::vec(any::<bool>(), 0..24),
    ) {
        let device = Arc::new(CrashDevice::new());
        let mut node = Node::new(Arc::new(Memory::new()));
        let parts = Parts::open(device.clone(), 8);
        let version = Some(node.put("f", b"good"));
        let ino = InodeId(3).in_cache();
        let mut record = LedgerRecord { version, ..LedgerRecord::new(ino, b"f".to_vec(), 0o640) };
        let part = parts.create(whole_part(ino, 0)).unwrap();
        let (mut bytes, mut synced, mut was_left_alone) = (Vec::new(), None, false);
        for step in steps {
            match step {
                Step::Write { offset, byte } => {
                    part.write_at(LocalOffset(offset), &[byte]).unwrap();
                    bytes.resize(bytes.len().max(offset as usize + 1), 0);
                    bytes[offset as usize] = byte;
                }
                Step::Truncate(len) => {
                    part.truncate(len).unwrap();
                    bytes.resize(len as usize, 0);
                }
                Step::Sync => {
                    let stat = part.stat().unwrap();
                    part.sync(false).unwrap();
                    record.synced = Some(stat.into());
                    (synced, was_left_alone) = (Some(bytes.clone()), true);
                    continue;
                }
                Step::Reopen => (record.synced, synced) = (None, None),
            }
            was_left_alone = false;
        }
        node.ledger.put(record).unwrap();
        let mut survivors = survivors.into_iter();
        node.device = Arc::new(device.after_power_cut(|| survivors.next().unwrap_or(false)));
        node.boot("second");
        let told = node.resume();
        let found = node.read("f").unwrap();
        match synced {
            Some(synced) if found == synced => prop_assert_eq!(&told[0].failure, &None),
            _ => {
                prop_assert_eq!(&found, b"good");
                prop_assert!(told[0].failure.is_some() && !was_left_alone);
            }
        }
    }
}

/// The kernel tells an error of write-back once, and reads the old bytes from then on.
#[test]
fn what_the_storage_has_lost_is_never_sent() {
    let device = Arc::new(CrashDevice::new());
    let mut node = Node::new(Arc::new(Memory::new()));
    let version = Some(node.put("f", b"good"));
    let ino = InodeId(3).in_cache();
    let part = Parts::open(device.clone(), 8).create(whole_part(ino, 0)).unwrap();
    part.write_at(LocalOffset(0), b"ours").unwrap();
    let record = LedgerRecord { version, ..LedgerRecord::new(ino, b"f".to_vec(), 0o640) };
    node.ledger.put(record).unwrap();
    device.fail_syncs(1);
    for round in 0..3 {
        // Each time another process.
        let (parts, names) = (Parts::open(device.clone(), 8), node.names.clone());
        let names = Box::new(move || Ok(Some(names.clone() as _)));
        node.left = LeftNode::new(ServerId(0), parts, names, "first".to_owned());
        let told = node.resume();
        let failure = told[0].failure.as_ref().expect("it is not sent");
        assert_eq!(failure.errno, libc_errno::EIO, "round {round}: {failure}");
        assert_eq!(node.read("f").unwrap(), b"good");
    }
}
