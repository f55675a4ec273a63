//! An entry that is checked while the bytes of its pack pass by, each byte once and in order.
//!
//! Here: header, bytes and padding of one entry. Not here: reading the pack, and which entry comes next.

use crate::checksum::Checksum;
use crate::limits::STREAM_BYTES;
use crate::pack::header::{self, padding};
use crate::pack::reader::checked;
use crate::pack::row::Location;
use crate::pack::{Codec, PackError, PackReader, Row};

/// One entry, as far as it has passed.
pub(super) struct Passing<'a> {
    /// The pack, for errors.
    object: &'a str,
    row: &'a Row,
    at: Location,
    /// What any tar must find before the bytes.
    header: Vec<u8>,
    /// Bytes of header, entry and padding that have passed.
    passed: u64,
    sum: Checksum,
    /// Of a compressed entry: what there is to unpack.
    stored: Vec<u8>,
    /// The first thing that is wrong.
    wrong: Option<&'static str>,
}

impl<'a> Passing<'a> {
    /// `None` when the entry does not lie whole in the first `pack_bytes`, behind byte `from`: then its
    /// row is wrong, or shares bytes with another.
    pub(super) fn begin(
        object: &'a str,
        row: &'a Row,
        (from, pack_bytes): (u64, u64),
    ) -> Option<Self> {
        let (at, header) = (row.location?, header::of(row));
        let entry = Self {
            object,
            row,
            at,
            header,
            passed: 0,
            sum: Checksum::new(),
            stored: Vec::new(),
            wrong: None,
        };
        at.offset.checked_sub(entry.header.len() as u64).filter(|begin| *begin >= from)?;
        let end = at.offset.checked_add(at.stored)?.checked_add(padding(at.stored))?;
        (end <= pack_bytes).then_some(entry)
    }

    /// Where its header begins in the pack.
    pub(super) fn offset(&self) -> u64 {
        self.at.offset - self.header.len() as u64
    }

    /// Header, bytes and padding.
    fn len(&self) -> u64 {
        self.header.len() as u64 + self.at.stored + padding(self.at.stored)
    }

    /// All of it has passed.
    pub(super) fn is_whole(&self) -> bool {
        self.passed == self.len()
    }

