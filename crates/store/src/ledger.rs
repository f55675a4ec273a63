//! The ledger: a write-ahead log of what of the cache area is durable in the tier, what is not, and why not.
//!
//! Here: the records in memory, and the append-only log that survives the process that wrote it. Rooms:
//! [`record`] is what is known of one file, [`pending`] the part of it that tells extended attributes; [`frame`] is its
//! bytes in the log, [`header`] says how much of the log was synced, [`copies`] writes both copies of it, [`rewrite`] writes
//! a shorter one without holding anybody up, [`reading`] tells a torn end from damage, [`salvage`] reads what a damaged one still says.
//! Not here: what is flushed when (`hayase_server`); the bytes themselves ([`crate::part`]).
//!
//! The ledger and the parts of a node are enough to finish the work of a job whose servers are gone:
//! a record names the part and the path in the tier, no name space is needed.
//!
//! Invariants:
//! * a record is in both copies of the log before [`Ledger::put`] returns: it survives the death of the process;
//!   [`Ledger::sync`] makes it survive a power cut;
//! * what a crash tore off the end was never synced, and is dropped; on damage nothing is removed, cut or believed;
//! * a sync that fails ends the log: its records go to a new one, since no later sync would tell what is lost;
//! * a log goes only when another one is complete and synced, as its header says durably: [`Ledger::compact`] marks the
//!   end of what it copied. So a log without that mark is unfinished only where an earlier one is there too, or the mark
//!   of a ledger that is being begun.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use hayase_layout::InodeId;

use crate::device::Device;
use crate::part::{PartError, PartId};

mod copies;
mod frame;
mod header;
mod pending;
mod reading;
mod record;
mod rewrite;
mod salvage;

pub use self::copies::LedgerSync;
pub use self::pending::{PENDING_XATTRS_BYTES_MAX, PendingXattrs, XattrValues};
pub use self::reading::Damage;
pub use self::record::{Buried, FileState, LedgerRecord, Succession, Synced, TierVersion};
pub use self::rewrite::{Replacement, Rewrite, Rewritten};
pub use self::salvage::Salvaged;

use self::copies::Copies;
use self::frame::{Frame, Place};
use self::reading::{Log, Read};

/// Copies of each log.
const COPIES: usize = 2;

/// An empty log of this generation is there while a ledger is being begun, and no other log of it is ever in use.
const BEGINNING: u32 = 0;

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
    /// Bytes that were written are not as they were, in both copies.
    #[error(
        "read the ledger: {} is damaged at byte {offset}, and so is its copy {}",
        .file.display(),
        .copy.display()
    )]
    Damaged {
        /// One copy.
        file: PathBuf,
        /// The first byte that can not be read in either.
        offset: u64,
        /// The other one.
        copy: PathBuf,
    },
}

impl LedgerError {
    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Format { .. } => {
                Some("resume this job with the version of hayase that it was started with")
            }
            Self::Damaged { .. } => Some(
                "nothing was removed; `hayase resume --salvage DIR` copies every file that still exists to the tier, DIR \
                 being the job's directory or what was kept of it",
            ),
            Self::Device { .. } => None,
        }
    }
}

/// How often a ledger that is written meanwhile is looked at before its error counts.
const LOOKS_MAX: usize = 3;

/// What is durable where, of one server. See the module's invariants.
pub struct Ledger {
    device: Arc<dyn Device>,
    /// Of the log in use; the generation of the next one is one higher.
    copies: Arc<Copies>,
    /// Where the next frame goes.
    end: u64,
    /// A write failed: something of it may be behind the end.
    is_dirty_behind: bool,
    /// What the living records would take in a log.
    live_bytes: u64,
    content: Content,
    /// The highest that a log was given.
    last_generation: u32,
    is_rewritten_elsewhere: bool,
    under_way: Option<rewrite::UnderWay>,
    /// A later log that may look complete, and could not be removed: whatever is written here, that one would count.
    leftover: Option<u32>,
}

/// What a log says.
#[derive(Default)]
struct Content {
    records: BTreeMap<InodeId, LedgerRecord>,
    /// Of the machine, when its server wrote last.
    life: Option<String>,
}

