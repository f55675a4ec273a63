//! An open container: what one process does with it, from any number of threads.
//!
//! Here: reads that see what is published and all that this opening wrote; writes; size; epochs.
//! Rooms: the writer's own log ([`crate::writer`]), reading ([`crate::Reader`]).
//! Not here: communication. What is collective in MPI is split so that the caller can agree first.
//!
//! **Epochs** order what is written: later wins. A collective open, sync or set_size is, for each process:
//!
//! 1. `publish` (sync), so that nothing earlier is missing;
//! 2. agree on the maximum over all of [`ContainerFile::proposed_epoch`]: one process of the group calls
//!    [`ContainerFile::refresh`] before, so that writers outside of the group are counted;
//! 3. [`ContainerFile::advance`] to it (or [`ContainerFile::set_size`], on one process, and
//!    [`ContainerFile::learn_size`] on the others).
//!
//! A process alone calls [`ContainerFile::sync`], which does all three. Where a group knows that nobody
//! wrote since the last time, it may leave steps 2 and 3 out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use hayase_layout::index::{Cut, GrowingIndex};
use hayase_layout::{
    ByteCount, Epoch, Extent, GlobalOffset, StreamOffset, View, ViewId, Write, WriterId,
    units::OFFSET_MAX,
};

use crate::catalogue::Catalogue;
use crate::format::Entry;
use crate::limits::{LIST_TRIES_MAX, WRITERS_MAX};
use crate::outline::Outline;
use crate::parts::Parts;
use crate::writer::Writer;
use crate::{Container, ContainerError, Durability, Identity, Reader, Snapshot, WriteError};

/// What an opening may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `MPI_MODE_RDONLY`.
    Read,
    /// `MPI_MODE_WRONLY`.
    Write,
    /// `MPI_MODE_RDWR`.
    ReadWrite,
}

impl Access {
    fn may_read(self) -> bool {
        self != Self::Write
    }

    fn may_write(self) -> bool {
        self != Self::Read
    }
}

/// See the module. Dropping it without [`ContainerFile::close`] publishes nothing further, as a kill.
#[derive(Debug)]
pub struct ContainerFile {
    container: Container,
    access: Access,
    parts: Arc<Parts>,
    writer: Mutex<Writer>,
    /// Locked after `writer` where both are.
    others: Mutex<Others>,
}

/// What is known of what is published.
#[derive(Debug, Default)]
struct Others {
    catalogue: Catalogue,
    /// As it was opened, where that was enough.
    outline: Option<Outline>,
    /// `None` until it is needed.
    snapshot: Option<Snapshot>,
    /// A [`ContainerFile::refresh`] has been answered.
    has_told: bool,
    /// Others published since, and none has said so.
    has_news: bool,
    /// It was told by another process, and is not what the catalogue says.
    is_adopted: bool,
    /// Cuts and grows that other processes of the group made and published.
    learned: Vec<Entry>,
    /// Made from all of it and from what this opening wrote.
    known: Option<Known>,
}

/// What is read, as of one moment.
#[derive(Debug)]
struct Known {
    reader: Reader,
    /// The same, following this opening's own log; `None` while that has no part.
    growing: Option<GrowingIndex>,
    /// All changes of size.
    sizes: Snapshot,
    /// Of the writer, at that moment.
    changes: u64,
    resizes: u64,
}

impl ContainerFile {
    /// Opens `container`.
    ///
    /// `epoch`: what the group agreed on, so that one process alone looks at the indexes. `None` reads all indexes (of
    /// merged ones only the ends, for an opening that only writes), begins an epoch behind every one that was used, and
    /// refuses to write a file that would have more than [`WRITERS_MAX`] writers. Opening makes no files.
    pub fn open(
        container: Container,
        access: Access,
        identity: Identity,
        epoch: Option<Epoch>,
    ) -> Result<Self, ContainerError> {
        let parts = Arc::new(Parts::new(container.clone()));
        let writer = Writer::new(container.clone(), identity, Epoch(0));
        let (writer, others) = (Mutex::new(writer), Mutex::default());
        let file = Self { container, access, parts, writer, others };
        let epoch = match epoch {
            Some(epoch) => epoch,
            None => {
                file.look()?;
                file.require_room_for(1)?;
                file.proposed_epoch()
            }
        };
        file.advance(epoch)?;
        Ok(file)
    }

