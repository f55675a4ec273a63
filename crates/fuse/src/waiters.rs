//! Requests that may wait for other nodes, kept from occupying every thread.
//!
//! A recall from another node ends only after this mount has served the reads that the kernel has
//! in flight. If all threads waited for other nodes, and theirs for us, nobody would serve them.
//! So at most half of the threads may run such requests themselves; the rest hand them over.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::limits::{WAITERS_MAX, WAITING_MAX};

type Job = Box<dyn FnOnce() + Send>;

/// See the module.
pub(crate) struct Waiters {
    inline: AtomicUsize,
    inline_max: usize,
    pool: Arc<Pool>,
}

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    stopped: bool,
}

impl Waiters {
    /// For a mount of `threads` threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self { inline: AtomicUsize::new(0), inline_max: threads / 2, pool: Arc::default() }
    }

    /// Runs `job` here or on another thread. False, and it is dropped (its reply answers `EIO`),
    /// when the line is full.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        if self.inline.fetch_add(1, Ordering::AcqRel) < self.inline_max {
            let _here = Inline(&self.inline);
            job();
            return true;
        }
        self.inline.fetch_sub(1, Ordering::AcqRel);
        Pool::submit(&self.pool, Box::new(job))
    }

    /// Ends the idle threads, and the others after their request.
    pub(crate) fn stop(&self) {
        self.pool.lock().stopped = true;
        self.pool.more.notify_all();
    }
}

/// Leaves also on panic.
struct Inline<'a>(&'a AtomicUsize);

impl Drop for Inline<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(pool: &Arc<Self>, job: Job) -> bool {
        let mut state = pool.lock();
        if state.jobs.len() >= WAITING_MAX {
            tracing::error!("more than {WAITING_MAX} requests wait for other nodes");
            return false;
        }
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < WAITERS_MAX {
            let number = state.threads;
            let mine = Arc::clone(pool);
            let builder = std::thread::Builder::new().name(format!("hayase-wait-{number}"));
            match builder.spawn(move || mine.work()) {
                Ok(_) => state.threads += 1,
                Err(error) => tracing::error!(%error, "start a thread for waiting requests"),
            }
        }
        drop(state);
        pool.more.notify_one();
        true
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
            } else if state.stopped {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// With 4 threads, 2 requests may block where they are; more go elsewhere, and all get done.
    #[test]
    fn half_of_the_threads_stay_free() {
        let waiters = Arc::new(Waiters::new(4));
        let (release, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let (done, finished) = mpsc::channel();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (waiters, blocked, done) =
                    (Arc::clone(&waiters), Arc::clone(&blocked), done.clone());
                std::thread::spawn(move || {
                    waiters.run(move || {
                        blocked.lock().unwrap().recv().unwrap();
                        done.send(()).unwrap();
                    })
                })
            })
            .collect();
        while waiters.inline.load(Ordering::Acquire) < 2 {
            std::thread::yield_now();
        }
        for _ in 0..10 {
            let done = done.clone();
            assert!(waiters.run(move || done.send(()).unwrap()));
        }
        for _ in 0..10 {
            finished
                .recv_timeout(Duration::from_secs(5))
                .expect("runs though both places are taken");
        }
        release.send(()).unwrap();
        release.send(()).unwrap();
        for thread in threads {
            assert!(thread.join().unwrap());
        }
        waiters.stop();
    }

    #[test]
    fn a_pool_has_a_size() {
        let waiters = Waiters::new(0);
        let (done, finished) = mpsc::channel();
        for _ in 0..1000 {
            let done = done.clone();
            assert!(waiters.run(move || done.send(()).unwrap()));
        }
        for _ in 0..1000 {
            finished.recv_timeout(Duration::from_secs(5)).unwrap();
        }
        assert!(waiters.pool.lock().threads <= WAITERS_MAX);
        waiters.stop();
    }
}
