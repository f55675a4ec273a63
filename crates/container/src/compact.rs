//! Compaction: many indexes become one, their records as few as say the same, many small parts become one, dead
//! parts go.
//!
//! Here: what `hayase container compact` does. Rooms: `join` (small parts), `at_close` (by the last process to close
//! one). Not here: folding (`hayase_layout`),
//! flattening (`flatten.rs`; [`crate::export`] makes a flat file of all parts).
//!
//! The merged index is written under its final name and counts from its last block on; only then are the
//! indexes removed that went into it, and then the parts that only they named. So a kill at any point, or two
//! compactions at once, leave each record in at least one index that counts, and its bytes in a part that such an
//! index names. Where two such indexes name different parts for one writer, the part that is there counts.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, Write};

use hayase_layout::{ByteCount, Selection, StreamMap, WriterId};
use rustix::fs::OFlags;

use crate::catalogue::Catalogue;
use crate::format::block::split_entries;
use crate::format::{Entry, draw_block, draw_header};
use crate::limits::NAME_TRIES_MAX;
use crate::names::{self, Kind};
use crate::snapshot::{Contents, PublishedLog};
use crate::{Container, ContainerError, Snapshot};

mod at_close;
mod join;

pub use join::Joining;

/// Which writers a compaction may take for finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// Those that closed. Others may be writing meanwhile.
    Closed,
    /// All: the caller knows that nobody writes, so those that did not close were killed. A writer that is
    /// alive after all finds its index gone, and says so.
    All,
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Writers in the merged index.
    pub writers: usize,
    /// Writers whose index stays as it is: they have not closed.
    pub open_writers: usize,
    /// Records of those writers before.
    pub records_before: usize,
    /// And in the merged index.
    pub records_after: usize,
    /// Indexes removed.
    pub indexes_removed: usize,
    /// Parts whose bytes were copied into one.
    pub parts_joined: usize,
    /// Parts removed: all that they held was cut off, or was elsewhere already.
    pub parts_removed: usize,
    /// Bytes in these.
    pub bytes_removed: ByteCount,
}

impl Container {
    /// Merges the indexes of writers that are finished, and joins their small parts where there are many.
    ///
    /// Durable when it returns. Readers that have the container open find the bytes where they are then, unless
    /// they read the file as it was before it was cut.
    pub fn compact(&self, finished: Finished) -> Result<Compacted, ContainerError> {
        self.compact_joining(finished, Joining::default())
    }

    /// [`Container::compact`] with a rule for which parts are joined.
    pub fn compact_joining(
        &self,
        finished: Finished,
        joining: Joining,
    ) -> Result<Compacted, ContainerError> {
        let mut catalogue = Catalogue::default();
        catalogue.refresh(self)?;
        let snapshot = catalogue.snapshot(self)?;
        snapshot.index(self.path())?; // fails where the indexes contradict each other
        self.compact_known(&catalogue, &snapshot, finished, joining)
    }

