//! Writing one pack as a stream: members one after the other, then its own index, then the end of tar.

use hayase_tier::Precondition;
use ring::rand::SecureRandom;

use super::index::{Index, PackId, PackLine};
use super::object::{DIRECTORY, ObjectWriter};
use super::row::{Codec, Location, Row};
use super::{DataKey, PackError, header};
use crate::Place;
use crate::checksum::{self, Checksum};
use crate::item::{Item, Kind};
use crate::limits::COMPRESSED_BYTES_MAX;

/// Ends the content of the index member; with it the index is found from the end of the pack.
pub(super) const FOOTER_BYTES: usize = 32;
pub(super) const FOOTER_MAGIC: &[u8; 8] = b"HAYASEPK";

/// Two blocks of zeros end a tar.
pub(super) const END_BYTES: usize = 2 * header::BLOCK;

/// How entries are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As they are.
    None,
    /// By zstd at this level, where that saves a block at least.
    Zstd(i32),
}

/// A pack that is durable.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its line in an index.
    pub line: PackLine,
    /// Its entries in order; they name pack 0.
    pub rows: Vec<Row>,
    /// Bytes of the object, sealed where it is.
    pub object_bytes: u64,
}

/// The object's name without extension.
pub(super) fn object_name(id: PackId) -> String {
    format!("pack-{id}")
}

/// A pack on its way; dropping it abandons it.
pub struct PackWriter {
    object: ObjectWriter,
    id: PackId,
    position: u64,
    checksum: Checksum,
    rows: Vec<Row>,
    open: Option<Open>,
}

/// The entry that is being written piece by piece.
struct Open {
    item: Item,
    offset: u64,
    checksum: Checksum,
    missing: u64,
}

impl PackWriter {
    /// Begins a pack with a new name.
    pub fn begin(
        place: &Place,
        key: Option<&DataKey>,
        random: &dyn SecureRandom,
    ) -> Result<Self, PackError> {
        let id = PackId::random(random)?;
        Ok(Self::of(id, ObjectWriter::begin(place, &object_name(id), "tar", key, random)?))
    }

    /// The same for a pack that will have about `bytes`: one that fits is collected in `buffer`, and goes out by one
    /// request.
    pub fn begin_of(
        place: &Place,
        key: Option<&DataKey>,
        random: &dyn SecureRandom,
        (bytes, buffer): (u64, Vec<u8>),
    ) -> Result<Self, PackError> {
        let id = PackId::random(random)?;
        let name = object_name(id);
        let object = ObjectWriter::begin_of(place, (&name, "tar"), key, random, (bytes, buffer))?;
        Ok(Self::of(id, object))
    }

    fn of(id: PackId, object: ObjectWriter) -> Self {
        let (checksum, rows) = (Checksum::new(), Vec::new());
        Self { object, id, position: 0, checksum, rows, open: None }
    }

    /// Its name.
    pub fn id(&self) -> PackId {
        self.id
    }

    /// Bytes so far, of the tar.
    pub fn len(&self) -> u64 {
        self.position
    }