    /// Which.
    pub(super) fn row(&self) -> &'a Row {
        self.row
    }

    /// Lets all of it pass, by reads of its own.
    pub(super) fn read(&mut self, pack: &PackReader, piece: &mut Vec<u8>) -> Result<(), PackError> {
        while !self.is_whole() {
            let len = (self.len() - self.passed).min(STREAM_BYTES as u64) as usize;
            pack.read_range(self.offset() + self.passed, len, piece)?;
            self.pass(piece);
        }
        Ok(())
    }

    /// Takes what is its own of the next bytes of the pack; answers how many.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> usize {
        let header = self.header.len() as u64;
        let ends = [header, header + self.at.stored, self.len()];
        let mut rest = bytes;
        for (section, end) in ends.into_iter().enumerate() {
            let count = usize::try_from(end.saturating_sub(self.passed)).unwrap_or(usize::MAX);
            let (own, behind) = rest.split_at(count.min(rest.len()));
            match section {
                0 => self.pass_header(own),
                1 => self.pass_stored(own),
                _ if own.iter().any(|byte| *byte != 0) => {
                    self.is_wrong("there are bytes behind its end");
                }
                _ => {}
            }
            self.passed += own.len() as u64;
            rest = behind;
        }
        bytes.len() - rest.len()
    }

    fn pass_header(&mut self, own: &[u8]) {
        if !own.is_empty() {
            // The whole header has passed only behind this.
            let start = usize::try_from(self.passed).expect("a header is in memory");
            if self.header[start..start + own.len()] != *own {
                self.is_wrong("its tar header says something else");
            }
        }
    }

    fn pass_stored(&mut self, own: &[u8]) {
        match self.at.codec {
            Codec::Raw => self.sum.update(own),
            Codec::Zstd => self.stored.extend_from_slice(own),
        }
    }

    fn is_wrong(&mut self, why: &'static str) {
        self.wrong.get_or_insert(why);
    }

    /// What all of it together says; to be asked once it is whole.
    pub(super) fn end(self) -> Result<(), PackError> {
        let wrong = |why| {
            let name = self.row.item.name.to_string();
            Err(PackError::Entry { object: self.object.to_owned(), name, why })
        };
        match (self.wrong, self.at.codec) {
            (Some(why), _) => wrong(why),
            (None, Codec::Zstd) => checked(self.object, self.row, &self.stored).map(drop),
            (None, Codec::Raw) if self.at.stored != self.row.item.bytes() => {
                wrong("it has another length")
            }
            (None, Codec::Raw) if self.row.crc32c != self.sum.value() && self.is_file() => {
                wrong("its checksum is another")
            }
            (None, Codec::Raw) => Ok(()),
        }
    }

    fn is_file(&self) -> bool {
        matches!(self.row.item.kind, crate::item::Kind::File { .. })
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use hayase_tier::Key;
    use proptest::prelude::*;

    use super::*;
    use crate::item::{Item, Kind, Mtime};

    /// A row at `offset`, and what lies in its pack from its header on.
    fn entry(data: &[u8], codec: Codec, offset: u64) -> (Row, Vec<u8>) {
        let stored = match codec {
            Codec::Raw => data.to_vec(),
            Codec::Zstd => zstd::bulk::compress(data, 1).unwrap(),
        };
        let item = Item {
            name: Key::new(b"d/name").unwrap(),
            kind: Kind::File { bytes: data.len() as u64 },
            mode: 0o640,
            mtime: Mtime::from(SystemTime::UNIX_EPOCH),
        };
        let mut row = Row { item, crc32c: crate::checksum::of(data), location: None };
        let at = |offset| Location { pack: 0, offset, stored: stored.len() as u64, codec };
        row.location = Some(at(offset));
        let header = header::of(&row);
        row.location = Some(at(offset + header.len() as u64));
        let zeros = vec![0; padding(stored.len() as u64) as usize];
        (row, [header, stored, zeros].concat())
    }

    fn check(row: &Row, bytes: &[u8], pieces: usize) -> Result<(), PackError> {
        let mut passing = Passing::begin("a pack", row, (0, u64::MAX)).unwrap();
        for piece in bytes.chunks(pieces) {
            assert_eq!(passing.pass(piece), piece.len());
        }
        assert!(passing.is_whole());
        assert_eq!(passing.pass(b"of the next entry"), 0);
        passing.end()
    }

    #[test]
    fn what_can_not_be_there_does_not_begin() {
        let (row, bytes) = entry(b"bytes", Codec::Raw, 512);
        let end = 512 + bytes.len() as u64;
        let begins = |from, pack_bytes| Passing::begin("", &row, (from, pack_bytes)).is_some();
        assert!(begins(0, end) && begins(512, end));
        assert!(!begins(513, end) && !begins(0, end - 1));
        for offset in [0, 17, u64::MAX] {
            let mut row = row.clone();
            row.location.as_mut().unwrap().offset = offset;
            assert!(Passing::begin("", &row, (0, u64::MAX)).is_none(), "{offset}");
        }
        let mut longer = row.clone();
        longer.location.as_mut().unwrap().stored = u64::MAX;
        assert!(Passing::begin("", &longer, (0, u64::MAX)).is_none());
    }

    proptest! {
        #[test]
        fn whatever_the_pieces_a_whole_entry_passes_and_a_flipped_bit_does_not(
            data in proptest::collection::vec(any::<u8>(), 0..3000),
            is_compressed: bool,
            pieces in 1_usize..2000,
            place: prop::sample::Index,
        ) {
            let codec = if is_compressed { Codec::Zstd } else { Codec::Raw };
            let (row, mut bytes) = entry(&data, codec, 0);
            prop_assert!(check(&row, &bytes, pieces).is_ok());
            let bit = place.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            // A frame of zstd has bits that mean nothing; what it unpacks to has its checksum.
            let stored = 512..512 + row.location.unwrap().stored as usize;
            let means_nothing = is_compressed && stored.contains(&(bit / 8));
            prop_assert!(check(&row, &bytes, pieces).is_err() || means_nothing, "bit {}", bit);
        }
    }
}
