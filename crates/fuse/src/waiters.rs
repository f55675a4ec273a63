//! Requests that may wait for other nodes, kept from occupying every thread.
//!
//! A recall from another node ends only after this mount has served the reads that the kernel has
//! in flight. If all threads waited for other nodes, and theirs for us, nobody would serve them.
//! So at most half of the threads may run such requests themselves; the rest hand them over.
//!
//! A tier may be slow to answer, or not answer at all. What may wait for it stands in lines of its own, so that
//! the other areas go on; and so do reads of what comes from it, since a recall waits for them too.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use hayase_layout::InodeId;

use crate::limits::{TIER_WAITERS_MAX, WAITERS_MAX, WAITING_MAX};

type Job = Box<dyn FnOnce() + Send>;

/// What a request may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Other nodes.
    Areas,
    /// Other nodes and the tier.
    Tier,
    /// Bytes of the tier, and nothing else.
    TierReads,
}

impl Line {
    /// Of requests, other than reads, that concern this inode.
    pub(crate) fn of(ino: InodeId) -> Self {
        if ino.is_cached() { Self::Tier } else { Self::Areas }
    }

    const fn threads_max(self) -> usize {
        match self {
            Self::Areas => WAITERS_MAX,
            Self::Tier | Self::TierReads => TIER_WAITERS_MAX,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Areas => "wait",
            Self::Tier => "tier",
            Self::TierReads => "read",
        }
    }
}

/// See the module.
pub(crate) struct Waiters {
    inline: AtomicUsize,
    inline_max: usize,
    pools: [Arc<Pool>; 3],
}

struct Pool {
    line: Line,
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
        let pools = [Line::Areas, Line::Tier, Line::TierReads].map(Pool::new).map(Arc::new);
        Self { inline: AtomicUsize::new(0), inline_max: threads / 2, pools }
    }

    /// Runs `job` here or on another thread. False, and it is dropped (its reply answers `EIO`),
    /// when the line is full.
    pub(crate) fn run(&self, line: Line, job: impl FnOnce() + Send + 'static) -> bool {
        self.run_or_return(line, job).is_ok()
    }

    /// The same, but here when the line is full.
    pub(crate) fn run_surely(&self, line: Line, job: impl FnOnce() + Send + 'static) {
        if let Err(job) = self.run_or_return(line, job) {
            job();
        }
    }

    fn run_or_return(&self, line: Line, job: impl FnOnce() + Send + 'static) -> Result<(), Job> {
        if self.inline.fetch_add(1, Ordering::AcqRel) < self.inline_max {
            let _here = Inline(&self.inline);
            job();
            return Ok(());
        }
        self.inline.fetch_sub(1, Ordering::AcqRel);
        Pool::submit(&self.pools[line as usize], Box::new(job))
    }

    /// Ends the idle threads, and the others after their request.
    pub(crate) fn stop(&self) {
        for pool in &self.pools {
            pool.lock().stopped = true;
            pool.more.notify_all();
        }
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
    fn new(line: Line) -> Self {
        Self { line, state: Mutex::default(), more: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the job back when the line is full.
    fn submit(pool: &Arc<Self>, job: Job) -> Result<(), Job> {
        let mut state = pool.lock();
        if state.jobs.len() >= WAITING_MAX {
            tracing::error!("more than {WAITING_MAX} requests wait");
            return Err(job);
        }
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < pool.line.threads_max() {
            let mine = Arc::clone(pool);
            let name = format!("hayase-{}-{}", pool.line.name(), state.threads);
            let builder = std::thread::Builder::new().name(name);
            match builder.spawn(move || mine.work()) {
                Ok(_) => state.threads += 1,
                Err(error) => tracing::error!(%error, "start a thread for waiting requests"),
            }
        }
        drop(state);
        pool.more.notify_one();
        Ok(())
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
                    waiters.run(Line::Areas, move || {
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
            assert!(waiters.run(Line::Areas, move || done.send(()).unwrap()));
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
            assert!(waiters.run(Line::Areas, move || done.send(()).unwrap()));
        }
        for _ in 0..1000 {
            finished.recv_timeout(Duration::from_secs(5)).unwrap();
        }
        assert!(waiters.pools[0].lock().threads <= WAITERS_MAX);
        waiters.stop();
    }

    #[test]
    fn what_must_run_runs_here_when_the_line_is_full() {
        let waiters = Waiters::new(0);
        let (release, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let wait = || {
            let blocked = Arc::clone(&blocked);
            move || {
                let _ended = blocked.lock().unwrap().recv();
            }
        };
        while waiters.run(Line::Areas, wait()) {}
        let (done, finished) = mpsc::channel();
        let here = std::thread::current().id();
        waiters.run_surely(Line::Areas, move || {
            done.send(std::thread::current().id() == here).unwrap();
        });
        assert_eq!(finished.try_recv(), Ok(true));
        drop(release);
        waiters.stop();
    }

    /// A tier that does not answer: everything that waits for it takes its own threads, and no others.
    #[test]
    fn who_waits_for_the_tier_holds_up_nobody_else() {
        let waiters = Waiters::new(0);
        let (release, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let (done, finished) = mpsc::channel();
        for _ in 0..3 * TIER_WAITERS_MAX {
            let (blocked, done) = (Arc::clone(&blocked), done.clone());
            waiters.run(Line::Tier, move || {
                let _ended = blocked.lock().unwrap().recv();
                done.send(Line::Tier).unwrap();
            });
        }
        for line in [Line::Areas, Line::TierReads] {
            let done = done.clone();
            waiters.run(line, move || done.send(line).unwrap());
            assert_eq!(finished.recv_timeout(Duration::from_secs(30)), Ok(line));
        }
        drop(release);
        for _ in 0..3 * TIER_WAITERS_MAX {
            assert_eq!(finished.recv_timeout(Duration::from_secs(30)), Ok(Line::Tier));
        }
        waiters.stop();
    }
}
