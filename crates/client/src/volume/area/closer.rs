//! When closes that lingered are due, and mappings are to be refreshed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hayase_layout::InodeId;

use crate::limits::{CLOSE_BATCH_MAX, CLOSE_BATCH_WAIT, LINGERING_MAX, MAPPING_LOOK};

/// The queue of both threads.
#[derive(Debug)]
pub(super) struct Closer {
    state: Mutex<State>,
    sooner: Condvar,
    remote: Condvar,
    /// Looks happen at multiples of [`CLOSE_BATCH_WAIT`] from here.
    began: Instant,
    /// What lingers may keep a descriptor: no more of them than a part of what the process may have.
    lingering_max: usize,
}

#[derive(Debug, Default)]
struct State {
    due: BinaryHeap<Reverse<(Instant, InodeId)>>,
    /// The refresher sleeps until a remote open.
    refresher_sleeps: bool,
    stopped: bool,
}

impl Default for Closer {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            sooner: Condvar::new(),
            remote: Condvar::new(),
            began: Instant::now(),
            lingering_max: descriptors_max()
                .map_or(LINGERING_MAX, |max| LINGERING_MAX.min(max / 4)),
        }
    }
}

fn descriptors_max() -> Option<usize> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.and_then(|max| usize::try_from(max).ok())
}

impl Closer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at `ino` at `due` or a little later, together with others; at once when that is now or
    /// too much lingers. Tells when.
    pub(super) fn push(&self, due: Instant, ino: InodeId) -> Instant {
        let now = Instant::now();
        let due = if due > now { self.next_look(due) } else { due };
        let mut state = self.lock();
        let due = if state.due.len() < self.lingering_max { due } else { now };
        let is_first = state.due.peek().is_none_or(|Reverse((first, _))| due < *first);
        state.due.push(Reverse((due, ino)));
        if is_first {
            self.sooner.notify_one();
        }
        due
    }

    /// Too much lingers for anything more to do so.
    pub(super) fn is_crowded(&self) -> bool {
        self.lock().due.len() >= self.lingering_max
    }

    fn next_look(&self, due: Instant) -> Instant {
        let step = CLOSE_BATCH_WAIT.as_nanos() as u64;
        let since = due.saturating_duration_since(self.began).as_nanos() as u64;
        self.began + Duration::from_nanos(since.next_multiple_of(step))
    }

    pub(super) fn remote_opened(&self) {
        let mut state = self.lock();
        if std::mem::take(&mut state.refresher_sleeps) {
            self.remote.notify_one();
        }
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.sooner.notify_all();
        self.remote.notify_all();
    }

    /// Sleeps until something is due; `None` when it is over.
    pub(super) fn next_due(&self) -> Option<Vec<(Instant, InodeId)>> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            let now = Instant::now();
            let mut ripe = Vec::new();
            while ripe.len() < CLOSE_BATCH_MAX
                && state.due.peek().is_some_and(|Reverse((due, _))| *due <= now)
            {
                ripe.extend(state.due.pop().map(|Reverse(entry)| entry));
            }
            if !ripe.is_empty() {
                return Some(ripe);
            }
            state = match state.due.peek() {
                Some(Reverse((due, _))) => {
                    let wait = due.saturating_duration_since(now);
                    let woken = self.sooner.wait_timeout(state, wait);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.sooner.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Sleeps until the next look, or until there is a remote open at all; false when it is over.
    pub(super) fn next_refresh(&self, has_remote: impl Fn() -> bool) -> bool {
        let mut state = self.lock();
        let until = Instant::now() + MAPPING_LOOK;
        loop {
            if state.stopped {
                return false;
            }
            let now = Instant::now();
            let has_remote = has_remote();
            if has_remote && now >= until {
                return true;
            }
            state.refresher_sleeps = !has_remote;
            state = if has_remote {
                let woken = self.remote.wait_timeout(state, until - now);
                woken.unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.remote.wait(state).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_soon_after_each_other_is_looked_at_together() {
        let closer = Closer { lingering_max: 100, ..Closer::default() };
        let look = closer.next_look(Instant::now() + Duration::from_secs(1));
        for before in [1, 2, CLOSE_BATCH_WAIT.as_nanos() as u64 - 1] {
            assert_eq!(closer.push(look - Duration::from_nanos(before), InodeId(before)), look);
        }
        let next = closer.push(look + Duration::from_nanos(1), InodeId(7));
        assert_eq!(next, look + CLOSE_BATCH_WAIT);
        assert_eq!((look - closer.began).as_nanos() % CLOSE_BATCH_WAIT.as_nanos(), 0);
    }

    #[test]
    fn beyond_the_bound_nothing_lingers() {
        let closer = Closer { lingering_max: 2, ..Closer::default() };
        let later = Instant::now() + Duration::from_secs(3600);
        for ino in 1..=2 {
            assert!(!closer.is_crowded());
            assert!(closer.push(later, InodeId(ino)) >= later);
        }
        assert!(closer.is_crowded());
        assert!(closer.push(later, InodeId(3)) <= Instant::now());
        assert_eq!(closer.next_due().map(|ripe| ripe.len()), Some(1), "and only the one too many");
        closer.stop();
        assert_eq!(closer.next_due(), None);
    }
}
