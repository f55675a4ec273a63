//! A disk that a server waits for when it starts, for as long as a test likes, and that may lose what was not synced.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hayase_store::area::CountedArea;
use hayase_store::{Area, AreaError, AreaUsage, CrashDevice, Device, PartError};

use super::slow_disk::{SlowDevice, SlowDisk};

/// Open at first.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    waiting: usize,
}

impl Gate {
    /// From now on a server that opens its storage waits.
    pub(crate) fn close(&self) {
        self.state.lock().expect("no holder panics").is_closed = true;
    }

    /// Nobody waits any more.
    pub(crate) fn open(&self) {
        self.state.lock().expect("no holder panics").is_closed = false;
        self.changed.notify_all();
    }

    /// Returns when a call waits at the gate; fails after 30 s.
    pub(crate) fn until_somebody_waits(&self) {
        let state = self.state.lock().expect("no holder panics");
        let nobody = |state: &mut State| state.waiting == 0;
        let waited = self.changed.wait_timeout_while(state, Duration::from_secs(30), nobody);
        assert!(!waited.expect("no holder panics").1.timed_out(), "nobody waits at the gate");
    }

    pub(super) fn pass(&self) {
        let mut state = self.state.lock().expect("no holder panics");
        state.waiting += 1;
        self.changed.notify_all();
        let mut state =
            self.changed.wait_while(state, |state| state.is_closed).expect("no holder panics");
        state.waiting -= 1;
    }
}

/// An area behind a gate.
pub(crate) struct Gated {
    pub(crate) area: CountedArea,
    pub(crate) gate: Arc<Gate>,
    /// In the place of its own.
    pub(crate) parts: Option<Arc<CrashDevice>>,
    /// Below its files, if it is to be one.
    pub(crate) slow: Option<Arc<SlowDisk>>,
}

impl Gated {
    fn slowed(&self, files: Arc<dyn Device>) -> Arc<dyn Device> {
        match &self.slow {
            Some(disk) => Arc::new(SlowDevice { files, disk: Arc::clone(disk) }),
            None => files,
        }
    }
}

impl Area for Gated {
    fn root(&self) -> &Path {
        self.area.root()
    }

    fn kind(&self) -> &'static str {
        self.area.kind()
    }

    fn usage(&self) -> Result<AreaUsage, AreaError> {
        self.area.usage()
    }

    fn overwrites_in_place(&self) -> bool {
        self.area.overwrites_in_place()
    }

    fn parts(&self) -> Result<Arc<dyn Device>, PartError> {
        self.gate.pass();
        let parts = match &self.parts {
            Some(parts) => Arc::clone(parts) as Arc<dyn Device>,
            None => self.area.parts()?,
        };
        Ok(self.slowed(parts))
    }

    fn ledger_device(&self) -> Result<Arc<dyn Device>, PartError> {
        Ok(self.slowed(self.area.ledger_device()?))
    }
}
