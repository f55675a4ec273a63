//! The index: the records of all writers of an N-1 file, and who wrote a byte last.
//!
//! Here: building it, looking up an extent, which bytes a part holds.
//! Not here: how records are made ([`crate::record`]), read from disk (`hayase_container`), or shown.
//!
//! - `family`: records of many writers that differ by a shift only are looked up as one.
//! - `folded`: a log in as few records as say the same.
//! - `same_view`: reading with the view that wrote is one stretch of one part.
//! - `resolve`: where records overlap, the later epoch wins; in one epoch the lower rank at open, then
//!   the lower writer id; of one writer the later record.
//!
//! Source: paper 001; boxes are found in an augmented sorted array (Cormen et al., interval trees).

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    ByteCount, Extent, GlobalOffset, LocalExtent, LocalOffset, Piece, Record, Selection,
    StreamExtent, StreamMap, View, ViewId, Writer, WriterId, record::Epoch, units::OFFSET_MAX,
};

mod boxes;
mod family;
mod folded;
mod resolve;
mod same_view;

use boxes::Boxes;
use family::{Family, Member, Pattern};
use resolve::{Candidate, Standing};
use same_view::SameView;

/// All that one writer wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterLog {
    /// Who, and where its part lies.
    pub writer: Writer,
    /// Its views, by the numbers that its records use.
    pub views: BTreeMap<ViewId, Arc<View>>,
    /// Its records in the order in which they were published.
    pub records: Vec<Record>,
}

/// A collective change of the file's size (`MPI_File_set_size`), which raised the epoch.
///
/// What was written in an earlier epoch ends there; a larger size is a hole at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The first epoch that it leaves alone.
    pub epoch: Epoch,
    /// The file's size then.
    pub size: ByteCount,
}

/// Why logs are no index: they come from disk and from other processes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// More writers than part numbers.
    #[error("a file has at most 65535 writers, not {count}")]
    Writers {
        /// How many were given.
        count: usize,
    },
    /// One writer twice.
    #[error("writer {writer:?} is given twice")]
    Twice {
        /// Who.
        writer: WriterId,
    },
    /// A record names a view that its writer has not declared.
    #[error("writer {writer:?} has no view {}", .view.0)]
    NoView {
        /// Who.
        writer: WriterId,
        /// Which.
        view: ViewId,
    },
    /// A record selects bytes that no file can have.
    #[error("a record of writer {writer:?} at {place} of its part ends beyond the largest offset")]
    TooFar {
        /// Who.
        writer: WriterId,
        /// Where in its part.
        place: LocalOffset,
    },
    /// A cut makes the file longer than files can be.
    #[error("a file can not be cut to {} bytes", .size.0)]
    Cut {
        /// What the cut says.
        size: ByteCount,
    },
    /// Two records share bytes of the part, and neither replaces the other.
    #[error("two records of writer {writer:?} claim byte {place} of its part")]
    Claimed {
        /// Who.
        writer: WriterId,
        /// Where in its part.
        place: LocalOffset,
    },
}

/// What a lookup finds for one stretch of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Written, and here it is.
    Bytes(Piece),
    /// Never written: zeros as long as the file reaches.
    Hole(Extent),
}

impl Found {
    /// Where in the file.
    pub fn extent(&self) -> Extent {
        match self {
            Self::Bytes(piece) => piece.extent,
            Self::Hole(extent) => *extent,
        }
    }
}

/// Bytes of a part, and where they were written to in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Where in the part.
    pub local: LocalExtent,
    /// Where in the file.
    pub extent: Extent,
}

/// Forward and backward map of a recorded file.
#[derive(Clone, Debug)]
pub struct Index {
    writers: Vec<Writer>,
    families: Boxes<Family>,
    /// Of each part its records in order of place.
    parts: Vec<Vec<Placed>>,
    same_view: SameView,
    size: ByteCount,
}

/// One record as its part sees it.
#[derive(Clone, Debug)]
struct Placed {
    pattern: Pattern,
    window: StreamExtent,
    place: LocalOffset,
}

