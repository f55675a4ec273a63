//! Which parts are open: all that somebody uses, and some more that were used lately.
//!
//! Here: a map of weak references, and a clock of strong ones with one "used" bit each (second
//! chance), which costs no list operations on the hot path.
//! Not here: opening and closing ([`crate::device`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::failed::FailedParts;
use super::{Part, PartId};
use crate::device::DeviceFile;

/// See the module header.
pub(super) struct OpenParts {
    kept_max: usize,
    failed: Arc<FailedParts>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Open parts; some may be closed by now, they are swept when there are many.
    known: HashMap<PartId, Known>,
    /// Parts that stay open though nobody uses them; `None` is a free place.
    kept: Vec<Option<Kept>>,
    hand: usize,
    /// Sweep `known` when it has grown to this.
    sweep_at: usize,
}

struct Known {
    file: Weak<dyn DeviceFile>,
    /// Its place in `kept`, if it is (still) there.
    place: usize,
}

struct Kept {
    part: Part,
    used: bool,
}

impl OpenParts {
    pub(super) fn new(kept_max: usize, failed: Arc<FailedParts>) -> Self {
        let state = State { sweep_at: 2 * kept_max + 64, ..State::default() };
        Self { kept_max: kept_max.max(1), failed, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    fn part(&self, id: PartId, file: Arc<dyn DeviceFile>) -> Part {
        Part { id, file, failed: Arc::clone(&self.failed) }
    }

    /// The part, if it is open.
    pub(super) fn get(&self, id: PartId) -> Option<Part> {
        let mut state = self.lock();
        let known = state.known.get(&id)?;
        let (file, place) = (known.file.upgrade()?, known.place);
        let part = self.part(id, file);
        match state.kept.get_mut(place) {
            Some(Some(kept)) if kept.part.id == id => kept.used = true,
            _ => drop(self.place(&mut state, part.clone())),
        }
        Some(part)
    }

    /// Keeps a part open, unless another thread has opened it meanwhile: then that one counts.
    pub(super) fn keep(&self, id: PartId, file: Arc<dyn DeviceFile>) -> Part {
        let part = self.part(id, file);
        let mut state = self.lock();
        if let Some(file) = state.known.get(&id).and_then(|known| known.file.upgrade()) {
            return self.part(id, file);
        }
        if state.known.len() >= state.sweep_at {
            state.known.retain(|_, known| known.file.strong_count() > 0);
            state.sweep_at = 2 * state.known.len().max(self.kept_max) + 64;
        }
        let evicted = self.place(&mut state, part.clone());
        drop(state);
        drop(evicted); // closes its file, outside the lock
        part
    }

    /// Puts `part` under the clock's hand, in the place of one that was not used since the last
    /// turn; that one is returned.
    #[must_use]
    fn place(&self, state: &mut State, part: Part) -> Option<Part> {
        let place = if state.kept.len() < self.kept_max {
            state.kept.push(None);
            state.kept.len() - 1
        } else {
            loop {
                state.hand = (state.hand + 1) % state.kept.len();
                match &mut state.kept[state.hand] {
                    Some(kept) if kept.used => kept.used = false,
                    _ => break state.hand,
                }
            }
        };
        let known = Known { file: Arc::downgrade(&part.file), place };
        state.known.insert(part.id, known);
        let evicted = state.kept[place].replace(Kept { part, used: false })?;
        let id = evicted.part.id;
        // Only this reference is left: it closes, and the map can forget it at once.
        if Arc::strong_count(&evicted.part.file) == 1 {
            state.known.remove(&id);
        }
        Some(evicted.part)
    }

    /// The part was removed: a later one of the same id is another file.
    pub(super) fn forget(&self, id: PartId) {
        let mut state = self.lock();
        let Some(known) = state.known.remove(&id) else { return };
        let place = state.kept.get_mut(known.place);
        let kept = place.and_then(|kept| kept.take_if(|kept| kept.part.id == id));
        drop(state);
        drop(kept);
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        self.lock().known.values().filter(|known| known.file.strong_count() > 0).count()
    }
}