impl Ledger {
    /// Reads the ledger on `device`, or begins one. What a crash left half written is dropped; what one copy has lost
    /// comes from the other, and both are written again.
    ///
    /// # Errors
    /// [`LedgerError::Damaged`] when both copies are: then nothing on `device` was changed.
    pub fn open(device: Arc<dyn Device>) -> Result<Self, LedgerError> {
        let (ids, found) = newest(&*device)?;
        let Some((log, read)) = found else { return Self::begin(device, &ids) };
        let kept = log.whole_copies(&read).map(|[first, second]| {
            let synced = match first.synced {
                header::Synced::UpTo(synced, number) => (synced, number),
                header::Synced::Never | header::Synced::Unknown => (0, 0),
            };
            let files = [Arc::clone(&first.file), Arc::clone(&second.file)];
            Copies::of(log.generation, files, synced)
        });
        let (copies, end) = match kept {
            Some(copies) => (copies, read.end as u64),
            None => Copies::write(&*device, above(&ids), &read.content)?,
        };
        let live = copies.generation();
        for other in ids.iter().filter(|id| id.epoch != live) {
            device.remove(*other).map_err(failed("remove an old log of"))?;
        }
        Ok(Self::of(device, (copies, end), read.content))
    }

    fn of(device: Arc<dyn Device>, (copies, end): (Copies, u64), content: Content) -> Self {
        let live_bytes = content.records.values().map(bytes_of).sum();
        Self {
            device,
            end,
            is_dirty_behind: false,
            live_bytes,
            content,
            last_generation: copies.generation(),
            copies: Arc::new(copies),
            is_rewritten_elsewhere: false,
            under_way: None,
            leftover: None,
        }
    }

    /// What the ledger on `device` says, which is left as it is: its server may be writing it just now.
    ///
    /// # Errors
    /// [`LedgerError::Damaged`] when both copies are.
    pub fn look(device: &dyn Device) -> Result<Vec<LedgerRecord>, LedgerError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match newest(device) {
                // A log that was listed a moment ago may have been replaced by a shorter one.
                Err(_) if tries < LOOKS_MAX => {}
                found => {
                    let records =
                        found?.1.map(|(_, read)| read.content.records).unwrap_or_default();
                    return Ok(records.into_values().collect());
                }
            }
        }
    }

    /// Of `ids` none was ever in use.
    fn begin(device: Arc<dyn Device>, ids: &[PartId]) -> Result<Self, LedgerError> {
        let beginning = log_id(BEGINNING, 0);
        if !ids.contains(&beginning) {
            device.create(beginning).and_then(|file| file.sync(false)).map_err(failed("begin"))?;
        }
        for id in ids.iter().filter(|id| **id != beginning) {
            device.remove(*id).map_err(failed("remove an unfinished log of"))?;
        }
        let content = Content::default();
        let written = Copies::write(&*device, BEGINNING + 1, &content)?;
        device.remove(beginning).map_err(failed("begin"))?;
        Ok(Self::of(device, written, content))
    }

    /// The life of the machine in which a server wrote this ledger last; `None` when none has said so.
    pub fn life(&self) -> Option<&str> {
        self.content.life.as_deref()
    }

    /// A server writes this ledger from here on, in this life of its machine; survives a power cut when it returns.
    /// Whether that is another one than before: what was not synced then may be gone.
    pub fn begin_life(&mut self, life: &str) -> Result<bool, LedgerError> {
        if self.life() == Some(life) {
            return Ok(false);
        }
        self.append(&Frame::Life(life.to_owned()))?;
        let earlier = self.content.life.replace(life.to_owned());
        self.sync()?;
        Ok(earlier.is_some())
    }

    /// What is known of a file.
    pub fn get(&self, ino: InodeId) -> Option<&LedgerRecord> {
        self.content.records.get(&ino)
    }

    /// All files, by inode number.
    pub fn records(&self) -> impl Iterator<Item = &LedgerRecord> {
        self.content.records.values()
    }

    /// Those above `after`, by inode number.
    pub fn records_after(&self, after: InodeId) -> impl Iterator<Item = &LedgerRecord> {
        let above = (Bound::Excluded(after), Bound::Unbounded);
        self.content.records.range(above).map(|(_, record)| record)
    }

    /// Makes `record` what is known of its file. Costs two writes; nothing when it is known already.
    pub fn put(&mut self, record: LedgerRecord) -> Result<(), LedgerError> {
        if self.content.records.get(&record.ino) == Some(&record) {
            return Ok(());
        }
        self.append(&Frame::Put(Box::new(record.clone())))?;
        self.changes(record.ino);
        self.live_bytes += bytes_of(&record);
        if let Some(old) = self.content.records.insert(record.ino, record) {
            self.live_bytes -= bytes_of(&old);
        }
        self.compact_if_long()
    }

    /// The file is gone: it was removed by the job.
    pub fn remove(&mut self, ino: InodeId) -> Result<(), LedgerError> {
        if !self.content.records.contains_key(&ino) {
            return Ok(());
        }
        self.append(&Frame::Remove(ino))?;
        self.changes(ino);
        if let Some(old) = self.content.records.remove(&ino) {
            self.live_bytes -= bytes_of(&old);
        }
        self.compact_if_long()
    }

    /// What was written so far survives a power cut.
    pub fn sync(&mut self) -> Result<(), LedgerError> {
        self.unsynced()?.sync()
    }

    /// The same, to be done without holding the ledger. After a sync that failed the whole log is written to other files first.
    pub fn unsynced(&mut self) -> Result<LedgerSync, LedgerError> {
        self.renew_if_failed()?;
        self.remove_leftover()?;
        Ok(LedgerSync { copies: Arc::clone(&self.copies), end: self.end })
    }

    fn renew_if_failed(&mut self) -> Result<(), LedgerError> {
        match self.copies.has_failed() {
            true => self.compact(),
            false => Ok(()),
        }
    }

    /// Writes the living records to a new log, which takes the place of the old one.
    pub fn compact(&mut self) -> Result<(), LedgerError> {
        self.give_up_rewrite();
        // Never that of one that failed, which may be removed later.
        self.last_generation += 1;
        let generation = self.last_generation;
        let written = Copies::write(&*self.device, generation, &self.content);
        let (copies, end) = written.inspect_err(|_| self.leaves(generation))?;
        (self.copies, self.end, self.is_dirty_behind) = (Arc::new(copies), end, false);
        self.leftover = None;
        rewrite::remove_before(&*self.device, generation)
    }

    fn append(&mut self, frame: &Frame) -> Result<(), LedgerError> {
        self.renew_if_failed()?;
        self.remove_leftover()?;
        if self.is_dirty_behind {
            self.copies.cut(self.end)?;
        }
        let place = Place { generation: self.copies.generation(), at: self.end as usize };
        let bytes = frame.encode(place);
        self.is_dirty_behind = true;
        self.copies.write_at(self.end, &bytes)?;
        self.is_dirty_behind = false;
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn compact_if_long(&mut self) -> Result<(), LedgerError> {
        match self.is_too_long() {
            true => self.compact(),
            false => Ok(()),
        }
    }
}

