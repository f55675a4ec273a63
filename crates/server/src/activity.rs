//! What a server has done: counters, and what they were before ([`history`]).
//!
//! Not here: what `hayase status` shows besides (`status`).

mod history;

use std::cell::{Cell, RefCell};

use hayase_wire::message::Sample;

use self::history::History;

/// Since the server was started.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) bytes_gathered: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Activity {
    counts: Cell<Counts>,
    history: RefCell<History>,
}

impl Activity {
    pub(crate) fn counts(&self) -> Counts {
        self.counts.get()
    }

    /// One more request, of a process or another server.
    pub(crate) fn request(&self) {
        let counts = self.counts.get();
        self.counts.set(Counts { requests: counts.requests + 1, ..counts });
    }

    pub(crate) fn bytes_read(&self, bytes: u64) {
        let counts = self.counts.get();
        self.counts.set(Counts { bytes_read: counts.bytes_read + bytes, ..counts });
    }

    pub(crate) fn bytes_written(&self, bytes: u64) {
        let counts = self.counts.get();
        self.counts.set(Counts { bytes_written: counts.bytes_written + bytes, ..counts });
    }

    pub(crate) fn bytes_gathered(&self, bytes: u64) {
        let counts = self.counts.get();
        self.counts.set(Counts { bytes_gathered: counts.bytes_gathered + bytes, ..counts });
    }

    /// Adds a look. `see` is asked for what is not counted here: whether it may cost something, and what the look before saw.
    pub(crate) fn look(&self, at_ms: u64, see: impl FnOnce(bool, Sample) -> Sample) {
        let (is_due, before) = {
            let history = self.history.borrow();
            (history.is_due(at_ms), history.newest().unwrap_or_default())
        };
        let Counts { requests, bytes_read, bytes_written, .. } = self.counts();
        let sample = Sample { at_ms, requests, bytes_read, bytes_written, ..see(is_due, before) };
        self.history.borrow_mut().look(sample);
    }

    /// What the last look saw.
    pub(crate) fn newest(&self) -> Option<Sample> {
        self.history.borrow().newest()
    }

    /// All looks that were kept, oldest first.
    pub(crate) fn looks(&self) -> Vec<Sample> {
        self.history.borrow().all()
    }
}
