//! The ledger: what of the cache area is durable in the tier, what is not, and why not.
//!
//! Here: the records in memory, and the append-only log that survives whoever wrote it. Rooms:
//! [`record`] is what is known of one file, [`pending`] the part of it that tells extended attributes, [`frame`] its
//! bytes in the log.
//! Not here: what is flushed when (`hayase_server`); the bytes themselves ([`crate::part`]).
//!
//! The ledger and the parts of a node are enough to finish the work of a job whose servers are gone:
//! a record names the part and the path in the tier, no name space is needed.
//!
//! Invariants:
//! * a record is in the log before [`Ledger::put`] returns: it survives the death of the process;
//!   [`Ledger::sync`] makes it survive a power cut;
//! * a torn or damaged end of the log ends it: what lies behind was never synced;
//! * a log is replaced only by one that is complete and synced: [`Ledger::compact`] marks the end of
//!   what it copied, a log without that mark is not read.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use hayase_layout::{InodeId, LocalOffset};

use crate::device::{Device, DeviceFile};
use crate::part::{PartError, PartId};

mod frame;
mod pending;
mod record;

pub use self::pending::{PENDING_XATTRS_BYTES_MAX, PendingXattrs, XattrValues};
pub use self::record::{Buried, FileState, LedgerRecord, TierVersion};

use self::frame::Frame;

/// A log shorter than this is never rewritten.
const COMPACT_BYTES_MIN: u64 = 1 << 20;

/// A log this many times as long as what it would be anew is rewritten.
const COMPACT_FACTOR: u64 = 4;

/// Why the ledger could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The device said no.
    #[error("{action} the ledger")]
    Device {
        /// What was tried, a verb.
        action: &'static str,
        /// Why it failed.
        source: PartError,
    },
    /// Written by another version of this program.
    #[error("read the ledger: it has format {found} where {expected} was expected")]
    Format {
        /// Of the file.
        found: u8,
        /// Of this program.
        expected: u8,
    },
}

impl LedgerError {
    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Format { .. } => {
                Some("resume this job with the version of hayase that it was started with")
            }
            Self::Device { .. } => None,
        }
    }
}

/// How often a ledger that is written meanwhile is looked at before its error counts.
const LOOKS_MAX: usize = 3;

/// What is durable where, of one server. See the module's invariants.
pub struct Ledger {
    device: Arc<dyn Device>,
    file: Arc<dyn DeviceFile>,
    /// Of the log in use; the next one is one higher.
    generation: u32,
    /// Where the next frame goes.
    end: u64,
    /// What a log with nothing but the living records would take.
    live_bytes: u64,
    records: BTreeMap<InodeId, LedgerRecord>,
}

impl Ledger {
    /// Reads the ledger on `device`, or begins one. What a crash left half written is cut off.
    pub fn open(device: Arc<dyn Device>) -> Result<Self, LedgerError> {
        let (logs, found) = newest(&*device)?;
        let Some((id, file, read)) = found else { return Self::begin(device, &logs) };
        for other in logs.iter().filter(|other| **other != id) {
            device.remove(*other).map_err(failed("remove an old log of"))?;
        }
        // What follows is damaged, and was never synced: it must not be taken for ours later.
        file.truncate(read.end).map_err(failed("cut"))?;
        let live_bytes = read.records.values().map(bytes_of).sum();
        Ok(Self {
            device,
            file,
            generation: id.epoch,
            end: read.end,
            live_bytes,
            records: read.records,
        })
    }

