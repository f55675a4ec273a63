//! What earlier steps brought to a set of packs and no index names: packs of a run that was killed, or of the parts
//! of several nodes, and what those parts told of files beside packs.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use hayase_tier::Key;

use super::next_index::{Entry, NextIndex};
use crate::pack::{Index, PackError, PackId, PackSet, Row};
use crate::{Options, Overwrite};

/// Packs that are asked at the same time: each takes a few requests, one after the other.
const ASKED_AT_ONCE: usize = 16;

/// By name; of one name the newest first.
#[derive(Default)]
pub(super) struct Leftovers(HashMap<Key, Vec<Entry>>);

impl Leftovers {
    /// Reads the own index of every pack that the set's index does not name.
    pub(super) fn of(
        set: Option<&PackSet>,
        options: &Options,
        next_index: &NextIndex,
    ) -> Result<Self, PackError> {
        let mut left = Self::default();
        // Whoever writes over everything takes only what the parts of this very transfer brought.
        let is_taking = options.overwrite != Overwrite::Always || options.trusts_sizes;
        let Some(set) = set.filter(|_| is_taking) else { return Ok(left) };
        options.loose.iter().for_each(|row| left.add(None, row.clone()));
        let mut packs = set.unnamed_packs()?;
        packs.sort_by_key(|&(_, committed)| Reverse(committed));
        let ids: Vec<PackId> = packs.into_iter().map(|(id, _)| id).collect();
        for (id, own) in ids.iter().zip(own_indexes(set, &ids)) {
            // One that can not be read is of no use, and no harm.
            let Some(own) = own else { continue };
            next_index.know(own.packs[0]);
            own.rows.into_iter().for_each(|row| left.add(Some(*id), row));
        }
        Ok(left)
    }

    fn add(&mut self, pack: Option<PackId>, row: Row) {
        self.0.entry(row.item.name.clone()).or_default().push((pack, row));
    }

    /// What there is of one name.
    pub(super) fn take(&mut self, name: &Key) -> Vec<Entry> {
        self.0.remove(name).unwrap_or_default()
    }
}

fn own_indexes(set: &PackSet, ids: &[PackId]) -> Vec<Option<Index>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(vec![None; ids.len()]));
    let ask = || loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(&id) = ids.get(at) else { break };
        let own = set.pack_of(id).and_then(|pack| pack.own_index()).ok();
        found.lock().unwrap_or_else(PoisonError::into_inner)[at] = own;
    };
    thread::scope(|scope| {
        for _ in 0..ASKED_AT_ONCE.min(ids.len()) {
            scope.spawn(ask);
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}
