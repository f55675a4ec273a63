//! Reading a log from its two copies: what one of them has lost the other one says.
//!
//! Where no copy has a good frame the log ends. It was torn there by a crash when its header does not say that this was
//! synced, and one copy shows bytes that were never written. Everything else is damage, and then nothing is believed.
//!
//! A good frame behind the end is no sign of damage: a power cut may take a frame that was not synced and leave a later
//! one. It is what [`Ledger::salvage`](super::Ledger::salvage) looks for.

use std::path::PathBuf;
use std::sync::Arc;

use hayase_layout::LocalOffset;

use super::frame::{Found, Frame, Place, old_format};
use super::header::{self, HEADER_BYTES, Synced};
use super::{COPIES, Content, LedgerError, failed, log_id};
use crate::device::{Device, DeviceFile};
use crate::part::{PartError, PartId};

/// What a file system reads at once, and loses with a sector that can not be read.
const BLOCK: usize = 4096;

/// Takes the place of bytes that can not be read. No zero: they were written.
const UNREADABLE: u8 = 0xdb;

/// One copy as it was read.
pub(super) struct Copy {
    pub(super) file: Arc<dyn DeviceFile>,
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
    pub(super) synced: Synced,
    /// A slot of the header is not as it was written.
    has_bad_header: bool,
}

/// The copies of one generation that can be opened.
pub(super) struct Log {
    pub(super) generation: u32,
    pub(super) copies: Vec<Copy>,
    /// Where the others should be.
    missing: Vec<PathBuf>,
}

/// A place in a file that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Byte of it.
    pub offset: u64,
}

/// What a log says.
pub(super) struct Read {
    pub(super) content: Content,
    pub(super) end: usize,
    pub(super) is_complete: bool,
    /// Where copies differ from what the other one says, each once.
    pub(super) repaired: Vec<Damage>,
    /// A crash tore something off, of one copy at least.
    pub(super) is_torn: bool,
}

impl Read {
    pub(super) fn apply(&mut self, frame: Frame) {
        match frame {
            Frame::Put(record) => drop(self.content.records.insert(record.ino, *record)),
            Frame::Remove(ino) => drop(self.content.records.remove(&ino)),
            Frame::Complete => self.is_complete = true,
            Frame::Life(life) => self.content.life = Some(life),
        }
    }

    pub(super) fn nothing() -> Self {
        let (content, repaired) = (Content::default(), Vec::new());
        Self { content, end: HEADER_BYTES, is_complete: false, repaired, is_torn: false }
    }
}