    /// What the ledger on `device` says, which is left as it is: its server may be writing it just now.
    pub fn look(device: &dyn Device) -> Result<Vec<LedgerRecord>, LedgerError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match newest(device) {
                // A log that was listed a moment ago may have been replaced by a shorter one.
                Err(_) if tries < LOOKS_MAX => {}
                found => {
                    let records = found?.1.map(|(_, _, read)| read.records).unwrap_or_default();
                    return Ok(records.into_values().collect());
                }
            }
        }
    }

    fn begin(device: Arc<dyn Device>, broken: &[PartId]) -> Result<Self, LedgerError> {
        // A log without its mark was never in use.
        for id in broken {
            device.remove(*id).map_err(failed("remove an unfinished log of"))?;
        }
        let (file, end) = write_log(&*device, 0, &BTreeMap::new())?;
        let (generation, live_bytes, records) = (0, 0, BTreeMap::new());
        Ok(Self { device, file, generation, end, live_bytes, records })
    }

    /// What is known of a file.
    pub fn get(&self, ino: InodeId) -> Option<&LedgerRecord> {
        self.records.get(&ino)
    }

    /// All files, by inode number.
    pub fn records(&self) -> impl Iterator<Item = &LedgerRecord> {
        self.records.values()
    }

    /// Those above `after`, by inode number.
    pub fn records_after(&self, after: InodeId) -> impl Iterator<Item = &LedgerRecord> {
        let above = (Bound::Excluded(after), Bound::Unbounded);
        self.records.range(above).map(|(_, record)| record)
    }

    /// Makes `record` what is known of its file. Costs one write; nothing when it is known already.
    pub fn put(&mut self, record: LedgerRecord) -> Result<(), LedgerError> {
        if self.records.get(&record.ino) == Some(&record) {
            return Ok(());
        }
        self.append(&Frame::Put(Box::new(record.clone())))?;
        self.live_bytes += bytes_of(&record);
        if let Some(old) = self.records.insert(record.ino, record) {
            self.live_bytes -= bytes_of(&old);
        }
        self.compact_if_long()
    }

    /// The file is gone: it was removed by the job.
    pub fn remove(&mut self, ino: InodeId) -> Result<(), LedgerError> {
        if !self.records.contains_key(&ino) {
            return Ok(());
        }
        self.append(&Frame::Remove(ino))?;
        if let Some(old) = self.records.remove(&ino) {
            self.live_bytes -= bytes_of(&old);
        }
        self.compact_if_long()
    }

    /// What was written so far survives a power cut.
    pub fn sync(&self) -> Result<(), LedgerError> {
        self.file.sync(true).map_err(failed("sync"))
    }

    /// The log as a file that can be synced without holding the ledger.
    pub fn file(&self) -> Arc<dyn DeviceFile> {
        Arc::clone(&self.file)
    }

    /// Writes the living records to a new log, which takes the place of the old one.
    pub fn compact(&mut self) -> Result<(), LedgerError> {
        let generation = self.generation + 1;
        let (file, end) = write_log(&*self.device, generation, &self.records)?;
        let old = log_id(self.generation);
        (self.file, self.generation, self.end) = (file, generation, end);
        self.device.remove(old).map_err(failed("remove an old log of"))
    }

    fn append(&mut self, frame: &Frame) -> Result<(), LedgerError> {
        let bytes = frame.encode(self.end);
        // A write that failed half way is overwritten by the next one.
        self.file.write_at(LocalOffset(self.end), &bytes).map_err(failed("write"))?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn compact_if_long(&mut self) -> Result<(), LedgerError> {
        if self.end < COMPACT_BYTES_MIN.max(self.live_bytes.saturating_mul(COMPACT_FACTOR)) {
            return Ok(());
        }
        self.compact()
    }
}

/// What a log says.
struct Read {
    records: BTreeMap<InodeId, LedgerRecord>,
    end: u64,
}

type Found = Option<(PartId, Arc<dyn DeviceFile>, Read)>;

/// All logs, and the newest that was finished.
fn newest(device: &dyn Device) -> Result<(Vec<PartId>, Found), LedgerError> {
    let mut logs = device.list().map_err(failed("list"))?;
    logs.sort_unstable();
    for id in logs.iter().rev() {
        let file = device.open(*id).map_err(failed("open"))?;
        if let Some(read) = read_log(&*file)? {
            let found = Some((*id, file, read));
            return Ok((logs, found));
        }
    }
    Ok((logs, None))
}

/// `None` for a log that was never finished.
fn read_log(file: &dyn DeviceFile) -> Result<Option<Read>, LedgerError> {
    let size = file.stat().map_err(failed("look at"))?.size;
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    let got = file.read_at(LocalOffset(0), &mut bytes).map_err(failed("read"))?;
    bytes.truncate(got);
    let (mut records, mut end, mut is_complete) = (BTreeMap::new(), 0, false);
    while let Some((frame, len)) = Frame::decode(&bytes[end..], end as u64)? {
        match frame {
            Frame::Put(record) => drop(records.insert(record.ino, *record)),
            Frame::Remove(ino) => drop(records.remove(&ino)),
            Frame::Complete => is_complete = true,
        }
        end += len;
    }
    Ok(is_complete.then_some(Read { records, end: end as u64 }))
}

/// A new log of `records`, synced.
fn write_log(
    device: &dyn Device,
    generation: u32,
    records: &BTreeMap<InodeId, LedgerRecord>,
) -> Result<(Arc<dyn DeviceFile>, u64), LedgerError> {
    let id = log_id(generation);
    // One that a crash left unfinished.
    device.remove(id).map_err(failed("remove an unfinished log of"))?;
    let file = device.create(id).map_err(failed("make"))?;
    let mut bytes = Vec::new();
    for record in records.values() {
        let frame = Frame::Put(Box::new(record.clone())).encode(bytes.len() as u64);
        bytes.extend_from_slice(&frame);
    }
    bytes.extend_from_slice(&Frame::Complete.encode(bytes.len() as u64));
    file.write_at(LocalOffset(0), &bytes).map_err(failed("write"))?;
    file.sync(false).map_err(failed("sync"))?;
    Ok((file, bytes.len() as u64))
}

fn log_id(generation: u32) -> PartId {
    PartId { ino: InodeId(0), epoch: generation, index: 0 }
}

fn bytes_of(record: &LedgerRecord) -> u64 {
    Frame::Put(Box::new(record.clone())).encode(0).len() as u64
}

fn failed(action: &'static str) -> impl Fn(PartError) -> LedgerError {
    move |source| LedgerError::Device { action, source }
}

#[cfg(test)]
mod tests;
