//! The frames of the ledger's log: length, checksum, one change.
//!
//! Drawn in `FORMAT.md`. The checksum covers the frame's place in the log too, so that what an
//! earlier log left in reused blocks is never taken for a frame of this one's.

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{LedgerError, LedgerRecord, PENDING_XATTRS_BYTES_MAX};

/// Written at the start of every payload.
const FORMAT: u8 = 6;

/// Length (u32) and checksum (u64), little endian.
const HEADER_BYTES: usize = 12;

/// A path of 4095 bytes, a dozen numbers, some thousand servers and the extended attributes of a file fit; anything
/// longer is damage.
const PAYLOAD_BYTES_MAX: usize = (16 << 10) + PENDING_XATTRS_BYTES_MAX;

/// One change of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Frame {
    /// What is known of a file from here on.
    Put(Box<LedgerRecord>),
    /// Nothing is known of it any more.
    Remove(InodeId),
    /// The log holds all that the one before it held.
    Complete,
}

impl Frame {
    /// The frame's bytes at byte `at` of the log.
    pub(super) fn encode(&self, at: u64) -> Vec<u8> {
        let mut payload = vec![FORMAT];
        payload = postcard::to_extend(self, payload)
            .expect("a frame holds only lengths and kinds that postcard knows");
        let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&xxh3_64_with_seed(&payload, at).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes
    }

    /// The frame at the start of `bytes`, which lie at byte `at` of the log, and its length; `None`
    /// where none is whole.
    ///
    /// Fails on a whole frame that another version of this program wrote.
    pub(super) fn decode(bytes: &[u8], at: u64) -> Result<Option<(Self, usize)>, LedgerError> {
        let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else { return Ok(None) };
        let (len, sum) = header.split_at(4);
        let len = u32::from_le_bytes(len.try_into().expect("four bytes")) as usize;
        let sum = u64::from_le_bytes(sum.try_into().expect("eight bytes"));
        if len == 0 || len > PAYLOAD_BYTES_MAX || len > rest.len() {
            return Ok(None);
        }
        let payload = &rest[..len];
        if xxh3_64_with_seed(payload, at) != sum {
            return Ok(None);
        }
        let (format, frame) = payload.split_first().expect("it is not empty");
        if *format != FORMAT {
            return Err(LedgerError::Format { found: *format, expected: FORMAT });
        }
        Ok(postcard::from_bytes(frame).ok().map(|frame| (frame, HEADER_BYTES + len)))
    }
}
