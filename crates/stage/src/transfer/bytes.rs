//! A file of the source that is open: its bytes, and whether they are those that it had when it was opened.

use std::ops::Range;
use std::sync::Arc;

use hayase_tier::{Key, PartSums, PieceSink, Reader, TierError};
use ring::digest::{SHA256, digest};

use super::asking::{file_of, link_of};
use super::open_packs::OpenPacks;
use crate::Place;
use crate::item::Item;
use crate::limits::LINK_BYTES_MAX;
use crate::pack::{Codec, PackError, PackReader, Row};
use crate::plan::Task;
use crate::source::{Origin, Source};

/// A file of the source, open.
pub(super) enum Bytes {
    /// An object of its own. With it the checksum, where an index has it.
    Object { reader: Box<dyn Reader>, key: Key, crc32c: Option<u32> },
    /// An entry, stored as it is.
    Entry { pack: Arc<PackReader>, row: Row },
    /// An entry that was compressed, all of it.
    Whole { data: Vec<u8>, row: Row },
}

/// Which version of an object is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// That of the listing, where the storage can be held to it without another request.
    Listed,
    /// What is there now.
    Present,
}

impl Bytes {
    pub(super) fn open(
        source: &Source,
        open_packs: &OpenPacks,
        task: &Task,
        version: Version,
    ) -> Result<Self, PackError> {
        if let Origin::Row(row) = &task.origin
            && let (Some(at), Some(set)) = (row.location, source.set())
        {
            let (pack, row) = (open_packs.get(set, at.pack)?, row.clone());
            return match at.codec {
                Codec::Raw => Ok(Self::Entry { pack, row }),
                Codec::Zstd => Ok(Self::Whole { data: pack.entry(&row)?, row }),
            };
        }
        let crc32c = match &task.origin {
            Origin::Row(row) => Some(row.crc32c),
            Origin::Object(_) => None,
        };
        let place = source.place();
        let key = place.key(task.item.name.as_bytes())?;
        let reader = match &task.origin {
            Origin::Object(Some(meta))
                if version == Version::Listed && !place.tier.capabilities().tree =>
            {
                place.tier.open_listed(&key, *meta)?
            }
            _ => place.tier.open(&key)?,
        };
        if let Origin::Row(row) = &task.origin
            && row.item.bytes() != reader.meta().size.get()
        {
            return Err(PackError::Entry {
                object: "the source".to_owned(),
                name: task.item.name.to_string(),
                why: "its length is another",
            });
        }
        Ok(Self::Object { reader, key, crc32c })
    }

    /// What the file is now, which may be newer than the listing; of an entry what its row says. A store
    /// is asked for it, unless something was read before.
    pub(super) fn item(&self, listed: &Item) -> Result<Item, PackError> {
        match self {
            Self::Object { reader, crc32c: None, .. } => Ok(file_of(listed, &**reader)?),
            _ => Ok(listed.clone()),
        }
    }

    /// The same where all of its bytes were read: they may be what a link says.
    pub(super) fn item_of(&self, listed: &Item, data: &[u8]) -> Result<Item, PackError> {
        let item = self.item(listed)?;
        match self {
            Self::Object { reader, crc32c: None, .. }
                if data.len() as u64 <= LINK_BYTES_MAX && reader.is_link()? =>
            {
                Ok(link_of(item, data.to_vec()))
            }
            _ => Ok(item),
        }
    }

    /// Stands for the bytes that are read here, also in another run: of an entry its checksum, of an object what
    /// its storage tells of the version; with it size and time, by which plans compare.
    pub(super) fn version(&self, item: &Item) -> u128 {
        let (kind, identity, crc) = match self {
            Self::Object { reader, crc32c, .. } => {
                (1 + u8::from(crc32c.is_some()), reader.meta().identity, crc32c.unwrap_or(0))
            }
            Self::Entry { row, .. } | Self::Whole { row, .. } => (0, 0, row.crc32c),
        };
        let mut told = vec![kind];
        told.extend_from_slice(&identity.to_le_bytes());
        told.extend_from_slice(&crc.to_le_bytes());
        told.extend_from_slice(&item.bytes().to_le_bytes());
        told.extend_from_slice(item.mtime.to_string().as_bytes());
        let hash = digest(&SHA256, &told);
        u128::from_le_bytes(hash.as_ref()[..16].try_into().expect("it has 32 bytes"))
    }

    /// How long it is.
    pub(super) fn len(&self, listed: &Item) -> u64 {
        match self {
            Self::Object { reader, crc32c: None, .. } => reader.meta().size.get(),
            _ => listed.bytes(),
        }
    }