    /// Nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        self.checksum.update(bytes);
        self.position += bytes.len() as u64;
        self.object.write(bytes)
    }

    fn pad(&mut self, len: u64) -> Result<(), PackError> {
        const ZEROS: [u8; header::BLOCK] = [0; header::BLOCK];
        self.put(&ZEROS[..header::padding(len) as usize])
    }

    /// Appends an entry whose bytes are all here: a file's, or none of a directory or link.
    ///
    /// Entries come in the order of trees. With zstd the member's name ends in `.zst`.
    pub fn entry(
        &mut self,
        item: &Item,
        data: &[u8],
        compression: Compression,
    ) -> Result<(), PackError> {
        assert_eq!(item.bytes(), data.len() as u64, "the caller compared them");
        let packed = self.compress(item, data, compression)?;
        let (stored, codec) = match &packed {
            Some(packed) => (packed.as_slice(), Codec::Zstd),
            None => (data, Codec::Raw),
        };
        let is_file = matches!(item.kind, Kind::File { .. });
        let crc32c = if is_file { checksum::of(data) } else { 0 };
        let row = self.begin_member(item, stored.len() as u64, codec, crc32c)?;
        self.put(stored)?;
        self.pad(stored.len() as u64)?;
        self.rows.push(row);
        Ok(())
    }

    fn compress(
        &self,
        item: &Item,
        data: &[u8],
        compression: Compression,
    ) -> Result<Option<Vec<u8>>, PackError> {
        let Compression::Zstd(level) = compression else { return Ok(None) };
        if data.is_empty() || data.len() as u64 > COMPRESSED_BYTES_MAX {
            return Ok(None);
        }
        let packed = zstd::bulk::compress(data, level)
            .map_err(|source| PackError::Compress { name: item.name.to_string(), source })?;
        let blocks = |len: usize| len.div_ceil(header::BLOCK);
        Ok((blocks(packed.len()) < blocks(data.len())).then_some(packed))
    }

    fn begin_member(
        &mut self,
        item: &Item,
        stored: u64,
        codec: Codec,
        crc32c: u32,
    ) -> Result<Row, PackError> {
        assert!(self.open.is_none(), "an entry ends before the next begins");
        let location = Location { pack: 0, offset: 0, stored, codec };
        let mut row = Row { item: item.clone(), crc32c, location: Some(location) };
        let header = header::of(&row);
        let offset = self.position + header.len() as u64;
        row.location = Some(Location { offset, ..location });
        self.put(&header)?;
        Ok(row)
    }

    /// Begins a file whose bytes come in pieces by [`PackWriter::push`].
    pub fn begin_file(&mut self, item: &Item) -> Result<(), PackError> {
        let bytes = item.bytes();
        let row = self.begin_member(item, bytes, Codec::Raw, 0)?;
        let offset = row.location.expect("it was just placed").offset;
        let item = item.clone();
        self.open = Some(Open { item, offset, checksum: Checksum::new(), missing: bytes });
        Ok(())
    }

    /// The next bytes of the file that was begun. Fails when there are more than it has.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), PackError> {
        let open = self.open.as_mut().expect("a file was begun");
        let Some(missing) = open.missing.checked_sub(piece.len() as u64) else {
            return Err(PackError::Changed { name: open.item.name.to_string() });
        };
        open.missing = missing;
        open.checksum.update(piece);
        self.put(piece)
    }

    /// Ends the file that was begun. Fails when bytes of it are missing.
    pub fn end_file(&mut self) -> Result<(), PackError> {
        let open = self.open.take().expect("a file was begun");
        if open.missing != 0 {
            return Err(PackError::Changed { name: open.item.name.to_string() });
        }
        let stored = open.item.bytes();
        let location = Location { pack: 0, offset: open.offset, stored, codec: Codec::Raw };
        let crc32c = open.checksum.value();
        self.rows.push(Row { item: open.item, crc32c, location: Some(location) });
        self.pad(stored)
    }

    /// Appends the pack's own index and makes the pack durable.
    pub fn finish(self) -> Result<Written, PackError> {
        self.finish_with_buffer().map(|(written, _)| written)
    }

    /// The same, with the buffer that the next pack may be collected in.
    pub fn finish_with_buffer(mut self) -> Result<(Written, Vec<u8>), PackError> {
        assert!(self.open.is_none(), "the last file was ended");
        let own = PackLine { id: self.id, bytes: 0, crc32c: 0 };
        let index = Index { packs: vec![own], rows: std::mem::take(&mut self.rows) };
        let text = index.to_text();
        let zeros = header::padding((text.len() + FOOTER_BYTES) as u64) as usize;
        let content = (text.len() + zeros + FOOTER_BYTES) as u64;
        let name = format!("{DIRECTORY}/{}.index", object_name(self.id));
        self.put(&header::plain(name.as_bytes(), content))?;
        let mut footer = FOOTER_MAGIC.to_vec();
        footer.extend(self.position.to_le_bytes());
        footer.extend((text.len() as u64).to_le_bytes());
        footer.extend(checksum::of(&text).to_le_bytes());
        self.put(&text)?;
        self.put(&vec![0; zeros])?;
        footer.extend(self.checksum.value().to_le_bytes());
        self.put(&footer)?;
        self.put(&[0; END_BYTES])?;
        let line = PackLine { id: self.id, bytes: self.position, crc32c: self.checksum.value() };
        let (meta, buffer) = self.object.commit(Precondition::Any)?;
        Ok((Written { line, rows: index.rows, object_bytes: meta.size.get() }, buffer))
    }
}