    /// Fails where this opening may write, and a group of `group` processes, of which it is one, would make the
    /// container's writers more than [`WRITERS_MAX`]: for the process that opens it for the group.
    pub fn require_room_for(&self, group: usize) -> Result<(), ContainerError> {
        self.require_room(group, WRITERS_MAX)
    }

    fn require_room(&self, group: usize, writers_max: usize) -> Result<(), ContainerError> {
        let has_room = |count: usize| count.saturating_add(group) <= writers_max;
        if !self.access.may_write() || has_room(self.others().writers_at_most()) {
            return Ok(());
        }
        // Ends of merged indexes count a writer twice of which two tell.
        self.refresh()?;
        let count = self.others().writers_at_most();
        if has_room(count) {
            return Ok(());
        }
        Err(ContainerError::Writers {
            path: self.container.path().to_owned(),
            count,
            group,
            most: writers_max,
        })
    }

    /// Which container.
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// What was asked for.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Who writes; its `opening` may change until the first write, see [`Identity`].
    pub fn writer_id(&self) -> WriterId {
        self.writer().id()
    }

    /// Of what is written now.
    pub fn epoch(&self) -> Epoch {
        self.writer().epoch()
    }

    /// Behind every epoch that is known here.
    pub fn proposed_epoch(&self) -> Epoch {
        let own = self.writer().epoch();
        let others = self.others();
        Epoch(own.max(others.latest()).0 + 1)
    }

    /// What is written from now on is of this epoch, or of a later one that was reached already.
    pub fn advance(&self, epoch: Epoch) -> Result<(), ContainerError> {
        self.writer().advance(epoch)
    }

    /// The number of a view, for [`Write::Through`]. Equal views have one number, so a repeated call costs
    /// one hash of the view. Views that nothing is written through are not published.
    pub fn declare_view(&self, view: &View) -> ViewId {
        self.writer().declare(view)
    }

    /// Writes `data`, which is as long as `write` selects, contiguous and in the order of the selection.
    ///
    /// One pwrite(2) at the end of this writer's part (or in place, where the last record has these bytes
    /// already). Visible to this opening at once, to others after they refresh behind a publication. Calls
    /// of several threads follow each other. See [`WriteError`] for a full disk.
    pub fn write(&self, write: Write, data: &[u8]) -> Result<(), WriteError> {
        let allowed = self.require_write();
        allowed.map_err(|source| WriteError { written: ByteCount::ZERO, source })?;
        self.writer().write(write, data)
    }

    /// [`ContainerFile::write`] at an offset of the file.
    pub fn write_at(&self, offset: GlobalOffset, data: &[u8]) -> Result<(), WriteError> {
        let extent = Extent::new(offset, ByteCount(data.len() as u64));
        let extent = extent.map_err(|error| WriteError {
            written: ByteCount::ZERO,
            source: ContainerError::Invalid { what: error.to_string() },
        })?;
        self.write(Write::At(extent), data)
    }

    /// The file as it is known here: published when [`ContainerFile::refresh`] was called last, and all
    /// that this opening wrote. A `Reader` is such a moment; later writes are not in it.
    ///
    /// Cheap unless something changed. What this opening wrote since is O(log n) for each new record, over
    /// time; what a refresh found, and a change of size, O(n log n) in the records of all writers.
    pub fn reader(&self) -> Result<Reader, ContainerError> {
        let mut writer = self.writer();
        let mut others = self.others();
        if let Some(mut known) = others.known.take() {
            let is_current = known.follow(&self.parts, &mut writer)?;
            if is_current {
                let reader = known.reader.clone();
                others.known = Some(known);
                return Ok(reader);
            }
        }
        if others.snapshot.is_none() {
            others.refresh_unasked(&self.container)?;
        }
        let known = others.know(Arc::clone(&self.parts), &mut writer)?;
        let reader = known.reader.clone();
        others.known = Some(known);
        Ok(reader)
    }

    /// As [`Reader::read_at`].
    pub fn read_at(
        &self,
        offset: GlobalOffset,
        target: &mut [u8],
    ) -> Result<usize, ContainerError> {
        self.read(|reader| reader.read_at(offset, target))
    }