    /// Of the indexes that are known.
    fn compact_known(
        &self,
        catalogue: &Catalogue,
        snapshot: &Snapshot,
        finished: Finished,
        joining: Joining,
    ) -> Result<Compacted, ContainerError> {
        let chosen = chosen_indexes(catalogue, finished);
        let mut merged = merged_of(catalogue, &chosen, snapshot);
        if finished == Finished::All {
            merged.logs_mut().for_each(close);
        }
        let is_outside = |id: &WriterId| !merged.logs().contains_key(id);
        let outside = snapshot.logs().iter().filter(|(id, _)| is_outside(id));
        let outside: HashSet<WriterId> = outside.map(|(_, published)| published.log.part).collect();

        let mut told = Compacted {
            writers: merged.logs().len(),
            open_writers: snapshot.logs().len() - merged.logs().len(),
            records_before: merged.record_count(),
            ..Compacted::default()
        };
        let dead = dead_writers(&merged, snapshot);
        merged.retain(|published| !dead.contains(&published.log.writer.id));
        merged.logs_mut().for_each(|published| published.log = published.log.folded());
        told.records_after = merged.record_count();
        told.writers -= dead.len();
        let small = joining.choose(&merged, &outside);
        let is_one = matches!(&chosen[..], [name] if matches!(names::kind(name), Kind::Merged(_)));
        let left = self.unnamed_parts(catalogue, &chosen, &merged, &outside, finished)?;
        if chosen.is_empty() || (is_one && left.is_empty() && small.is_empty()) {
            // Nothing to gain.
            if finished == Finished::All {
                self.remove_begun(&catalogue)?;
            }
            return Ok(told);
        }
        if !small.is_empty() {
            self.join(&mut merged, &small)?;
        }
        let name = self.write_merged(&merged)?;
        if finished == Finished::All {
            self.remove_begun(&catalogue)?; // before what went into them
        }
        if let Some(file) = self.area_file().filter(|_| !small.is_empty()) {
            // Before the parts go that readers of all nodes know.
            file.tell_published(&name)?;
        }
        for name in &chosen {
            self.directory().remove(name)?;
            told.indexes_removed += 1;
        }
        let unnamed = self.unnamed_parts(catalogue, &chosen, &merged, &outside, finished)?;
        self.remove_parts(&unnamed, &small, &mut told)?;
        self.directory().sync()?;
        Ok(told)
    }

    /// Merged indexes that compactions have begun which were killed.
    fn remove_begun(&self, catalogue: &Catalogue) -> Result<(), ContainerError> {
        for name in catalogue.incomplete() {
            self.directory().remove(name)?;
        }
        self.directory().sync()
    }

    /// The parts that are there, were named by the indexes that are merged, and are named no more. Where nobody
    /// is at work, parts too that a killed compaction has made and nothing names.
    fn unnamed_parts(
        &self,
        catalogue: &Catalogue,
        chosen: &[String],
        merged: &Snapshot,
        outside: &HashSet<WriterId>,
        finished: Finished,
    ) -> Result<Vec<WriterId>, ContainerError> {
        let logs = chosen.iter().flat_map(|name| &catalogue.contents(name).logs);
        let ids = |published: &PublishedLog| [published.log.writer.id, published.log.part];
        let were_named: HashSet<WriterId> = logs.flat_map(ids).collect();
        let named: HashSet<WriterId> =
            merged.logs().values().map(|published| published.log.part).collect();
        let parts = self.directory().names()?.into_iter().filter_map(|name| {
            let Kind::Part(id) = names::kind(&name) else { return None };
            let is_left = finished == Finished::All && join::is_joined(id);
            let is_named = named.contains(&id) || outside.contains(&id);
            ((were_named.contains(&id) || is_left) && !is_named).then_some(id)
        });
        Ok(parts.collect())
    }

    /// By which name.
    fn write_merged(&self, merged: &Snapshot) -> Result<String, ContainerError> {
        let (name, mut file) = self.create_merged()?;
        let path = self.directory().shown(&name);
        let written = self.fill_merged(merged, &mut file, &path);
        if written.is_err() {
            self.directory().remove(&name)?; // incomplete: it never counted
        }
        written?;
        self.directory().sync()?;
        Ok(name)
    }

    fn fill_merged(
        &self,
        merged: &Snapshot,
        file: &mut File,
        path: &std::path::Path,
    ) -> Result<(), ContainerError> {
        let failed = |source| ContainerError::io("write the merged index", path, source);
        let too_large = |_| ContainerError::Limit {
            path: path.to_owned(),
            what: "a view has more pieces than a block of an index may hold".to_owned(),
        };
        file.write_all(&draw_header(self.id())).map_err(failed)?;
        let mut number = 0;
        for list in split_entries(merged.entries()).map_err(too_large)? {
            file.write_all(&draw_block(number, &list)).map_err(failed)?;
            number += 1;
        }
        // The rest is on the disk before the block that makes it count.
        file.sync_data().map_err(failed)?;
        let last = [summary(merged, path)?, Entry::Complete];
        file.write_all(&draw_block(number, &last)).map_err(failed)?;
        file.sync_all().map_err(failed)
    }

