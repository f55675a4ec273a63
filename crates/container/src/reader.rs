//! Reading: extents of the file, through the index of all writers, from their parts.
//!
//! Here: which bytes of which part make up what is asked for, read in the order of the parts.
//! Not here: where the index comes from ([`crate::ContainerFile`] for open files, [`crate::Snapshot`] for
//! what is published).
//!
//! Another decomposition scatters what is contiguous in a part all over a reader's buffer. So pieces are
//! sorted by part and place, neighbours and near neighbours are read with one call of up to
//! [`READ_BYTES_MAX`], and copied to where they belong. Extents that lie near each other are looked up
//! together: some nanoseconds for each piece between, instead of one search for each.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use hayase_layout::index::Scratch;
use hayase_layout::{
    ByteCount, Extent, Found, GlobalOffset, Index, LocalExtent, LocalOffset, StreamMap,
    StreamOffset, View, Writer, WriterId, WriterLog, units::OFFSET_MAX,
};

use crate::limits::{
    LOOKUP_EXTENTS_MAX, LOOKUP_SPREAD_MAX, PIECES_MAX, READ_BYTES_MAX, READ_GAP_MAX,
};
use crate::parts::Parts;
use crate::{Container, ContainerError, Snapshot};

/// The file at one moment. Reads are `pread`s, from any number of threads.
#[derive(Clone, Debug)]
pub struct Reader {
    parts: Arc<Parts>,
    index: Arc<Index>,
    size: ByteCount,
}

/// Bytes of one part, and where they belong in the buffer.
#[derive(Clone, Debug)]
struct Wanted {
    part: u16,
    local: LocalExtent,
    buffer: Range<usize>,
}

impl Reader {
    /// What `snapshot` says. O(n log n) in the records; parts are opened when they are read.
    pub fn new(container: &Container, snapshot: &Snapshot) -> Result<Self, ContainerError> {
        let logs = snapshot.logs().values().map(|published| &published.log);
        Self::of_logs(Arc::new(Parts::new(container.clone())), logs, snapshot)
    }

    /// What these logs say, with the changes of size of `sizes`.
    pub(crate) fn of_logs<'a>(
        parts: Arc<Parts>,
        logs: impl Iterator<Item = &'a WriterLog>,
        sizes: &Snapshot,
    ) -> Result<Self, ContainerError> {
        let index = sizes.index_of(logs, parts.container().path())?;
        Ok(Self::of_index(parts, Arc::new(index), sizes))
    }

    /// What this index says, which was made with the changes of size of `sizes`.
    pub(crate) fn of_index(parts: Arc<Parts>, index: Arc<Index>, sizes: &Snapshot) -> Self {
        let size = sizes.size_with(index.size());
        Self { parts, index, size }
    }

    /// Length of the file.
    pub fn size(&self) -> ByteCount {
        self.size
    }

    /// Where every byte lies; for callers that read parts by themselves, with [`Reader::read_part`].
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Of a part by its number in the index.
    pub fn writer(&self, part: u16) -> Writer {
        self.index.writers()[usize::from(part)]
    }

    /// Fills `target`, as long as `local`, from one part.
    pub fn read_part(
        &self,
        writer: WriterId,
        local: LocalExtent,
        target: &mut [u8],
    ) -> Result<(), ContainerError> {
        self.parts.read(writer, local, target)
    }

    pub(crate) fn part_file(&self, writer: WriterId) -> Result<Arc<File>, ContainerError> {
        self.parts.get(writer)
    }

    /// As pread(2): how many bytes, fewer than asked for only at the end of the file; holes are zeros.
    pub fn read_at(
        &self,
        offset: GlobalOffset,
        target: &mut [u8],
    ) -> Result<usize, ContainerError> {
        let end = offset.0.saturating_add(target.len() as u64).min(OFFSET_MAX);
        let wanted = Extent::between(offset.min(GlobalOffset(end)), GlobalOffset(end));
        let wanted = wanted.map_err(|error| invalid(&error.to_string()))?;
        self.read_extents([wanted], target)
    }

    /// Reads the view stream from `start` on: how many bytes, as [`Reader::read_at`].
    ///
    /// What was written through an equal view, and by nobody else, is one pread(2) for each record,
    /// whatever the number of blocks; the rest is looked up block by block.
    pub fn read_through(
        &self,
        view: &View,
        start: StreamOffset,
        target: &mut [u8],
    ) -> Result<usize, ContainerError> {
        let window = view.window(start, ByteCount(target.len() as u64));
        let mut rest = window;
        while !rest.is_empty() {
            // Read with the view that wrote: no lookup per block.
            let Some((part, local)) = self.index.stretch(view, rest) else { break };
            let from = (rest.start().0 - window.start().0) as usize;
            let len = local.len().get();
            self.parts.read(self.writer(part).id, local, &mut target[from..from + len as usize])?;
            rest = rest.split_at(StreamOffset(rest.start().0 + len)).1;
        }
        let done = (window.len().get() - rest.len().get()) as usize;
        Ok(done + self.read_extents(view.extents(rest), &mut target[done..])?)
    }

    /// Reads `extents` one behind the other into `target`: how many bytes, up to the first that is behind
    /// the end of the file.
    ///
    /// They may come in any order, and overlap. Fails when they are longer than `target`. Memory for
    /// [`PIECES_MAX`] pieces and one buffer of [`READ_BYTES_MAX`], whatever is asked for.
    pub fn read_extents(
        &self,
        extents: impl IntoIterator<Item = Extent>,
        target: &mut [u8],
    ) -> Result<usize, ContainerError> {
        let mut gathering = Gathering::new(self, target);
        let end = GlobalOffset(self.size.get());
        for extent in extents {
            let (inside, outside) = extent.split_at(end);
            gathering.require_room(extent)?;
            // In steps: a lookup gives all its pieces at once.
            for step in inside.chunks(READ_BYTES_MAX) {
                gathering.add(step)?;
            }
            if !outside.is_empty() {
                break;
            }
        }
        gathering.finish()
    }

    /// The first byte at `offset` or behind that was written; `None` when there is only a hole up to the
    /// end (`SEEK_DATA`).
    pub fn next_data(&self, offset: GlobalOffset) -> Option<GlobalOffset> {
        self.next(offset, |found| matches!(found, Found::Bytes(_)))
    }

    /// The first byte at `offset` or behind that was not written, or the end of the file; `None` behind
    /// that (`SEEK_HOLE`).
    pub fn next_hole(&self, offset: GlobalOffset) -> Option<GlobalOffset> {
        let hole = self.next(offset, |found| matches!(found, Found::Hole(_)));
        hole.or((offset.0 < self.size.get()).then_some(GlobalOffset(self.size.get())))
    }

    /// In windows that grow while there is little in them: bounds the memory of a lookup.
    fn next(
        &self,
        offset: GlobalOffset,
        is_wanted: impl Fn(&Found) -> bool,
    ) -> Option<GlobalOffset> {
        let (mut at, mut window) = (offset.0, READ_BYTES_MAX.get());
        while at < self.size.get() {
            let end = at.saturating_add(window).min(self.size.get());
            let extent = Extent::between(GlobalOffset(at), GlobalOffset(end)).ok()?;
            let found = self.index.lookup(extent);
            if let Some(found) = found.iter().find(|found| is_wanted(found)) {
                return Some(found.extent().start());
            }
            let is_sparse = found.len() < PIECES_MAX / 4;
            window = if is_sparse { window.saturating_mul(2) } else { READ_BYTES_MAX.get() };
            at = end;
        }
        None
    }
}

