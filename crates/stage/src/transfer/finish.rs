//! When everything has arrived: what is too much goes, directories get their attributes, the index is made.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use hayase_tier::{Key, TierError};
use ring::rand::SecureRandom;

use super::gate::Gate;
use super::in_the_way::{DIRECTORY_IS_FULL, DIRECTORY_WAITS};
use super::later::Later;
use super::next_index::{Entries, NextIndex};
use super::pool::Pool;
use super::reading::Reading;
use super::report::Report;
use super::writing::Writing;
use crate::item::{Item, Kind};
use crate::limits::UPLOAD_AGE;
use crate::pack::{DIRECTORY, Index, PackError, PackSet, Row};
use crate::plan::{Planner, Task};
use crate::walk::{Met, Walk};
use crate::{Options, Overwrite, Place, Summary};

/// What happens after all units were worked on.
pub(super) struct Finish<'a> {
    pub(super) options: &'a Options,
    pub(super) gate: &'a Gate,
    pub(super) pool: &'a Pool<'a>,
    pub(super) reading: &'a Reading<'a>,
    pub(super) writing: &'a Writing<'a>,
    pub(super) next_index: &'a NextIndex,
    pub(super) report: &'a Report<'a>,
}

impl Finish<'_> {
    /// Removals (none when something is missing), and attributes of directories.
    pub(super) fn finish(&self, later: Later) -> Result<(), PackError> {
        let Later { mut directories, marked, removals, waiting } = later;
        self.remove(&removals)?;
        self.make_waiting(waiting)?;
        if self.options.is_dry_run {
            return Ok(());
        }
        // Of a copy that ended early some may be resumed, however old.
        if !self.report.is_stopped() && !self.is_before_others() {
            self.sweep();
        }
        if self.options.packs.is_some() {
            return Ok(());
        }
        directories.extend(self.told_directories(&marked));
        if self.writing.place().tier.tree().is_none() {
            self.for_each_directory(&directories, |directory| self.writing.mark_again(directory));
            return Ok(());
        }
        // The deepest first: setting one changes nothing above it, making names in it would.
        directories.sort_by(|a, b| b.order(a));
        for directory in directories {
            if let Err(error) = self.writing.date_directory(&directory) {
                self.report.failed(&directory.name.to_string(), error);
            }
        }
        Ok(())
    }

    /// Other nodes have shares of the same target, and may come late to what is unfinished there: to remove it is
    /// left to the complete copy that follows. A node that copies all directories has a target of its own.
    fn is_before_others(&self) -> bool {
        self.options.share.is_some_and(|share| !share.directories)
    }

    /// Unfinished uploads that a killed run left, when they are old enough that nobody works on them.
    fn sweep(&self) {
        let packs = format!("{DIRECTORY}/");
        let below = if self.options.packs.is_some() { packs.as_bytes() } else { b"" };
        let before = SystemTime::now().checked_sub(UPLOAD_AGE).unwrap_or(SystemTime::UNIX_EPOCH);
        let target = self.writing.place();
        // They are hidden from everybody: what can not be removed now is no failure of this transfer.
        let _ = target.tier.sweep(&[target.prefix(), below].concat(), before);
    }

    /// Removes what the source does not have, the deepest first.
    fn remove(&self, removals: &[Item]) -> Result<(), PackError> {
        let count = removals.len() as u64;
        if removals.is_empty() || !self.report.is_complete() {
            return Ok(());
        }
        if let Some(max) = self.options.delete_max.filter(|&max| count > max) {
            self.report.failed("--max-delete", PackError::TooManyRemovals { count, max });
            return Ok(());
        }
        if self.options.is_dry_run {
            removals.iter().for_each(|item| self.report.would_remove(item));
            self.report.removed(count);
            return Ok(());
        }
        if self.options.packs.is_some() {
            self.next_index.remove(removals);
            self.report.removed(count);
            return Ok(());
        }
        for item in removals.iter().rev() {
            match self.writing.remove(item) {
                Ok(true) => self.report.removed(1),
                Ok(false) => {}
                Err(error) => self.report.failed(&item.name.to_string(), error),
            }
        }
        Ok(())
    }

    /// Makes the files whose places directories held until now.
    fn make_waiting(&self, waiting: Vec<Task>) -> Result<(), PackError> {
        if waiting.is_empty() {
            return Ok(());
        }
        let why = match self.report.is_complete() {
            true => DIRECTORY_IS_FULL,
            false => DIRECTORY_WAITS,
        };
        let (mut ready, mut others) = (Vec::new(), Vec::new());
        for task in waiting {
            let is_held = self.writing.is_directory(&task.item.name)?;
            let list = if is_held { &mut others } else { &mut ready };
            list.push(task);
        }
        for task in others {
            self.report.failed(&task.item.name.to_string(), PackError::InTheWay { why });
        }
        self.pool.run(|queue| {
            let mut planner = Planner::new(None);
            for task in ready {
                planner.push(task).for_each(|work| queue.send(work));
            }
            planner.finish().into_iter().for_each(|work| queue.send(work));
            Ok(())
        })
    }

    /// Directories whose attributes only their marks have, each asked for; those that can not be read are reported.
    fn told_directories(&self, listed: &[Item]) -> Vec<Item> {
        let told = Mutex::new(Vec::with_capacity(listed.len()));
        self.for_each_directory(listed, |directory| {
            let item = self.reading.told_directory(directory)?;
            told.lock().unwrap_or_else(PoisonError::into_inner).push(item);
            Ok(())
        });
        told.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something for each of them, several at a time; failures are reported.
    fn for_each_directory(
        &self,
        directories: &[Item],
        act: impl Fn(&Item) -> Result<(), PackError> + Sync,
    ) {
        let next = Mutex::new(directories.iter());
        let streams = self.gate.streams().min(directories.len());
        std::thread::scope(|scope| {
            for _ in 0..streams {
                scope.spawn(|| {
                    while !self.report.is_stopped() {
                        let taken = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                        let Some(directory) = taken else { return };
                        if let Err(error) = act(directory) {
                            self.report.failed(&directory.name.to_string(), error);
                        }
                    }
                });
            }
        });
    }
}

