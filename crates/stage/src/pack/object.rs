//! Objects of a set, read and written as a stream, sealed or not.
//!
//! Here: the one place that knows whether bytes pass through a seal. Not here: what they mean.

use std::io;
use std::sync::Arc;

use hayase_tier::{Attributes, Key, ObjectMeta, Precondition, Reader, Tier, Upload};
use ring::rand::SecureRandom;

use super::seal::{HEADER_BYTES, Opener, Run, Sealer, tags_bytes};
use super::{DataKey, PackError};
use crate::Place;
use crate::limits::{CHUNK_BYTES, PACK_WHOLE_BYTES_MAX, PIECE_BYTES};

/// Where the objects of a set lie, below its place. No file of a tree may have this name.
pub const DIRECTORY: &str = ".hayase-packs";

/// The key of object `name` with its extension.
pub(super) fn key_of(place: &Place, name: &str) -> Result<Key, PackError> {
    Ok(place.key(format!("{DIRECTORY}/{name}"))?)
}

/// `name` as it is stored: `.sealed` when there is a key, else what any program knows.
pub(super) fn file_name(name: &str, extension: &str, key: Option<&DataKey>) -> String {
    let extension = if key.is_some() { "sealed" } else { extension };
    format!("{name}.{extension}")
}

/// How an object goes out.
enum Out {
    Pieces(Box<dyn Upload>),
    /// All at once, at the end.
    Whole(Arc<dyn Tier>, Key),
}

/// One that an upload would keep in memory anyway, and that is not too large, goes out whole.
fn goes_whole(tier: &dyn Tier, bytes: u64) -> bool {
    tier.upload_memory(bytes) > 0 && bytes <= PACK_WHOLE_BYTES_MAX
}

/// A new object on its way; nothing is seen of it before `commit`.
pub(super) struct ObjectWriter {
    out: Out,
    written: u64,
    /// What is ready to go out, in pieces of [`PIECE_BYTES`] where it goes in pieces, and what waits to be sealed.
    ready: Vec<u8>,
    sealer: Option<Sealer>,
}

impl ObjectWriter {
    pub(super) fn begin(
        place: &Place,
        name: &str,
        extension: &str,
        key: Option<&DataKey>,
        random: &dyn SecureRandom,
    ) -> Result<Self, PackError> {
        let object = key_of(place, &file_name(name, extension, key))?;
        let out = Out::Pieces(place.tier.begin(&object, Attributes::default())?);
        let ready = Vec::with_capacity(PIECE_BYTES + 2 * CHUNK_BYTES);
        Self { out, written: 0, ready, sealer: None }.sealed(name, key, random)
    }

    /// The same for an object that will have about `bytes`; one that goes out whole is collected in `buffer`, whose
    /// bytes mean nothing: memory that was used before costs no page faults.
    pub(super) fn begin_of(
        place: &Place,
        (name, extension): (&str, &str),
        key: Option<&DataKey>,
        random: &dyn SecureRandom,
        (bytes, buffer): (u64, Vec<u8>),
    ) -> Result<Self, PackError> {
        if !goes_whole(&*place.tier, bytes) {
            return Self::begin(place, name, extension, key, random);
        }
        let object = key_of(place, &file_name(name, extension, key))?;
        let mut ready = buffer;
        ready.clear();
        let tags = if key.is_some() { tags_bytes(bytes) } else { 0 };
        ready.reserve_exact(usize::try_from(bytes + tags).unwrap_or(0));
        let out = Out::Whole(Arc::clone(&place.tier), object);
        Self { out, written: 0, ready, sealer: None }.sealed(name, key, random)
    }

    fn sealed(
        mut self,
        name: &str,
        key: Option<&DataKey>,
        random: &dyn SecureRandom,
    ) -> Result<Self, PackError> {
        self.sealer = key.map(|key| Sealer::new(key, name, random)).transpose()?;
        if let Some(sealer) = &self.sealer {
            self.ready.extend_from_slice(sealer.header());
        }
        Ok(self)
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), PackError> {
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES));
            match &mut self.sealer {
                Some(sealer) => sealer.update(piece, &mut self.ready),
                None => self.ready.extend_from_slice(piece),
            }
            bytes = rest;
            if self.ready_bytes() >= PIECE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// What may go out: what is not sealed yet stays.
    fn ready_bytes(&self) -> usize {
        self.ready.len() - self.sealer.as_ref().map_or(0, Sealer::waiting)
    }

    fn flush(&mut self) -> Result<(), PackError> {
        let count = self.ready_bytes();
        if let Out::Pieces(upload) = &mut self.out {
            upload.write_at(self.written, &self.ready[..count])?;
            self.written += count as u64;
            self.ready.drain(..count);
        }
        Ok(())
    }

    /// What the object became, and the buffer, to be used again.
    pub(super) fn commit(
        mut self,
        precondition: Precondition,
    ) -> Result<(ObjectMeta, Vec<u8>), PackError> {
        if let Some(sealer) = self.sealer.take() {
            sealer.finish(&mut self.ready);
        }
        if !self.ready.is_empty() {
            self.flush()?;
        }
        let meta = match self.out {
            Out::Pieces(upload) => upload.commit(precondition)?,
            Out::Whole(tier, key) => {
                tier.put(&key, Attributes::default(), &self.ready, precondition)?
            }
        };
        Ok((meta, self.ready))
    }
}

