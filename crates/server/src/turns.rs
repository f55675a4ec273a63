//! Calls on striped files that a truncate overtook go before the next truncate.
//!
//! A read or write over several parts is repeated as a whole when a truncate came between its
//! parts. Where truncates follow each other without pause it would never come to its end: so the
//! home counts what it has sent back to begin anew, and a truncate lets that many calls through
//! first, or waits [`TURN_WAIT`] for them. In memory only: nothing but fairness depends on it.

use std::cell::RefCell;
use std::collections::HashMap;

use hayase_layout::InodeId;
use tokio::sync::Notify;

use crate::limits::TURN_WAIT;

/// How many calls truncates must let through, by file.
#[derive(Default)]
pub(crate) struct Turns {
    owed: RefCell<HashMap<InodeId, u32>>,
    settled: Notify,
}

impl Turns {
    /// A call begins anew.
    pub(crate) fn overtaken(&self, ino: InodeId) {
        *self.owed.borrow_mut().entry(ino).or_default() += 1;
    }

    /// A call came through: that one, or another in its place.
    pub(crate) fn taken(&self, ino: InodeId) {
        let mut owed = self.owed.borrow_mut();
        let Some(calls) = owed.get_mut(&ino) else { return };
        *calls -= 1;
        if *calls == 0 {
            owed.remove(&ino);
            self.settled.notify_waiters();
        }
    }

    /// The file is no more.
    pub(crate) fn forget(&self, ino: InodeId) {
        if self.owed.borrow_mut().remove(&ino).is_some() {
            self.settled.notify_waiters();
        }
    }

    pub(crate) fn is_owed(&self, ino: InodeId) -> bool {
        self.owed.borrow().contains_key(&ino)
    }

    /// Waits until nothing is owed of this file; what has not come by then is owed no more.
    pub(crate) async fn give_way(&self, ino: InodeId) {
        let all = async {
            loop {
                let settled = self.settled.notified();
                if !self.is_owed(ino) {
                    return;
                }
                settled.await;
            }
        };
        if tokio::time::timeout(TURN_WAIT, all).await.is_err() {
            self.forget(ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    const INO: InodeId = InodeId(9);

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_truncate_waits_for_as_many_calls_as_were_overtaken() {
        let turns = Turns::default();
        turns.overtaken(INO);
        turns.overtaken(INO);
        turns.overtaken(InodeId(10));
        let start = Instant::now();
        let come = async {
            for _ in 0..2 {
                tokio::time::sleep(TURN_WAIT / 5).await;
                turns.taken(INO);
            }
        };
        tokio::join!(turns.give_way(INO), come);
        assert!(start.elapsed() < TURN_WAIT / 2, "it waited although both had come");
        turns.taken(INO);
        assert!(!turns.is_owed(INO) && turns.is_owed(InodeId(10)));
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn who_does_not_come_is_waited_for_once() {
        let turns = Turns::default();
        turns.overtaken(INO);
        let start = Instant::now();
        turns.give_way(INO).await;
        turns.give_way(INO).await;
        assert!(start.elapsed() < TURN_WAIT + Duration::from_millis(2));
        turns.overtaken(INO);
        turns.forget(INO);
        assert!(!turns.is_owed(INO), "the file is no more");
    }
}
