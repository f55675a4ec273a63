//! Reading one pack: any entry by one ranged read, and the pack's own index from its end.

use std::borrow::Cow;

use super::index::{Index, PackId};
use super::object::{ObjectReader, Stretch};
use super::row::{Codec, Location, Row};
use super::writer::{END_BYTES, FOOTER_BYTES, FOOTER_MAGIC, object_name};
use super::{DataKey, PackError};
use crate::Place;
use crate::checksum;
use crate::item::Kind;
use crate::limits::PACK_INDEX_BYTES_MAX;

/// One pack, open.
pub struct PackReader {
    object: ObjectReader,
    id: PackId,
}

impl PackReader {
    /// Opens pack `id` of the set in `place`.
    pub fn open(place: &Place, id: PackId, key: Option<&DataKey>) -> Result<Self, PackError> {
        let object = ObjectReader::open(place, &object_name(id), "tar", key)?;
        Ok(Self { object, id })
    }

    /// Bytes of the tar.
    pub fn len(&self) -> u64 {
        self.object.len()
    }

    /// An empty object, which no pack is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For errors and reports.
    pub fn object(&self) -> &str {
        &self.object.shown
    }

    /// Bytes `offset..offset + len` of the tar into `out`, all of them; unsealed ones are not checked.
    pub fn read_range(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), PackError> {
        self.object.read_range(offset, len, out)
    }

    /// The same with some bytes before and behind, in `buffer`, not open yet where they are sealed.
    pub(crate) fn read_stretch(
        &self,
        offset: u64,
        len: usize,
        buffer: Vec<u8>,
    ) -> Result<Stretch, PackError> {
        self.object.read_stretch(offset, len, buffer)
    }

    /// Opens of a stretch of this pack what lies before `end`.
    pub(crate) fn open_until(&self, stretch: &mut Stretch, end: u64) -> Result<(), PackError> {
        self.object.open_until(stretch, end)
    }

    /// An entry that lies in an open part of a stretch, checked.
    pub(crate) fn entry_of<'a>(
        &self,
        row: &Row,
        stretch: &'a Stretch,
    ) -> Result<Cow<'a, [u8]>, PackError> {
        let at = self.location(row)?;
        let stored = stretch.get(at.offset, at.stored);
        self.check(row, stored.ok_or_else(|| self.object.damaged("it is not open"))?)
    }

    /// The bytes of one entry, checked.
    pub fn entry(&self, row: &Row) -> Result<Vec<u8>, PackError> {
        let at = self.location(row)?;
        let stored = usize::try_from(at.stored)
            .ok()
            .filter(|_| at.offset.checked_add(at.stored).is_some_and(|end| end <= self.len()))
            .ok_or_else(|| self.object.damaged("it ends too early"))?;
        let mut bytes = Vec::new();
        self.read_range(at.offset, stored, &mut bytes)?;
        Ok(self.check(row, &bytes)?.into_owned())
    }

    /// Turns the stored bytes of an entry into the file's bytes, and checks them.
    pub fn check<'a>(&self, row: &Row, stored: &'a [u8]) -> Result<Cow<'a, [u8]>, PackError> {
        self.location(row)?;
        checked(&self.object.shown, row, stored)
    }

    fn location(&self, row: &Row) -> Result<Location, PackError> {
        row.location.ok_or_else(|| PackError::Entry {
            object: self.object.shown.clone(),
            name: row.item.name.to_string(),
            why: "it lies in no pack",
        })
    }

    /// The pack's own index, from its end: what a lost or unwritten index of the set is made of again.
    /// Its one pack line is complete: the footer holds the checksum of all that is before it.
    pub fn own_index(&self) -> Result<Index, PackError> {
        let behind = (END_BYTES + FOOTER_BYTES) as u64;
        let Some(at) = self.len().checked_sub(behind) else {
            return Err(self.object.damaged("it is too short for a pack"));
        };
        let mut footer = Vec::new();
        self.read_range(at, FOOTER_BYTES, &mut footer)?;
        if &footer[..8] != FOOTER_MAGIC {
            return Err(self.object.damaged("its index is not at its end"));
        }
        let word =
            |from: usize| u64::from_le_bytes(footer[from..from + 8].try_into().expect("8 bytes"));
        let (offset, len) = (word(8), word(16));
        let crc = u32::from_le_bytes(footer[24..28].try_into().expect("4 bytes"));
        let fits =
            offset.checked_add(len).is_some_and(|end| end <= at) && len <= PACK_INDEX_BYTES_MAX;
        let len = usize::try_from(len).ok().filter(|_| fits);
        let len = len.ok_or_else(|| self.object.damaged("its index lies outside"))?;
        let mut text = Vec::new();
        self.read_range(offset, len, &mut text)?;
        if checksum::of(&text) != crc {
            return Err(self.object.damaged("the checksum of its index is another"));
        }
        let mut index = Index::read(text.as_slice(), &self.object.shown)?;
        match &mut index.packs[..] {
            [own] if own.id == self.id => {
                let before = u32::from_le_bytes(footer[28..32].try_into().expect("4 bytes"));
                footer.resize(FOOTER_BYTES + END_BYTES, 0);
                own.crc32c = checksum::combine(before, checksum::of(&footer), behind);
                own.bytes = self.len();
                Ok(index)
            }
            _ => Err(self.object.damaged("its index is that of another pack")),
        }
    }
}

/// The file's bytes from the stored ones, when they are what the row says; `object` is named in errors.
pub(crate) fn checked<'a>(
    object: &str,
    row: &Row,
    stored: &'a [u8],
) -> Result<Cow<'a, [u8]>, PackError> {
    let wrong =
        |why| PackError::Entry { object: object.to_owned(), name: row.item.name.to_string(), why };
    let bytes = match row.location.map_or(Codec::Raw, |at| at.codec) {
        Codec::Raw => Cow::Borrowed(stored),
        Codec::Zstd => {
            let len = usize::try_from(row.item.bytes()).map_err(|_| wrong("it is too large"))?;
            let bytes = zstd::bulk::decompress(stored, len);
            Cow::Owned(bytes.map_err(|_| wrong("zstd can not unpack it"))?)
        }
    };
    if bytes.len() as u64 != row.item.bytes() {
        return Err(wrong("it has another length"));
    }
    if matches!(row.item.kind, Kind::File { .. }) && checksum::of(&bytes) != row.crc32c {
        return Err(wrong("its checksum is another"));
    }
    Ok(bytes)
}
