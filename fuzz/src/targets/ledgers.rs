//! The ledger of a node whose device was damaged, by somebody who makes its checksums fit.

use std::sync::Arc;

use hayase_layout::{InodeId, LocalOffset};
use hayase_store::{Device, Ledger, LedgerRecord, MemoryDevice, PartId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::way_of;

/// Of a frame: length and checksum.
const HEADER_BYTES: usize = 12;

fn log_of(device: &MemoryDevice) -> (PartId, Vec<u8>) {
    let id = device.list().expect("memory")[0];
    let file = device.open(id).expect("memory");
    let mut bytes = vec![0; file.stat().expect("memory").size as usize];
    let len = file.read_at(LocalOffset(0), &mut bytes).expect("memory");
    bytes.truncate(len);
    (id, bytes)
}

/// A ledger with a little of everything, as its log.
fn good() -> (PartId, Vec<u8>) {
    let device = Arc::new(MemoryDevice::new());
    let mut ledger = Ledger::open(Arc::clone(&device) as _).expect("memory");
    for number in 2..6 {
        let path = format!("directory/file-{number}").into_bytes();
        ledger.put(LedgerRecord::new(InodeId(number), path, 0o644)).expect("memory");
    }
    ledger.remove(InodeId(3)).expect("memory");
    ledger.sync().expect("memory");
    log_of(&device)
}

pub(super) fn logs() -> Vec<Vec<u8>> {
    vec![good().1]
}

/// Checksums that fit, of each frame that can be found.
fn repair(bytes: &mut [u8]) {
    let (mut at, len) = (0, bytes.len());
    while at + HEADER_BYTES <= len {
        let frame = &mut bytes[at..];
        let payload = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
        let Some(end) = HEADER_BYTES.checked_add(payload).filter(|end| *end <= frame.len()) else {
            return;
        };
        let sum = xxh3_64_with_seed(&frame[HEADER_BYTES..end], at as u64);
        frame[4..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        at += end;
    }
}

/// What is read can be changed, and is read again as it was left.
pub(super) fn log(bytes: &[u8]) -> u64 {
    let mut bytes = bytes.to_vec();
    repair(&mut bytes);
    let device = Arc::new(MemoryDevice::new());
    let file = device.create(good().0).expect("memory");
    file.write_at(LocalOffset(0), &bytes).expect("memory");
    drop(file);
    let opened = Ledger::open(Arc::clone(&device) as _);
    way_of(opened, |ledger| ledger.records().count() as u64 ^ changed(&device))
}

fn changed(device: &Arc<MemoryDevice>) -> u64 {
    let mut ledger = Ledger::open(Arc::clone(device) as _).expect("it was opened before");
    ledger.put(LedgerRecord::new(InodeId(9), b"new".to_vec(), 0o600)).expect("memory");
    ledger.compact().expect("memory");
    let records: Vec<_> = ledger.records().cloned().collect();
    drop(ledger);
    let again = Ledger::open(Arc::clone(device) as _).expect("what was written is read");
    assert!(again.records().eq(records.iter()), "the ledger is another one after it was compacted");
    records.len() as u64
}
