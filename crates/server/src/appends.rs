//! Appends to striped files: the home deals out places at the end, and moves the size in their order.
//!
//! A reservation that is not committed within [`APPEND_HOLD`] becomes a hole, so that those behind
//! it go on. A commit that comes later finds its bytes where it put them, since nobody else was
//! given the place: it must not be repeated elsewhere.
//! In memory: a restarted home has forgotten them, their commits are `Stale` and repeated. Before it
//! deals out places again, the parts are made to refuse what was written to the former ones
//! ([`Appends::is_begun`]).

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use hayase_layout::InodeId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limits::{APPEND_HOLD, APPENDS_GIVEN_UP_MAX};

#[derive(Clone, Copy, Debug)]
struct Reservation {
    end: u64,
    made: Instant,
    committed: bool,
}

/// Reservations of one inode, by where they begin.
#[derive(Default)]
struct Queue {
    end: u64,
    reserved: BTreeMap<u64, Reservation>,
}

/// What a commit finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is in the queue; its turn comes.
    Reserved,
    /// The size has gone past it already.
    GivenUp,
    /// Void, or made by another life of this home.
    Nothing,
}

/// All inodes with reservations.
#[derive(Default)]
pub(crate) struct Appends {
    queues: RefCell<HashMap<InodeId, Queue>>,
    /// The last [`APPENDS_GIVEN_UP_MAX`] that became holes.
    given_up: RefCell<VecDeque<(InodeId, u64)>>,
    moved: Notify,
    /// Inodes whose reservations of a former life are void everywhere.
    begun: RefCell<HashSet<InodeId>>,
}

impl Appends {
    /// Whether no bytes of a former life's reservations can land any more.
    pub(crate) fn is_begun(&self, ino: InodeId) -> bool {
        self.begun.borrow().contains(&ino)
    }

    pub(crate) fn begin(&self, ino: InodeId) {
        self.begun.borrow_mut().insert(ino);
    }

    /// The next `len` bytes behind `size` and behind all reservations.
    pub(crate) fn reserve(&self, ino: InodeId, size: u64, len: u64) -> u64 {
        let mut queues = self.queues.borrow_mut();
        let queue = queues.entry(ino).or_default();
        let start = queue.end.max(size);
        queue.end = start + len;
        let made = Instant::now();
        queue.reserved.insert(start, Reservation { end: queue.end, made, committed: false });
        start
    }

    /// Marks a reservation as written.
    pub(crate) fn commit(&self, ino: InodeId, start: u64) -> Found {
        let mut queues = self.queues.borrow_mut();
        let reserved = queues.get_mut(&ino).and_then(|queue| queue.reserved.get_mut(&start));
        if let Some(reservation) = reserved {
            reservation.committed = true;
            return Found::Reserved;
        }
        let mut given_up = self.given_up.borrow_mut();
        match given_up.iter().position(|hole| *hole == (ino, start)) {
            Some(at) => {
                given_up.remove(at);
                Found::GivenUp
            }
            None => Found::Nothing,
        }
    }

    fn give_up(&self, ino: InodeId, start: u64) {
        tracing::warn!(%ino, start, "an append is not finished in time: a hole until it is");
        let mut given_up = self.given_up.borrow_mut();
        if given_up.len() == APPENDS_GIVEN_UP_MAX {
            given_up.pop_front();
        }
        given_up.push_back((ino, start));
    }

    /// Up to where everything is committed (or given up), if something has moved; wakes waiters.
    pub(crate) fn settle(&self, ino: InodeId) -> Option<u64> {
        let mut queues = self.queues.borrow_mut();
        let queue = queues.get_mut(&ino)?;
        let mut size = None;
        while let Some(first) = queue.reserved.first_entry() {
            let reservation = *first.get();
            if !reservation.committed {
                if reservation.made.elapsed() < APPEND_HOLD {
                    break;
                }
                self.give_up(ino, *first.key());
            }
            size = Some(reservation.end);
            first.remove();
        }
        if queue.reserved.is_empty() {
            queues.remove(&ino);
        }
        drop(queues);
        if size.is_some() {
            self.moved.notify_waiters();
        }
        size
    }

    /// Whether the reservation at `start` is still on its way.
    pub(crate) fn is_pending(&self, ino: InodeId, start: u64) -> bool {
        let queues = self.queues.borrow();
        queues.get(&ino).is_some_and(|queue| queue.reserved.contains_key(&start))
    }

    /// A truncate: all reservations are void.
    pub(crate) fn forget(&self, ino: InodeId) {
        self.queues.borrow_mut().remove(&ino);
        self.given_up.borrow_mut().retain(|(of, _)| *of != ino);
        self.moved.notify_waiters();
    }

    /// Waits until something moves, or until the oldest reservation may be given up.
    pub(crate) async fn wait(&self) {
        let pause = APPEND_HOLD / 4;
        let moved = self.moved.notified();
        if tokio::time::timeout(pause, moved).await.is_err() {
            tracing::debug!("an append waits for an earlier one");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: InodeId = InodeId(9);

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn size_moves_in_the_order_of_reservations() {
        let appends = Appends::default();
        let first = appends.reserve(INO, 100, 10);
        let second = appends.reserve(INO, 100, 5);
        assert_eq!((first, second), (100, 110));
        assert_eq!(appends.commit(INO, second), Found::Reserved);
        assert_eq!(appends.settle(INO), None);
        assert!(appends.is_pending(INO, second));
        assert_eq!(appends.commit(INO, first), Found::Reserved);
        assert_eq!(appends.settle(INO), Some(115));
        assert!(!appends.is_pending(INO, second));
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_dead_appender_becomes_a_hole() {
        let appends = Appends::default();
        appends.reserve(INO, 0, 10);
        let second = appends.reserve(INO, 0, 10);
        appends.commit(INO, second);
        tokio::time::advance(APPEND_HOLD).await;
        assert_eq!(appends.settle(INO), Some(20));
        assert_eq!(appends.commit(INO, 0), Found::GivenUp, "its bytes are where it put them");
        assert_eq!(appends.commit(INO, 0), Found::Nothing);
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_truncate_voids_what_was_given_up() {
        let appends = Appends::default();
        appends.reserve(INO, 0, 10);
        tokio::time::advance(APPEND_HOLD).await;
        assert_eq!(appends.settle(INO), Some(10));
        appends.forget(INO);
        assert_eq!(appends.commit(INO, 0), Found::Nothing);
    }
}
