//! The index: the records of all writers of an N-1 file, and who wrote a byte last.
//!
//! Here: building it, looking up an extent, which bytes a part holds.
//! Not here: how records are made ([`crate::record`]), read from disk (`hayase_container`), or shown.
//!
//! - `family`: records of many writers that differ by a shift only are looked up as one.
//! - `folded`: a log in as few records as say the same.
//! - `layer`: the records of many writers, looked up together; `growing`: an index in layers, that follows
//!   the log of a writer.
//! - `same_view`: reading with the view that wrote is one stretch of one part; `judged`: in all layers.
//! - `resolve`: where records overlap, the later epoch wins; in one epoch the lower rank at open, then
//!   the lower writer id; of one writer the later record.
//!
//! Source: paper 001; boxes are found in an augmented sorted array (Cormen et al., interval trees).

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    ByteCount, Extent, GlobalOffset, LocalExtent, LocalOffset, Piece, Record, StreamExtent, View,
    ViewId, Writer, WriterId, record::Epoch, units::OFFSET_MAX,
};

mod boxes;
mod family;
mod folded;
mod growing;
mod judged;
mod layer;
mod resolve;
mod same_view;

pub use folded::folded;
pub use growing::GrowingIndex;

use judged::Judged;
use layer::{Layer, Source};
use resolve::{Candidate, Standing};

/// All that one writer wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterLog {
    /// Who, and where its part lies.
    pub writer: Writer,
    /// The part with its bytes: its own, of the same name, or one that many share after they were joined.
    pub part: WriterId,
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
    #[error("a file has at most {} writers, not {count}", u32::MAX)]
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
    #[error("a file cannot be truncated to {} bytes", .size.0)]
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
///
/// Invariant: records of one writer that lie in two layers at one place say the same, as far as both reach;
/// otherwise the later layer has the later places.
#[derive(Clone, Debug)]
pub struct Index {
    parts: Arc<[Writer]>,
    logs: Arc<[Logged]>,
    bounds: Arc<Bounds>,
    layers: Vec<Arc<Layer>>,
    judged: Judged,
    size: ByteCount,
}

/// One log, as the index knows it.
#[derive(Clone, Copy, Debug)]
struct Logged {
    writer: WriterId,
    /// The number of its part.
    part: u32,
    /// How it stands against the others.
    standing: u32,
}

