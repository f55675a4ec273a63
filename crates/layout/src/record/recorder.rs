//! The recorder: one writer's log of records, kept short while it writes.
//!
//! Here: where a write goes in the part, and what the log says afterwards. A few comparisons per write.
//! Not here: the writing, and when records are published.
//!
//! A write that continues the last record extends it; one that lies inside it is written in place; one
//! that is a further block at a constant stride makes it a run. One level of strides and no more, checked
//! and never guessed ahead: deeper patterns are declared as views.
//! Invariants: records follow each other in the part without gaps, up to `tail`; only the last two records
//! ever change, and only within one epoch; bytes that are published are never written again, so that
//! whatever stops the writer leaves what was published as it was.

use super::{Epoch, Record, Selection, Write};
use crate::{LocalOffset, Offset, Run, StreamMap, units::OFFSET_MAX};

/// How deep runs of observed writes get.
const OBSERVED_LEVELS_MAX: usize = 1;

/// Why a write can not be noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The part would be longer than a file can be.
    #[error("a part cannot grow beyond {OFFSET_MAX} bytes")]
    PartFull,
}

/// See the module. Starts with an empty part.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    records: Vec<Record>,
    tail: LocalOffset,
    /// Records before this index are published as they are.
    published: usize,
    /// Bytes of the part before this place are published.
    published_tail: LocalOffset,
    /// Records before this index are as they were when [`Recorder::take_unchanged`] was called last.
    unchanged: usize,
}

impl Recorder {
    /// Nothing written.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where in the part `write` goes: all of it, contiguous.
    ///
    /// Write there, then [`Recorder::note`] what was written, before asking for the next place.
    pub fn place(&self, write: Write, epoch: Epoch) -> LocalOffset {
        self.place_inside_last(write, epoch).unwrap_or(self.tail)
    }

    /// Notes that `write` was written, at the place that was told.
    pub fn note(&mut self, write: Write, epoch: Epoch) -> Result<(), RecordError> {
        if write.is_empty() || self.place_inside_last(write, epoch).is_some() {
            return Ok(());
        }
        let tail = self.tail.checked_add(write.len()).ok_or(RecordError::PartFull)?;
        if !self.extend_last(write, epoch) {
            self.join_last_two();
            let selection = match write {
                Write::At(extent) => Selection::Run(single(extent)),
                Write::Through { view, window } => Selection::View { view, window },
            };
            self.records.push(Record { selection, place: self.tail, epoch });
        }
        self.tail = tail;
        Ok(())
    }

    /// All records, as the index takes them.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Bytes of the part that are used.
    pub fn tail(&self) -> LocalOffset {
        self.tail
    }

    /// How many records, from the first on, are as they were at the last such call; for a
    /// [`GrowingIndex`](crate::index::GrowingIndex).
    pub fn take_unchanged(&mut self) -> usize {
        std::mem::replace(&mut self.unchanged, self.records.len())
    }

    /// What [`Recorder::publish`] would tell, without taking it for published.
    pub fn pending(&self) -> &[Record] {
        &self.records[self.published..]
    }

    /// The records to append to what was published before. The first may replace some of those, as
    /// [`Record`] says.
    pub fn publish(&mut self) -> &[Record] {
        let first = std::mem::replace(&mut self.published, self.records.len());
        self.published_tail = self.tail;
        &self.records[first..]
    }

    /// Where `write` lies when all of it is in the last record already, and not published.
    ///
    /// Only in the last one: an earlier one may be partly overwritten by a later one.
    fn place_inside_last(&self, write: Write, epoch: Epoch) -> Option<LocalOffset> {
        let last = self.records.last().filter(|last| last.epoch == epoch)?;
        let inside = match (&last.selection, write) {
            (Selection::Run(run), Write::At(extent)) => {
                let within = run.within(extent);
                (within.len() == extent.len()).then_some(within.start().0)
            }
            (Selection::View { view, window }, Write::Through { view: other, window: part }) => {
                let is_inside = *view == other && window.covers(part);
                is_inside.then(|| part.start().0 - window.start().0)
            }
            (Selection::Run(_), Write::Through { .. }) | (Selection::View { .. }, Write::At(_)) => {
                None
            }
        }?;
        let place = LocalOffset(last.place.0 + inside);
        (!write.is_empty() && place >= self.published_tail).then_some(place)
    }

