//! What is gathered of one file.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hayase_wire::message::Access;

use super::recalled::Recalled;
use crate::gathered::Gathered;
use crate::limits::GATHER_WAIT;

/// Of one file.
#[derive(Debug)]
pub(in crate::volume::area) struct FileGathering {
    gathered: Mutex<Gathered>,
    /// Calls under way that may move the end of the file.
    moving_end: AtomicUsize,
    /// The home may have forgotten it, or given up: nothing more is taken into the window that is there.
    is_void: AtomicBool,
    /// Closes that wait until a window that the home did not take is gone; changed under the file's lock.
    closes: Mutex<Vec<Access>>,
    recalled: Recalled,
}

impl FileGathering {
    pub(super) fn new(window_max: usize) -> Self {
        Self {
            gathered: Mutex::new(Gathered::new(window_max)),
            moving_end: AtomicUsize::new(0),
            is_void: AtomicBool::new(false),
            closes: Mutex::default(),
            recalled: Recalled::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does not wait: under the file's lock a window may be on its way to its home.
    pub(super) fn may_have_window(&self) -> bool {
        self.gathered.try_lock().map_or(true, |gathered| gathered.window().is_some())
    }

    fn lock_closes(&self) -> MutexGuard<'_, Vec<Access>> {
        self.closes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn delayed_closes(&self) -> Vec<Access> {
        std::mem::take(&mut *self.lock_closes())
    }

    /// Until the result is dropped the end of the file is not known here.
    pub(super) fn moves_end(self: &Arc<Self>) -> MovesEnd {
        self.moving_end.fetch_add(1, Ordering::SeqCst);
        MovesEnd(Arc::clone(self))
    }

    /// Whether calls are under way that may move the end of the file.
    pub(super) fn is_end_moving(&self) -> bool {
        self.moving_end.load(Ordering::SeqCst) > 0
    }

    /// This close happens when a window that the home did not take is gone; under the file's lock.
    pub(super) fn delay_close(&self, access: Access) {
        self.lock_closes().push(access);
    }

    /// When its window is due, if it has one; where the file's lock is held, a whole wait from now.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.gathered.try_lock() {
            Ok(gathered) => gathered.window().map(|window| window.due),
            Err(_) => Some(Instant::now() + GATHER_WAIT),
        }
    }

    /// The thread that hands on what the home recalled.
    pub(super) fn recalled(&self) -> &Recalled {
        &self.recalled
    }

    /// Whether the home may have forgotten the window that is there.
    pub(super) fn is_void(&self) -> bool {
        self.is_void.load(Ordering::SeqCst)
    }

    /// The home knows of a window, or of its end.
    pub(super) fn is_agreed(&self) {
        self.is_void.store(false, Ordering::SeqCst);
    }

    /// The home may have forgotten the window that is there.
    pub(in crate::volume::area) fn make_void(&self) {
        self.is_void.store(true, Ordering::SeqCst);
    }
}

/// See [`FileGathering::moves_end`].
pub(in crate::volume::area) struct MovesEnd(Arc<FileGathering>);

impl Drop for MovesEnd {
    fn drop(&mut self) {
        self.0.moving_end.fetch_sub(1, Ordering::SeqCst);
    }
}