/// Makes the next index of what was kept and what is new; then loose objects that it no longer has go.
pub(super) fn commit(
    set: &mut PackSet,
    (entries, is_complete): (Entries, bool),
    random: &dyn SecureRandom,
) -> Result<(), PackError> {
    let index = entries.into_index();
    // Of a first copy of which nothing arrived there is nothing to tell.
    let is_begun = set.has_index() || !index.rows.is_empty() || is_complete;
    if !set.needs(&index) || !is_begun {
        return Ok(());
    }
    let loose = |index: &Index| -> HashSet<Key> {
        let rows = index.rows.iter().filter(|row| row.location.is_none());
        rows.map(|row| row.item.name.clone()).collect()
    };
    let (before, after) = (loose(&set.index), loose(&index));
    set.commit(index, random, SystemTime::now())?;
    for name in before.difference(&after) {
        remove_loose(set.place(), name)?;
    }
    Ok(())
}

/// Removes large files beside packs that the index does not name, as the person chose: what runs that were killed
/// left of them, and readers would take. Only what no writer of now can be about to name: it is older than a day by
/// the storage's clock, and lies in no other set. A dry run, which knows no next index, does not tell of them.
pub(super) fn remove_leftovers(
    set: &PackSet,
    options: &Options,
    summary: &mut Summary,
) -> Result<(), PackError> {
    let Some(packs) = options.packs.as_ref().filter(|packs| packs.leaves_loose()) else {
        return Ok(());
    };
    let Some(oldest) = set.oldest_of_writers()? else { return Ok(()) };
    let (mut removals, mut sets) = (Vec::new(), HashSet::new());
    let mut walk = Walk::new(set.place());
    while let Some(met) = walk.next() {
        let Met::Item(item, meta) = met? else { continue };
        let name = item.name.as_bytes();
        if let Some(at) =
            name.windows(DIRECTORY.len()).position(|part| part == DIRECTORY.as_bytes())
        {
            sets.insert(name[..at].to_vec());
        }
        let is_named = || set.index.rows.binary_search_by(|row| row.item.order(&item)).is_ok();
        let is_large = matches!(item.kind, Kind::File { bytes } if bytes > packs.bytes);
        let is_old = meta.is_some_and(|meta| meta.mtime < oldest);
        let is_taken = options.sizes.take(&item) && options.selection.takes(&item.name, false);
        if is_large && is_old && is_taken && !is_named() {
            removals.push(item.name);
        }
    }
    removals.retain(|name| !sets.iter().any(|set| name.as_bytes().starts_with(set)));
    let count = summary.removed + removals.len() as u64;
    if let Some(max) = options.delete_max.filter(|&max| count > max && !removals.is_empty()) {
        return Err(PackError::TooManyRemovals { count, max });
    }
    for name in removals {
        remove_loose(set.place(), &name)?;
        remove_empty_above(set.place(), &name);
        summary.removed += 1;
    }
    Ok(())
}

/// Directories in which nothing is left: where there are packs only loose files have some.
fn remove_empty_above(place: &Place, name: &Key) {
    let Some(tree) = place.tier.tree() else { return };
    let above: Vec<&[u8]> = name.ancestors().filter(|name| !name.is_empty()).collect();
    for directory in above.into_iter().rev() {
        // One that is not empty, or that somebody else removed, ends it.
        let removed = place.key(directory).map(|key| tree.remove_directory(&key));
        if !matches!(removed, Ok(Ok(()))) {
            return;
        }
    }
}

fn remove_loose(place: &Place, name: &Key) -> Result<(), PackError> {
    match place.tier.delete(&place.key(name.as_bytes())?) {
        Ok(()) | Err(TierError::Missing { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Files that lie beside packs: all of them where everything is written over, else those that the present index
/// does not name as they are now.
pub(super) fn loose(set: &PackSet, overwrite: Overwrite, mut entries: Entries) -> Index {
    let is_loose = |row: &Row| row.location.is_none() && matches!(row.item.kind, Kind::File { .. });
    entries.retain(is_loose);
    let mut index = entries.into_index();
    if overwrite == Overwrite::Always {
        return index;
    }
    let known = set.index.rows.iter().filter(|row| is_loose(row));
    let known: HashMap<&Key, &Row> = known.map(|row| (&row.item.name, row)).collect();
    index.rows.retain(|row| known.get(&row.item.name) != Some(&row));
    index
}