    fn create_merged(&self) -> Result<(String, File), ContainerError> {
        let numbers =
            self.directory().names()?.into_iter().filter_map(|name| match names::kind(&name) {
                Kind::Merged(number) => Some(number),
                _ => None,
            });
        let mut number = numbers.max().unwrap_or(0);
        for _ in 0..NAME_TRIES_MAX {
            number = number.wrapping_add(1);
            let name = names::merged(number);
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            match self.directory().open_file(&name, flags) {
                Ok(file) => return Ok((name, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => {
                    let path = self.directory().shown(&name);
                    return Err(ContainerError::io("create the merged index", &path, source));
                }
            }
        }
        let what = format!("{NAME_TRIES_MAX} names for a merged index are taken");
        Err(ContainerError::Limit { path: self.path().to_owned(), what })
    }

    fn remove_parts(
        &self,
        unnamed: &[WriterId],
        joined: &BTreeSet<WriterId>,
        told: &mut Compacted,
    ) -> Result<(), ContainerError> {
        for part in unnamed {
            let name = names::part(*part);
            let len = self.directory().len(&name);
            let len =
                len.map_err(|e| ContainerError::io("look at", &self.directory().shown(&name), e))?;
            self.directory().remove(&name)?;
            if joined.contains(part) {
                told.parts_joined += 1;
                continue;
            }
            told.parts_removed += usize::from(len.is_some());
            told.bytes_removed.0 += len.unwrap_or(0);
        }
        Ok(())
    }
}

/// What an open for writing needs to know of this index.
fn summary(merged: &Snapshot, path: &std::path::Path) -> Result<Entry, ContainerError> {
    let is_plain = merged.cuts().is_empty() && merged.size_with(ByteCount::ZERO).is_zero();
    let size = if is_plain { Some(merged.size(path)?) } else { None };
    Ok(Entry::Summary { writers: merged.logs().len() as u64, latest: merged.latest(), size })
}

/// What these indexes say, of each writer as all indexes together tell it.
fn merged_of(catalogue: &Catalogue, chosen: &[String], snapshot: &Snapshot) -> Snapshot {
    let mut merged = Snapshot::default();
    chosen.iter().for_each(|name| merged.add(catalogue.contents(name)));
    merged.settle();
    for published in merged.logs_mut() {
        if let Some(known) = snapshot.logs().get(&published.log.writer.id) {
            published.clone_from(known);
        }
    }
    merged
}

/// Names of the indexes that go into the merged one: each of them as a whole.
fn chosen_indexes(catalogue: &Catalogue, finished: Finished) -> Vec<String> {
    let is_finished = |contents: &Contents| {
        finished == Finished::All
            || contents.logs.iter().all(|published| published.closed.is_some())
    };
    let chosen = catalogue.names().filter(|name| {
        let contents = catalogue.contents(name);
        // An index without a writer is being begun right now.
        let is_merged = matches!(names::kind(name), Kind::Merged(_));
        is_merged || (is_finished(contents) && !contents.logs.is_empty())
    });
    chosen.map(str::to_owned).collect()
}

/// What was published is all that there will be.
fn close(published: &mut PublishedLog) {
    let ends = published.log.records.iter().filter_map(hayase_layout::Record::end);
    let end = ends.map(|end| end.0).max().unwrap_or(0);
    published.closed.get_or_insert(ByteCount(end));
}

/// Writers that closed and of whom the cuts leave no byte.
fn dead_writers(merged: &Snapshot, all: &Snapshot) -> Vec<WriterId> {
    let is_dead = |published: &&PublishedLog| {
        let log = &published.log;
        published.closed.is_some()
            && log.records.iter().all(|record| {
                let bound = all.bound(record.epoch).get();
                bound == 0 || first_byte(log, &record.selection).is_none_or(|first| first >= bound)
            })
    };
    merged.logs().values().filter(is_dead).map(|published| published.log.writer.id).collect()
}

fn first_byte(log: &hayase_layout::WriterLog, selection: &Selection) -> Option<u64> {
    match selection {
        Selection::Run(run) => Some(run.start().0),
        Selection::View { view, window } => {
            log.views.get(view)?.forward(window.start()).map(|offset| offset.0)
        }
    }
}
