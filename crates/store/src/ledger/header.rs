//! The header of a log: up to where it was synced, in two slots of which one is written at a time.
//!
//! A slot is written after a sync, and is itself durable with the next one. So what it says was true: bytes before the
//! synced length that are not good frames are damage, never the torn end of a crash. It may lag behind by one sync.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::LedgerError;
use super::frame::FORMAT;

/// Where the frames begin.
pub(super) const HEADER_BYTES: usize = SLOTS * SLOT_STRIDE;

pub(super) const SLOTS: usize = 2;

/// A sector each: none is torn together with the other.
const SLOT_STRIDE: usize = 512;

const MAGIC: [u8; 7] = *b"hayldgr";

/// Magic, format, generation (u32), synced length (u64), checksum (u64).
const SLOT_BYTES: usize = 28;

/// What the header of one copy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Synced {
    /// Nothing was ever written there: the log was not in use.
    Never,
    /// Up to here; and in which slot that is.
    UpTo(u64, usize),
    /// Something was, and can not be read.
    Unknown,
}

/// The bytes of a slot, and where they go.
pub(super) fn slot(number: usize, generation: u32, synced: u64) -> (u64, [u8; SLOT_BYTES]) {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..7].copy_from_slice(&MAGIC);
    bytes[7] = FORMAT;
    bytes[8..12].copy_from_slice(&generation.to_le_bytes());
    bytes[12..20].copy_from_slice(&synced.to_le_bytes());
    let checksum = xxh3_64_with_seed(&bytes[..20], number as u64);
    bytes[20..].copy_from_slice(&checksum.to_le_bytes());
    ((number * SLOT_STRIDE) as u64, bytes)
}

/// What the header of `log` says, and whether any of its slots is damaged.
///
/// Fails when another version of this program wrote it.
pub(super) fn read(log: &[u8], generation: u32) -> Result<(Synced, bool), LedgerError> {
    let (mut newest, mut is_damaged) = (Synced::Never, false);
    for number in 0..SLOTS {
        let start = (number * SLOT_STRIDE).min(log.len());
        let bytes = &log[start..(start + SLOT_BYTES).min(log.len())];
        match read_slot(bytes, number, generation)? {
            Some(synced) => match newest {
                Synced::UpTo(known, _) if known >= synced => {}
                _ => newest = Synced::UpTo(synced, number),
            },
            None if bytes.iter().all(|byte| *byte == 0) => {}
            None => is_damaged = true,
        }
    }
    if is_damaged && newest == Synced::Never {
        newest = Synced::Unknown;
    }
    Ok((newest, is_damaged))
}

fn read_slot(bytes: &[u8], number: usize, generation: u32) -> Result<Option<u64>, LedgerError> {
    let Ok(bytes) = <[u8; SLOT_BYTES]>::try_from(bytes) else { return Ok(None) };
    let checksum = xxh3_64_with_seed(&bytes[..20], number as u64);
    if bytes[20..] != checksum.to_le_bytes() || bytes[..7] != MAGIC {
        return Ok(None);
    }
    if bytes[7] != FORMAT {
        return Err(LedgerError::Format { found: bytes[7], expected: FORMAT });
    }
    if bytes[8..12] != generation.to_le_bytes() {
        return Ok(None);
    }
    Ok(Some(u64::from_le_bytes(bytes[12..20].try_into().expect("eight bytes"))))
}
