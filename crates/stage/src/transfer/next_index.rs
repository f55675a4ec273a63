//! The next index of a set of packs, as it is collected while items arrive.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hayase_tier::Key;

use crate::item::Item;
use crate::pack::{Index, PackId, PackLine, Row, Written};
use crate::way::Way;

/// A row, and the name of the pack in which its bytes lie, if they lie in one.
pub(super) type Entry = (Option<PackId>, Row);

/// Collected by all threads of one transfer.
#[derive(Default)]
pub(super) struct NextIndex {
    entries: Mutex<Entries>,
}

/// What was collected.
#[derive(Default)]
pub(super) struct Entries {
    /// In no order. Of two of one name the later counts.
    rows: Vec<Entry>,
    /// Entries of the present index that the source does not have.
    former: Vec<Entry>,
    lines: HashMap<PackId, PackLine>,
}

impl NextIndex {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        // Every change is one push or one insertion.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pack that entries may lie in.
    pub(super) fn know(&self, line: PackLine) {
        self.entries().lines.insert(line.id, line);
    }

    /// An entry that stays, or that counts again.
    pub(super) fn keep(&self, entry: Entry) {
        self.entries().rows.push(entry);
    }

    /// A large file that lies outside of packs.
    pub(super) fn loose(&self, item: Item, crc32c: u32) {
        self.entries().rows.push((None, Row { item, crc32c, location: None }));
    }

    /// A pack that was written, with its entries.
    pub(super) fn written(&self, written: Written) {
        let id = written.line.id;
        let mut entries = self.entries();
        entries.lines.insert(id, written.line);
        entries.rows.extend(written.rows.into_iter().map(|row| (Some(id), row)));
    }

    /// An entry of the present index that the source does not have.
    pub(super) fn former(&self, entry: Entry) {
        self.entries().former.push(entry);
    }

    /// Drops entries that the source does not have.
    pub(super) fn remove(&self, removals: &[Item]) {
        let gone: HashSet<&Key> = removals.iter().map(|item| &item.name).collect();
        self.entries().former.retain(|(_, row)| !gone.contains(&row.item.name));
    }

    pub(super) fn into_entries(self) -> Entries {
        self.entries.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Leaves only new entries for which `is_taken` answers true.
    pub(super) fn retain(&mut self, is_taken: impl Fn(&Row) -> bool) {
        self.rows.retain(|(_, row)| is_taken(row));
        self.former.clear();
    }

    /// In order, each name once, packs by name.
    pub(super) fn into_index(self) -> Index {
        let Self { mut rows, mut former, lines } = self;
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
        let packs = ids.iter().map(|id| lines[id]).collect();
        let rows = rows.into_iter().map(|(id, mut row)| {
            if let (Some(at), Some(id)) = (&mut row.location, id) {
                at.pack = numbers[&id];
            }
            row
        });
        Index { packs, rows: rows.collect() }
    }
}