    /// Makes `write` part of the last record where that says the same bytes.
    fn extend_last(&mut self, write: Write, epoch: Epoch) -> bool {
        let Some(last) = self.records.last_mut().filter(|last| last.epoch == epoch) else {
            return false;
        };
        let extended = match (&last.selection, write) {
            (Selection::Run(run), Write::At(extent)) => {
                join_observed(run, &single(extent)).map(Selection::Run)
            }
            (Selection::View { view, window }, Write::Through { view: other, window: next })
                if *view == other && window.end() == next.start() =>
            {
                let window = crate::Extent::within_valid(window.start().0, next.end().0);
                Some(Selection::View { view: other, window })
            }
            _ => None,
        };
        let Some(selection) = extended else { return false };
        last.selection = selection;
        self.changed(self.records.len() - 1);
        true
    }

    /// Now that no write extends the last record any more, it may be one more block of the one before.
    fn join_last_two(&mut self) {
        let [.., before, last] = &mut self.records[..] else { return };
        if before.epoch != last.epoch {
            return;
        }
        let (Selection::Run(first), Selection::Run(second)) = (&before.selection, &last.selection)
        else {
            return;
        };
        if let Some(joined) = join_observed(first, second) {
            before.selection = Selection::Run(joined);
            self.records.pop();
            self.changed(self.records.len() - 1);
        }
    }

    fn changed(&mut self, record: usize) {
        self.published = self.published.min(record);
        self.unchanged = self.unchanged.min(record);
    }
}

fn single(extent: crate::Extent) -> Run {
    Run::contiguous(extent).expect("empty writes are no records")
}