    /// As [`Reader::read_through`].
    pub fn read_through(
        &self,
        view: &View,
        start: StreamOffset,
        target: &mut [u8],
    ) -> Result<usize, ContainerError> {
        self.read(|reader| reader.read_through(view, start, target))
    }

    /// As [`Reader::read_extents`].
    pub fn read_extents(
        &self,
        extents: impl IntoIterator<Item = Extent, IntoIter: Clone>,
        target: &mut [u8],
    ) -> Result<usize, ContainerError> {
        let extents = extents.into_iter();
        self.read(|reader| reader.read_extents(extents.clone(), target))
    }

    /// Reads, and again with what is published now where a compaction has joined the parts meanwhile.
    fn read(
        &self,
        mut read: impl FnMut(&Reader) -> Result<usize, ContainerError>,
    ) -> Result<usize, ContainerError> {
        self.require_read()?;
        let mut reader = self.reader()?;
        let (mut done, mut is_old) = (read(&reader), false);
        for _ in 0..LIST_TRIES_MAX {
            if !matches!(done, Err(ContainerError::MissingPart { .. })) {
                break;
            }
            self.others().refresh_unasked(&self.container)?;
            // Another thread may have seen where the bytes are now.
            let now = self.reader()?;
            let is_same = now.is_same(&reader);
            if is_same && is_old {
                break; // the part is lost
            }
            (reader, is_old) = (now, is_same); // a listing of NFS may be an old one, once
            done = read(&reader);
        }
        done
    }

    /// Length of the file as it is known here.
    pub fn size(&self) -> Result<ByteCount, ContainerError> {
        if let Some(size) = self.size_at_open() {
            return Ok(size);
        }
        Ok(self.reader()?.size())
    }

    /// Makes the file so long: what was written in epochs before `epoch` ends there. On one process of a
    /// group; the others call [`ContainerFile::learn_size`]. Published at once (not durable before the
    /// next durable publication); this opening advances to `epoch`.
    pub fn set_size(&self, size: ByteCount, epoch: Epoch) -> Result<(), ContainerError> {
        self.require_write()?;
        require_size(size)?;
        let mut writer = self.writer();
        self.require_later(&writer, epoch)?;
        writer.resize(&[Entry::Cut { epoch, size }], Durability::Written)?;
        writer.advance(epoch)
    }

    /// Another process of the group has called [`ContainerFile::set_size`]: nothing is written.
    pub fn learn_size(&self, size: ByteCount, epoch: Epoch) -> Result<(), ContainerError> {
        require_size(size)?;
        self.learn(Entry::Cut { epoch, size });
        self.advance(epoch)
    }

    /// Makes the file at least so long (`MPI_File_preallocate`), on one process of a group; the others
    /// call [`ContainerFile::learn_preallocated`]. Published as by [`ContainerFile::set_size`].
    ///
    /// No blocks are set aside: nobody knows yet who will write where. See [`ContainerFile::reserve`].
    pub fn preallocate(&self, size: ByteCount) -> Result<(), ContainerError> {
        self.require_write()?;
        require_size(size)?;
        if self.size()? >= size {
            return Ok(());
        }
        let mut writer = self.writer();
        let epoch = writer.epoch();
        writer.resize(&[Entry::Grow { epoch, size }], Durability::Written)
    }

    /// Another process of the group has called [`ContainerFile::preallocate`] in this epoch.
    pub fn learn_preallocated(&self, size: ByteCount) -> Result<(), ContainerError> {
        require_size(size)?;
        let epoch = self.epoch();
        self.learn(Entry::Grow { epoch, size });
        Ok(())
    }

    /// Sets blocks aside for the next `bytes` that this opening writes, where the file system can; a full
    /// disk is told here. The file's length does not change.
    pub fn reserve(&self, bytes: ByteCount) -> Result<(), ContainerError> {
        self.require_write()?;
        self.writer().reserve(bytes)
    }

    /// Makes others see what was written. Costs nothing when nothing was; otherwise one append of a few
    /// bytes for each changed record, and for [`Durability::Durable`] the syncs of part and index.
    ///
    /// Does not begin an epoch. What fails can be tried again, unless the kernel lost bytes. Behind a close
    /// there is nothing to publish, and never by who only reads.
    pub fn publish(&self, durability: Durability) -> Result<(), ContainerError> {
        match self.access.may_write() {
            true => self.writer().publish(durability),
            false => Ok(()),
        }
    }

