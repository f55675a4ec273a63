//! Locks of a whole file by fcntl(2), through a mount: alone, taken from hand to hand, or waited for.
//!
//! Moments are those of the machine's monotonic clock, which all simulated nodes share.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::sample::Measured;
use crate::stopwatch::Stopwatch;

/// Lock and unlock a file that nobody else wants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Alone {
    /// The file.
    pub(crate) path: PathBuf,
    /// How long at least.
    pub(crate) milliseconds: u64,
}

/// Take turns with another program that does the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HandOver {
    /// The file.
    pub(crate) path: PathBuf,
    /// How often it is held.
    pub(crate) turns: u32,
    /// How long each time: the other one waits by then.
    pub(crate) hold_milliseconds: u64,
}

/// When a lock was held, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    /// The call that took it returned.
    pub(crate) from: u64,
    /// The call that gave it up began.
    pub(crate) until: u64,
}

/// Calls between two looks at the clock.
const CALLS: u32 = 64;

impl Alone {
    /// The amount is the number of calls, locks and unlocks alike.
    pub(crate) fn run(&self) -> anyhow::Result<Measured> {
        let file = open(&self.path)?;
        lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        lock(&file, FlockOperation::Unlock)?;
        let mut watch = Stopwatch::default();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(self.milliseconds) {
            let lap = Stopwatch::start();
            for _ in 0..CALLS / 2 {
                lock(&file, FlockOperation::NonBlockingLockExclusive)?;
                lock(&file, FlockOperation::Unlock)?;
            }
            watch.stop(&lap, f64::from(CALLS));
        }
        Ok(watch.measured())
    }
}

impl HandOver {
    /// All turns, in their order.
    pub(crate) fn run(&self) -> anyhow::Result<Vec<Held>> {
        let file = open(&self.path)?;
        let mut turns = Vec::new();
        for _ in 0..self.turns {
            lock(&file, FlockOperation::LockExclusive)?;
            let from = now();
            std::thread::sleep(Duration::from_millis(self.hold_milliseconds));
            turns.push(Held { from, until: now() });
            lock(&file, FlockOperation::Unlock)?;
        }
        Ok(turns)
    }
}

/// Times between one's release and the next one's hold, in seconds, of turns of several programs; only where the
/// lock went to another program, who was waiting.
pub(crate) fn hand_overs(programs: &[Vec<Held>]) -> Vec<f64> {
    let numbered = programs.iter().enumerate();
    let mut all: Vec<(Held, usize)> = numbered
        .flat_map(|(program, held)| held.iter().map(move |held| (*held, program)))
        .collect();
    all.sort_unstable_by_key(|(held, _)| held.from);
    let pairs = all.windows(2).filter(|pair| pair[0].1 != pair[1].1);
    pairs.map(|pair| pair[1].0.from.saturating_sub(pair[0].0.until) as f64 / 1e9).collect()
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

fn open(path: &std::path::Path) -> anyhow::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    file.with_context(|| format!("open {}", path.display()))
}

fn lock(file: &File, operation: FlockOperation) -> anyhow::Result<()> {
    fcntl_lock(file, operation).context("lock or unlock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_goes_to_another_is_handed_over() {
        let held = |from, until| Held { from, until };
        let one = vec![held(0, 1_000_000_000), held(6_000_000_000, 7_000_000_000)];
        let other = vec![held(2_000_000_000, 3_000_000_000), held(4_000_000_000, 5_000_000_000)];
        assert_eq!(hand_overs(&[one, other]), [1.0, 1.0]);
        assert!(hand_overs(&[]).is_empty());
    }
}
