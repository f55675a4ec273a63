//! Threads that close files after their release, so that nobody waits for it.
//!
//! A writer's close was told to the metadata server before (`closed`); here is what is left: opens that only read,
//! new files that nothing happened to, and changes behind the last close, of mappings.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::nodes::Node;
use super::open_file::Leaving;

/// As many as lanes have something to do; more would wait for those.
const THREADS: usize = 4;

/// More would only be open with the metadata server for longer.
const WAITING_MAX: usize = 64;

type Job = (Arc<Node>, Leaving);

/// The line, and its end.
#[derive(Debug, Default)]
pub(super) struct Closer {
    state: Mutex<State>,
    /// For one thread: a job came, or it is the end.
    wakes: Condvar,
    /// Nothing is left.
    rests: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    busy: usize,
    stopped: bool,
}

impl State {
    fn is_at_rest(&self) -> bool {
        self.busy == 0 && self.jobs.is_empty()
    }
}

impl Closer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether closes that somebody could wait for may be left to the threads.
    pub(super) fn has_room(&self) -> bool {
        self.lock().jobs.len() < WAITING_MAX
    }

    /// Bounded by what the kernel has open.
    pub(super) fn submit(&self, node: Arc<Node>, leaving: Leaving) {
        self.lock().jobs.push_back((node, leaving));
        self.wakes.notify_one();
    }

    /// Returns when nothing is left to be closed; the threads end.
    pub(super) fn drain(&self) {
        let mut state = self.lock();
        while !state.is_at_rest() {
            state = self.rests.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.stopped = true;
        self.wakes.notify_all();
    }

    /// Starts the threads; each job is done by `finish`.
    pub(super) fn start<F>(this: &Arc<Self>, finish: &F) -> std::io::Result<()>
    where
        F: Fn(&Arc<Node>, &Leaving) + Clone + Send + 'static,
    {
        for number in 0..THREADS {
            let (closer, finish) = (Arc::clone(this), finish.clone());
            let builder = std::thread::Builder::new().name(format!("hayase-close-{number}"));
            builder.spawn(move || closer.work(finish))?;
        }
        Ok(())
    }

    fn work(&self, finish: impl Fn(&Arc<Node>, &Leaving)) {
        let mut state = self.lock();
        loop {
            if let Some((node, leaving)) = state.jobs.pop_front() {
                state.busy += 1;
                drop(state);
                finish(&node, &leaving);
                state = self.lock();
                state.busy -= 1;
                if state.is_at_rest() {
                    self.rests.notify_all();
                }
            } else if state.stopped {
                return;
            } else {
                state = self.wakes.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}
