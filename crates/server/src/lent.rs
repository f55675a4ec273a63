//! Slots of a process's arena that this server has in its hands.
//!
//! A slot is the process's again with the answer. A call to another server that was given up may still
//! have it in the hands of its transport: what the process writes there next would travel as the bytes
//! of the former request. So no answer is given before the transport has let go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hayase_wire::arena::ArenaSlot;
use tokio::sync::Notify;

/// Of one process.
#[derive(Default)]
pub(crate) struct LentSlots {
    /// How many times each is lent.
    slots: Mutex<HashMap<u32, usize>>,
    returned: Notify,
}

impl LentSlots {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends a slot until the result is dropped.
    pub(crate) fn lend(self: &Arc<Self>, slot: ArenaSlot) -> LentSlot {
        *self.lock().entry(slot.index()).or_default() += 1;
        LentSlot { slot, of: Arc::clone(self) }
    }

    /// Waits until nobody here has the slot: no longer than a transport bears silence.
    pub(crate) async fn until_returned(&self, slot: u32) {
        loop {
            let returned = self.returned.notified();
            if !self.lock().contains_key(&slot) {
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
        let mut slots = self.of.lock();
        let index = self.slot.index();
        if let Some(lent) = slots.get_mut(&index) {
            *lent -= 1;
            if *lent == 0 {
                slots.remove(&index);
            }
        }
        drop(slots);
        self.of.returned.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use hayase_wire::Arena;

    use super::*;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_slot_is_back_when_its_last_holder_let_go() {
        let arena = Arena::create(4).unwrap();
        let slots = Arc::new(LentSlots::default());
        let lend = |index| slots.lend(arena.slot(index, 8).unwrap());
        let (one, other, third) = (lend(1), lend(1), lend(2));
        let wait = std::time::Duration::from_secs(1);
        let is_back = |slot| tokio::time::timeout(wait, slots.until_returned(slot));
        drop(one);
        assert!(is_back(1).await.is_err(), "somebody else has it");
        drop(other);
        assert!(is_back(1).await.is_ok() && is_back(2).await.is_err());
        let (back, ()) = tokio::join!(is_back(2), async { drop(third) });
        assert!(back.is_ok());
    }
}