/// An object, open for reading at any offset of its plain bytes.
pub(super) struct ObjectReader {
    reader: Box<dyn Reader>,
    opener: Option<Opener>,
    /// Named in errors.
    pub(super) shown: String,
}

impl ObjectReader {
    pub(super) fn open(
        place: &Place,
        name: &str,
        extension: &str,
        key: Option<&DataKey>,
    ) -> Result<Self, PackError> {
        let object = key_of(place, &file_name(name, extension, key))?;
        let reader = place.tier.open(&object)?;
        let shown = object.to_string();
        let opener = match key {
            None => None,
            Some(key) => {
                let mut header = [0; HEADER_BYTES];
                let count = reader.read_at(0, &mut header)?;
                let sealed = reader.meta().size.get();
                Some(Opener::new(key, name, &header[..count], sealed, &shown)?)
            }
        };
        Ok(Self { reader, opener, shown })
    }

    /// Plain bytes.
    pub(super) fn len(&self) -> u64 {
        self.opener.as_ref().map_or_else(|| self.reader.meta().size.get(), Opener::len)
    }

    /// Bytes `offset..offset + len` into `out`, all of them. Reads as much more as chunks need.
    pub(super) fn read_range(
        &self,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), PackError> {
        let mut stretch = self.read_stretch(offset, len, std::mem::take(out))?;
        self.open_until(&mut stretch, offset + len as u64)?;
        let skip = usize::try_from(offset - stretch.start).expect("less than a chunk");
        *out = stretch.into_buffer();
        out.drain(..skip);
        out.truncate(len);
        Ok(())
    }

    /// The same with what chunks have before and behind, in `buffer`; sealed as they came.
    pub(super) fn read_stretch(
        &self,
        offset: u64,
        len: usize,
        mut buffer: Vec<u8>,
    ) -> Result<Stretch, PackError> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len()) {
            return Err(self.damaged("it ends too early"));
        }
        let end = offset + len as u64;
        let Some(opener) = self.opener.as_ref().filter(|_| len > 0) else {
            self.fill(offset, len, &mut buffer)?;
            return Ok(Stretch { start: offset, end, bytes: buffer, run: None });
        };
        let (first, at, count) = opener.sealed_range(offset, len as u64);
        let count = usize::try_from(count).map_err(|_| self.damaged("a range that is too long"))?;
        self.fill(at, count, &mut buffer)?;
        let start = first * CHUNK_BYTES as u64;
        Ok(Stretch { start, end, bytes: buffer, run: Some(Run::new(first)) })
    }

    /// Opens of a stretch what lies before `end`, where it is not open yet.
    pub(super) fn open_until(&self, stretch: &mut Stretch, end: u64) -> Result<(), PackError> {
        let (Some(opener), Some(run)) = (&self.opener, &mut stretch.run) else { return Ok(()) };
        let wanted = end.min(stretch.end).saturating_sub(stretch.start);
        opener.open(run, &mut stretch.bytes, usize::try_from(wanted).unwrap_or(usize::MAX))
    }

    fn fill(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), PackError> {
        // What is there is written over or not looked at; so it is not made zeros before.
        out.truncate(len);
        out.reserve_exact(len - out.len());
        out.resize(len, 0);
        if len > 0 && self.reader.read_at(offset, out)? != len {
            return Err(self.damaged("it ends too early"));
        }
        Ok(())
    }

    pub(super) fn damaged(&self, why: &str) -> PackError {
        PackError::Damaged { object: self.shown.clone(), why: why.to_owned() }
    }
}

/// Consecutive bytes of an object in memory. Sealed ones are opened as they are wanted: what is used at once is then
/// still in the processor's cache.
pub(crate) struct Stretch {
    /// Of the object's plain bytes.
    start: u64,
    /// What was asked for ends here; chunks may bring more.
    end: u64,
    bytes: Vec<u8>,
    run: Option<Run>,
}

impl Stretch {
    /// It was read to hold plain bytes `offset..offset + len`.
    pub(crate) fn holds(&self, offset: u64, len: u64) -> bool {
        offset >= self.start && offset.checked_add(len).is_some_and(|end| end <= self.end)
    }

    /// These plain bytes; `None` where they do not lie in it, or are not open.
    pub(crate) fn get(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let opened = self.run.as_ref().map_or(self.bytes.len(), Run::opened);
        let start = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        self.bytes[..opened].get(start..end)
    }

    /// The buffer, to be used again; what is open lies at its front.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads an object from its begin to its end, for what wants a stream.
pub(super) struct ObjectStream {
    object: ObjectReader,
    offset: u64,
    piece: Vec<u8>,
}

impl ObjectStream {
    pub(super) fn new(object: ObjectReader) -> Self {
        Self { object, offset: 0, piece: Vec::new() }
    }
}

impl io::Read for ObjectStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.object.len() - self.offset;
        let count = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
        self.object.read_range(self.offset, count, &mut self.piece).map_err(io::Error::other)?;
        buffer[..count].copy_from_slice(&self.piece);
        self.offset += count as u64;
        Ok(count)
    }
}
