//! Slots of a process's arena that this server has in its hands.
//!
//! A slot is the process's again with the answer. A call to another server that was given up may still
//! have it in the hands of its transport: what the process writes there next would travel as the bytes
//! of the former request. So no answer is given before the transport has let go.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hayase_wire::arena::ArenaSlot;
use tokio::sync::Notify;

/// Of one process.
#[derive(Default)]
pub(crate) struct LentSlots {
    slots: Mutex<HashSet<u32>>,
    returned: Notify,
}

impl LentSlots {
    fn lock(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends a slot until the result is dropped. The arena claims each once at a time.
    pub(crate) fn lend(self: &Arc<Self>, slot: ArenaSlot) -> LentSlot {
        self.lock().insert(slot.index());
        LentSlot { slot, of: Arc::clone(self) }
    }

    /// Waits until nobody here has the slot: no longer than a transport bears silence.
    pub(crate) async fn until_returned(&self, slot: u32) {
        loop {
            let returned = self.returned.notified();
            if !self.lock().contains(&slot) {
                return;
            }
            returned.await;
        }
    }
}

/// A slot in somebody's hands.
pub(crate) struct LentSlot {
    slot: ArenaSlot,
    of: Arc<LentSlots>,
}

impl AsRef<[u8]> for LentSlot {
    fn as_ref(&self) -> &[u8] {
        self.slot.as_ref()
    }
}

impl AsMut<[u8]> for LentSlot {
    fn as_mut(&mut self) -> &mut [u8] {
        self.slot.as_mut()
    }
}

impl Drop for LentSlot {
    fn drop(&mut self) {
        self.of.lock().remove(&self.slot.index());
        self.of.returned.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use hayase_wire::Arena;

    use super::*;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_slot_is_back_when_its_holder_let_go() {
        let arena = Arena::create(4).unwrap();
        let slots = Arc::new(LentSlots::default());
        let lend = |index| slots.lend(arena.slot(index, 8).unwrap());
        let (one, other) = (lend(1), lend(2));
        let wait = std::time::Duration::from_secs(1);
        let is_back = |slot| tokio::time::timeout(wait, slots.until_returned(slot));
        assert!(is_back(1).await.is_err() && is_back(3).await.is_ok());
        drop(one);
        assert!(is_back(1).await.is_ok() && is_back(2).await.is_err());
        let (back, ()) = tokio::join!(is_back(2), async { drop(other) });
        assert!(back.is_ok());
    }
}