    /// Whether anything was written that is not published.
    pub fn has_unpublished(&self) -> bool {
        self.writer().has_unpublished()
    }

    /// Sees what others published; whether there was anything. One listing, one stat for each index, and
    /// reads of what was appended.
    pub fn refresh(&self) -> Result<bool, ContainerError> {
        let mut others = self.others();
        let has_changed = others.refresh(&self.container)?;
        others.has_told = true;
        Ok(std::mem::take(&mut others.has_news) || has_changed)
    }

    /// When somebody published last, as of the last refresh, by the clock of the file system; `None` when
    /// nobody did.
    pub fn modified(&self) -> Option<SystemTime> {
        self.others().catalogue.modified()
    }

    /// Takes over what another process of the group knows, until the next [`ContainerFile::refresh`],
    /// which reads everything.
    pub fn adopt(&self, snapshot: Snapshot) {
        let mut others = self.others();
        others.snapshot = Some(snapshot);
        (others.is_adopted, others.has_told) = (true, true);
        others.known = None;
    }

    /// All that is known here, with what this opening wrote: for [`Snapshot::encode`]. Publish before, or
    /// others count on bytes that a kill takes away.
    pub fn snapshot(&self) -> Result<Snapshot, ContainerError> {
        let writer = self.writer();
        let mut others = self.others();
        if others.snapshot.is_none() {
            others.refresh_unasked(&self.container)?;
        }
        Ok(others.with_own(&writer))
    }

    /// Publishes, sees what others published, and begins an epoch behind all of it: `MPI_File_sync` of a
    /// process that opened the file alone.
    pub fn sync(&self, durability: Durability) -> Result<(), ContainerError> {
        self.publish(durability)?;
        self.refresh()?;
        self.advance(self.proposed_epoch())
    }

    /// Publishes, and notes that this writer is done, so that its index may be merged with others. What
    /// was written can still be read, nothing further written. Closing again does nothing.
    ///
    /// When it fails it may be tried again.
    pub fn close(&self, durability: Durability) -> Result<(), ContainerError> {
        self.writer().close(durability)
    }

    /// Looks at what is published before anything is read or written.
    fn look(&self) -> Result<(), ContainerError> {
        if self.access == Access::Write
            && let Some(outline) = self.container.outline()?
        {
            self.others().outline = Some(outline);
            return Ok(());
        }
        self.refresh().map(drop)
    }

    /// Where nothing happened since and that is enough to tell.
    fn size_at_open(&self) -> Option<ByteCount> {
        let has_files = self.writer().has_files();
        let others = self.others();
        let is_as_opened = !has_files && others.snapshot.is_none() && others.learned.is_empty();
        others.outline.filter(|_| is_as_opened)?.size
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn others(&self) -> MutexGuard<'_, Others> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, entry: Entry) {
        let mut others = self.others();
        others.learned.push(entry);
        others.known = None;
    }

    fn require_later(&self, writer: &Writer, epoch: Epoch) -> Result<(), ContainerError> {
        if epoch > writer.epoch() {
            return Ok(());
        }
        let what = format!("a change of size begins an epoch behind {}", writer.epoch().0);
        Err(ContainerError::Invalid { what })
    }

    fn require_read(&self) -> Result<(), ContainerError> {
        self.require(self.access.may_read(), "reading")
    }

    fn require_write(&self) -> Result<(), ContainerError> {
        self.require(self.access.may_write(), "writing")
    }

    fn require(&self, allowed: bool, wanted: &'static str) -> Result<(), ContainerError> {
        match allowed {
            true => Ok(()),
            false => Err(ContainerError::Access { path: self.container.path().to_owned(), wanted }),
        }
    }
}

fn require_size(size: ByteCount) -> Result<(), ContainerError> {
    match size.get() <= OFFSET_MAX {
        true => Ok(()),
        false => Err(ContainerError::Invalid { what: format!("a file can not have {size}") }),
    }
}

impl Others {
    fn refresh(&mut self, container: &Container) -> Result<bool, ContainerError> {
        let has_changed = self.catalogue.refresh(container)? || self.is_adopted;
        if has_changed || self.snapshot.is_none() {
            // Where that fails there is nothing, rather than something old.
            (self.snapshot, self.known) = (None, None);
            self.snapshot = Some(self.catalogue.snapshot(container)?);
            self.is_adopted = false;
        }
        Ok(has_changed)
    }

