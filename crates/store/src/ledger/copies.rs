//! The two copies of a log that is written.
//!
//! Each frame goes to both, and both are synced before a sync returns: a damaged frame of one is read
//! from the other. They are the same byte for byte.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use hayase_layout::LocalOffset;

use super::frame::{Frame, Place};
use super::header::{self, HEADER_BYTES, SLOTS};
use super::{COPIES, Content, LedgerError, failed, log_id};
use crate::device::{Device, DeviceFile};
use crate::part::PartError;

/// See the module header.
pub(super) struct Copies {
    generation: u32,
    files: [Arc<dyn DeviceFile>; COPIES],
    synced: Mutex<Slot>,
    /// A sync failed: nobody knows what the storage has of this log, and no later sync tells (fsync(2)).
    has_failed: AtomicBool,
}

/// What the headers say, once the slots are on storage.
struct Slot {
    synced: u64,
    /// Written last.
    number: usize,
}

impl Copies {
    /// Of a log that is whole up to `synced` at least, as its slot `number` says.
    pub(super) fn of(
        generation: u32,
        files: [Arc<dyn DeviceFile>; COPIES],
        (synced, number): (u64, usize),
    ) -> Self {
        let synced = Mutex::new(Slot { synced, number });
        Self { generation, files, synced, has_failed: AtomicBool::new(false) }
    }

    /// A new log of `records`, and where it ends. It is durable, and so is its header: the one before it may go.
    pub(super) fn write(
        device: &dyn Device,
        generation: u32,
        content: &Content,
    ) -> Result<(Self, u64), LedgerError> {
        let bytes = log_of(generation, content, true);
        let (copies, end) = (Self::begin(device, generation, &bytes)?, bytes.len() as u64);
        copies.settle(end)?;
        Ok((copies, end))
    }

    /// A new log of these bytes, which are durable, and of which its header says nothing yet.
    pub(super) fn begin(
        device: &dyn Device,
        generation: u32,
        bytes: &[u8],
    ) -> Result<Self, LedgerError> {
        let files =
            [new_copy(device, generation, 0, bytes)?, new_copy(device, generation, 1, bytes)?];
        Ok(Self::of(generation, files, (0, 0)))
    }

    /// The headers say, durably, that everything before `end` is durable, as it is.
    pub(super) fn settle(&self, end: u64) -> Result<(), LedgerError> {
        let mut slot = self.lock();
        let end = end.max(slot.synced);
        for file in &self.files {
            for number in 0..SLOTS {
                let (at, bytes) = header::slot(number, self.generation, end);
                file.write_at(LocalOffset(at), &bytes).map_err(failed("write"))?;
            }
        }
        for file in &self.files {
            let synced = file.sync(true).map_err(failed("sync"));
            synced.inspect_err(|_| self.has_failed.store(true, Ordering::Relaxed))?;
        }
        *slot = Slot { synced: end, number: 0 };
        Ok(())
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Writes `bytes` at byte `at` of both.
    pub(super) fn write_at(&self, at: u64, bytes: &[u8]) -> Result<(), LedgerError> {
        self.files
            .iter()
            .try_for_each(|file| file.write_at(LocalOffset(at), bytes))
            .map_err(failed("write"))
    }

    /// Nothing is behind `end`: what a failed write left there is not taken for damage later.
    pub(super) fn cut(&self, end: u64) -> Result<(), LedgerError> {
        self.files.iter().try_for_each(|file| file.truncate(end)).map_err(failed("cut"))
    }

    /// Makes durable what is before `end`, and says so in the headers.
    fn sync(&self, end: u64) -> Result<(), LedgerError> {
        let known = self.lock().synced;
        if end <= known {
            return Ok(());
        }
        self.sync_files(known, end)
            .inspect_err(|_| self.has_failed.store(true, Ordering::Relaxed))?;
        let mut slot = self.lock();
        if end <= slot.synced {
            return Ok(());
        }
        let number = (slot.number + 1) % SLOTS;
        let (at, bytes) = header::slot(number, self.generation, end);
        self.write_at(at, &bytes)?;
        *slot = Slot { synced: end, number };
        Ok(())
    }

    fn sync_files(&self, known: u64, end: u64) -> Result<(), LedgerError> {
        let [first, second] = &self.files;
        if self.has_failed() {
            let why = std::io::Error::from_raw_os_error(libc::EIO);
            let id = log_id(self.generation, 0);
            let source = PartError::from_io("sync", id, Path::new("the ledger"), why);
            return Err(LedgerError::Device { action: "sync", source });
        }
        // So the first sync may take along what the second one would wait for.
        second
            .begin_writeback(LocalOffset(known), end - known)
            .and_then(|()| first.sync(true))
            .and_then(|()| second.sync(true))
            .map_err(failed("sync"))
    }

    /// It has to be written once more, to other files.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slot> {
        self.synced.lock().expect("no holder of this lock panics")
    }
}

/// All bytes of a log that says nothing yet of being synced; with the mark of a complete one, if it `is_complete`.
pub(super) fn log_of(generation: u32, content: &Content, is_complete: bool) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    let life = content.life.iter().map(|life| Frame::Life(life.clone()));
    let puts = content.records.values().map(|record| Frame::Put(Box::new(record.clone())));
    for frame in life.chain(puts).chain(is_complete.then_some(Frame::Complete)) {
        let place = Place { generation, at: bytes.len() };
        bytes.extend_from_slice(&frame.encode(place));
    }
    bytes
}

fn new_copy(
    device: &dyn Device,
    generation: u32,
    index: u16,
    bytes: &[u8],
) -> Result<Arc<dyn DeviceFile>, LedgerError> {
    let id = log_id(generation, index);
    // One that a crash left unfinished.
    device.remove(id).map_err(failed("remove an unfinished log of"))?;
    let file = device.create(id).map_err(failed("make"))?;
    file.write_at(LocalOffset(0), bytes).map_err(failed("write"))?;
    file.sync(false).map_err(failed("sync"))?;
    Ok(file)
}

/// A sync of what was written to a ledger so far, without holding the ledger. Costs two fdatasync(2) and two small writes.
#[derive(Clone)]
pub struct LedgerSync {
    pub(super) copies: Arc<Copies>,
    pub(super) end: u64,
}

impl LedgerSync {
    /// What was written to the ledger before survives a power cut.
    ///
    /// # Errors
    /// When the storage says so: nothing is known then of what it has.
    pub fn sync(&self) -> Result<(), LedgerError> {
        self.copies.sync(self.end)
    }
}