type Newest = Option<(Log, Read)>;

/// All files of the ledger, and the newest log that was finished.
fn newest(device: &dyn Device) -> Result<(Vec<PartId>, Newest), LedgerError> {
    let (ids, generations) = generations(device)?;
    let mut unfinished = None;
    for generation in generations {
        let log = Log::open(device, generation, &ids)?;
        let read = log.read()?;
        if read.is_complete {
            tell(&log, &read);
            return Ok((ids, Some((log, read))));
        }
        unfinished.get_or_insert((log, read.end));
    }
    match unfinished {
        // The one before it goes only when it is finished, durably.
        Some((log, end)) if !ids.contains(&log_id(BEGINNING, 0)) => Err(log.damaged(end)),
        _ => Ok((ids, None)),
    }
}

fn tell(log: &Log, read: &Read) {
    for Damage { file, offset } in &read.repaired {
        let file = file.display();
        tracing::warn!(%file, offset, "the ledger is damaged there; its copy has everything");
    }
    if read.is_torn {
        let generation = log.generation;
        tracing::info!(generation, at = read.end, "what a crash tore off the ledger is dropped");
    }
}

/// All files of the ledger, and the generations of its logs, the newest first.
fn generations(device: &dyn Device) -> Result<(Vec<PartId>, Vec<u32>), LedgerError> {
    let ids = device.list().map_err(failed("list"))?;
    let mut generations: Vec<u32> = ids.iter().map(|id| id.epoch).collect();
    generations.sort_unstable();
    generations.dedup();
    generations.reverse();
    // Formats before had a log there.
    if generations.last() == Some(&BEGINNING) {
        Log::open(device, BEGINNING, &ids)?;
        generations.pop();
    }
    Ok((ids, generations))
}

fn above(ids: &[PartId]) -> u32 {
    ids.iter().map(|id| id.epoch).max().unwrap_or(BEGINNING) + 1
}

fn log_id(generation: u32, copy: u16) -> PartId {
    PartId { ino: InodeId(0), epoch: generation, index: copy }
}

fn bytes_of(record: &LedgerRecord) -> u64 {
    let place = Place { generation: 0, at: 0 };
    Frame::Put(Box::new(record.clone())).encode(place).len() as u64
}

fn failed(action: &'static str) -> impl Fn(PartError) -> LedgerError {
    move |source| LedgerError::Device { action, source }
}

#[cfg(test)]
mod tests;