    /// Fails when the bytes are not those that the source's index tells of.
    pub(super) fn check_row(&self, item: &Item, found: u32) -> Result<(), PackError> {
        let expected = match self {
            Self::Object { crc32c, .. } => *crc32c,
            Self::Entry { row, .. } | Self::Whole { row, .. } => Some(row.crc32c),
        };
        match expected {
            Some(expected) if expected != found => Err(PackError::Entry {
                object: "the source".to_owned(),
                name: item.name.to_string(),
                why: "its checksum is another",
            }),
            _ => Ok(()),
        }
    }

    /// Fails when bytes that came piece by piece, with the checksum `found`, are not those that the source's
    /// index or its storage tells of. May ask the storage.
    pub(super) fn check_sum(&self, item: &Item, found: u32) -> Result<(), PackError> {
        self.check_row(item, found)?;
        let Self::Object { reader, key, crc32c: None } = self else { return Ok(()) };
        match reader.crc32c()? {
            Some(expected) if expected != found => Err(PackError::Damaged {
                object: key.to_string(),
                why: format!("its CRC32C is {found:08x} where {expected:08x} was stored"),
            }),
            _ => Ok(()),
        }
    }

    /// What there is to compare it with when it is read in parts, where its storage knows no CRC32C of all bytes, which
    /// costs next to nothing. May ask the storage for that.
    pub(super) fn part_sums(&self) -> Option<PartSums> {
        let Self::Object { reader, crc32c: None, .. } = self else { return None };
        let sums = reader.part_sums()?;
        match reader.crc32c() {
            Ok(Some(_)) => None,
            Ok(None) | Err(_) => Some(sums),
        }
    }

    /// Bytes `offset..offset + len`, all of them.
    pub(super) fn read(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), PackError> {
        self.read_by(offset, len, out, |reader, out| reader.read_at(offset, out))
    }

    /// The same by one request: others read other parts meanwhile.
    pub(super) fn read_part(
        &self,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        self.read_by(offset, len, out, |reader, out| reader.read_part(offset, out))
    }

    /// By one request as well, piece by piece through `buffer`: see [`Reader::read_pieces`]. `false`, with nothing done,
    /// where they come otherwise.
    pub(super) fn read_pieces(
        &self,
        range: Range<u64>,
        buffer: &mut [u8],
        sink: &mut PieceSink<'_>,
    ) -> Result<bool, PackError> {
        let Self::Object { reader, key, .. } = self else { return Ok(false) };
        let mut come = range.start;
        reader.read_pieces(range.start, range.end - range.start, buffer, &mut |at, piece| {
            come = at + piece.len() as u64;
            sink(at, piece)
        })?;
        match come == range.end {
            true => Ok(true),
            false => Err(PackError::Changed { name: key.to_string() }),
        }
    }

    fn read_by(
        &self,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
        read: impl FnOnce(&dyn Reader, &mut [u8]) -> Result<usize, TierError>,
    ) -> Result<(), PackError> {
        match self {
            Self::Entry { pack, row } => {
                let at = row.location.expect("an entry lies in a pack");
                pack.read_range(at.offset + offset, len, out)
            }
            Self::Whole { data, .. } => {
                out.clear();
                // Its length was checked when it was unpacked.
                let start = usize::try_from(offset).expect("it is in memory");
                out.extend_from_slice(&data[start..start + len]);
                Ok(())
            }
            Self::Object { reader, key, .. } => {
                make_room(out, len);
                match read(&**reader, out)? == len {
                    true => Ok(()),
                    false => Err(PackError::Changed { name: key.to_string() }),
                }
            }
        }
    }

    /// Fails when the file is no longer what was opened. Only a tree can be changed in place; a store
    /// replaces objects whole, and asking it would cost a request for each.
    pub(super) fn check_unchanged(&self, place: &Place) -> Result<(), PackError> {
        let tier = &place.tier;
        let Self::Object { reader, key, .. } = self else { return Ok(()) };
        if !tier.capabilities().tree {
            return Ok(());
        }
        let now = reader.meta_now().unwrap_or_else(|| tier.stat(key))?;
        if now.identity == reader.meta().identity {
            return Ok(());
        }
        Err(PackError::Changed { name: key.to_string() })
    }
}

/// Another read of the file may go well: it changed, or its bytes are not those that were stored.
pub(super) fn is_passing(error: &PackError) -> bool {
    use PackError::{Changed, Damaged, Entry, Tier};
    matches!(
        error,
        Changed { .. } | Damaged { .. } | Entry { .. } | Tier(TierError::Changed { .. })
    )
}

/// `len` bytes, of whatever value. A buffer that is too small goes before there is another: grown, both would be there.
fn make_room(buffer: &mut Vec<u8>, len: usize) {
    if buffer.capacity() < len {
        drop(std::mem::take(buffer));
        *buffer = vec![0; len];
    }
    buffer.resize(len, 0);
}