impl Index {
    /// Part `i` is what the `i`-th of `logs` wrote. `cuts` in any order.
    ///
    /// O(n log n) in the records, whatever they select. Fails on what can not have been written.
    pub fn new<'a>(
        logs: impl IntoIterator<Item = &'a WriterLog>,
        cuts: &[Cut],
    ) -> Result<Self, IndexError> {
        let logs: Vec<_> = logs.into_iter().collect();
        if logs.len() > usize::from(u16::MAX) {
            return Err(IndexError::Writers { count: logs.len() });
        }
        if let Some(cut) = cuts.iter().find(|cut| cut.size.0 > OFFSET_MAX) {
            return Err(IndexError::Cut { size: cut.size });
        }
        let standings = writer_standings(&logs)?;
        let mut members = Vec::new();
        let mut parts = Vec::with_capacity(logs.len());
        for (part, log) in logs.iter().copied().enumerate() {
            let records = current_records(log);
            let mut placed = Vec::with_capacity(records.len());
            let mut end = LocalOffset(0);
            for (nth, record) in (0u64..).zip(records) {
                if record.place < end {
                    let writer = log.writer.id;
                    return Err(IndexError::Claimed { writer, place: record.place });
                }
                let (pattern, window) = resolve_selection(log, record)?;
                end = record.end().ok_or(too_far(log, record))?;
                let standing = Standing { epoch: record.epoch, writer: standings[part], nth };
                members.push(Member {
                    pattern: pattern.clone(),
                    window,
                    part: part as u16, // bounded above
                    place: record.place,
                    standing,
                });
                placed.push(Placed { pattern, window, place: record.place });
            }
            parts.push(placed);
        }
        let bounds = Bounds::new(cuts);
        let same_view = SameView::gather(&members, |epoch| bounds.of(epoch));
        let families = family::gather(members, |epoch| bounds.of(epoch));
        let written = families.iter().map(|family| family.reach().end().0).max();
        let size = ByteCount(written.unwrap_or(0).max(bounds.size));
        let writers = logs.iter().map(|log| log.writer).collect();
        let families = Boxes::new(families, Family::reach);
        Ok(Self { writers, families, parts, same_view, size })
    }

    /// Part `i` is what the `i`-th wrote.
    pub fn writers(&self) -> &[Writer] {
        &self.writers
    }

    /// Behind the last byte that was written, or where a cut made the file end.
    pub fn size(&self) -> ByteCount {
        self.size
    }

    /// What lies in `extent`, in file order, longest possible, without a gap.
    ///
    /// O(log n + m log m) for m blocks of records in `extent`, and memory for m pieces: ask for as much
    /// as is to be read at once, not for a whole file.
    pub fn lookup(&self, extent: Extent) -> Vec<Found> {
        let mut candidates = Vec::new();
        self.families.for_each(extent, |family| family.candidates(extent, &mut candidates));
        resolve::resolve(extent, candidates, |part| self.writers[usize::from(part)].server)
    }

    /// Where the first bytes of a window of a view's stream lie, when they lie behind each other in one
    /// part: as many as one record through an equal view holds that nobody else wrote to. `None` when
    /// there is no such record, or it is not found out: then [`Index::lookup`] tells.
    ///
    /// O(runs of the view + log n), whatever the number of blocks. The first call for a record compares one
    /// tile of it with one of each record that comes near.
    pub fn stretch(&self, view: &View, window: StreamExtent) -> Option<(u16, LocalExtent)> {
        self.same_view.find(view, window, &self.families)
    }

    /// Forward: the part that holds the byte at `offset`, and where in it. `None` in holes.
    pub fn locate(&self, offset: GlobalOffset) -> Option<(u16, LocalOffset)> {
        let byte = Extent::new(offset, ByteCount(1)).ok()?;
        match self.lookup(byte).first()? {
            Found::Bytes(piece) => Some((piece.part, piece.local.start())),
            Found::Hole(_) => None,
        }
    }

    /// Backward: where the byte at `offset` of `part` was written to. `None` when nothing was.
    ///
    /// Another writer, or a later record, may have written there since: [`Index::locate`] tells.
    pub fn global(&self, part: u16, offset: LocalOffset) -> Option<GlobalOffset> {
        let byte = LocalExtent::new(offset, ByteCount(1)).ok()?;
        self.origins(part, byte).next().map(|origin| origin.extent.start())
    }

    /// Backward: where the bytes `local` of `part` were written to, in order of the part.
    ///
    /// O(log n) to start, O(depth) each, no allocation. See [`Index::global`].
    pub fn origins(&self, part: u16, local: LocalExtent) -> impl Iterator<Item = Origin> + '_ {
        let records = self.parts.get(usize::from(part)).map_or(&[][..], Vec::as_slice);
        let first = records.partition_point(|record| record.end() <= local.start());
        records[first..]
            .iter()
            .map_while(move |record| record.local().intersect(local).map(|both| (record, both)))
            .flat_map(|(record, both)| record.origins(both))
    }
}

