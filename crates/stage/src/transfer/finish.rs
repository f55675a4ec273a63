//! When everything has arrived: what is too much goes, directories get their attributes, the index is made.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use hayase_tier::{Attributes, Key, TierError};
use ring::rand::SecureRandom;

use super::streams::attributes;
use super::{Options, Outcome, Shared};
use crate::item::{Item, Kind, Mtime};
use crate::limits::UPLOAD_AGE;
use crate::pack::{DIRECTORY, Index, PackError, PackId, PackSet, Row};
use crate::walk::{Met, Walk};
use crate::way::Way;
use crate::{Overwrite, Place};

impl Shared<'_> {
    /// Removals (none when something is missing), and attributes of directories.
    pub(super) fn finish(&self) -> Result<(), PackError> {
        self.remove()?;
        self.make_waiting()?;
        if self.options.is_dry_run {
            return Ok(());
        }
        // Of a copy that ended early some may be resumed, however old.
        if !self.is_stopped() && !self.is_before_others() {
            self.sweep();
        }
        if self.options.packs.is_some() {
            return Ok(());
        }
        let marked = std::mem::take(&mut self.outcome().marked);
        let mut directories = std::mem::take(&mut self.outcome().directories);
        directories.extend(self.told_directories(&marked));
        if self.target.tier.tree().is_none() {
            self.for_each_directory(&directories, |directory| self.mark_again(directory));
            return Ok(());
        }
        // The deepest first: setting one changes nothing above it, making names in it would.
        directories.sort_by(|a, b| b.order(a));
        for directory in directories {
            if let Err(error) = self.date_directory(&directory) {
                self.failed(&directory.name.to_string(), error);
            }
        }
        Ok(())
    }

    /// Other nodes have shares of the same target, and may come late to what is unfinished there: to remove it is
    /// left to the complete copy that follows. Who copies all directories has a target of its own.
    fn is_before_others(&self) -> bool {
        self.options.share.is_some_and(|share| !share.directories)
    }

    /// Unfinished uploads that a killed run left, when they are old enough that nobody works on them.
    fn sweep(&self) {
        let packs = format!("{DIRECTORY}/");
        let below = if self.options.packs.is_some() { packs.as_bytes() } else { b"" };
        let before = SystemTime::now().checked_sub(UPLOAD_AGE).unwrap_or(SystemTime::UNIX_EPOCH);
        // They are hidden from everybody: what can not be removed now is no failure of this transfer.
        let _ = self.target.tier.sweep(&[self.target.prefix(), below].concat(), before);
    }

    /// The mark that a store has of a directory says what the source does.
    fn mark_again(&self, directory: &Item) -> Result<(), PackError> {
        let Some(marks) = self.target.tier.marks() else { return Ok(()) };
        let there = self.again(|| Ok(self.target.told_directory(directory)?))?;
        if there.mode == directory.mode && there.mtime == directory.mtime {
            return Ok(());
        }
        let key = self.target.key(directory.name.as_bytes())?;
        self.again(|| Ok(marks.mark_directory(&key, attributes(directory))?))
    }

    fn date_directory(&self, directory: &Item) -> Result<(), PackError> {
        let Some(tree) = self.target.tier.tree() else { return Ok(()) };
        let key = self.target.key(directory.name.as_bytes())?;
        let there = tree.directory(&key)?;
        let is_same = there.mode == directory.mode && Mtime::from(there.mtime) == directory.mtime;
        if !is_same {
            tree.set_directory(&key, attributes(directory))?;
        }
        Ok(())
    }

    /// Removes what the source does not have, the deepest first.
    fn remove(&self) -> Result<(), PackError> {
        let removals = std::mem::take(&mut self.outcome().removals);
        let count = removals.len() as u64;
        let is_complete = self.outcome().summary.is_complete();
        if removals.is_empty() || !is_complete {
            return Ok(());
        }
        if let Some(max) = self.options.delete_max.filter(|&max| count > max) {
            self.failed("--max-delete", PackError::TooManyRemovals { count, max });
            return Ok(());
        }
        if self.options.is_dry_run {
            removals.iter().for_each(|item| self.observer.would_remove(item));
            self.outcome().summary.removed += count;
            return Ok(());
        }
        if self.options.packs.is_some() {
            let gone: HashSet<&Key> = removals.iter().map(|item| &item.name).collect();
            let mut outcome = self.outcome();
            outcome.former.retain(|(_, row)| !gone.contains(&row.item.name));
            outcome.summary.removed = count;
            return Ok(());
        }
        for item in removals.iter().rev() {
            match self.remove_one(item) {
                Ok(true) => self.outcome().summary.removed += 1,
                Ok(false) => {}
                Err(error) => self.failed(&item.name.to_string(), error),
            }
        }
        Ok(())
    }

    /// `false` for a directory that stays, since something that was not selected is in it.
    pub(super) fn remove_one(&self, item: &Item) -> Result<bool, PackError> {
        let key = self.target.key(item.name.as_bytes())?;
        let tier = &self.target.tier;
        let removed = match (&item.kind, tier.tree()) {
            (Kind::Link { .. }, Some(tree)) => tree.remove_link(&key),
            (Kind::Directory, Some(tree)) => {
                // A directory without the right to write keeps its names.
                let writable = Attributes { mode: Some(item.mode | 0o700), mtime: None };
                if item.mode & 0o700 != 0o700 {
                    tree.set_directory(&key, writable)?;
                }
                match tree.remove_directory(&key) {
                    Err(TierError::NotObject { .. }) => return Ok(false),
                    other => other,
                }
            }
            (Kind::Directory, None) => match tier.marks() {
                Some(marks) => marks.unmark_directory(&key),
                None => return Ok(false),
            },
            _ => tier.delete(&key),
        };
        match removed {
            Ok(()) | Err(TierError::Missing { .. }) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// Makes the next index of what was kept and what is new; then loose objects that it no longer has go.
pub(super) fn commit(
    set: &mut PackSet,
    outcome: &mut Outcome,
    random: &dyn SecureRandom,
) -> Result<(), PackError> {
    let index = index_of(outcome);
    // Of a first copy of which nothing arrived there is nothing to tell.
    let is_begun = set.has_index() || !index.rows.is_empty() || outcome.summary.is_complete();
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
    outcome: &mut Outcome,
) -> Result<(), PackError> {
    let Some(packs) = options.packs.as_ref().filter(|packs| packs.lays_beside()) else {
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
    let summary = &mut outcome.summary;
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
pub(super) fn loose(set: &PackSet, overwrite: Overwrite, outcome: &mut Outcome) -> Index {
    let is_loose = |row: &Row| row.location.is_none() && matches!(row.item.kind, Kind::File { .. });
    outcome.rows.retain(|(_, row)| is_loose(row));
    outcome.former.clear();
    let mut index = index_of(outcome);
    if overwrite == Overwrite::Always {
        return index;
    }
    let known = set.index.rows.iter().filter(|row| is_loose(row));
    let known: HashMap<&Key, &Row> = known.map(|row| (&row.item.name, row)).collect();
    index.rows.retain(|row| known.get(&row.item.name) != Some(&row));
    index
}

/// In order, each name once, packs by name.
fn index_of(outcome: &mut Outcome) -> Index {
    let mut rows = std::mem::take(&mut outcome.rows);
    let mut former = std::mem::take(&mut outcome.former);
    let mut way = Way::default();
    rows.iter().for_each(|(_, row)| way.add(&row.item));
    former.retain(|(_, row)| !way.is_blocked_by(&row.item));
    rows.append(&mut former);
    rows.sort_by(|(_, a), (_, b)| a.item.order(&b.item));
    rows.dedup_by(|later, first| {
        let is_same = later.1.item.order(&first.1.item).is_eq();
        if is_same {
            std::mem::swap(later, first);
        }
        is_same
    });
    let mut ids: Vec<PackId> = rows.iter().filter_map(|(id, _)| *id).collect();
    ids.sort_unstable();
    ids.dedup();
    let numbers: HashMap<PackId, u32> = ids.iter().copied().zip(0..).collect();
    let packs = ids.iter().map(|id| outcome.lines[id]).collect();
    let rows = rows.into_iter().map(|(id, mut row)| {
        if let (Some(at), Some(id)) = (&mut row.location, id) {
            at.pack = numbers[&id];
        }
        row
    });
    Index { packs, rows: rows.collect() }
}
