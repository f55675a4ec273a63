//! Packs of the source that are open: several units read of one, which costs one request to open.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::PACKS_OPEN_MAX;
use crate::pack::{PackError, PackReader, PackSet};

/// By whoever comes first; others wait for it.
type Slot = Arc<Mutex<Option<Arc<PackReader>>>>;

/// The latest [`PACKS_OPEN_MAX`], by the number that rows call them.
#[derive(Default)]
pub(crate) struct OpenPacks(Mutex<VecDeque<(u32, Slot)>>);

impl OpenPacks {
    pub(crate) fn get(&self, set: &PackSet, number: u32) -> Result<Arc<PackReader>, PackError> {
        let slot = self.slot(number);
        let mut open = lock(&slot);
        if let Some(pack) = &*open {
            return Ok(Arc::clone(pack));
        }
        // One that fails is asked for again by the next.
        let pack = Arc::new(set.pack(number)?);
        *open = Some(Arc::clone(&pack));
        Ok(pack)
    }

    /// Forgets all of them: each keeps what it read first of its pack, which may be what came damaged.
    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    fn slot(&self, number: u32) -> Slot {
        let mut slots = lock(&self.0);
        if let Some((_, slot)) = slots.iter().find(|(known, _)| *known == number) {
            return Arc::clone(slot);
        }
        if slots.len() == PACKS_OPEN_MAX {
            slots.pop_front();
        }
        let slot = Slot::default();
        slots.push_back((number, Arc::clone(&slot)));
        slot
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