impl Placed {
    fn local(&self) -> LocalExtent {
        LocalExtent::within_valid(self.place.0, self.place.0 + self.window.len().0)
    }

    fn end(&self) -> LocalOffset {
        self.local().end()
    }

    /// `local` is inside [`Placed::local`].
    fn origins(&self, local: LocalExtent) -> impl Iterator<Item = Origin> + '_ {
        let to_stream = |offset: LocalOffset| offset.0 - self.place.0 + self.window.start().0;
        let window = StreamExtent::within_valid(to_stream(local.start()), to_stream(local.end()));
        let mut place = local.start().0;
        self.pattern.extents(window).map(move |extent| {
            let local = LocalExtent::within_valid(place, place + extent.len().0);
            place = local.end().0;
            Origin { local, extent }
        })
    }
}

/// The records that no later one replaces; see [`Record`].
fn current_records(log: &WriterLog) -> Vec<&Record> {
    let mut records: Vec<&Record> = Vec::with_capacity(log.records.len());
    for record in log.records.iter().filter(|record| !record.selection.is_empty()) {
        while records.last().is_some_and(|last| last.place >= record.place) {
            records.pop();
        }
        records.push(record);
    }
    records
}

/// The record's pattern, and which bytes of it; all of them are bytes that files can have.
fn resolve_selection(
    log: &WriterLog,
    record: &Record,
) -> Result<(Pattern, StreamExtent), IndexError> {
    match &record.selection {
        Selection::Run(run) => Ok((Pattern::Run(run.clone()), run.stream())),
        Selection::View { view, window } => {
            let no_view = IndexError::NoView { writer: log.writer.id, view: *view };
            let declared = log.views.get(view).ok_or(no_view)?;
            if declared.window(window.start(), window.len()) != *window {
                return Err(too_far(log, record));
            }
            Ok((Pattern::View(Arc::clone(declared)), *window))
        }
    }
}

fn too_far(log: &WriterLog, record: &Record) -> IndexError {
    IndexError::TooFar { writer: log.writer.id, place: record.place }
}

/// For each log how its writer stands against the others: 0 wins.
fn writer_standings(logs: &[&WriterLog]) -> Result<Vec<u16>, IndexError> {
    let mut order: Vec<_> = (0..logs.len()).collect();
    order.sort_unstable_by_key(|log| (logs[*log].writer.rank, logs[*log].writer.id));
    let mut standings = vec![0; logs.len()];
    for (standing, log) in order.iter().enumerate() {
        standings[*log] = standing as u16; // as many as there are part numbers
    }
    let mut ids: Vec<_> = logs.iter().map(|log| log.writer.id).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(IndexError::Twice { writer: pair[0] }),
        None => Ok(standings),
    }
}

/// Where the bytes of each epoch end, by the cuts behind it.
struct Bounds {
    /// Ascending epochs; with each the smallest size of it and all behind it.
    cuts: Vec<(Epoch, u64)>,
    /// What the last cut says.
    size: u64,
}

impl Bounds {
    fn new(cuts: &[Cut]) -> Self {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| (cut.epoch, cut.size.0)).collect();
        cuts.sort_unstable();
        let size = cuts.last().map_or(0, |(_, size)| *size);
        let mut least = OFFSET_MAX;
        for (_, size) in cuts.iter_mut().rev() {
            least = least.min(*size);
            *size = least;
        }
        Self { cuts, size }
    }

    fn of(&self, epoch: Epoch) -> GlobalOffset {
        let first = self.cuts.partition_point(|(cut, _)| *cut <= epoch);
        GlobalOffset(self.cuts.get(first).map_or(OFFSET_MAX, |(_, size)| *size))
    }
}

#[cfg(test)]
mod tests;