/// Extents on their way into a buffer: looked up in groups, then read.
struct Gathering<'a> {
    reader: &'a Reader,
    target: &'a mut [u8],
    /// Bytes of the buffer that have been taken.
    taken: usize,
    /// Extents that are looked up together: ascending, not overlapping.
    group: Vec<Extent>,
    /// Their bytes, and where in the buffer they begin.
    group_bytes: u64,
    group_at: usize,
    wanted: Vec<Wanted>,
    scratch: Scratch,
    found: Vec<Found>,
}

impl<'a> Gathering<'a> {
    fn new(reader: &'a Reader, target: &'a mut [u8]) -> Self {
        Self {
            reader,
            target,
            taken: 0,
            group: Vec::new(),
            group_bytes: 0,
            group_at: 0,
            wanted: Vec::new(),
            scratch: Scratch::default(),
            found: Vec::new(),
        }
    }

    fn require_room(&self, extent: Extent) -> Result<(), ContainerError> {
        match extent.len().get() <= (self.target.len() - self.taken) as u64 {
            true => Ok(()),
            false => Err(invalid("the extents are longer than the buffer")),
        }
    }

    fn add(&mut self, extent: Extent) -> Result<(), ContainerError> {
        let len = extent.len().get();
        if let (Some(first), Some(last)) = (self.group.first(), self.group.last()) {
            let span = extent.end().0.saturating_sub(first.start().0);
            let is_near = extent.start() >= last.end()
                && span <= READ_BYTES_MAX.get()
                && span <= LOOKUP_SPREAD_MAX * (self.group_bytes + len)
                && self.group.len() < LOOKUP_EXTENTS_MAX;
            if !is_near {
                self.look_up()?;
            }
        }
        self.group.push(extent);
        self.group_bytes += len;
        self.taken += len as usize;
        Ok(())
    }

    /// How many bytes.
    fn finish(mut self) -> Result<usize, ContainerError> {
        self.look_up()?;
        self.reader.fetch(&mut self.wanted, self.target)?;
        Ok(self.taken)
    }