    /// For a caller that does not ask whether there was anything: [`ContainerFile::refresh`] tells the next that does.
    fn refresh_unasked(&mut self, container: &Container) -> Result<(), ContainerError> {
        self.has_news |= self.refresh(container)? && self.has_told;
        Ok(())
    }

    /// Not more than this number have written, as far as is known.
    fn writers_at_most(&self) -> usize {
        let outline = self.outline.map_or(0, |outline| outline.writers);
        self.snapshot.as_ref().map_or(outline, |known| known.logs().len())
    }

    /// The last epoch that is known.
    fn latest(&self) -> Epoch {
        let outline = self.outline.map_or(Epoch(0), |outline| outline.latest);
        self.snapshot.as_ref().map_or(outline, Snapshot::latest).max(outline)
    }

    /// What is published, with the writer's own log in place of what it published.
    fn with_own(&self, writer: &Writer) -> Snapshot {
        let mut snapshot = self.snapshot.clone().unwrap_or_default();
        if writer.has_files() && !self.has_moved(writer.id()) {
            snapshot.replace(writer.log());
        }
        self.add_sizes(&mut snapshot, writer);
        snapshot
    }

    /// Whether a compaction has joined the part of this writer with others: it had closed.
    fn has_moved(&self, writer: WriterId) -> bool {
        let known = self.snapshot.as_ref().and_then(|snapshot| snapshot.logs().get(&writer));
        known.is_some_and(|published| published.log.part != writer)
    }

    /// Reads that; without a copy of what others published.
    fn know(&self, parts: Arc<Parts>, writer: &mut Writer) -> Result<Known, ContainerError> {
        let is_own = writer.has_files() && !self.has_moved(writer.id());
        let own = is_own.then(|| writer.log());
        writer.take_unchanged(); // from here on it is followed
        let published = self.snapshot.iter().flat_map(|snapshot| snapshot.logs().values());
        let others = published.map(|published| &published.log);
        let others = others.filter(|log| own.is_none() || log.writer.id != writer.id());
        let mut sizes = self.snapshot.as_ref().map(Snapshot::sizes).unwrap_or_default();
        self.add_sizes(&mut sizes, writer);
        let reader = Reader::of_logs(parts, others.chain(&own), &sizes)?;
        // The own log is the last one.
        let growing =
            own.and_then(|own| GrowingIndex::new(reader.index().clone(), own.records.len()));
        let (changes, resizes) = (writer.changes(), writer.resizes());
        Ok(Known { reader, growing, sizes, changes, resizes })
    }

    fn add_sizes(&self, snapshot: &mut Snapshot, writer: &Writer) {
        let (mut cuts, mut grows) = writer.sizes();
        for entry in &self.learned {
            match *entry {
                Entry::Cut { epoch, size } => cuts.push(Cut { epoch, size }),
                Entry::Grow { epoch, size } => grows.push(Cut { epoch, size }),
                _ => {}
            }
        }
        snapshot.resize(&cuts, &grows, writer.epoch());
    }
}

