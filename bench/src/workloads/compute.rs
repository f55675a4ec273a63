//! A computation that uses one core and no memory to speak of: a fixed number of steps.

use std::hint::black_box;

use anyhow::Context;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::sample::Measured;
use crate::stopwatch::Stopwatch;

/// Some milliseconds.
const STEPS: u64 = 1 << 23;

/// So many pieces of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Compute {
    /// The core that it stays on.
    pub(crate) core: usize,
    /// How many pieces.
    pub(crate) pieces: u64,
}

impl Compute {
    /// Computes; the pieces are the amount.
    pub(crate) fn run(&self) -> anyhow::Result<Measured> {
        let mut core = CpuSet::new();
        core.set(self.core);
        sched_setaffinity(None, &core).with_context(|| format!("stay on core {}", self.core))?;
        let mut watch = Stopwatch::default();
        let lap = Stopwatch::start();
        let mut state = 1_u64;
        for _ in 0..self.pieces * STEPS {
            state = black_box(state).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        black_box(state);
        watch.stop(&lap, self.pieces as f64);
        Ok(watch.measured())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_take_their_time() {
        let found = Compute { core: 0, pieces: 2 }.run().unwrap();
        assert_eq!(found.amount, 2.0);
        assert!(found.seconds > 0.0 && found.own_cpu > 0.0, "{found:?}");
    }
}
