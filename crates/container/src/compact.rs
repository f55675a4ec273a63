//! Compaction: many indexes become one, their records as few as say the same, many small parts become one, dead
//! parts go.
//!
//! Here: what is merged and what is removed. Rooms: `merged` (writing a merged index), `join` (small parts),
//! `at_close` (by the last process to close one). Not here: folding (`hayase_layout`), flattening (`flatten.rs`;
//! [`crate::export`] makes a flat file of all parts).
//!
//! The merged index appears whole, under a drawn name; only then are the indexes removed that went into it, and then
//! the parts that no index names any more. A part into which others were joined has a larger name than they,
//! and of two parts for one writer the larger counts. So whatever is killed, and however many compactions there are at
//! once, some index names the largest part that a writer's bytes were ever published in, and that part is there: an
//! index that names it goes behind one that names it or a larger one, and it goes behind one that names a larger one.

use std::collections::{BTreeSet, HashSet};

use hayase_layout::{ByteCount, WriterId};

use crate::catalogue::Catalogue;
use crate::limits::INDEX_BYTES_MAX;
use crate::names::{self, Kind};
use crate::snapshot::{Contents, PublishedLog};
use crate::{Container, ContainerError, Snapshot};

mod at_close;
mod join;
mod merged;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns;

pub use join::Joining;

use join::Joined;

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Why small parts stay as they are that were to be joined.
    pub not_joined: Option<String>,
    /// Parts removed: all that they held was cut off, or was elsewhere already.
    pub parts_removed: usize,
    /// Bytes in these.
    pub bytes_removed: ByteCount,
}

impl Container {
    /// Merges the indexes of writers that are finished, and joins their small parts where there are many.
    ///
    /// Durable when it returns. Readers that have the container open find the bytes where they are then, unless
    /// they read the file as it was before it was cut. In an area of a job parts stay as they are.
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
        let mut told = Compacted {
            writers: merged.logs().len(),
            open_writers: snapshot.logs().len() - merged.logs().len(),
            records_before: merged.record_count(),
            ..Compacted::default()
        };
        let mut parts = Named::new(catalogue, &chosen, snapshot, &merged);
        // By the cuts that go into the merged index: others may be lost with power.
        let dead = dead_writers(&merged, &merged);
        merged.retain(|published| !dead.contains(&published.log.writer.id));
        merged.logs_mut().for_each(|published| published.log = published.log.folded());
        told.records_after = merged.record_count();
        told.writers -= dead.len();
        let names = self.directory().names()?;
        let small = match self.is_in_area() || self.is_behind_area() {
            // Their home tells readers of all nodes where bytes are, and would have to hear of it in between.
            true => BTreeSet::new(),
            false => joining.choose(&merged, |part| parts.may_join(part, &names)),
        };
        let is_one = matches!(&chosen[..], [name] if matches!(names::kind(name), Kind::Merged(_)));
        let has_left = !parts.left(&merged, &names).is_empty();
        if !chosen.is_empty() && (!is_one || has_left || !small.is_empty()) {
            let joined = self.write_merged(&mut merged, &small, INDEX_BYTES_MAX)?;
            (parts.joined, told.not_joined) = (joined.sources, joined.failed);
            for name in &chosen {
                self.directory().remove(name)?;
                told.indexes_removed += 1;
            }
            // No index names a part that is gone, whatever of this survives a power cut.
            self.directory().sync()?;
        }
        self.remove_left(&parts, &merged, &mut told)?;
        if finished == Finished::All {
            self.remove_begun()?;
        }
        self.directory().sync()?;
        Ok(told)
    }

    /// The merged index, and before it the part into which small ones are joined. Durable when it returns.
    fn write_merged(
        &self,
        merged: &mut Snapshot,
        small: &BTreeSet<WriterId>,
        bytes_max: ByteCount,
    ) -> Result<Joined, ContainerError> {
        let mut begun = self.begin_merged()?;
        let mut joined = Joined::default();
        let written = self
            .join_where_possible(merged, small)
            .map(|made| joined = made)
            .and_then(|()| self.fill_merged(&mut begun, merged, bytes_max))
            // All names, and the bytes of a joined part, are on the disk before it counts; bytes that their writers did
            // not sync are as safe as before.
            .and_then(|()| self.directory().sync());
        let is_written = written.is_ok();
        let named = written.and_then(|()| self.name_begun(&begun));
        if let Err(error) = named {
            if !is_written || matches!(error, ContainerError::NoRoom { .. }) {
                // Nothing names it. Whatever stays is removed by the next compaction where nobody is at work.
                let _ = self.forget_begun(&begun).and_then(|()| joined.forget(self));
            }
            return Err(error);
        }
        self.directory().sync()?;
        Ok(joined)
    }

    /// Where small parts can not be joined they stay where they are, and their indexes are merged. Fails where what
    /// was begun of a joined part can not be removed.
    fn join_where_possible(
        &self,
        merged: &mut Snapshot,
        small: &BTreeSet<WriterId>,
    ) -> Result<Joined, ContainerError> {
        if small.is_empty() {
            return Ok(Joined::default());
        }
        let mut moved = merged.clone();
        let joined = self.join(&mut moved, small)?;
        if joined.failed.is_none() {
            *merged = moved;
        }
        Ok(joined)
    }

    /// Removes the parts that no index names any more.
    fn remove_left(
        &self,
        parts: &Named,
        merged: &Snapshot,
        told: &mut Compacted,
    ) -> Result<(), ContainerError> {
        for part in parts.left(merged, &self.directory().names()?) {
            let name = names::part(part);
            let len = self.directory().len(&name);
            let len =
                len.map_err(|e| ContainerError::io("look at", &self.directory().shown(&name), e))?;
            self.directory().remove(&name)?;
            if parts.joined.contains(&part) {
                told.parts_joined += 1;
                continue;
            }
            told.parts_removed += usize::from(len.is_some());
            told.bytes_removed.0 += len.unwrap_or(0);
        }
        Ok(())
    }

    /// Removes what killed compactions have begun: what no index names, and no index will.
    ///
    /// A compaction that is at work begins its index before it makes a part. So it has either published that index,
    /// which is read below, or never will: what it has begun is gone.
    fn remove_begun(&self) -> Result<(), ContainerError> {
        let mut joined: Vec<WriterId> = names::parts_among(&self.directory().names()?)
            .filter(|part| names::is_joined(*part))
            .collect();
        for name in self.directory().names()? {
            if matches!(names::kind(&name), Kind::Begun(_)) {
                self.directory().remove(&name)?;
            }
        }
        // Twice: a listing may miss an index. A reader can then read again; a removed part is gone.
        for _ in 0..2 {
            let mut catalogue = Catalogue::default();
            catalogue.refresh(self)?;
            catalogue.snapshot(self)?; // fails where an index is damaged, which may name any part
            for name in catalogue.not_counting() {
                self.directory().remove(name)?;
            }
            let named: HashSet<WriterId> = catalogue.parts().collect();
            joined.retain(|part| !named.contains(part));
        }
        joined.iter().try_for_each(|part| self.directory().remove(&names::part(*part)))
    }
}

