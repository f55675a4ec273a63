//! The ledger of a node whose device was damaged, by somebody who makes its checksums fit.

use std::sync::Arc;

use hayase_layout::{InodeId, LocalOffset};
use hayase_store::{Device, Ledger, LedgerRecord, MemoryDevice, PartId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{way, way_of};

/// Of a frame: length, its checksum and that of the payload.
const HEADER_BYTES: usize = 16;

/// The header of a log, and where the checksum of a slot is.
const SLOTS: usize = 2;
const SLOT_STRIDE: usize = 512;
const SLOT_CHECKSUM: usize = 20;

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

/// Checksums that fit, of the header and of each frame that can be found.
fn repair(bytes: &mut [u8], generation: u32) {
    for (number, slot) in bytes.chunks_exact_mut(SLOT_STRIDE).take(SLOTS).enumerate() {
        let sum = xxh3_64_with_seed(&slot[..SLOT_CHECKSUM], number as u64);
        slot[SLOT_CHECKSUM..SLOT_CHECKSUM + 8].copy_from_slice(&sum.to_le_bytes());
    }
    let (mut at, len) = (SLOTS * SLOT_STRIDE, bytes.len());
    while at + HEADER_BYTES <= len {
        let frame = &mut bytes[at..];
        let seed = (u64::from(generation) << 40) ^ at as u64;
        let (length, rest) = frame.split_first_chunk_mut::<4>().expect("a header is there");
        let payload = u32::from_le_bytes(*length) as usize;
        let check_of_length = xxh3_64_with_seed(length, seed) as u32;
        rest[..4].copy_from_slice(&check_of_length.to_le_bytes());
        let Some(end) = HEADER_BYTES.checked_add(payload).filter(|end| *end <= frame.len()) else {
            return;
        };
        let sum = xxh3_64_with_seed(&frame[HEADER_BYTES..end], seed);
        frame[8..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        at += end;
    }
}

/// What is read can be changed, and is read again as it was left; what is damaged is salvaged.
pub(super) fn log(bytes: &[u8]) -> u64 {
    let (mut bytes, id) = (bytes.to_vec(), good().0);
    repair(&mut bytes, id.epoch);
    let device = Arc::new(MemoryDevice::new());
    let file = device.create(id).expect("memory");
    file.write_at(LocalOffset(0), &bytes).expect("memory");
    drop(file);
    let salvaged = way_of(Ledger::salvage(&*device), |salvaged| {
        way((salvaged.records.len(), salvaged.damage.len()))
    });
    let opened = Ledger::open(Arc::clone(&device) as _);
    way((salvaged, way_of(opened, |ledger| ledger.records().count() as u64 ^ changed(&device))))
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
