//! Compaction of a long log in steps; those that wait for the disk hold up no writer of the ledger.
//!
//! A server has one thread, and an fsync on it holds up its heartbeats (issue 36). So [`Ledger::begin_rewrite`] takes what
//! the ledger says now, [`Rewrite::write`] brings that to new files and makes it durable, elsewhere, and
//! [`Ledger::end_rewrite`] adds what changed meanwhile and the mark of a complete log, and takes the new log into use;
//! [`Replacement::settle`], elsewhere again, makes that durable and removes what was there before.
//!
//! Invariants: until it has its mark the new log counts for nothing, and the old one gets everything; it gets the mark in the
//! step from which on it gets everything. The old one goes when the new one is durable with its mark, as its header
//! says durably: whatever a crash leaves of the new one, one of the two is complete.

use std::collections::BTreeSet;
use std::sync::Arc;

use hayase_layout::InodeId;

use super::copies::{Copies, LedgerSync, log_of};
use super::frame::{Frame, Place};
use super::{COMPACT_BYTES_MIN, COMPACT_FACTOR, Ledger, LedgerError, failed};
use crate::device::Device;

/// A ledger that its owner compacts does so itself, in a put, only when its log is this many times as long as it may become.
const LATE_FACTOR: u64 = 4;

/// One that is under way.
#[derive(Default)]
pub(super) struct UnderWay {
    generation: u32,
    /// What is known of these may not be what was taken.
    changed: BTreeSet<InodeId>,
}

/// What is to be written.
pub struct Rewrite {
    device: Arc<dyn Device>,
    generation: u32,
    bytes: Vec<u8>,
}

/// It was.
pub struct Rewritten {
    copies: Copies,
    end: u64,
}

/// A log that is in use, and may not be durable yet.
pub struct Replacement {
    device: Arc<dyn Device>,
    log: LedgerSync,
}

impl Rewrite {
    /// Costs two files and their fsync(2).
    pub fn write(self) -> Result<Rewritten, LedgerError> {
        let copies = Copies::begin(&*self.device, self.generation, &self.bytes)
            .inspect_err(|_| quietly(discard(&*self.device, self.generation)))?;
        Ok(Rewritten { copies, end: self.bytes.len() as u64 })
    }
}

impl Replacement {
    /// The log is durable, also the mark that says so, and those before it are gone. Costs some syncs.
    ///
    /// # Errors
    /// When the storage says so. The ledger writes another log then, before it is durable again.
    pub fn settle(&self) -> Result<(), LedgerError> {
        self.log.sync()?;
        self.log.copies.settle(self.log.end)?;
        remove_before(&*self.device, self.log.copies.generation())
    }
}

/// Removes a log that was not taken into use, as far as it is there.
fn discard(device: &dyn Device, generation: u32) -> Result<(), LedgerError> {
    let all = device.list().map_err(failed("list"))?;
    let mut of_it = all.into_iter().filter(|id| id.epoch == generation);
    of_it.try_for_each(|id| device.remove(id)).map_err(failed("remove an unfinished log of"))
}

/// Of a log without the mark of a complete one, which counts for nothing: the next that is taken into use removes it.
fn quietly(removed: Result<(), LedgerError>) {
    if let Err(error) = removed {
        tracing::debug!(%error, "a log that was not finished stays for now");
    }
}

/// Removes all logs of earlier generations.
pub(super) fn remove_before(device: &dyn Device, generation: u32) -> Result<(), LedgerError> {
    let all = device.list().map_err(failed("list"))?;
    let mut earlier = all.into_iter().filter(|id| id.epoch < generation);
    earlier.try_for_each(|id| device.remove(id)).map_err(failed("remove an old log of"))
}

impl Ledger {
    /// From here on its owner looks whether its log [is long](Self::is_long), and rewrites it: a put does so only where the
    /// owner is much too late.
    pub fn rewrite_elsewhere(&mut self) {
        self.is_rewritten_elsewhere = true;
    }

    /// Whether a compaction is worth it.
    pub fn is_long(&self) -> bool {
        self.end >= self.long_bytes()
    }

    fn long_bytes(&self) -> u64 {
        COMPACT_BYTES_MIN.max(self.live_bytes.saturating_mul(COMPACT_FACTOR))
    }

    /// Whether a put has to rewrite it.
    pub(super) fn is_too_long(&self) -> bool {
        match (self.is_rewritten_elsewhere, &self.under_way) {
            (false, _) => self.is_long(),
            (true, None) => self.end >= self.long_bytes().saturating_mul(LATE_FACTOR),
            (true, Some(_)) => false,
        }
    }

