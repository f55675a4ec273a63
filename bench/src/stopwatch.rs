//! Time and CPU time of the parts of a workload that count; what lies between them does not.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::sample::Measured;

/// Adds up laps.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    elapsed: Duration,
    cpu: f64,
    amount: f64,
}

/// A lap that is being run.
#[derive(Debug)]
pub(crate) struct Lap {
    begin: Instant,
    cpu: f64,
}

impl Stopwatch {
    /// Begins a lap.
    pub(crate) fn start() -> Lap {
        Lap { cpu: own_cpu(), begin: Instant::now() }
    }

    /// Ends it: so many bytes or operations were done.
    pub(crate) fn stop(&mut self, lap: &Lap, amount: f64) {
        self.elapsed += lap.begin.elapsed();
        self.cpu += own_cpu() - lap.cpu;
        self.amount += amount;
    }

    /// Time of all laps.
    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// What was measured.
    pub(crate) fn measured(&self) -> Measured {
        Measured { amount: self.amount, seconds: self.elapsed.as_secs_f64(), own_cpu: self.cpu }
    }
}

/// CPU seconds of this process, all threads.
fn own_cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
