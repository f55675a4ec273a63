//! What was gathered of a file that its home asks for.
//!
//! Here: a thread for each such file, so that a home that hangs, or does not take it, holds up no answer to another
//! one: the threads that answer are few. Not here: what handing on is ([`super`]).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, sleep};
use std::time::Instant;

use hayase_layout::InodeId;

use super::Gatherer;
use crate::limits::{GATHER_ANSWER_WAIT, GATHER_RECALL_PAUSE, GATHER_RECALL_WAIT};

/// Of one file: its thread, if there is one.
#[derive(Debug, Default)]
pub(super) struct Recalled {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_under_way: bool,
    /// Of the last one: nothing was left.
    is_done: bool,
}

impl Recalled {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the caller is to do it.
    fn begins(&self) -> bool {
        !std::mem::replace(&mut self.lock().is_under_way, true)
    }

    fn ends(&self, is_done: bool) {
        *self.lock() = State { is_under_way: false, is_done };
        self.ended.notify_all();
    }

    /// Waits for its end, [`GATHER_ANSWER_WAIT`] at most; whether nothing is left.
    fn is_done_in_time(&self) -> bool {
        let waited = self
            .ended
            .wait_timeout_while(self.lock(), GATHER_ANSWER_WAIT, |state| state.is_under_way);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.is_under_way && state.is_done
    }
}

impl Gatherer {
    /// Whether what was gathered of a file is at its home, or known to be lost, when this returns. What takes longer than
    /// [`GATHER_ANSWER_WAIT`] goes on by itself, and who asks is to ask again.
    pub(in crate::volume::area) fn hand_on_recalled(self: &Arc<Self>, ino: InodeId) -> bool {
        let Some(file) = self.file_gathering(ino).filter(|file| file.may_have_window()) else {
            return true;
        };
        let begins = file.recalled().begins();
        if begins {
            let (gatherer, of) = (Arc::clone(self), Arc::clone(&file));
            let hand_on = move || of.recalled().ends(gatherer.hand_on_until_taken(ino));
            let begun = Builder::new().name("hayase-recalled".to_owned()).spawn(hand_on);
            if let Err(error) = begun {
                tracing::warn!(%error, "start a thread that hands on what was gathered");
                file.recalled().ends(false);
            }
        }
        // One that others began may have ended before what is there now was taken.
        file.recalled().is_done_in_time() && (begins || !file.may_have_window())
    }

    fn hand_on_until_taken(&self, ino: InodeId) -> bool {
        let until = Instant::now() + GATHER_RECALL_WAIT;
        while self.hand_on_untold(ino).is_err() {
            if Instant::now() + GATHER_RECALL_PAUSE > until {
                return false;
            }
            sleep(GATHER_RECALL_PAUSE);
        }
        true
    }
}