    /// Begins a compaction, in place of one that is under way. Costs memory for all records, and no I/O.
    pub fn begin_rewrite(&mut self) -> Rewrite {
        self.last_generation += 1;
        let generation = self.last_generation;
        self.under_way = Some(UnderWay { generation, ..UnderWay::default() });
        let bytes = log_of(generation, &self.content, false);
        Rewrite { device: Arc::clone(&self.device), generation, bytes }
    }

    /// It is not going to end.
    pub fn give_up_rewrite(&mut self) {
        self.under_way = None;
    }

    /// Takes what was written into use. Costs a write of what changed meanwhile. `None` when the log was replaced in another
    /// way since, as after a sync that failed.
    ///
    /// # Errors
    /// When it can not be written: the log stays as it is, and in use.
    pub fn end_rewrite(&mut self, written: Rewritten) -> Result<Option<Replacement>, LedgerError> {
        let Rewritten { copies, end } = written;
        let generation = copies.generation();
        let under_way = self.under_way.take();
        let Some(under_way) = under_way.filter(|it| it.generation == generation) else {
            quietly(discard(&*self.device, generation));
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let life = self.content.life.iter().map(|life| Frame::Life(life.clone()));
        let changed = under_way.changed.iter().map(|ino| match self.get(*ino) {
            Some(record) => Frame::Put(Box::new(record.clone())),
            None => Frame::Remove(*ino),
        });
        for frame in life.chain(changed).chain([Frame::Complete]) {
            let place = Place { generation, at: end as usize + bytes.len() };
            bytes.extend_from_slice(&frame.encode(place));
        }
        copies.write_at(end, &bytes).inspect_err(|_| self.leaves(generation))?;
        self.copies = Arc::new(copies);
        (self.end, self.is_dirty_behind) = (end + bytes.len() as u64, false);
        let log = LedgerSync { copies: Arc::clone(&self.copies), end: self.end };
        Ok(Some(Replacement { device: Arc::clone(&self.device), log }))
    }

    /// A log that may have its mark of a complete one already is not taken into use: it has to go before this one is
    /// written again.
    pub(super) fn leaves(&mut self, generation: u32) {
        self.leftover = Some(generation);
        quietly(self.remove_leftover());
    }

    pub(super) fn remove_leftover(&mut self) -> Result<(), LedgerError> {
        if let Some(generation) = self.leftover {
            discard(&*self.device, generation)?;
            self.leftover = None;
        }
        Ok(())
    }

    /// Notes that a file's record is not what a rewrite has taken.
    pub(super) fn changes(&mut self, ino: InodeId) {
        if let Some(under_way) = &mut self.under_way {
            under_way.changed.insert(ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{COPIES, FileState, LedgerRecord};
    use super::*;
    use crate::device::CrashDevice;

    type Bytes = BTreeMap<u64, u64>;

    fn record(ino: u64, bytes: u64) -> LedgerRecord {
        let state = FileState::Dirty;
        LedgerRecord { state, bytes, ..LedgerRecord::new(InodeId(ino), b"f".to_vec(), 0o644) }
    }

    fn bytes_of(records: impl IntoIterator<Item = LedgerRecord>) -> Bytes {
        records.into_iter().map(|record| (record.ino.0, record.bytes)).collect()
    }

    /// What a kill leaves, which is all of it, and what power cuts may: one of the states since the last sync, of which the
    /// last is that of now.
    fn check(device: &CrashDevice, states: &[&[(u64, u64)]]) {
        let states: Vec<Bytes> =
            states.iter().map(|state| state.iter().copied().collect()).collect();
        assert_eq!(Some(&bytes_of(Ledger::look(device).unwrap())), states.last());
        for survivors in
            [[false; 4], [true; 4], [true, false, false, true], [false, true, true, false]]
        {
            let mut survivors = survivors.into_iter().cycle();
            let left = Arc::new(device.after_power_cut(|| survivors.next().unwrap_or(false)));
            let ledger = Ledger::open(left.clone()).unwrap();
            assert_eq!(ledger.life(), Some("life"));
            let found = bytes_of(ledger.records().cloned());
            assert!(states.contains(&found), "{found:?} is none of {states:?}");
            assert_eq!(left.list().unwrap().len(), COPIES, "the copies of one log");
        }
    }

    /// A ledger with two files, of which all is synced.
    fn ledger() -> (Arc<CrashDevice>, Ledger) {
        let device = Arc::new(CrashDevice::new());
        let mut ledger = Ledger::open(device.clone()).unwrap();
        ledger.begin_life("life").unwrap();
        ledger.put(record(1, 1)).unwrap();
        ledger.put(record(2, 2)).unwrap();
        ledger.sync().unwrap();
        (device, ledger)
    }

    #[test]
    fn a_log_is_rewritten_while_it_is_written() {
        let (device, mut ledger) = ledger();
        let first: &[_] = &[(1, 1), (2, 2)];
        let rewrite = ledger.begin_rewrite();
        check(&device, &[first]);
        ledger.put(record(1, 11)).unwrap();
        let second: &[_] = &[(1, 11), (2, 2)];
        ledger.remove(InodeId(2)).unwrap();
        let third: &[_] = &[(1, 11)];
        let written = rewrite.write().unwrap();
        ledger.put(record(3, 3)).unwrap();
        let fourth: &[_] = &[(1, 11), (3, 3)];
        check(&device, &[first, second, third, fourth]);
        let before = ledger.unsynced().unwrap();
        let replacement = ledger.end_rewrite(written).unwrap().expect("nothing was in between");
        check(&device, &[first, second, third, fourth]);
        before.sync().unwrap();
        check(&device, &[fourth]);
        ledger.put(record(4, 4)).unwrap();
        let fifth: &[_] = &[(1, 11), (3, 3), (4, 4)];
        check(&device, &[fourth, fifth]);
        replacement.settle().unwrap();
        assert_eq!(device.list().unwrap().len(), COPIES, "the earlier log is gone");
        check(&device, &[fourth, fifth]);
        ledger.sync().unwrap();
        check(&device, &[fifth]);
    }

    #[test]
    fn a_rewrite_that_fails_changes_nothing() {
        let (device, mut ledger) = ledger();
        let rewrite = ledger.begin_rewrite();
        device.fail_syncs(1);
        assert!(rewrite.write().is_err());
        ledger.give_up_rewrite();
        ledger.put(record(3, 3)).unwrap();
        let (before, now): (&[_], &[_]) = (&[(1, 1), (2, 2)], &[(1, 1), (2, 2), (3, 3)]);
        check(&device, &[before, now]);
        // The new log could not be made durable: another one is written, and the old one stays until then.
        let written = ledger.begin_rewrite().write().unwrap();
        let replacement = ledger.end_rewrite(written).unwrap().expect("nothing was in between");
        device.fail_syncs(1);
        assert!(replacement.settle().is_err());
        ledger.sync().unwrap();
        check(&device, &[now]);
    }

    #[test]
    fn a_rewrite_that_was_overtaken_is_dropped() {
        let (device, mut ledger) = ledger();
        let written = ledger.begin_rewrite().write().unwrap();
        ledger.put(record(3, 3)).unwrap();
        device.fail_syncs(1);
        ledger.sync().unwrap_err();
        ledger.put(record(4, 4)).unwrap();
        ledger.sync().unwrap();
        assert!(ledger.end_rewrite(written).unwrap().is_none());
        check(&device, &[&[(1, 1), (2, 2), (3, 3), (4, 4)]]);
        assert_eq!(device.list().unwrap().len(), COPIES);
    }

    #[test]
    fn who_rewrites_in_time_is_not_kept_waiting_by_a_put() {
        let (_, mut ledger) = ledger();
        ledger.rewrite_elsewhere();
        let first = ledger.copies.generation();
        let mut bytes = 0;
        let mut grow = |ledger: &mut Ledger, until: &dyn Fn(&Ledger) -> bool| {
            while !until(ledger) {
                bytes += 1;
                ledger.put(record(1, bytes)).unwrap();
            }
        };
        grow(&mut ledger, &Ledger::is_long);
        let rewrite = ledger.begin_rewrite();
        let far = 2 * LATE_FACTOR * COMPACT_BYTES_MIN;
        grow(&mut ledger, &|ledger| ledger.end > far);
        assert_eq!(ledger.copies.generation(), first, "one is under way");
        let written = rewrite.write().unwrap();
        ledger.end_rewrite(written).unwrap().expect("nothing was in between").settle().unwrap();
        assert!(!ledger.is_long());
        grow(&mut ledger, &|ledger| ledger.copies.generation() > first + 1);
    }

    /// Its first copy is complete, and the disk refuses the second one: what is put later must not be forgotten for it.
    #[test]
    fn a_compaction_that_fails_leaves_no_log_that_counts() {
        // Of each copy a sync of what it says, and one of the header.
        for spared in 0..4 {
            let (device, mut ledger) = ledger();
            device.fail_syncs_after(spared, 1);
            ledger.compact().expect_err("a sync fails");
            ledger.put(record(2, 7)).unwrap();
            drop(ledger);
            let again = Ledger::open(device).unwrap();
            let known = bytes_of(again.records().cloned());
            assert_eq!(known, [(1, 1), (2, 7)].into(), "after {spared} syncs");
        }
    }
}
