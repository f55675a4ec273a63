//! What is known of an unfinished upload: whose bytes, where they lie, which parts were written.
//!
//! ```text
//! 0   "HYPARTS1"            16-byte records follow the header, one for each part that was written:
//! 8   version, 16 bytes
//! 24  size                  0   number of the part
//! 32  bytes of a part       4   CRC32C of its bytes
//! 40  end of the data       8   0
//!     file's name, 16       12  CRC32C of the header's CRC32C and bytes 0 to 11
//! 56  0
//! 60  CRC32C of bytes 0 to 59                                   all numbers little-endian
//! ```
//! A record is written after the bytes of its part and nothing is synced: what a power cut took shows when
//! the bytes are read and compared. A journal with anything wrong in it says nothing at all.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use crc_fast::{CrcAlgorithm, Digest};

use crate::UploadOf;
use crate::descriptor::{read_fully, write_fully};

const MAGIC: &[u8; 8] = b"HYPARTS1";
const HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 16;
/// As long as the random end of a temporary name.
pub(super) const SUFFIX_BYTES: usize = 16;

/// Longest journal that is read: more records than parts, since a part may be written again.
const JOURNAL_BYTES_MAX: usize = 16 << 20;

/// CRC32C of these bytes.
pub(super) fn crc32c(pieces: &[&[u8]]) -> u32 {
    let mut crc = Crc32c::default();
    pieces.iter().for_each(|piece| crc.add(piece));
    crc.value()
}

/// The same of bytes that come one after the other.
pub(super) struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn value(&self) -> u32 {
        u32::try_from(self.0.finalize()).expect("32 bits")
    }
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) of: UploadOf,
    /// End of the name of the file with the data.
    pub(super) suffix: [u8; SUFFIX_BYTES],
}

impl Begun {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..24].copy_from_slice(&self.of.version.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.of.size.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.of.part_bytes.to_le_bytes());
        bytes[40..56].copy_from_slice(&self.suffix);
        let crc = crc32c(&[&bytes[..60]]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = bytes.get(..HEADER_BYTES)?.try_into().ok()?;
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let of = UploadOf {
            version: bytes[8..24].try_into().map(u128::from_le_bytes).ok()?,
            size: word(24)?,
            part_bytes: word(32)?,
        };
        let begun = Self { of, suffix: bytes[40..56].try_into().ok()? };
        let is_name = begun.suffix.iter().all(u8::is_ascii_hexdigit);
        (is_name && begun.to_bytes() == *bytes).then_some(begun)
    }

    /// Reads only the header.
    pub(super) fn read(file: impl AsFd) -> Option<Self> {
        let mut header = [0; HEADER_BYTES];
        read_fully(file, 0, &mut header).ok()?;
        Self::parse(&header)
    }
}

/// Number of written parts in the bytes of a journal: for `fuzz/`, which sends broken bytes.
pub fn parts_in(bytes: &[u8]) -> Option<usize> {
    Journal::parse(bytes).map(|(_, parts)| parts.len())
}

/// A journal that is written to.
pub(super) struct Journal {
    file: OwnedFd,
    header_crc: u32,
    end: u64,
}

impl Journal {
    /// Reads all of it: what was begun, and the CRC32C of each part that was written, the later one of two.
    pub(super) fn read(file: impl AsFd) -> Option<(Begun, BTreeMap<u32, u32>)> {
        let size = usize::try_from(rustix::fs::fstat(&file).ok()?.st_size).ok()?;
        let mut bytes = vec![0; (size <= JOURNAL_BYTES_MAX).then_some(size)?];
        let count = read_fully(file, 0, &mut bytes).ok()?;
        Self::parse(&bytes[..count])
    }