fn join_observed(run: &Run, next: &Run) -> Option<Run> {
    run.join(next).filter(|joined| joined.levels().len() <= OBSERVED_LEVELS_MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        ByteCount, Extent, GlobalOffset, StreamExtent, StreamOffset, naive, record::ViewId,
    };

    fn at(start: u64, len: u64) -> Write {
        Write::At(Extent::new(GlobalOffset(start), ByteCount(len)).unwrap())
    }

    fn through(view: u32, start: u64, len: u64) -> Write {
        let window = StreamExtent::new(StreamOffset(start), ByteCount(len)).unwrap();
        Write::Through { view: ViewId(view), window }
    }

    /// Writes `(epoch, write)` in order; shows each record as `selection@place`, and each place told.
    fn check(writes: &[(u64, Write)], records: &str, places: &str) {
        let mut recorder = Recorder::new();
        let mut told = Vec::new();
        for (epoch, write) in writes {
            told.push(recorder.place(*write, Epoch(*epoch)).to_string());
            recorder.note(*write, Epoch(*epoch)).unwrap();
        }
        let show = |record: &Record| match &record.selection {
            Selection::Run(run) => format!("{run}@{}", record.place),
            Selection::View { view, window } => format!("v{}:{window}@{}", view.0, record.place),
        };
        assert_eq!(recorder.records().iter().map(show).collect::<Vec<_>>().join(" "), records);
        assert_eq!(told.join(" "), places);
    }

    #[test]
    fn a_declared_view_is_one_record() {
        check(&[(0, through(1, 0, 9)), (0, through(1, 9, 5))], "v1:0..14@0", "0 9");
        check(&[(0, through(1, 5, 9)), (0, through(1, 7, 3))], "v1:5..14@0", "0 2"); // in place
        check(&[(0, through(1, 0, 9)), (0, through(2, 9, 5))], "v1:0..9@0 v2:9..14@9", "0 9");
        check(&[(0, through(1, 9, 5)), (0, through(1, 0, 9))], "v1:9..14@0 v1:0..9@5", "0 5");
        check(&[(0, through(1, 0, 9)), (0, through(1, 5, 9))], "v1:0..9@0 v1:5..14@9", "0 9");
    }

    #[test]
    fn explicit_offsets_compress_one_level() {
        check(&[(0, at(5, 5)), (0, at(10, 2))], "5+7@0", "0 5");
        check(&[(0, at(0, 4)), (0, at(10, 4)), (0, at(20, 4))], "0+4x3/10@0", "0 4 8");
        check(&[(0, at(0, 4)), (0, at(10, 4)), (0, at(21, 4))], "0+4x2/10@0 21+4@8", "0 4 8");
        check(&[(0, at(20, 4)), (0, at(10, 4))], "20+4@0 10+4@4", "0 4"); // never backwards
        check(&[(0, at(0, 4)), (0, at(2, 4))], "0+4@0 2+4@4", "0 4"); // never a byte twice
        check(&[(0, at(0, 4)), (0, at(10, 4)), (0, at(12, 2))], "0+4x2/10@0", "0 4 6"); // in place
        check(&[(0, at(0, 0)), (0, at(9, 0))], "", "0 0");
        // Blocks written in pieces: each grows first, then is one more of the run.
        let pieces = [0, 2, 10, 12, 20, 22, 90].map(|start| (0, at(start, 2)));
        check(&pieces, "0+4x3/10@0 90+2@12", "0 2 4 6 8 10 12");
        // The second level stays a list, on purpose.
        let nested = [0, 10, 100, 110, 200, 210].map(|start| (0, at(start, 4)));
        check(&nested, "0+4x2/10@0 100+4x2/10@8 200+4x2/10@16", "0 4 8 12 16 20");
    }

    #[test]
    fn epochs_do_not_mix() {
        check(&[(0, at(0, 4)), (1, at(4, 4))], "0+4@0 4+4@4", "0 4");
        check(&[(0, at(0, 4)), (1, at(0, 4))], "0+4@0 0+4@4", "0 4"); // old bytes stay where they are
        // Not afterwards either, when the last two are looked at again.
        check(&[(0, at(0, 4)), (1, at(10, 4)), (1, at(99, 1))], "0+4@0 10+4@4 99+1@8", "0 4 8");
        check(&[(0, through(1, 0, 4)), (1, through(1, 4, 4))], "v1:0..4@0 v1:4..8@4", "0 4");
    }

    #[test]
    fn published_bytes_are_not_written_again() {
        let mut recorder = Recorder::new();
        let mut note = |write| {
            let place = recorder.place(write, Epoch(0));
            recorder.note(write, Epoch(0)).unwrap();
            (place.0, recorder.publish().len())
        };
        assert_eq!(note(at(0, 8)), (0, 1));
        assert_eq!(note(at(4, 4)), (8, 1)); // elsewhere, by a record of its own
        assert_eq!(note(at(8, 8)), (12, 1)); // an extension, told again with what it extends
        assert_eq!(recorder.pending().len(), 0);
        recorder.note(at(16, 8), Epoch(0)).unwrap();
        assert_eq!(recorder.place(at(16, 4), Epoch(0)), LocalOffset(20)); // not published: in place
        assert_eq!(recorder.place(at(12, 8), Epoch(0)), LocalOffset(28)); // some of it is
    }

    #[test]
    fn ior_hard_is_one_record_per_process() {
        let mut recorder = Recorder::new();
        for segment in 0..500u64 {
            recorder.note(at((segment * 4 + 2) * 47008, 47008), Epoch(0)).unwrap();
        }
        assert_eq!(recorder.records().len(), 1);
        assert_eq!(recorder.tail(), LocalOffset(500 * 47008));
    }

    #[test]
    fn parts_have_an_end() {
        let mut recorder = Recorder { tail: LocalOffset(OFFSET_MAX - 3), ..Recorder::new() };
        assert_eq!(recorder.note(at(0, 4), Epoch(0)), Err(RecordError::PartFull));
        assert_eq!(recorder.note(at(0, 3), Epoch(0)), Ok(()));
    }

    proptest! {
        /// What the records say is what was written last, whatever the order; and what was published
        /// says the same.
        #[test]
        fn records_agree_with_noting_each_byte(
            writes in prop::collection::vec((0..24u64, 1..8u64, 0..12u32, any::<bool>()), 0..60)
        ) {
            let (mut recorder, mut epoch) = (Recorder::new(), 0);
            let (mut part, mut file) = (Vec::new(), BTreeMap::new());
            let mut published = Vec::new();
            for (stamp, (start, len, dice, is_regular)) in writes.into_iter().enumerate() {
                epoch += u64::from(dice == 0);
                if dice < 2 {
                    published.extend_from_slice(recorder.publish());
                }
                let write = if is_regular { at(start / 6 * 6, 3) } else { at(start, len) };
                let Write::At(extent) = write else { unreachable!() };
                let place = recorder.place(write, Epoch(epoch)).0 as usize;
                part.resize(part.len().max(place + extent.len().0 as usize), (0, 0));
                part[place..place + extent.len().0 as usize].fill((stamp, epoch));
                file.extend((extent.start().0..extent.end().0).map(|byte| (byte, (stamp, epoch))));
                recorder.note(write, Epoch(epoch)).unwrap();
                prop_assert_eq!(recorder.tail().0, part.len() as u64);
            }
            published.extend_from_slice(recorder.publish());
            let mut kept: Vec<Record> = Vec::new();
            for record in published {
                kept.retain(|earlier| earlier.place < record.place);
                kept.push(record);
            }
            prop_assert_eq!(&kept[..], recorder.records());

            let mut found = BTreeMap::new();
            for record in recorder.records() {
                let Selection::Run(run) = &record.selection else { unreachable!() };
                prop_assert!(run.levels().len() <= 1);
                let places = record.place.0 as usize..record.end().unwrap().0 as usize;
                prop_assert!(places.clone().all(|at| part[at].1 == record.epoch.0));
                found.extend(naive::run(run).iter().zip(places).map(|(byte, at)| (byte.0, part[at])));
            }
            prop_assert_eq!(found, file);
        }
    }
}
