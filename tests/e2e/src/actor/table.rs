//! What an actor holds: open files, mappings, raised flags.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::mapping::Mapping;

/// Numbers are never used twice, so a late request can not hit somebody else's file.
#[derive(Default)]
pub(super) struct Table {
    files: Mutex<HashMap<u32, Arc<OwnedFd>>>,
    maps: Mutex<HashMap<u32, Arc<Mapping>>>,
    flags: Mutex<HashSet<String>>,
    given: AtomicU32,
    /// Counts resets: a loop ends when it changes.
    resets: AtomicU64,
}

impl Table {
    pub(super) fn add_file(&self, file: OwnedFd) -> u32 {
        let number = self.number();
        locked(&self.files).insert(number, Arc::new(file));
        number
    }

    pub(super) fn add_map(&self, map: Mapping) -> u32 {
        let number = self.number();
        locked(&self.maps).insert(number, Arc::new(map));
        number
    }

    pub(super) fn file(&self, number: u32) -> Result<Arc<OwnedFd>, String> {
        locked(&self.files).get(&number).cloned().ok_or_else(|| format!("no file {number}"))
    }

    pub(super) fn map(&self, number: u32) -> Result<Arc<Mapping>, String> {
        locked(&self.maps).get(&number).cloned().ok_or_else(|| format!("no map {number}"))
    }

    pub(super) fn close(&self, number: u32) -> Result<(), String> {
        let file = locked(&self.files).remove(&number);
        file.map(drop).ok_or_else(|| format!("no file {number}"))
    }

    pub(super) fn unmap(&self, number: u32) -> Result<(), String> {
        let map = locked(&self.maps).remove(&number);
        map.map(drop).ok_or_else(|| format!("no map {number}"))
    }

    pub(super) fn raise(&self, flag: String) {
        locked(&self.flags).insert(flag);
    }

    pub(super) fn is_raised(&self, flag: &str) -> bool {
        locked(&self.flags).contains(flag)
    }

    pub(super) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Acquire)
    }

    pub(super) fn reset(&self) {
        self.resets.fetch_add(1, Ordering::AcqRel);
        let files = std::mem::take(&mut *locked(&self.files));
        let maps = std::mem::take(&mut *locked(&self.maps));
        locked(&self.flags).clear();
        drop((files, maps));
    }

    fn number(&self) -> u32 {
        self.given.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// A poisoned table still holds what it held: the panic was in a call, not in the map.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