    fn parse(bytes: &[u8]) -> Option<(Begun, BTreeMap<u32, u32>)> {
        let begun = Begun::parse(bytes)?;
        let header_crc = crc32c(&[&bytes[..HEADER_BYTES - 4]]);
        let (records, torn) = bytes[HEADER_BYTES..].as_chunks::<RECORD_BYTES>();
        let parts = records.iter().map(|record| {
            let [a, b, c, d, e, f, g, h, ..] = *record;
            let (number, crc) =
                (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
            let is_whole = encode(header_crc, number, crc) == *record && begun.of.len(number) > 0;
            is_whole.then_some((number, crc))
        });
        let parts: Option<BTreeMap<u32, u32>> = parts.collect();
        parts.filter(|_| torn.is_empty()).map(|parts| (begun, parts))
    }

    /// Goes on with one that was read.
    pub(super) fn reopen(file: OwnedFd, begun: Begun) -> rustix::io::Result<Self> {
        let header_crc = crc32c(&[&begun.to_bytes()[..HEADER_BYTES - 4]]);
        let end = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        Ok(Self { file, header_crc, end })
    }

    /// Begins anew, whatever `file` said.
    pub(super) fn begin(file: OwnedFd, begun: Begun) -> rustix::io::Result<Self> {
        rustix::fs::ftruncate(&file, 0)?;
        write_fully(0, &begun.to_bytes(), |at, rest| rustix::io::pwrite(&file, rest, at))?;
        Self::reopen(file, begun)
    }

    /// Says that the part is written. Where there is no room for that, nothing is said.
    pub(super) fn add(&mut self, number: u32, crc: u32) -> rustix::io::Result<()> {
        let record = encode(self.header_crc, number, crc);
        write_fully(self.end, &record, |at, rest| rustix::io::pwrite(&self.file, rest, at))?;
        self.end += RECORD_BYTES as u64;
        Ok(())
    }
}

fn encode(header_crc: u32, number: u32, crc: u32) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..4].copy_from_slice(&number.to_le_bytes());
    record[4..8].copy_from_slice(&crc.to_le_bytes());
    let own = crc32c(&[&header_crc.to_le_bytes(), &record[..12]]);
    record[12..].copy_from_slice(&own.to_le_bytes());
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(parts: &[(u32, u32)]) -> (tempfile::NamedTempFile, Begun) {
        let of = UploadOf { version: 7 << 100, size: 25, part_bytes: 10 };
        let begun = Begun { of, suffix: *b"0123456789abcdef" };
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut journal = Journal::begin(file.reopen().unwrap().into(), begun).unwrap();
        parts.iter().for_each(|(number, crc)| journal.add(*number, *crc).unwrap());
        (file, begun)
    }

    #[test]
    fn it_says_what_was_written_into_it() {
        let (file, begun) = journal(&[(2, 5), (0, 9), (2, 6)]);
        let parts = BTreeMap::from([(0, 9), (2, 6)]);
        assert_eq!(Journal::read(&file), Some((begun, parts)));
        assert_eq!(Begun::read(&file), Some(begun));
        let mut again = Journal::reopen(file.reopen().unwrap().into(), begun).unwrap();
        again.add(1, 3).unwrap();
        assert_eq!(Journal::read(&file).unwrap().1.len(), 3);
        // There is no fourth part.
        again.add(3, 3).unwrap();
        assert_eq!(Journal::read(&file), None);
    }

    #[test]
    fn torn_or_flipped_anywhere_it_says_nothing() {
        let (file, _) = journal(&[(0, 9), (1, 6)]);
        let whole = std::fs::read(file.path()).unwrap();
        for end in (0..whole.len()).filter(|end| !matches!(end, 64 | 80)) {
            std::fs::write(file.path(), &whole[..end]).unwrap();
            assert_eq!(Journal::read(&file), None, "cut at {end}");
        }
        for at in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            std::fs::write(file.path(), &flipped).unwrap();
            assert_eq!(Journal::read(&file), None, "bit {at}");
        }
        std::fs::write(file.path(), [&whole[..], &[0; 16]].concat()).unwrap();
        assert_eq!(Journal::read(&file), None, "zeros behind it");
    }
}
