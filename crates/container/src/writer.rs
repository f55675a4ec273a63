//! One writer: its part, its records, and what of them is published.
//!
//! Here: where a write goes, publication. Not here: locks and reading ([`crate::ContainerFile`]).
//!
//! Invariants:
//! - a record is noted after its bytes are written, with the length that was written;
//! - part and index are made at the first write and the first publication, under a name that nobody had;
//! - an index is only appended to, in whole blocks; a block that could not be written whole is cut off
//!   again, and where that fails too, the writer publishes nothing any more;
//! - a durable publication syncs the part, then the index, then (once) its names; rank 0, also when it wrote
//!   nothing, the mark and the name of the container.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hayase_layout::index::{Cut, folded};
use hayase_layout::{
    ByteCount, Epoch, LocalOffset, NodeId, Rank, Record, Recorder, Selection, ServerId, View,
    ViewId, Write, WriterId, WriterLog,
};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::directory::random;
use crate::format::block::split_entries;
use crate::format::{Entry, draw_block, draw_header};
use crate::limits::{EPOCH_MAX, NAME_TRIES_MAX};
use crate::{Container, ContainerError, WriteError, mark, names};

/// The opening of a container. Two openings differ in `opening`, whatever process made them ([`next_opening`]): the
/// names of writers whose parts were joined are nowhere to be seen, and must not be taken again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Where it runs.
    pub node: NodeId,
    /// Its process id.
    pub process: u32,
    /// A number that no other opening has, larger than those before of this process.
    pub opening: u64,
    /// Its rank in the communicator that opened the file: in one epoch the lower one wins. Rank 0 sees to it
    /// that the container itself is durable, so a process that opens it alone is rank 0.
    pub rank: Rank,
}

/// The number of an opening: 35 random bits of this process, and a count. Below 2^53: readers of JSON keep it.
pub fn next_opening() -> u64 {
    static NEXT: OnceLock<AtomicU64> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU64::new((random() >> 11) & !0x3_ffff));
    next.fetch_add(1, Ordering::Relaxed)
}

/// What a publication survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A kill. Others see it at once, on other nodes as far as the file system shows them what is written
    /// and not synced: NFS does not before the writer closes.
    Written,
    /// A power cut (`MPI_File_sync`).
    Durable,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Writer {
    container: Container,
    writer: hayase_layout::Writer,
    epoch: Epoch,
    recorder: Recorder,
    views: Views,
    /// Cuts and grows of this writer, and how many of them are published.
    sizes: Vec<Entry>,
    sizes_published: usize,
    part: Option<File>,
    index: Option<IndexFile>,
    /// Written since the part was synced.
    is_part_dirty: bool,
    /// There is a part of this name, open or closed.
    has_part: bool,
    /// Nothing can be written any more.
    is_ended: bool,
    /// The index says so.
    is_told: bool,
    /// And that was all.
    is_closed: bool,
    /// In an area: published, and the file's home was not told.
    is_untold: bool,
    /// Written where a record that is published has the bytes already: nothing of it will be published.
    is_rewritten: bool,
    /// Mark and name of the container are durable, as far as this writer sees to it.
    is_container_durable: bool,
    /// Why nothing can be published any more.
    failure: Option<&'static str>,
    /// Raised by whatever changes what readers find.
    changes: u64,
    /// Raised by each change of size.
    resizes: u64,
}

#[derive(Debug)]
struct IndexFile {
    file: File,
    bytes: u64,
    blocks: u64,
    /// Appended since it was synced.
    is_dirty: bool,
    /// Its name is durable, and that of the part.
    is_name_durable: bool,
}

/// Views by number; equal ones have one.
#[derive(Debug, Default)]
struct Views {
    ids: HashMap<Arc<View>, ViewId>,
    views: Vec<Arc<View>>,
    published: HashSet<ViewId>,
}

