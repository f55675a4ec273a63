//! Intents that are looked at again when whoever carries them out must have given up.
//!
//! Nearly all are done long before; so one queue holds their numbers, in the order of their time, and
//! one task looks at it. A number is in the queue once, however many ask for it.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use hayase_store::ops;
use tokio::time::Instant;

use crate::node::Node;

/// Those that are due within this are looked at together.
const TOGETHER: Duration = Duration::from_millis(100);

/// What is to be looked at, and when. 32 bytes for each.
#[derive(Default)]
pub(crate) struct Unfinished {
    queue: RefCell<VecDeque<(Instant, u64)>>,
    queued: RefCell<HashSet<u64>>,
}

impl Unfinished {
    /// True when the queue was empty. Times never go back.
    fn push(&self, due: Instant, ids: impl IntoIterator<Item = u64>) -> bool {
        let (mut queue, mut queued) = (self.queue.borrow_mut(), self.queued.borrow_mut());
        let was_empty = queue.is_empty();
        queue.extend(ids.into_iter().filter(|id| queued.insert(*id)).map(|id| (due, id)));
        was_empty && !queue.is_empty()
    }

    fn next(&self) -> Option<Instant> {
        self.queue.borrow().front().map(|(due, _)| *due)
    }

    /// Takes all that are due by then.
    fn take(&self, by: Instant) -> Vec<u64> {
        let mut queue = self.queue.borrow_mut();
        let due = queue.partition_point(|(due, _)| *due <= by);
        let taken: Vec<u64> = queue.drain(..due).map(|(_, id)| id).collect();
        let mut queued = self.queued.borrow_mut();
        for id in &taken {
            queued.remove(id);
        }
        taken
    }
}

impl Node {
    /// Finishes those that are still there when whoever carries them out must have given up.
    pub(crate) fn finish_later(self: &Rc<Self>, ids: impl IntoIterator<Item = u64>) {
        if self.unfinished.push(Instant::now() + self.intent_age, ids) {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move { this.finish_those_due().await });
        }
    }

    /// Until none is left.
    async fn finish_those_due(self: Rc<Self>) {
        while let Some(due) = self.unfinished.next() {
            tokio::time::sleep_until(due).await;
            let ids = self.unfinished.take(due + TOGETHER);
            let left = {
                let txn = self.meta.begin();
                let is_left = |id: &u64| !matches!(ops::intent(&txn, *id), Ok(None));
                ids.into_iter().filter(is_left).collect::<Vec<_>>()
            };
            for id in left {
                // Not waited for: it may need a server that does not answer.
                let this = Rc::clone(&self);
                tokio::task::spawn_local(async move { this.finish_intent(id).await });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_once_and_in_time() {
        let (unfinished, now) = (Unfinished::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        assert!(!unfinished.push(now, []));
        assert!(unfinished.push(now, [3, 4, 3]));
        assert!(!unfinished.push(later, [4, 5]));
        assert_eq!(unfinished.next(), Some(now));
        assert_eq!(unfinished.take(now), [3, 4]);
        assert_eq!(unfinished.next(), Some(later));
        assert!(!unfinished.push(later, [3]));
        assert_eq!(unfinished.take(later), [5, 3]);
        assert_eq!(unfinished.next(), None);
    }
}
