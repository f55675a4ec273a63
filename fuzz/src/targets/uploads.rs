//! What an unfinished upload to a directory has left, damaged in such a way that its checksums fit.

use crc_fast::{CrcAlgorithm, Digest};
use hayase_tier::posix::journal::parts_in;

/// See the format in `hayase_tier`.
const HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 16;
const SUM_BYTES: usize = 4;

/// Of three parts of 10 bytes, two of which are written.
pub(super) fn journals() -> Vec<Vec<u8>> {
    let mut bytes = b"HYPARTS1".to_vec();
    bytes.extend(7_u128.to_le_bytes());
    bytes.extend(25_u64.to_le_bytes());
    bytes.extend(10_u64.to_le_bytes());
    bytes.extend(b"0123456789abcdef");
    bytes.extend([0; HEADER_BYTES - 56]);
    for number in [2_u32, 0] {
        bytes.extend(number.to_le_bytes());
        bytes.extend([0; RECORD_BYTES - 4]);
    }
    vec![bytes]
}

fn crc32c(pieces: &[&[u8]]) -> [u8; SUM_BYTES] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    pieces.iter().for_each(|piece| digest.update(piece));
    u32::try_from(digest.finalize()).expect("32 bits").to_le_bytes()
}

fn repair(bytes: &mut [u8]) {
    let Some((header, records)) = bytes.split_at_mut_checked(HEADER_BYTES) else { return };
    let (said, sum) = header.split_at_mut(HEADER_BYTES - SUM_BYTES);
    sum.copy_from_slice(&crc32c(&[said]));
    for record in records.chunks_exact_mut(RECORD_BYTES) {
        let (said, own) = record.split_at_mut(RECORD_BYTES - SUM_BYTES);
        own.copy_from_slice(&crc32c(&[sum, said]));
    }
}

pub(super) fn journal(bytes: &[u8]) -> u64 {
    let mut bytes = bytes.to_vec();
    repair(&mut bytes);
    parts_in(&bytes).map_or(0, |parts| 1 + parts as u64)
}
