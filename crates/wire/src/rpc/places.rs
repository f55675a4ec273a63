//! A bounded number of places for work that anybody may begin: nobody waits for one, the newest
//! comer takes that of the oldest.
//!
//! So whoever comes and does nothing costs a place only until enough others have come, and who does
//! its part soon is never held up, however many do not.
//! Source: Lemon, Resisting SYN flood DoS attacks with a SYN cache, BSDCon 2002.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;

pub(super) struct Places {
    max: usize,
    comers: Cell<u64>,
    /// In the order in which they came; told when it is taken.
    held: RefCell<BTreeMap<u64, Rc<Notify>>>,
}

struct Place<'a> {
    of: &'a Places,
    number: u64,
    taken: Rc<Notify>,
}

impl Places {
    /// At least one.
    pub(super) fn new(max: usize) -> Self {
        Self { max, comers: Cell::new(0), held: RefCell::default() }
    }

    /// Does `work` in a place of its own; drops it, with `None`, when the place is taken meanwhile.
    pub(super) async fn hold<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let place = self.take();
        tokio::select! {
            biased;
            done = work => Some(done),
            () = place.taken.notified() => None,
        }
    }

    fn take(&self) -> Place<'_> {
        let mut held = self.held.borrow_mut();
        while held.len() >= self.max
            && let Some((_, oldest)) = held.pop_first()
        {
            oldest.notify_one();
        }
        let (number, taken) = (self.comers.get(), Rc::new(Notify::new()));
        self.comers.set(number + 1);
        held.insert(number, Rc::clone(&taken));
        Place { of: self, number, taken }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.of.held.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn the_newest_takes_the_place_of_the_oldest() {
        let places = Places::new(2);
        let (first, second) = (places.take(), places.take());
        drop(second);
        let third = places.take();
        assert_eq!(places.hold(async { 4 }).await, Some(4), "what can be done at once is done");
        first.taken.notified().await;
        drop((first, third));
        assert!(places.held.borrow().is_empty());
    }

    #[tokio::test]
    async fn whose_place_is_taken_ends() {
        let places = Places::new(1);
        let (lost, ()) = tokio::join!(places.hold(pending::<()>()), async { drop(places.take()) });
        assert_eq!(lost, None);
    }
}
