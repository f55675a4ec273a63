//! Snapshots: all that the writers of a container had published at one moment.
//!
//! Here: records, cuts and sizes of all writers as one value, its index, its bytes for other processes.
//! Not here: how it is read from disk ([`crate::catalogue`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayase_layout::index::Cut;
use hayase_layout::{
    ByteCount, Epoch, Index, Record, Selection, StreamMap, View, ViewId, Writer, WriterId,
    WriterLog,
};

use crate::ContainerError;
use crate::format::Entry;

/// The log of one writer as far as it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedLog {
    /// Who, its views, its records.
    pub log: WriterLog,
    /// Bytes of its part when it closed; `None` while it is open, or when it was killed.
    pub closed: Option<ByteCount>,
}

impl PublishedLog {
    /// Whether its writer closed, and the cuts of `all` leave no byte of it.
    pub(crate) fn is_dead(&self, all: &Snapshot) -> bool {
        self.closed.is_some() && self.is_cut_off(all)
    }

    /// Whether the cuts of `all` leave no byte of it.
    pub(crate) fn is_cut_off(&self, all: &Snapshot) -> bool {
        self.log.records.iter().all(|record| {
            let bound = all.bound(record.epoch).get();
            bound == 0 || first_byte(&self.log, record).is_none_or(|first| first >= bound)
        })
    }
}

/// Of the file, the first byte of what a record of `log` selects.
pub(crate) fn first_byte(log: &WriterLog, record: &Record) -> Option<u64> {
    match &record.selection {
        Selection::Run(run) => Some(run.start().0),
        Selection::View { view, window } => {
            log.views.get(view)?.forward(window.start()).map(|offset| offset.0)
        }
    }
}

/// The end of an index that is no whole block: what was being published when its writer was killed, or
/// is being published right now. What was published before is not touched by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The index.
    pub path: PathBuf,
    /// Where the bytes begin that do not count.
    pub at: u64,
    /// How many there are.
    pub bytes: u64,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    logs: BTreeMap<WriterId, PublishedLog>,
    cuts: Vec<Cut>,
    /// Sizes that were asked for without cutting anything off.
    grows: Vec<Cut>,
    latest: Epoch,
    torn: Vec<Torn>,
}

impl Snapshot {
    /// By writer.
    pub fn logs(&self) -> &BTreeMap<WriterId, PublishedLog> {
        &self.logs
    }

    /// By epoch.
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// Sizes that were asked for without cutting anything off, by epoch.
    pub fn grows(&self) -> &[Cut] {
        &self.grows
    }

    /// The last epoch that somebody used, 0 when nobody did.
    pub fn latest(&self) -> Epoch {
        self.latest
    }

    /// Indexes that do not end with a whole block.
    pub fn torn(&self) -> &[Torn] {
        &self.torn
    }

    /// Number of records of all writers, those included that were replaced later.
    pub fn record_count(&self) -> usize {
        self.logs.values().map(|published| published.log.records.len()).sum()
    }

    /// Length of the file.
    ///
    /// O(n log n) in the records: [`crate::Reader::size`] knows it too.
    pub fn size(&self, container: &Path) -> Result<ByteCount, ContainerError> {
        let index = self.index(container)?;
        Ok(self.size_with(index.size()))
    }

    /// Where every byte lies; parts are numbered in the order in which [`Snapshot::logs`] names them first.
    pub fn index(&self, container: &Path) -> Result<Index, ContainerError> {
        self.index_of(self.logs.values().map(|published| &published.log), container)
    }