impl Known {
    /// Takes in what the writer wrote since; false where all is to be made anew.
    fn follow(&mut self, parts: &Arc<Parts>, writer: &mut Writer) -> Result<bool, ContainerError> {
        if self.changes == writer.changes() {
            return Ok(true);
        }
        let Some(growing) = &mut self.growing else { return Ok(false) };
        if self.resizes != writer.resizes() {
            return Ok(false);
        }
        let unchanged = writer.take_unchanged();
        let followed = growing.follow(writer.records(), unchanged, |view| writer.view(view));
        if let Err(source) = followed {
            let path = parts.container().path().to_owned();
            return Err(ContainerError::Contradiction { path, source });
        }
        self.reader = Reader::of_index(Arc::clone(parts), Arc::clone(growing.index()), &self.sizes);
        self.changes = writer.changes();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use hayase_layout::{NodeId, Rank};

    use super::*;
    use crate::Creation;

    #[test]
    fn an_open_that_would_make_too_many_writers_is_refused_before_a_byte_is_written() {
        let top = tempfile::tempdir().unwrap();
        let container = Container::open(&top.path().join("F"), Creation::Exclusive).unwrap();
        let open = |process, access| {
            let who = Identity { node: NodeId(0), process, opening: 0, rank: Rank(process) };
            ContainerFile::open(container.clone(), access, who, None).unwrap()
        };
        for process in 0..3 {
            let file = open(process, Access::Write);
            file.write_at(GlobalOffset(0), b"bytes").unwrap();
            file.close(Durability::Written).unwrap();
        }
        let names = container.directory().names().unwrap();
        let file = open(3, Access::ReadWrite);
        file.require_room(5, 8).unwrap();
        let error = file.require_room(6, 8).unwrap_err();
        let expected =
            "3 processes have written it and 6 want to: a container has at most 8 writers";
        assert!(error.to_string().ends_with(expected), "{error}");
        assert!(error.help().unwrap().contains("--flatten"));
        // Whoever only reads makes no writer.
        open(4, Access::Read).require_room(6, 8).unwrap();
        assert_eq!(container.directory().names().unwrap(), names);
    }

    /// A compaction that is under way, or was killed, has two indexes tell of a writer.
    #[test]
    fn writers_of_which_two_indexes_tell_count_once() {
        let top = tempfile::tempdir().unwrap();
        let container = Container::open(&top.path().join("F"), Creation::Exclusive).unwrap();
        two_small_parts(&container);
        let directory = container.directory();
        let name = directory.names().unwrap().into_iter().find(|name| name.ends_with(".index"));
        let path = directory.shown(&name.unwrap());
        let bytes = std::fs::read(&path).unwrap();
        container.compact(crate::Finished::Closed).unwrap();
        std::fs::write(path, bytes).unwrap();
        let who = Identity { node: NodeId(0), process: 3, opening: 3, rank: Rank(0) };
        let file = ContainerFile::open(container, Access::Write, who, None).unwrap();
        file.require_room(2, 4).unwrap();
        file.require_room(3, 4).unwrap_err();
    }

    /// Whose parts become one by the next compaction.
    fn two_small_parts(container: &Container) {
        for process in 0..2 {
            let who = Identity { node: NodeId(0), process, opening: 7, rank: Rank(process) };
            let file = ContainerFile::open(container.clone(), Access::Write, who, None).unwrap();
            file.write_at(GlobalOffset(u64::from(process) * 3), b"abc").unwrap();
            file.close(Durability::Written).unwrap();
        }
    }

    #[test]
    fn a_read_finds_joined_bytes_where_another_thread_has_taken_the_news() {
        let top = tempfile::tempdir().unwrap();
        let container = Container::open(&top.path().join("F"), Creation::Exclusive).unwrap();
        two_small_parts(&container);
        let who = Identity { node: NodeId(0), process: 9, opening: 9, rank: Rank(0) };
        let file = ContainerFile::open(container.clone(), Access::Read, who, None).unwrap();
        let joining = crate::Joining { parts_max: 1, ..crate::Joining::default() };
        let (mut turns, mut bytes) = (0, [0; 6]);
        let read = file.read(|reader| {
            turns += 1;
            if turns == 1 {
                container.compact_joining(crate::Finished::Closed, joining).unwrap();
                assert!(file.refresh().unwrap(), "the other thread looks");
                file.reader().unwrap();
            }
            reader.read_at(GlobalOffset(0), &mut bytes)
        });
        assert_eq!((read.unwrap(), &bytes, turns), (6, b"abcabc", 2));
        assert!(!file.refresh().unwrap(), "it was told");
    }

    #[test]
    fn a_refresh_tells_what_a_read_has_found() {
        let top = tempfile::tempdir().unwrap();
        let container = Container::open(&top.path().join("F"), Creation::Exclusive).unwrap();
        two_small_parts(&container);
        let who = Identity { node: NodeId(0), process: 9, opening: 9, rank: Rank(0) };
        let file = ContainerFile::open(container.clone(), Access::Read, who, None).unwrap();
        assert_eq!(file.size().unwrap(), ByteCount(6));
        let joining = crate::Joining { parts_max: 1, ..crate::Joining::default() };
        container.compact_joining(crate::Finished::Closed, joining).unwrap();
        assert_eq!(file.read_at(GlobalOffset(0), &mut [0; 6]).unwrap(), 6);
        assert!(file.refresh().unwrap());
        assert!(!file.refresh().unwrap());
    }
}