/// Which parts the indexes name.
struct Named {
    /// By those that are merged: as a writer's own, or as the one that has its bytes.
    chosen: HashSet<WriterId>,
    /// By others.
    outside: HashSet<WriterId>,
    /// Whose bytes are in another part now.
    joined: BTreeSet<WriterId>,
}

impl Named {
    fn new(
        catalogue: &Catalogue,
        chosen: &[String],
        snapshot: &Snapshot,
        merged: &Snapshot,
    ) -> Self {
        let logs = chosen.iter().flat_map(|name| &catalogue.contents(name).logs);
        let ids = |published: &PublishedLog| [published.log.writer.id, published.log.part];
        let is_outside = |id: &WriterId| !merged.logs().contains_key(id);
        let outside = snapshot.logs().iter().filter(|(id, _)| is_outside(id));
        Self {
            chosen: logs.flat_map(ids).collect(),
            outside: outside.map(|(_, published)| published.log.part).collect(),
            joined: BTreeSet::new(),
        }
    }

    /// Whether it is among `names`, which are sorted, and no other index names it.
    fn may_join(&self, part: WriterId, names: &[String]) -> bool {
        !self.outside.contains(&part) && names.binary_search(&names::part(part)).is_ok()
    }

    /// The parts among `names` that were named by the indexes that are merged, and that `merged` does not name.
    fn left(&self, merged: &Snapshot, names: &[String]) -> Vec<WriterId> {
        let named: HashSet<WriterId> =
            merged.logs().values().map(|published| published.log.part).collect();
        let is_left = |id: &WriterId| {
            self.chosen.contains(id) && !named.contains(id) && !self.outside.contains(id)
        };
        names::parts_among(names).filter(is_left).collect()
    }
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
    let logs = merged.logs().values().filter(|published| published.is_dead(all));
    logs.map(|published| published.log.writer.id).collect()
}
