//! The frames of the ledger's log: length, checksums, one change.
//!
//! Drawn in `FORMAT.md`. Both checksums cover the generation of the log and the frame's place in it, so that what an
//! earlier log left in reused blocks is never taken for a frame of this one's, and so that a good frame is known as one
//! wherever a search for it begins.
//!
//! What is no good frame was never written, or it is damaged. Storage writes sectors; what was never written reads as
//! zeros, or is behind the end of the file. Of a written frame the first and the last byte are no zeros, and its length
//! has a checksum of its own: a flipped length does not pass for a frame that extends past the end of the file.

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{LedgerError, LedgerRecord, PENDING_XATTRS_BYTES_MAX};

/// Written at the start of every payload, and in the header of every log.
pub(super) const FORMAT: u8 = 10;

/// Ends every payload.
const END: u8 = 0xe7;

/// Length (u32), its checksum (u32) and the checksum of the payload (u64), little endian.
pub(super) const HEADER_BYTES: usize = 16;

/// The length and its checksum. One flipped bit does not make zeros of both.
const LENGTH_BYTES: usize = 8;

/// A path of 4095 bytes, a dozen numbers, some thousand servers and the extended attributes of a file fit; anything
/// longer is damage.
const PAYLOAD_BYTES_MAX: usize = (16 << 10) + PENDING_XATTRS_BYTES_MAX;

/// The unit that storage writes as a whole or not at all.
const SECTOR: usize = 512;

/// Length (u32) and checksum (u64) of a frame of format 6 and before, which had no header of the log.
const OLD_HEADER_BYTES: usize = 12;

/// One change of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Frame {
    /// What is known of a file from here on.
    Put(Box<LedgerRecord>),
    /// Nothing is known of it any more.
    Remove(InodeId),
    /// The log holds all that the one before it held.
    Complete,
    /// The server that writes from here on runs in this life of its machine.
    Life(String),
}

/// Where a frame lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Of the log.
    pub(super) generation: u32,
    /// Byte of the log.
    pub(super) at: usize,
}

/// What lies at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A good frame, and its length in bytes with the header.
    Good(usize),
    /// Bytes of a frame, of which some were never written.
    Torn,
    /// Neither.
    Damaged,
}

impl Place {
    fn seed(self) -> u64 {
        (u64::from(self.generation) << 40) ^ self.at as u64
    }

    fn check_of_length(self, len: u32) -> u32 {
        xxh3_64_with_seed(&len.to_le_bytes(), self.seed()) as u32
    }
}

impl Frame {
    /// The frame's bytes at `place`.
    pub(super) fn encode(&self, place: Place) -> Vec<u8> {
        let mut payload = vec![FORMAT];
        payload = postcard::to_extend(self, payload)
            .expect("a frame holds only lengths and kinds that postcard knows");
        payload.push(END);
        let len = payload.len() as u32;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&place.check_of_length(len).to_le_bytes());
        bytes.extend_from_slice(&xxh3_64_with_seed(&payload, place.seed()).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes
    }

    /// What lies at `place` of `log`.
    ///
    /// Fails on a good frame that another version of this program wrote.
    pub(super) fn find(log: &[u8], place: Place) -> Result<Found, LedgerError> {
        let Some(len) = length(log, place) else { return Ok(bad_header(log, place.at)) };
        let start = place.at + HEADER_BYTES;
        let Some(payload) = log.get(start..start + len) else { return Ok(Found::Torn) };
        let checksum = u64::from_le_bytes(log[start - 8..start].try_into().expect("eight bytes"));
        if xxh3_64_with_seed(payload, place.seed()) != checksum {
            return Ok(match has_unwritten_sector(log, place.at..start + len) {
                true => Found::Torn,
                false => Found::Damaged,
            });
        }
        match payload[0] {
            FORMAT => Ok(Found::Good(HEADER_BYTES + len)),
            found => Err(LedgerError::Format { found, expected: FORMAT }),
        }
    }

    /// The change that a good frame of `len` bytes at byte `at` of `log` tells; `None` for one that this program does
    /// not write.
    pub(super) fn decode(log: &[u8], at: usize, len: usize) -> Option<Self> {
        postcard::from_bytes(log.get(at + HEADER_BYTES + 1..at + len)?).ok()
    }

    /// Whether a frame may begin at `place`: its length is right. Costs a few nanoseconds.
    pub(super) fn may_begin(log: &[u8], place: Place) -> bool {
        length(log, place).is_some()
    }
}

/// Of the payload; `None` where the header is not whole.
fn length(log: &[u8], place: Place) -> Option<usize> {
    let header = log.get(place.at..place.at + HEADER_BYTES)?;
    let (len, rest) = header.split_first_chunk::<4>()?;
    let (check, _) = rest.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len);
    let is_good = u32::from_le_bytes(*check) == place.check_of_length(len);
    (is_good && len > 0 && len as usize <= PAYLOAD_BYTES_MAX).then_some(len as usize)
}

/// What a header is that is not good.
fn bad_header(log: &[u8], at: usize) -> Found {
    let Some(header) = log.get(at..at + HEADER_BYTES) else { return Found::Torn };
    // The next sector may have been written without this one, or this one without that.
    let here = ((at + 1).next_multiple_of(SECTOR) - at).min(HEADER_BYTES);
    let is_unwritten_here = here >= LENGTH_BYTES && is_zero(&header[..here]);
    let is_torn =
        is_zero(header) || is_unwritten_here || has_unwritten_sector(log, at..at + HEADER_BYTES);
    if is_torn { Found::Torn } else { Found::Damaged }
}

/// Whether a sector that begins in `range` has nothing but zeros, as far as it and, of a frame, the range go.
fn has_unwritten_sector(log: &[u8], range: std::ops::Range<usize>) -> bool {
    let end = if range.len() > HEADER_BYTES { range.end } else { log.len() };
    let mut starts = ((range.start + 1).next_multiple_of(SECTOR)..range.end).step_by(SECTOR);
    starts.any(|start| is_zero(&log[start..(start + SECTOR).min(end)]))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// The format of a log of format 6 or before, which begins with a frame.
pub(super) fn old_format(log: &[u8]) -> Option<u8> {
    let (header, rest) = log.split_at_checked(OLD_HEADER_BYTES)?;
    let (len, checksum) = header.split_at(4);
    let len = u32::from_le_bytes(len.try_into().ok()?) as usize;
    let payload = rest.get(..len).filter(|payload| !payload.is_empty())?;
    let checksum = u64::from_le_bytes(checksum.try_into().ok()?);
    (xxh3_64_with_seed(payload, 0) == checksum).then(|| payload[0])
}
