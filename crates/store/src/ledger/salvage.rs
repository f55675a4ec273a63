//! What a damaged ledger still says: every good frame of every copy, also behind the damage.

use std::collections::BTreeMap;

use hayase_layout::InodeId;

use super::reading::{Damage, Log};
use super::{Frame, Ledger, LedgerError, LedgerRecord, generations};
use crate::device::Device;

/// What can be read of a ledger.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// What was last said of each file, as far as it can be read: something newer may be lost.
    pub records: BTreeMap<InodeId, LedgerRecord>,
    /// Where neither copy could be read.
    pub damage: Vec<Damage>,
}

impl Ledger {
    /// Reads whatever can be read on `device`, and changes nothing. Nobody may be writing it.
    ///
    /// # Errors
    /// When no copy can be opened, or another version of this program wrote them.
    pub fn salvage(device: &dyn Device) -> Result<Salvaged, LedgerError> {
        let (ids, mut generations) = generations(device)?;
        generations.reverse(); // the oldest first: what is newer counts
        let mut salvaged = Salvaged::default();
        for generation in generations {
            salvaged.add(&Log::open(device, generation, &ids)?)?;
        }
        Ok(salvaged)
    }
}

impl Salvaged {
    fn add(&mut self, log: &Log) -> Result<(), LedgerError> {
        let mut at = super::header::HEADER_BYTES;
        loop {
            if let Some((frame, len)) = log.first_frame(at, &log.find(at)?) {
                self.apply(frame);
                at += len;
                continue;
            }
            if log.copies.iter().any(|copy| copy.bytes.len() > at) {
                let copies = log.copies.iter().map(|copy| copy.path.clone());
                self.damage.extend(copies.map(|file| Damage { file, offset: at as u64 }));
            }
            match next_frame(log, at + 1)? {
                Some(next) => at = next,
                None => return Ok(()),
            }
        }
    }

    fn apply(&mut self, frame: Frame) {
        match frame {
            Frame::Put(record) => drop(self.records.insert(record.ino, *record)),
            Frame::Remove(ino) => drop(self.records.remove(&ino)),
            Frame::Complete | Frame::Life(_) => {}
        }
    }
}

/// Where the next good frame begins.
fn next_frame(log: &Log, mut from: usize) -> Result<Option<usize>, LedgerError> {
    while let Some(at) = log.next_candidate(from) {
        if log.first_frame(at, &log.find(at)?).is_some() {
            return Ok(Some(at));
        }
        from = at + 1;
    }
    Ok(None)
}