impl Log {
    /// Reads what `listed` has of it.
    pub(super) fn open(
        device: &dyn Device,
        generation: u32,
        listed: &[PartId],
    ) -> Result<Self, LedgerError> {
        let (mut copies, mut missing) = (Vec::new(), Vec::new());
        let mut last = None;
        for id in (0..COPIES as u16).map(|index| log_id(generation, index)) {
            let path = device.place(id);
            if !listed.contains(&id) {
                missing.push(path);
                continue;
            }
            match open_copy(device, id, path.clone()) {
                Ok(copy) => copies.push(copy),
                // It was there a moment ago: another one has taken its place.
                Err(LedgerError::Device { action, source: source @ PartError::Missing { .. } }) => {
                    return Err(LedgerError::Device { action, source });
                }
                Err(error @ LedgerError::Device { .. }) => {
                    tracing::warn!(file = %path.display(), %error, "a copy of the ledger");
                    missing.push(path);
                    last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        match last {
            Some(error) if copies.is_empty() => Err(error),
            _ => Ok(Self { generation, copies, missing }),
        }
    }

    /// Up to here nothing is torn; everything, where the headers can not be read.
    fn synced(&self) -> u64 {
        let of_copy = |copy: &Copy| match copy.synced {
            Synced::UpTo(synced, _) => Some(synced),
            Synced::Never | Synced::Unknown => None,
        };
        let is_unknown = self.copies.iter().any(|copy| copy.synced == Synced::Unknown);
        let newest = self.copies.iter().filter_map(of_copy).max();
        newest.unwrap_or(if is_unknown { u64::MAX } else { 0 })
    }

    /// What the log says. Damage that a good copy mends is listed in the result.
    pub(super) fn read(&self) -> Result<Read, LedgerError> {
        let (mut read, synced) = (Read::nothing(), self.synced());
        let mut bad: Vec<Option<usize>> = vec![None; self.copies.len()];
        let is_torn = loop {
            let at = read.end;
            let found = self.find(at)?;
            let is_torn = found.iter().any(|found| matches!(found, Found::Torn));
            for (found, bad) in found.iter().zip(&mut bad) {
                // What is torn off only one copy counts as damage only where it was synced.
                let is_harm = matches!(found, Found::Damaged) || (at as u64) < synced;
                if !matches!(found, Found::Good(_)) && is_harm {
                    bad.get_or_insert(at);
                }
            }
            let Some((frame, len)) = self.first_frame(at, &found) else {
                match (at as u64) < synced || !is_torn {
                    true => return Err(self.damaged(at)),
                    false => break self.copies.iter().any(|copy| copy.bytes.len() > at),
                }
            };
            read.apply(frame);
            read.is_torn |= is_torn;
            read.end += len;
        };
        read.is_torn |= is_torn;
        for (copy, bad) in self.copies.iter().zip(bad) {
            let bad = bad.or(copy.has_bad_header.then_some(0));
            let damage = |offset| Damage { file: copy.path.clone(), offset: offset as u64 };
            read.repaired.extend(bad.map(damage));
        }
        if synced > 0 {
            let gone = |file: &PathBuf| Damage { file: file.clone(), offset: 0 };
            read.repaired.extend(self.missing.iter().map(gone));
        }
        Ok(read)
    }

    /// What each copy has at byte `at`.
    pub(super) fn find(&self, at: usize) -> Result<Vec<Found>, LedgerError> {
        let place = Place { generation: self.generation, at };
        self.copies.iter().map(|copy| Frame::find(&copy.bytes, place)).collect()
    }

    /// The first good one of what was found at byte `at`, and its length.
    pub(super) fn first_frame(&self, at: usize, found: &[Found]) -> Option<(Frame, usize)> {
        self.copies.iter().zip(found).find_map(|(copy, found)| match found {
            Found::Good(len) => Some((Frame::decode(&copy.bytes, at, *len)?, *len)),
            Found::Torn | Found::Damaged => None,
        })
    }

    /// The next place at or behind `from` where a copy may have a good frame.
    pub(super) fn next_candidate(&self, from: usize) -> Option<usize> {
        let len = self.copies.iter().map(|copy| copy.bytes.len()).max()?;
        let is_one = |at: &usize| {
            let place = Place { generation: self.generation, at: *at };
            self.copies.iter().any(|copy| Frame::may_begin(&copy.bytes, place))
        };
        (from..len).find(is_one)
    }

    /// Neither copy can be read at byte `at`.
    pub(super) fn damaged(&self, at: usize) -> LedgerError {
        let mut files = self.copies.iter().map(|copy| &copy.path).chain(&self.missing);
        let file = files.next().cloned().unwrap_or_default();
        let copy = files.next().cloned().unwrap_or_default();
        LedgerError::Damaged { file, offset: at as u64, copy }
    }

    /// Both copies as they are, if they are the same up to `end` and nothing is behind it.
    pub(super) fn whole_copies(&self, read: &Read) -> Option<[&Copy; COPIES]> {
        let copies: [&Copy; COPIES] = self.copies.iter().collect::<Vec<_>>().try_into().ok()?;
        let is_whole =
            |copy: &&Copy| copy.bytes.len() == read.end && matches!(copy.synced, Synced::UpTo(..));
        let is_clean = read.repaired.is_empty() && !read.is_torn;
        (is_clean && copies.iter().all(is_whole)).then_some(copies)
    }
}

fn open_copy(device: &dyn Device, id: PartId, path: PathBuf) -> Result<Copy, LedgerError> {
    let file = device.open(id).map_err(failed("open"))?;
    // First the header: its server may be writing it, and what that says then is already in the file.
    let mut bytes = read_range(&*file, 0, HEADER_BYTES);
    let size = file.stat().map_err(failed("look at"))?.size as usize;
    if size > HEADER_BYTES && bytes.len() == HEADER_BYTES {
        bytes.extend(read_range(&*file, HEADER_BYTES, size));
    }
    if let Some(found) = old_format(&bytes) {
        return Err(LedgerError::Format { found, expected: super::frame::FORMAT });
    }
    let (synced, has_bad_header) = header::read(&bytes, id.epoch)?;
    Ok(Copy { file, path, bytes, synced, has_bad_header })
}

/// Bytes from `start` to `end`, or to the end of the file. A block that can not be read is as a damaged one.
fn read_range(file: &dyn DeviceFile, start: usize, end: usize) -> Vec<u8> {
    let mut bytes = vec![0; end - start];
    if let Ok(got) = file.read_at(LocalOffset(start as u64), &mut bytes) {
        bytes.truncate(got);
        return bytes;
    }
    let mut at = 0;
    while at < bytes.len() {
        let stop = ((start + at) / BLOCK * BLOCK + BLOCK - start).min(bytes.len());
        let block = &mut bytes[at..stop];
        match file.read_at(LocalOffset((start + at) as u64), block) {
            Ok(got) if got < block.len() => {
                bytes.truncate(at + got);
                break;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(offset = start + at, %error, "a block of the ledger");
                block.fill(UNREADABLE);
            }
        }
        at = stop;
    }
    bytes
}
