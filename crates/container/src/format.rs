//! The bytes of an index: a header, then blocks that are only ever appended.
//!
//! Here: the version, the checksum, the header. Rooms: [`block`] (framing, what is torn and what is
//! damaged), [`entry`] (what blocks hold). Drawn in FORMAT.md.
//! Not here: files and directories.

use crc_fast::{CrcAlgorithm, Digest};

use crate::ContainerId;

pub(crate) mod block;
pub(crate) mod entry;

pub(crate) use block::{Tail, draw_block, last_block, parse_blocks};
pub(crate) use entry::Entry;

/// Of marks and indexes. Raised when older programs would misread; version 1 had no joined parts.
pub(crate) const VERSION: u16 = 2;

/// Bytes of the header of an index.
pub(crate) const HEADER_BYTES: usize = 64;

const INDEX_MAGIC: &[u8; 8] = b"HAYASEIX";

/// CRC-64/NVME of pieces that lie behind each other.
pub(crate) fn checksum(pieces: &[&[u8]]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize()
}

pub(crate) fn draw_header(id: ContainerId) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(INDEX_MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(&id.0);
    let sum = checksum(&[&bytes[..56]]);
    bytes[56..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Why bytes are no header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// Not all of it is there.
    Short,
    /// Where, and what is wrong.
    Damaged(u64, &'static str),
    /// Written by a later version.
    Newer(u16),
}

/// Checks the header of an index of container `id`.
pub(crate) fn check_header(bytes: &[u8], id: ContainerId) -> Result<(), HeaderFault> {
    let Some(header) = bytes.get(..HEADER_BYTES) else {
        return Err(HeaderFault::Short);
    };
    if header[..8] != INDEX_MAGIC[..] {
        return Err(HeaderFault::Damaged(0, "it does not begin as an index does"));
    }
    if checksum(&[&header[..56]]).to_le_bytes() != header[56..] {
        return Err(HeaderFault::Damaged(56, "the checksum of its header does not match"));
    }
    let version = u16::from_le_bytes([header[8], header[9]]);
    if version > VERSION {
        return Err(HeaderFault::Newer(version));
    }
    if header[16..32] != id.0 {
        return Err(HeaderFault::Damaged(16, "it belongs to another container"));
    }
    Ok(())
}
