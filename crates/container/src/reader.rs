//! Reading: extents of the file, through the index of all writers, from their parts.
//!
//! Here: which bytes of which part make up what is asked for, read in the order of the parts.
//! - `plan`: the same without reading, for who shares it with others. `wanted`: order and calls.
//!
//! Not here: where the index comes from ([`crate::ContainerFile`] for open files, [`crate::Snapshot`] for
//! what is published).
//!
//! Another decomposition scatters what is contiguous in a part all over a reader's buffer. So pieces are
//! sorted by part and place, neighbours and near neighbours are read with one call of up to
//! [`READ_BYTES_MAX`], and copied to where they belong. Extents that lie near each other are looked up
//! together: some nanoseconds for each piece between, instead of one search for each.

use std::fs::File;
use std::sync::Arc;

use hayase_layout::index::Scratch;
use hayase_layout::{
    ByteCount, Extent, Found, GlobalOffset, Index, LocalExtent, LocalOffset, StreamExtent,
    StreamMap, StreamOffset, View, Writer, WriterId, WriterLog, units::OFFSET_MAX,
};

use crate::limits::{
    LIST_TRIES_MAX, LOOKUP_EXTENTS_MAX, LOOKUP_SPREAD_MAX, PIECES_MAX, READ_BYTES_MAX,
};
use crate::parts::Parts;
use crate::{Container, ContainerError, Snapshot};

mod plan;
mod wanted;

pub use plan::Plan;
pub use wanted::{ReadCost, Wanted};

use wanted::{push_joined, sort_by_part};

/// The file at one moment. Reads are `pread`s, from any number of threads.
#[derive(Clone, Debug)]
pub struct Reader {
    parts: Arc<Parts>,
    index: Arc<Index>,
    size: ByteCount,
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

    /// Whether it is the same moment, and not only one like it.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.index, &other.index)
    }

    /// Length of the file.
    pub fn size(&self) -> ByteCount {
        self.size
    }

    /// Where every byte lies; for callers that read parts by themselves, with [`Reader::read_part`].
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// A part by its number in the index.
    pub fn part(&self, part: u32) -> Writer {
        self.index.parts()[part as usize]
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
        self.read_extents([extent_at(offset, target.len())?], target)
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
        while let Some((want, later)) = self.next_stretch(view, window, rest) {
            self.parts.read(self.part(want.part).id, want.local, &mut target[want.buffer])?;
            rest = later;
        }
        let done = (window.len().get() - rest.len().get()) as usize;
        Ok(done + self.read_extents(view.extents(rest), &mut target[done..])?)
    }

    /// The beginning of `rest`, the end of `window`, where the view that is read with wrote it: no lookup
    /// for each block. With what is left.
    fn next_stretch(
        &self,
        view: &View,
        window: StreamExtent,
        rest: StreamExtent,
    ) -> Option<(Wanted, StreamExtent)> {
        if rest.is_empty() {
            return None;
        }
        let (part, local) = self.index.stretch(view, rest)?;
        let from = (rest.start().0 - window.start().0) as usize;
        let len = local.len().get();
        let buffer = from..from + len as usize;
        Some((Wanted { part, local, buffer }, rest.split_at(StreamOffset(rest.start().0 + len)).1))
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
        gathering.collect(extents, |gathering| gathering.fetch().map(|()| true))?;
        gathering.look_up();
        gathering.fetch()?;
        Ok(gathering.taken)
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

impl Container {
    /// Runs `read` on what is published now, and again where a compaction has moved bytes meanwhile that it wanted
    /// to read.
    pub fn read_published<T>(
        &self,
        mut read: impl FnMut(&Reader, &Snapshot) -> Result<T, ContainerError>,
    ) -> Result<T, ContainerError> {
        let mut snapshot = self.load()?;
        let (mut done, mut is_old) = (read(&Reader::new(self, &snapshot)?, &snapshot), false);
        for _ in 0..LIST_TRIES_MAX {
            if !matches!(done, Err(ContainerError::MissingPart { .. })) {
                break;
            }
            let now = self.load()?;
            let is_same = now == snapshot;
            if is_same && is_old {
                break; // it is lost
            }
            (snapshot, is_old) = (now, is_same); // a listing of NFS may be an old one, once
            done = read(&Reader::new(self, &snapshot)?, &snapshot);
        }
        done
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

    /// Takes extents up to the end of the file, or until `full` says to stop, which is asked whenever there
    /// are [`PIECES_MAX`] pieces. The last ones are still to be looked up.
    fn collect(
        &mut self,
        extents: impl IntoIterator<Item = Extent>,
        mut full: impl FnMut(&mut Self) -> Result<bool, ContainerError>,
    ) -> Result<(), ContainerError> {
        let end = GlobalOffset(self.reader.size.get());
        for extent in extents {
            let (inside, outside) = extent.split_at(end);
            self.require_room(extent)?;
            // In steps: a lookup gives all its pieces at once.
            for step in inside.chunks(READ_BYTES_MAX) {
                if self.wanted.len() >= PIECES_MAX && !full(self)? {
                    return Ok(());
                }
                self.add(step);
            }
            if !outside.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn require_room(&self, extent: Extent) -> Result<(), ContainerError> {
        match extent.len().get() <= (self.target.len() - self.taken) as u64 {
            true => Ok(()),
            false => Err(invalid("the extents are longer than the buffer")),
        }
    }

    fn add(&mut self, extent: Extent) {
        let len = extent.len().get();
        if let (Some(first), Some(last)) = (self.group.first(), self.group.last()) {
            let span = extent.end().0.saturating_sub(first.start().0);
            let is_near = extent.start() >= last.end()
                && span <= READ_BYTES_MAX.get()
                && span <= LOOKUP_SPREAD_MAX * (self.group_bytes + len)
                && self.group.len() < LOOKUP_EXTENTS_MAX;
            if !is_near {
                self.look_up();
            }
        }
        self.group.push(extent);
        self.group_bytes += len;
        self.taken += len as usize;
    }

    /// Reads what was noted, in the order of the parts.
    fn fetch(&mut self) -> Result<(), ContainerError> {
        sort_by_part(&mut self.wanted, self.reader.index.parts().len());
        self.reader.read_planned(&self.wanted, self.target)?;
        self.wanted.clear();
        Ok(())
    }

    /// Zeros holes at once, and notes what is to be read.
    fn look_up(&mut self) {
        let (Some(first), Some(last)) = (self.group.first(), self.group.last()) else { return };
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
    }
}

/// As much of `len` bytes at `offset` as a file can have.
fn extent_at(offset: GlobalOffset, len: usize) -> Result<Extent, ContainerError> {
    let end = offset.0.saturating_add(len as u64).min(OFFSET_MAX);
    let extent = Extent::between(offset.min(GlobalOffset(end)), GlobalOffset(end));
    extent.map_err(|error| invalid(&error.to_string()))
}

fn invalid(what: &str) -> ContainerError {
    ContainerError::Invalid { what: what.to_owned() }
}
