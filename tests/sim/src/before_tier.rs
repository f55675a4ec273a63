//! What stands between a server and its tier: calls that fail, and a call in whose middle the server dies.
//!
//! A server that is dead reaches the tier no more, whatever it does before its task is dropped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hayase_tier::flaky::{Call, Fault};
use hayase_tier::{Action, Flaky, Memory, Tier};

use crate::crash_point::Pulse;
use crate::random::Random;

/// See the module. Outlives its servers.
pub(crate) struct BeforeTier {
    random: Mutex<Random>,
    /// Of 100 calls.
    failing: AtomicU64,
    /// Whatever would make a new version.
    fails_writes: AtomicBool,
    /// Moments until the server dies, each call has two; 0: it does not.
    left: AtomicU64,
}

impl Default for BeforeTier {
    fn default() -> Self {
        let (failing, left) = (AtomicU64::new(0), AtomicU64::new(0));
        let fails_writes = AtomicBool::new(false);
        Self { random: Mutex::new(Random::new(0)), failing, fails_writes, left }
    }
}

impl BeforeTier {
    /// From now on so many of 100 calls fail, chosen by these.
    pub(crate) fn fail(&self, of_100: u64, random: Random) {
        *self.random.lock().unwrap_or_else(PoisonError::into_inner) = random;
        self.failing.store(of_100, Ordering::Relaxed);
    }

    /// From now on no new version can be begun.
    pub(crate) fn fail_writes(&self) {
        self.fails_writes.store(true, Ordering::Relaxed);
    }

    /// The server dies at this moment from now on: 1 is the next one.
    pub(crate) fn die_at(&self, moments: u64) {
        self.left.store(moments, Ordering::Relaxed);
    }

    /// From now on nothing happens.
    pub(crate) fn disarm(&self) {
        self.failing.store(0, Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
    }

    /// The tier as one life of the server sees it.
    pub(crate) fn of(self: &Arc<Self>, tier: &Memory, pulse: &Arc<Pulse>) -> Arc<dyn Tier> {
        let (this, pulse) = (Arc::clone(self), Arc::clone(pulse));
        Arc::new(Flaky::new(tier.clone(), move |call| this.fault(&pulse, call)))
    }

    fn fault(&self, pulse: &Pulse, call: Call) -> Option<Fault> {
        if !pulse.is_alive() {
            return Some(Fault::Unavailable);
        }
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 1 {
            pulse.stop();
            return Some(Fault::Unavailable);
        }
        if self.fails_writes.load(Ordering::Relaxed) && call == Call::Begun(Action::Begin) {
            return Some(Fault::Io);
        }
        let random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        if !random.chance(self.failing.load(Ordering::Relaxed)) {
            return None;
        }
        // What was done can only be unknown; what was not begun can be refused in any way.
        let all = [Fault::Unavailable, Fault::Io, Fault::Full, Fault::Quota, Fault::Denied];
        let possible = if matches!(call, Call::Begun(_)) { &all[..] } else { &all[..2] };
        Some(*random.pick(possible))
    }
}