impl Index {
    /// Parts are numbered in the order in which `logs` name them first: part `i` is that of the `i`-th log where
    /// no two share one. `cuts` in any order.
    ///
    /// O(n log n) in the records, whatever they select. Fails on what can not have been written.
    pub fn new<'a>(
        logs: impl IntoIterator<Item = &'a WriterLog>,
        cuts: &[Cut],
    ) -> Result<Self, IndexError> {
        let logs: Vec<_> = logs.into_iter().collect();
        if logs.len() > u32::MAX as usize {
            return Err(IndexError::Writers { count: logs.len() });
        }
        if let Some(cut) = cuts.iter().find(|cut| cut.size.0 > OFFSET_MAX) {
            return Err(IndexError::Cut { size: cut.size });
        }
        let (parts, numbers) = parts_of(&logs);
        let standings = writer_standings(&logs)?;
        let bounds = Arc::new(Bounds::new(cuts));
        let logged = logs.iter().zip(numbers).zip(standings).map(|((log, part), standing)| {
            let writer = log.writer.id;
            Logged { writer, part, standing }
        });
        let logged: Arc<[Logged]> = logged.collect();
        let source = |(log, logged): (&'a WriterLog, &Logged)| Source {
            logged: *logged,
            records: &log.records,
            view: |view| log.views.get(&view).map(Arc::clone),
        };
        let layer = Layer::new(logs.iter().copied().zip(logged.iter()).map(source), &bounds)?;
        let size = ByteCount(layer.end().max(bounds.size));
        let layers = vec![Arc::new(layer)];
        Ok(Self { parts, logs: logged, bounds, layers, judged: Judged::default(), size })
    }

    /// The parts by number: by what name each is known, with rank and server of the first writer in it.
    pub fn parts(&self) -> &[Writer] {
        &self.parts
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
        let mut found = Vec::new();
        self.look_up(extent, &mut Scratch::default(), &mut found);
        found
    }

    /// [`Index::lookup`] for callers with many extents: `found` is emptied and filled, and no memory asked
    /// for that an earlier call has left in `scratch` and `found`.
    pub fn look_up(&self, extent: Extent, scratch: &mut Scratch, found: &mut Vec<Found>) {
        scratch.candidates.clear();
        for layer in &self.layers {
            layer.candidates(extent, &mut scratch.candidates);
        }
        let server = |part: u32| self.parts[part as usize].server;
        resolve::resolve(extent, &mut scratch.candidates, server, found);
    }

    /// Where the first bytes of a window of a view's stream lie, when they lie behind each other in one
    /// part: as many as one record through an equal view holds that nobody else wrote to. `None` when
    /// there is no such record, or it is not found out: then [`Index::lookup`] tells.
    ///
    /// O(runs of the view + log n), whatever the number of blocks. The first call for a record compares one
    /// tile of it with one of each record that comes near.
    pub fn stretch(&self, view: &View, window: StreamExtent) -> Option<(u32, LocalExtent)> {
        judged::find(view, window, &self.layers, &self.judged)
    }

    /// Forward: the part that holds the byte at `offset`, and where in it. `None` in holes.
    pub fn locate(&self, offset: GlobalOffset) -> Option<(u32, LocalOffset)> {
        let byte = Extent::new(offset, ByteCount(1)).ok()?;
        match self.lookup(byte).first()? {
            Found::Bytes(piece) => Some((piece.part, piece.local.start())),
            Found::Hole(_) => None,
        }
    }

    /// Backward: where the byte at `offset` of `part` was written to. `None` when nothing was.
    ///
    /// Another writer, or a later record, may have written there since: [`Index::locate`] tells.
    pub fn global(&self, part: u32, offset: LocalOffset) -> Option<GlobalOffset> {
        let byte = LocalExtent::new(offset, ByteCount(1)).ok()?;
        self.origins(part, byte).next().map(|origin| origin.extent.start())
    }

    /// Backward: where the bytes `local` of `part` were written to, in order of the part.
    ///
    /// O(log n) to start, O(depth) each, no allocation. See [`Index::global`].
    pub fn origins(&self, part: u32, local: LocalExtent) -> impl Iterator<Item = Origin> + '_ {
        let mut rest = local;
        self.layers.iter().enumerate().flat_map(move |(nth, layer)| {
            // What a later layer has of this part replaces what lies there and behind.
            let behind = self.layers[nth + 1..].iter().filter_map(|later| later.first(part)).min();
            let (own, later) = rest.split_at(behind.unwrap_or(rest.end()));
            rest = later;
            layer.origins(part, own)
        })
    }
}

/// Memory that lookups use again.
#[derive(Debug, Default)]
pub struct Scratch {
    candidates: Vec<Candidate>,
}

/// The records that no later one replaces; see [`Record`].
fn current_records(records: &[Record]) -> Vec<&Record> {
    let mut current: Vec<&Record> = Vec::with_capacity(records.len());
    for record in records.iter().filter(|record| !record.selection.is_empty()) {
        while current.last().is_some_and(|last| last.place >= record.place) {
            current.pop();
        }
        current.push(record);
    }
    current
}

/// The parts of these logs, and for each log the number of its part.
fn parts_of(logs: &[&WriterLog]) -> (Arc<[Writer]>, Vec<u32>) {
    let (mut parts, mut known) = (Vec::new(), HashMap::with_capacity(logs.len()));
    let number = |log: &&WriterLog| {
        *known.entry(log.part).or_insert_with(|| {
            parts.push(Writer { id: log.part, ..log.writer });
            parts.len() as u32 - 1 // as many as logs at most
        })
    };
    let numbers = logs.iter().map(number).collect();
    (parts.into(), numbers)
}

/// For each log how its writer stands against the others: 0 wins.
fn writer_standings(logs: &[&WriterLog]) -> Result<Vec<u32>, IndexError> {
    let mut order: Vec<_> = (0..logs.len()).collect();
    order.sort_unstable_by_key(|log| (logs[*log].writer.rank, logs[*log].writer.id));
    let mut standings = vec![0; logs.len()];
    for (standing, log) in order.iter().enumerate() {
        standings[*log] = standing as u32; // as many as there are part numbers
    }
    let mut ids: Vec<_> = logs.iter().map(|log| log.writer.id).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(IndexError::Twice { writer: pair[0] }),
        None => Ok(standings),
    }
}

/// Where the bytes of each epoch end, by the cuts behind it.
#[derive(Debug)]
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
