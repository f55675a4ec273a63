//! Tasks that serve one job after the other: what serving takes room for is made once.
//!
//! A task for each job would be allocated with all that serving it may ever need, some kilobytes, and
//! given back a moment later. These stay, but for those that are idle beside enough others.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tokio::sync::Notify;

/// The jobs that wait for a worker, and who is there to take them.
pub struct Workers<T> {
    waiting: RefCell<VecDeque<T>>,
    more: Notify,
    all: Cell<usize>,
    all_max: usize,
    idle: Cell<usize>,
    idle_max: usize,
    is_over: Cell<bool>,
    /// The last one has gone.
    none_left: Notify,
}

/// What became of a job that was given to [`Workers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// An idle worker takes it.
    Waits,
    /// All are at work: the caller starts one, which takes jobs by [`Workers::next`].
    NeedsOne,
    /// There may be no more workers. The job is taken when one is idle.
    TooMany,
}

impl<T> Workers<T> {
    /// None yet, and never more than `all_max`; up to `idle_max` stay without a job.
    pub fn new(all_max: usize, idle_max: usize) -> Self {
        Self {
            waiting: RefCell::default(),
            more: Notify::new(),
            all: Cell::default(),
            all_max,
            idle: Cell::default(),
            idle_max,
            is_over: Cell::default(),
            none_left: Notify::new(),
        }
    }

    /// Adds a job; who is told [`Given::NeedsOne`] starts a worker for it.
    pub fn give(&self, job: T) -> Given {
        let mut waiting = self.waiting.borrow_mut();
        waiting.push_back(job);
        if waiting.len() <= self.idle.get() {
            self.more.notify_one();
            return Given::Waits;
        }
        if self.all.get() >= self.all_max {
            return Given::TooMany;
        }
        self.all.set(self.all.get() + 1);
        Given::NeedsOne
    }

    /// The next job for the worker that asks. None when there will be no more, or enough wait for it.
    pub async fn next(&self) -> Option<T> {
        loop {
            if let Some(job) = self.waiting.borrow_mut().pop_front() {
                return Some(job);
            }
            if self.is_over.get() || self.idle.get() >= self.idle_max {
                self.all.set(self.all.get() - 1);
                self.none_left.notify_one();
                return None;
            }
            self.idle.set(self.idle.get() + 1);
            self.more.notified().await;
            self.idle.set(self.idle.get() - 1);
        }
    }

    /// No more jobs come: workers go when all are done.
    pub fn end(&self) {
        self.is_over.set(true);
        self.more.notify_waiters();
    }

    /// Waits for that.
    pub async fn ended(&self) {
        while self.all.get() > 0 {
            self.none_left.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    const MAX: usize = 8;
    const IDLE_MAX: usize = 2;

    #[tokio::test(start_paused = true)]
    async fn as_many_as_jobs_wait_at_once_and_no_more() {
        let test = async {
            let (workers, go_on) = (Rc::new(Workers::new(MAX, IDLE_MAX)), Rc::new(Notify::new()));
            let served = Rc::new(RefCell::new(Vec::new()));
            let give = |job: usize| {
                let given = workers.give(job);
                if given == Given::NeedsOne {
                    let (workers, served) = (Rc::clone(&workers), Rc::clone(&served));
                    let go_on = Rc::clone(&go_on);
                    tokio::task::spawn_local(async move {
                        while let Some(job) = workers.next().await {
                            go_on.notified().await;
                            served.borrow_mut().push(job);
                        }
                    });
                }
                given
            };
            let settle = || tokio::time::sleep(std::time::Duration::from_millis(1));
            for job in 0..20 {
                give(job);
                settle().await;
                go_on.notify_one();
                settle().await;
            }
            assert_eq!((served.borrow().len(), workers.all.get()), (20, 1), "one after the other");
            for job in 0..MAX {
                assert_ne!(give(job), Given::TooMany);
            }
            settle().await;
            assert_eq!(give(999), Given::TooMany);
            assert_eq!(workers.all.get(), MAX);
            for _ in 0..=MAX {
                go_on.notify_one();
                settle().await;
            }
            assert_eq!(served.borrow().len(), 20 + MAX + 1);
            assert_eq!(workers.all.get(), IDLE_MAX, "some stay");
            give(1000);
            settle().await;
            workers.end();
            settle().await;
            assert_eq!(workers.all.get(), 1, "the idle ones go");
            go_on.notify_one();
            workers.ended().await;
            assert_eq!((workers.all.get(), served.borrow().last()), (0, Some(&1000)));
        };
        tokio::task::LocalSet::new().run_until(test).await;
    }
}
