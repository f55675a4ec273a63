//! The frame of a loop: when it ends, what it counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Report, Until};
use crate::actor::errno;
use crate::actor::table::Table;

/// Violations that are told in words.
const EXAMPLES_MAX: usize = 8;

pub(super) struct Run<'a> {
    table: &'a Table,
    until: Until,
    start: Instant,
    resets: u64,
    report: Report,
    clock: Clock,
}

impl<'a> Run<'a> {
    pub(super) fn new(table: &'a Table, until: Until) -> Self {
        let (start, resets) = (Instant::now(), table.resets());
        Self { table, until, start, resets, report: Report::default(), clock: Clock::start() }
    }

    /// The number of the next round, or the end.
    pub(super) fn next(&mut self) -> Option<u64> {
        let raised = self.until.flag.as_ref().is_some_and(|flag| self.table.is_raised(flag));
        let seconds = self.start.elapsed().as_secs_f64();
        let may_end = self.report.rounds >= self.until.least;
        let over = self.report.rounds >= self.until.count
            || (may_end && (raised || seconds >= self.until.seconds))
            || self.table.resets() != self.resets
            || seconds >= self.until.seconds_max();
        if over {
            return None;
        }
        self.report.rounds += 1;
        Some(self.report.rounds - 1)
    }

    /// The last round was none.
    pub(super) const fn take_back(&mut self) {
        self.report.rounds -= 1;
    }

    /// A round that went well, or its errno counted.
    pub(super) fn count<T>(&mut self, result: Result<T, Errno>) -> Option<T> {
        match result {
            Ok(value) => {
                self.report.good += 1;
                Some(value)
            }
            Err(error) => {
                *self.report.errors.entry(errno::name(error)).or_default() += 1;
                None
            }
        }
    }

    pub(super) fn violation(&mut self, text: impl Into<String>) {
        self.report.violations += 1;
        if self.report.examples.len() < EXAMPLES_MAX {
            self.report.examples.push(text.into());
        }
    }

    /// Measures one call.
    pub(super) fn timed<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = call();
        let micros = start.elapsed().as_micros() as u64;
        self.report.slowest_us = self.report.slowest_us.max(micros);
        result
    }

    pub(super) const fn rounds_left(&self) -> u64 {
        self.until.count.saturating_sub(self.report.rounds)
    }

    /// For threads that share the work of one loop.
    pub(super) fn part(&self, count: u64) -> Self {
        let least = self.until.least.min(count);
        Self::new(self.table, Until { count, least, ..self.until.clone() })
    }

    pub(super) fn join(&mut self, part: Report) {
        self.report.rounds += part.rounds;
        self.report.good += part.good;
        self.report.slowest_us = self.report.slowest_us.max(part.slowest_us);
        for (name, count) in part.errors {
            *self.report.errors.entry(name).or_default() += count;
        }
        self.report.violations += part.violations;
        self.report.examples.extend(part.examples);
        self.report.examples.truncate(EXAMPLES_MAX);
    }

    pub(super) fn finish(mut self) -> Report {
        self.report.unscheduled_us = self.clock.stop();
        self.report.millis = self.start.elapsed().as_millis() as u64;
        self.report
    }
}

/// A thread that only sleeps, to know how long this machine lets a thread wait for a processor.
struct Clock {
    stop: Arc<AtomicBool>,
    worst: Arc<AtomicU64>,
}

impl Clock {
    fn start() -> Self {
        const TICK: Duration = Duration::from_millis(2);
        let (stop, worst) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop_seen, worst_seen) = (Arc::clone(&stop), Arc::clone(&worst));
        std::thread::spawn(move || {
            while !stop_seen.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::sleep(TICK);
                let late = before.elapsed().saturating_sub(TICK).as_micros() as u64;
                worst_seen.fetch_max(late, Ordering::Relaxed);
            }
        });
        Self { stop, worst }
    }

    fn stop(&self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.worst.load(Ordering::Relaxed)
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