    /// Zeros holes at once, and notes what is to be read.
    fn look_up(&mut self) -> Result<(), ContainerError> {
        let (Some(first), Some(last)) = (self.group.first(), self.group.last()) else {
            return Ok(());
        };
        let span = Extent::between(first.start(), last.end());
        let span = span.expect("extents of a group ascend");
        self.reader.index.look_up(span, &mut self.scratch, &mut self.found);
        let mut at = self.group_at;
        let mut found = self.found.iter().peekable();
        for extent in &self.group {
            while let Some(next) = found.peek() {
                if let Some(both) = next.extent().intersect(*extent) {
                    let start = at + (both.start().0 - extent.start().0) as usize;
                    let buffer = start..start + both.len().get() as usize;
                    match next {
                        Found::Hole(_) => self.target[buffer].fill(0),
                        Found::Bytes(piece) => {
                            let skipped = both.start().0 - piece.extent.start().0;
                            let (_, local) =
                                piece.local.split_at(LocalOffset(piece.local.start().0 + skipped));
                            let (local, _) =
                                local.split_at(LocalOffset(local.start().0 + both.len().get()));
                            push_joined(
                                &mut self.wanted,
                                Wanted { part: piece.part, local, buffer },
                            );
                        }
                    }
                }
                if next.extent().end() > extent.end() {
                    break; // the next extent may have more of it
                }
                found.next();
            }
            at += extent.len().get() as usize;
        }
        self.group.clear();
        (self.group_bytes, self.group_at) = (0, self.taken);
        if self.wanted.len() >= PIECES_MAX {
            self.reader.fetch(&mut self.wanted, self.target)?;
        }
        Ok(())
    }
}

impl Reader {
    /// Reads what was noted, in the order of the parts.
    fn fetch(&self, wanted: &mut Vec<Wanted>, target: &mut [u8]) -> Result<(), ContainerError> {
        sort_by_part(wanted, self.index.writers().len());
        let mut scratch = Vec::new();
        let mut rest = &wanted[..];
        while let Some(first) = rest.first() {
            let (count, end) = reach_of_one_read(rest);
            let (now, later) = rest.split_at(count);
            rest = later;
            let writer = self.writer(first.part).id;
            if let [only] = now {
                self.parts.read(writer, only.local, &mut target[only.buffer.clone()])?;
                continue;
            }
            let start = first.local.start();
            let local = LocalExtent::between(start, LocalOffset(end));
            let local = local.map_err(|error| invalid(&error.to_string()))?;
            scratch.resize(scratch.len().max(local.len().get() as usize), 0);
            let bytes = &mut scratch[..local.len().get() as usize];
            self.parts.read(writer, local, bytes)?;
            for want in now {
                let from = (want.local.start().0 - start.0) as usize;
                let len = want.buffer.len();
                target[want.buffer.clone()].copy_from_slice(&bytes[from..from + len]);
            }
        }
        wanted.clear();
        Ok(())
    }
}

/// By part and place. O(n) where the pieces of each part come in order, as they do when extents ascend.
fn sort_by_part(wanted: &mut Vec<Wanted>, parts: usize) {
    let place = |want: &Wanted| (want.local.start(), want.buffer.start);
    if wanted.is_sorted_by_key(|want| (want.part, place(want))) {
        return;
    }
    if wanted.len() < parts {
        wanted.sort_unstable_by_key(|want| (want.part, place(want)));
        return;
    }
    // Where the pieces of each part begin.
    let mut nexts = vec![0; parts + 1];
    wanted.iter().for_each(|want| nexts[usize::from(want.part) + 1] += 1);
    for part in 0..parts {
        nexts[part + 1] += nexts[part];
    }
    let mut order = vec![0; wanted.len()];
    for (nth, want) in wanted.iter().enumerate() {
        let next = &mut nexts[usize::from(want.part)];
        order[*next] = nth;
        *next += 1;
    }
    let mut sorted: Vec<Wanted> = order.into_iter().map(|nth| wanted[nth].clone()).collect();
    for of_part in sorted.chunk_by_mut(|a, b| a.part == b.part) {
        if !of_part.is_sorted_by_key(place) {
            of_part.sort_unstable_by_key(place);
        }
    }
    *wanted = sorted;
}

/// Pieces that follow each other in part and buffer are one.
fn push_joined(wanted: &mut Vec<Wanted>, next: Wanted) {
    match wanted.last_mut() {
        Some(last)
            if last.part == next.part
                && last.local.end() == next.local.start()
                && last.buffer.end == next.buffer.start =>
        {
            let joined = LocalExtent::between(last.local.start(), next.local.end());
            last.local = joined.expect("both are valid, and one is behind the other");
            last.buffer.end = next.buffer.end;
        }
        _ => wanted.push(next),
    }
}

/// How many of these, sorted by part and place, are read with one call, and where it ends in the part.
fn reach_of_one_read(wanted: &[Wanted]) -> (usize, u64) {
    let first = &wanted[0];
    let start = first.local.start().0;
    let mut end = first.local.end().0;
    let mut count = 1;
    for next in &wanted[1..] {
        let far = next.local.start().0 > end + READ_GAP_MAX.get();
        let reach = end.max(next.local.end().0);
        if next.part != first.part || far || reach - start > READ_BYTES_MAX.get() {
            break;
        }
        end = reach;
        count += 1;
    }
    (count, end)
}

fn invalid(what: &str) -> ContainerError {
    ContainerError::Invalid { what: what.to_owned() }
}