impl Writer {
    pub(crate) fn new(container: Container, identity: Identity, epoch: Epoch) -> Self {
        let Identity { node, process, opening, rank } = identity;
        let id = WriterId { node, process, opening };
        // In a directory everybody reaches every part: there are no servers.
        let writer = hayase_layout::Writer { id, rank, server: ServerId(0) };
        Self {
            container,
            writer,
            epoch,
            recorder: Recorder::new(),
            views: Views::default(),
            sizes: Vec::new(),
            sizes_published: 0,
            part: None,
            index: None,
            is_part_dirty: false,
            has_part: false,
            is_ended: false,
            is_told: false,
            is_closed: false,
            is_untold: false,
            is_rewritten: false,
            is_container_durable: rank.0 > 0,
            failure: None,
            changes: 0,
            resizes: 0,
        }
    }

    /// Not final before the first write: see [`Identity`].
    pub(crate) fn id(&self) -> WriterId {
        self.writer.id
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn resizes(&self) -> u64 {
        self.resizes
    }

    /// Its records, published or not.
    pub(crate) fn records(&self) -> &[Record] {
        self.recorder.records()
    }

    /// See [`Recorder::take_unchanged`].
    pub(crate) fn take_unchanged(&mut self) -> usize {
        self.recorder.take_unchanged()
    }

    /// One of its views.
    pub(crate) fn view(&self, view: ViewId) -> Option<Arc<View>> {
        self.views.views.get(view.0 as usize).map(Arc::clone)
    }

    /// Whether it has anything that others do not know of.
    pub(crate) fn has_unpublished(&self) -> bool {
        !self.recorder.pending().is_empty() || self.sizes_published < self.sizes.len()
    }

    /// Whether others may know of it.
    pub(crate) fn has_published(&self) -> bool {
        self.index.is_some()
    }

    /// Whether there is anything of it on disk.
    pub(crate) fn has_files(&self) -> bool {
        self.has_part
    }

    pub(crate) fn advance(&mut self, epoch: Epoch) -> Result<(), ContainerError> {
        if epoch.0 > EPOCH_MAX {
            let what = format!("a container has at most {EPOCH_MAX} epochs");
            return Err(ContainerError::Limit { path: self.container.path().to_owned(), what });
        }
        self.epoch = self.epoch.max(epoch);
        Ok(())
    }

    pub(crate) fn declare(&mut self, view: &View) -> ViewId {
        if let Some(id) = self.views.ids.get(view) {
            return *id;
        }
        let id = ViewId(u32::try_from(self.views.views.len()).expect("memory ends before"));
        let view = Arc::new(view.clone());
        self.views.ids.insert(Arc::clone(&view), id);
        self.views.views.push(view);
        id
    }

    /// The bytes of `write`, contiguous in `data`.
    pub(crate) fn write(&mut self, write: Write, data: &[u8]) -> Result<(), WriteError> {
        let nothing = |source| WriteError { written: ByteCount::ZERO, source };
        let valid = self.require_valid(write, data);
        valid.map_err(nothing)?;
        if write.is_empty() {
            return Ok(());
        }
        self.make_part().map_err(nothing)?;
        let place = self.recorder.place(write, self.epoch);
        let part = self.part.as_ref().expect("made above");
        let (written, fault) = write_all(part, data, place);
        let noted = self.recorder.note(write.prefix(written), self.epoch);
        self.is_part_dirty |= !written.is_zero();
        self.changes += u64::from(!written.is_zero());
        self.is_rewritten |= !written.is_zero() && !self.has_unpublished();
        if let Err(error) = noted {
            let what = error.to_string();
            let path = self.container.path().to_owned();
            return Err(nothing(ContainerError::Limit { path, what }));
        }
        match fault {
            None => Ok(()),
            Some(source) => {
                let path = self.container.directory().shown(&names::part(self.id()));
                Err(WriteError { written, source: ContainerError::io("write", &path, source) })
            }
        }
    }

    fn require_valid(&self, write: Write, data: &[u8]) -> Result<(), ContainerError> {
        let invalid = |what: &str| Err(ContainerError::Invalid { what: what.to_owned() });
        self.require_open()?;
        if write.len().get() != data.len() as u64 {
            return invalid("the buffer is not as long as what is to be written");
        }
        if let Write::Through { view, window } = write {
            let Some(view) = self.views.views.get(view.0 as usize) else {
                return invalid("the view was not declared");
            };
            if view.window(window.start(), window.len()) != window {
                return invalid("the write ends beyond the largest file offset");
            }
        }
        Ok(())
    }

    fn require_open(&self) -> Result<(), ContainerError> {
        match self.is_ended {
            false => Ok(()),
            true => Err(ContainerError::Invalid { what: "the file was closed".to_owned() }),
        }
    }

    /// Makes the part under a name that no part has.
    fn make_part(&mut self) -> Result<(), ContainerError> {
        if self.has_part {
            return Ok(());
        }
        let directory = self.container.directory();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut id = self.writer.id;
        for _ in 0..NAME_TRIES_MAX {
            let name = names::part(id);
            match directory.open_file(&name, flags) {
                Ok(file) => {
                    self.part = Some(file);
                    self.has_part = true;
                    self.writer.id = id;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    id.opening = id.opening.wrapping_add(1);
                }
                Err(source) => {
                    return Err(ContainerError::io(
                        "create the part",
                        &directory.shown(&name),
                        source,
                    ));
                }
            }
        }
        let what = format!("{NAME_TRIES_MAX} names for a part are taken");
        Err(ContainerError::Limit { path: directory.path().to_owned(), what })
    }

    /// Blocks for this many further bytes of the part; the file's length stays.
    pub(crate) fn reserve(&mut self, bytes: ByteCount) -> Result<(), ContainerError> {
        if bytes.is_zero() {
            return Ok(());
        }
        self.require_open()?;
        self.make_part()?;
        let part = self.part.as_ref().expect("made above");
        let at = self.recorder.tail().0;
        match rustix::fs::fallocate(part, FallocateFlags::KEEP_SIZE, at, bytes.get()) {
            // Where blocks can not be reserved, they are not: the file's size is what counts.
            Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            Err(errno) => {
                let path = self.container.directory().shown(&names::part(self.id()));
                Err(ContainerError::io("reserve blocks for", &path, errno.into()))
            }
        }
    }

    /// Changes the file's size, and publishes that with whatever else there is. All or nothing.
    pub(crate) fn resize(
        &mut self,
        entries: &[Entry],
        durability: Durability,
    ) -> Result<(), ContainerError> {
        self.require_open()?;
        self.make_part()?;
        let before = self.sizes.len();
        self.sizes.extend_from_slice(entries);
        self.changes += 1;
        self.resizes += 1;
        let published = self.publish(durability);
        if published.is_err() && self.sizes_published <= before {
            self.sizes.truncate(before);
            self.changes += 1;
            self.resizes += 1;
        }
        published
    }

    /// Makes others see what was written. Nothing is lost when it fails: it can be tried again.
    pub(crate) fn publish(&mut self, durability: Durability) -> Result<(), ContainerError> {
        self.publish_as(self.recorder.pending().to_vec(), durability)?;
        match durability {
            Durability::Written => Ok(()),
            Durability::Durable => self.sync_container(),
        }
    }

    /// `pending` tells the records that are to be published, perhaps in fewer words.
    fn publish_as(
        &mut self,
        pending: Vec<Record>,
        durability: Durability,
    ) -> Result<(), ContainerError> {
        if !self.has_files() || self.is_closed {
            return Ok(());
        }
        self.require_sound()?;
        if durability == Durability::Durable && self.is_part_dirty {
            self.sync_part()?;
        }
        if self.has_unpublished() {
            let entries = self.entries(pending);
            self.append(entries)?;
            self.mark_published();
            self.is_untold = true;
        }
        if self.is_untold {
            self.tell_area()?;
        }
        match durability {
            Durability::Written => Ok(()),
            Durability::Durable => self.sync_index(),
        }
    }

    /// Publishes the rest, and that nothing follows.
    pub(crate) fn close(&mut self, durability: Durability) -> Result<(), ContainerError> {
        if !self.has_files() || self.is_closed {
            return Ok(());
        }
        self.is_ended = true;
        if durability == Durability::Durable && self.is_part_dirty {
            self.sync_part()?;
        }
        // Many file systems show other nodes what was written when it is closed: the part first.
        self.part = None;
        // Who keeps a copy of the file elsewhere hears of what no record tells.
        self.is_untold |= self.is_rewritten && self.index.is_some();
        // Nothing follows, so nothing will replace one of these records alone.
        self.publish_as(folded(self.recorder.pending()), durability)?;
        if self.index.is_none() {
            // Nothing came of the first write: the part holds nothing.
            self.container.directory().remove(&names::part(self.id()))?;
        } else if !self.is_told {
            let part_bytes = ByteCount(self.recorder.tail().0);
            self.append(vec![Entry::Closed { part_bytes }])?;
            self.is_told = true;
        }
        if durability == Durability::Durable {
            self.sync_index()?;
            self.sync_container()?;
        }
        self.index = None;
        self.is_closed = true;
        Ok(())
    }

    /// In an area others do not look at indexes: they are told. Tried again by the next publication.
    fn tell_area(&mut self) -> Result<(), ContainerError> {
        if let Some(file) = self.container.area_file() {
            file.tell_published(&names::index(self.id()))?;
        }
        (self.is_untold, self.is_rewritten) = (false, false);
        Ok(())
    }

    fn require_sound(&self) -> Result<(), ContainerError> {
        match self.failure {
            None => Ok(()),
            Some(what) => {
                let path = self.container.directory().shown(&names::index(self.id()));
                Err(ContainerError::Limit { path, what: what.to_owned() })
            }
        }
    }

    fn sync_part(&mut self) -> Result<(), ContainerError> {
        let path = self.container.directory().shown(&names::part(self.id()));
        let failed = |source| ContainerError::io("sync the part", &path, source);
        let reopened;
        let part = match &self.part {
            Some(part) => part,
            None => {
                let name = names::part(self.id());
                let opened = self.container.directory().open_file(&name, OFlags::RDONLY);
                reopened = opened.map_err(failed)?;
                &reopened
            }
        };
        if let Err(source) = part.sync_data() {
            // The kernel has dropped the bytes, and would answer the next fsync(2) with success.
            self.failure =
                Some("an earlier sync failed: what was written since the one before is lost");
            return Err(failed(source));
        }
        self.is_part_dirty = false;
        Ok(())
    }

    /// What is to be published: views before the records that name them.
    fn entries(&self, records: Vec<Record>) -> Vec<Entry> {
        let mut named = HashSet::new();
        let mut entries = Vec::new();
        for record in records {
            if let Selection::View { view, .. } = record.selection
                && !self.views.published.contains(&view)
                && named.insert(view)
            {
                let declared = &self.views.views[view.0 as usize];
                entries.push(Entry::View { id: view, view: (**declared).clone() });
            }
            entries.push(Entry::Record(record));
        }
        entries.extend_from_slice(&self.sizes[self.sizes_published..]);
        entries
    }

    fn mark_published(&mut self) {
        for record in self.recorder.publish() {
            if let Selection::View { view, .. } = record.selection {
                self.views.published.insert(view);
            }
        }
        self.sizes_published = self.sizes.len();
    }

    /// Appends blocks with these entries to the index, all or none of them.
    fn append(&mut self, mut entries: Vec<Entry>) -> Result<(), ContainerError> {
        let is_new = self.index.is_none();
        if is_new {
            entries.insert(0, Entry::Writer(self.writer));
        }
        let mut blocks = self.index.as_ref().map_or(0, |index| index.blocks);
        let mut bytes = match is_new {
            true => draw_header(self.container.id()).to_vec(),
            false => Vec::new(),
        };
        let path = self.container.directory().shown(&names::index(self.id()));
        let lists = split_entries(entries).map_err(|_| ContainerError::Limit {
            path: path.clone(),
            what: "a view has more pieces than a block of an index may hold".to_owned(),
        })?;
        for list in lists {
            bytes.extend_from_slice(&draw_block(blocks, &list));
            blocks += 1;
        }
        self.make_index()?;
        let index = self.index.as_mut().expect("made above");
        let (written, fault) = write_all(&index.file, &bytes, LocalOffset(index.bytes));
        let Some(source) = fault else {
            index.bytes += written.get();
            (index.blocks, index.is_dirty) = (blocks, true);
            return self.require_named();
        };
        match index.bytes {
            // Never published: begin anew the next time, with the header.
            0 => {
                self.index = None;
                self.container.directory().remove(&names::index(self.id()))?;
            }
            len if index.file.set_len(len).is_ok() => {}
            _ => self.failure = Some("an earlier publication failed, and could not be taken back"),
        }
        Err(ContainerError::io("publish in", &path, source))
    }

    fn make_index(&mut self) -> Result<(), ContainerError> {
        if self.index.is_some() {
            return Ok(());
        }
        let name = names::index(self.id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let directory = self.container.directory();
        let file = directory.open_file(&name, flags);
        let file = file.map_err(|source| {
            ContainerError::io("create the index", &directory.shown(&name), source)
        })?;
        let (bytes, blocks) = (0, 0);
        let (is_dirty, is_name_durable) = (true, false);
        self.index = Some(IndexFile { file, bytes, blocks, is_dirty, is_name_durable });
        Ok(())
    }

    /// An index that was removed meanwhile takes what is written to it along.
    fn require_named(&self) -> Result<(), ContainerError> {
        let Some(index) = &self.index else { return Ok(()) };
        let path = || self.container.directory().shown(&names::index(self.id()));
        match rustix::fs::fstat(&index.file) {
            Ok(stat) if stat.st_nlink == 0 => Err(ContainerError::NotFound { path: path() }),
            Ok(_) => Ok(()),
            Err(errno) => Err(ContainerError::io("look at", &path(), errno.into())),
        }
    }

    fn sync_index(&mut self) -> Result<(), ContainerError> {
        let Some(index) = self.index.as_mut() else { return Ok(()) };
        if index.is_dirty {
            if let Err(source) = index.file.sync_data() {
                self.failure = Some("an earlier sync failed: what was published since is lost");
                let path = self.container.directory().shown(&names::index(self.writer.id));
                return Err(ContainerError::io("sync the index", &path, source));
            }
            index.is_dirty = false;
        }
        if !index.is_name_durable {
            self.container.directory().sync()?;
            index.is_name_durable = true;
        }
        Ok(())
    }

    /// Mark and name of the container, once.
    fn sync_container(&mut self) -> Result<(), ContainerError> {
        if self.is_container_durable {
            return Ok(());
        }
        mark::sync(self.container.directory())?;
        self.container.directory().sync()?;
        match self.container.area_file() {
            Some(file) => file.sync()?,
            None => self.container.directory().sync_name()?,
        }
        self.is_container_durable = true;
        Ok(())
    }

    /// All of it, published or not, as an index takes it.
    pub(crate) fn log(&self) -> WriterLog {
        let views = (0..).map(ViewId).zip(self.views.views.iter().cloned()).collect();
        let records = self.recorder.records().to_vec();
        WriterLog { writer: self.writer, part: self.id(), views, records }
    }

    /// All its changes of size: cuts, and grows.
    pub(crate) fn sizes(&self) -> (Vec<Cut>, Vec<Cut>) {
        let (mut cuts, mut grows) = (Vec::new(), Vec::new());
        for entry in &self.sizes {
            match *entry {
                Entry::Cut { epoch, size } => cuts.push(Cut { epoch, size }),
                Entry::Grow { epoch, size } => grows.push(Cut { epoch, size }),
                _ => {}
            }
        }
        (cuts, grows)
    }
}

/// As many as could be written, and why not more.
fn write_all(file: &File, data: &[u8], place: LocalOffset) -> (ByteCount, Option<io::Error>) {
    let mut written = 0;
    while written < data.len() {
        match file.write_at(&data[written..], place.0 + written as u64) {
            Ok(0) => return (ByteCount(written as u64), Some(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (ByteCount(written as u64), Some(error)),
        }
    }
    (ByteCount(written as u64), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_of_a_process_rise_and_are_numbers_of_json() {
        let numbers = [next_opening(), next_opening(), next_opening()];
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        assert!(numbers.iter().all(|number| *number < 1 << 53), "{numbers:?}");
    }
}
