//! Windows of all files together: how many there are, their memory, and when the next is due.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hayase_layout::ServerId;

use crate::limits::{GATHER_FILES_MAX, GATHER_SPARE};

/// Of all files together.
#[derive(Debug, Default)]
pub(in crate::volume::area) struct Windows {
    windows: AtomicUsize,
    /// Calls under way that set the length of any file.
    cuts: AtomicUsize,
    /// Memory of windows that have ended.
    spare: Mutex<Vec<Vec<u8>>>,
    timer: Mutex<Timer>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Timer {
    /// Homes to which a thread hands on what is due.
    busy: BTreeSet<ServerId>,
    /// The oldest window is to be handed on then.
    due: Option<Instant>,
    stopped: bool,
}

impl Windows {
    /// Whether anything is gathered, or being handed on.
    pub(in crate::volume::area) fn is_any(&self) -> bool {
        self.windows.load(Ordering::SeqCst) > 0
    }

    /// Until the result is dropped, no file's end is known here.
    pub(in crate::volume::area) fn cuts(&self) -> Cuts<'_> {
        self.cuts.fetch_add(1, Ordering::SeqCst);
        Cuts(self)
    }

    /// Whether calls are under way that set the length of any file.
    pub(super) fn are_cut(&self) -> bool {
        self.cuts.load(Ordering::SeqCst) > 0
    }

    /// One window more, unless there are too many.
    pub(super) fn add(&self) -> bool {
        let more = |windows| (windows < GATHER_FILES_MAX).then_some(windows + 1);
        self.windows.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    pub(super) fn remove(&self) {
        self.windows.fetch_sub(1, Ordering::SeqCst);
    }

    /// Memory for a window: what was used before costs no new pages.
    pub(super) fn memory(&self) -> Vec<u8> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_default()
    }

    pub(super) fn keep_memory(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < GATHER_SPARE {
            spare.push(bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Timer> {
        self.timer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is handed on then at the latest.
    pub(super) fn is_due(&self, due: Instant) {
        let mut timer = self.lock();
        if timer.due.is_none_or(|before| due < before) {
            timer.due = Some(due);
            self.changed.notify_one();
        }
    }

    pub(in crate::volume::area) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Whether `home` had no thread; now it has one.
    pub(super) fn begins_at(&self, home: ServerId) -> bool {
        self.lock().busy.insert(home)
    }

    pub(super) fn ended_at(&self, home: ServerId) {
        self.lock().busy.remove(&home);
    }

    /// Sleeps until something is due; false when it is over.
    pub(super) fn until_due(&self) -> bool {
        let mut timer = self.lock();
        loop {
            if timer.stopped {
                return false;
            }
            let left = timer.due.map(|due| due.saturating_duration_since(Instant::now()));
            timer = match left {
                Some(Duration::ZERO) => {
                    timer.due = None;
                    return true;
                }
                Some(left) => {
                    let woken = self.changed.wait_timeout(timer, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(timer).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// See [`Windows::cuts`].
pub(in crate::volume::area) struct Cuts<'a>(&'a Windows);

impl Drop for Cuts<'_> {
    fn drop(&mut self) {
        self.0.cuts.fetch_sub(1, Ordering::SeqCst);
    }
}