    /// The same of other logs, with the changes of size of this snapshot.
    pub(crate) fn index_of<'a>(
        &self,
        logs: impl Iterator<Item = &'a WriterLog>,
        container: &Path,
    ) -> Result<Index, ContainerError> {
        Index::new(logs, &self.cuts)
            .map_err(|source| ContainerError::Contradiction { path: container.to_owned(), source })
    }

    /// Its changes of size, without the logs.
    pub(crate) fn sizes(&self) -> Self {
        Self {
            cuts: self.cuts.clone(),
            grows: self.grows.clone(),
            latest: self.latest,
            ..Self::default()
        }
    }

    /// The file's length, given where the last byte ends.
    pub(crate) fn size_with(&self, written: ByteCount) -> ByteCount {
        let grown = self.grows.iter().map(|grow| grow.size.min(self.bound(grow.epoch)));
        grown.fold(written, ByteCount::max)
    }

    /// What the cuts leave of what was done in this epoch.
    pub(crate) fn bound(&self, epoch: Epoch) -> ByteCount {
        let later = self.cuts.iter().filter(|cut| cut.epoch > epoch);
        later.map(|cut| cut.size).min().unwrap_or(ByteCount(u64::MAX))
    }

    /// For other processes, as [`Snapshot::decode`] reads it; of the same version of this program.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.entries()).expect("entries are plain data")
    }

    /// From [`Snapshot::encode`]. Torn ends are not told on.
    pub fn decode(bytes: &[u8]) -> Result<Self, ContainerError> {
        let invalid = |what: &str| ContainerError::Invalid { what: what.to_owned() };
        let entries: Vec<Entry> =
            postcard::from_bytes(bytes).map_err(|_| invalid("these bytes are no snapshot"))?;
        let mut contents = Contents::default();
        for entry in entries {
            contents.take(entry).map_err(invalid)?;
        }
        let mut snapshot = Self::default();
        snapshot.add(&contents);
        snapshot.settle();
        Ok(snapshot)
    }

    /// As a merged index holds them.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for published in self.logs.values() {
            entries.push(Entry::Writer(published.log.writer));
            if published.log.part != published.log.writer.id {
                entries.push(Entry::Part(published.log.part));
            }
            let views = published.log.views.iter();
            entries.extend(views.map(|(id, view)| Entry::View { id: *id, view: (**view).clone() }));
            entries.extend(published.log.records.iter().cloned().map(Entry::Record));
            entries.extend(published.closed.map(|part_bytes| Entry::Closed { part_bytes }));
        }
        let cut = |cut: &Cut| Entry::Cut { epoch: cut.epoch, size: cut.size };
        let grow = |grow: &Cut| Entry::Grow { epoch: grow.epoch, size: grow.size };
        entries.extend(self.cuts.iter().map(cut));
        entries.extend(self.grows.iter().map(grow));
        entries.push(Entry::Latest(self.latest));
        entries
    }

    /// Of two logs of one writer the one with the larger part counts, or the first that is given: a compaction
    /// moves bytes to a part with a larger name, and publishes that before it removes the old one.
    pub(crate) fn add(&mut self, contents: &Contents) {
        for published in &contents.logs {
            let known = self.logs.get(&published.log.writer.id);
            if known.is_none_or(|known| known.log.part < published.log.part) {
                self.logs.insert(published.log.writer.id, published.clone());
            }
        }
        self.cuts.extend_from_slice(&contents.cuts);
        self.grows.extend_from_slice(&contents.grows);
        self.latest = self.latest.max(contents.latest);
    }

    pub(crate) fn add_torn(&mut self, torn: Torn) {
        self.torn.push(torn);
    }

    /// After the last [`Snapshot::add`]: merged indexes say some cuts twice.
    pub(crate) fn settle(&mut self) {
        for sizes in [&mut self.cuts, &mut self.grows] {
            sizes.sort_unstable_by_key(|cut| (cut.epoch, cut.size));
            sizes.dedup();
        }
    }

    /// Puts a writer's log in place of what is known of it.
    pub(crate) fn replace(&mut self, log: WriterLog) {
        self.logs.insert(log.writer.id, PublishedLog { log, closed: None });
    }

    /// Adds changes of size that may be known already.
    pub(crate) fn resize(&mut self, cuts: &[Cut], grows: &[Cut], latest: Epoch) {
        self.cuts.extend_from_slice(cuts);
        self.grows.extend_from_slice(grows);
        self.latest = self.latest.max(latest);
        self.settle();
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&PublishedLog) -> bool) {
        self.logs.retain(|_, published| keep(published));
    }

    pub(crate) fn logs_mut(&mut self) -> impl Iterator<Item = &mut PublishedLog> {
        self.logs.values_mut()
    }
}

/// What the entries of one index say, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) logs: Vec<PublishedLog>,
    pub(crate) cuts: Vec<Cut>,
    pub(crate) grows: Vec<Cut>,
    pub(crate) latest: Epoch,
    pub(crate) is_complete: bool,
}

impl Contents {
    /// Fails on entries that nobody writes in this order.
    pub(crate) fn take(&mut self, entry: Entry) -> Result<(), &'static str> {
        match entry {
            Entry::Writer(writer) => self.begin(writer),
            Entry::Part(part) => self.lies_in(part)?,
            Entry::View { id, view } => self.declare(id, view)?,
            Entry::Record(record) => self.record(record)?,
            Entry::Cut { epoch, size } => {
                self.cuts.push(Cut { epoch, size });
                self.latest = self.latest.max(epoch);
            }
            Entry::Grow { epoch, size } => {
                self.grows.push(Cut { epoch, size });
                self.latest = self.latest.max(epoch);
            }
            Entry::Closed { part_bytes } => self.open_log()?.closed = Some(part_bytes),
            Entry::Summary { latest, .. } => self.latest = self.latest.max(latest),
            Entry::Latest(epoch) => self.latest = self.latest.max(epoch),
            Entry::Complete => self.is_complete = true,
        }
        Ok(())
    }

    fn begin(&mut self, writer: Writer) {
        let part = writer.id;
        let log = WriterLog { writer, part, views: BTreeMap::new(), records: Vec::new() };
        self.logs.push(PublishedLog { log, closed: None });
    }

    fn lies_in(&mut self, part: WriterId) -> Result<(), &'static str> {
        let log = &mut self.open_log()?.log;
        if !log.records.is_empty() {
            return Err("a part is named behind the records that lie in it");
        }
        log.part = part;
        Ok(())
    }

    fn declare(&mut self, id: ViewId, view: View) -> Result<(), &'static str> {
        match self.open_log()?.log.views.insert(id, Arc::new(view)) {
            None => Ok(()),
            Some(_) => Err("a view is declared twice"),
        }
    }

    fn record(&mut self, record: Record) -> Result<(), &'static str> {
        self.latest = self.latest.max(record.epoch);
        let log = &mut self.open_log()?.log;
        if let Selection::View { view, .. } = &record.selection
            && !log.views.contains_key(view)
        {
            return Err("a record names a view that is not declared before it");
        }
        if record.end().is_none() {
            return Err("a record ends beyond the largest offset");
        }
        log.records.push(record);
        Ok(())
    }

    fn open_log(&mut self) -> Result<&mut PublishedLog, &'static str> {
        let last = self.logs.last_mut().ok_or("an entry comes before the writer that it is of")?;
        match last.closed {
            None => Ok(last),
            Some(_) => Err("an entry comes after its writer closed"),
        }
    }
}
