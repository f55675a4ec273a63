//! Progress of long work, on a terminal only: phase, percent, bytes, files, rate and time left.
//!
//! Here: one bar for all commands, and its words. Not here: whether it is shown ([`super::arguments`]).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hayase_layout::ByteCount;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::count::counted;
use crate::moment;

/// Work shorter than this shows nothing.
const QUIET: Duration = Duration::from_millis(300);

/// The rate is that of so long: an older one says nothing of what comes.
const RATE_SPAN: Duration = Duration::from_secs(5);

/// Looks at the rate are that far apart; closer ones are not remembered.
const LOOK_GAP: Duration = Duration::from_millis(RATE_SPAN.as_millis() as u64 / 64);

/// What is shown stays at least so long.
const SHOWN_MIN: Duration = Duration::from_millis(50);

/// Positions on the bar.
const LENGTH: u64 = 1000;

/// How far work is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stand {
    /// Bytes that have arrived.
    pub(crate) bytes: u64,
    /// Bytes in all; 0 where they are not counted, or not known yet.
    pub(crate) bytes_total: u64,
    /// Files, nodes or containers that are done.
    pub(crate) things: u64,
    /// Things in all.
    pub(crate) things_total: u64,
    /// What they are, in the singular; empty: only their share is shown.
    pub(crate) thing: &'static str,
    /// More may be found still.
    pub(crate) is_open: bool,
}

impl Stand {
    /// Thousandths that are done; `None` before that can be said.
    fn permille(&self) -> Option<u64> {
        let (done, total) = match self.bytes_total {
            0 => (self.things, self.things_total),
            total => (self.bytes, total),
        };
        let share = u128::from(done) * u128::from(LENGTH) / u128::from(total.max(1));
        let is_known = total > 0 && !self.is_open;
        is_known.then(|| share.min(LENGTH.into()) as u64)
    }

    /// `42 %  12 MiB of 30 MiB  3 of 17 files  5 MiB/s  4 s left`
    fn words(&self, rate: Option<u64>) -> String {
        let mut words = Vec::new();
        if let Some(permille) = self.permille() {
            words.push(format!("{} %", permille / 10));
        }
        let of = if self.is_open { "of at least" } else { "of" };
        if self.bytes_total > 0 {
            let bytes = self.bytes.min(self.bytes_total);
            words.push(format!("{} {of} {}", ByteCount(bytes), ByteCount(self.bytes_total)));
        }
        if self.things_total > 0 && !self.thing.is_empty() {
            let things = self.things.min(self.things_total);
            words.push(format!("{things} {of} {}", counted(self.things_total, self.thing)));
        }
        if let Some(rate) = rate.filter(|_| self.bytes_total > 0) {
            words.push(format!("{}/s", ByteCount(rate)));
            let left = self.bytes_total.saturating_sub(self.bytes);
            if rate > 0 && left > 0 && !self.is_open {
                words.push(format!("{} left", moment::span(left.div_ceil(rate))));
            }
        }
        words.join("  ")
    }
}

/// Bytes per second of the last looks.
#[derive(Debug, Default)]
struct Rate {
    looks: VecDeque<(Duration, u64)>,
}

impl Rate {
    /// `bytes` had arrived at `at`, since the begin. `None` until there are two looks.
    fn look(&mut self, at: Duration, bytes: u64) -> Option<u64> {
        let is_close = |(seen, _): &(Duration, u64)| at.saturating_sub(*seen) < LOOK_GAP;
        if !self.looks.back().is_some_and(is_close) {
            self.looks.push_back((at, bytes));
        }
        let is_old = |(seen, _): &(Duration, u64)| at.saturating_sub(*seen) > RATE_SPAN;
        while self.looks.get(1).is_some_and(is_old) {
            self.looks.pop_front();
        }
        let (first, before) = self.looks.front()?;
        let seconds = at.saturating_sub(*first).as_secs_f64();
        (seconds > 0.0).then(|| (bytes.saturating_sub(*before) as f64 / seconds) as u64)
    }
}

/// What was shown so far.
#[derive(Debug, Default)]
struct Shown {
    rate: Rate,
    last: Option<Duration>,
    /// How much is done of the whole is known, and drawn.
    has_bar: bool,
}

/// A bar that vanishes with its value.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    begin: Instant,
    shown: Mutex<Shown>,
    stand: Mutex<Stand>,
}

impl Progress {
    /// Of `phase`, a few words that say what is done: "flushing".
    pub(super) fn new(phase: &'static str, is_shown: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(LENGTH), ProgressDrawTarget::hidden());
        if is_shown {
            bar.set_style(style("{spinner} {prefix}  {wide_msg}"));
            bar.set_prefix(phase);
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        Self { bar, begin: Instant::now(), shown: Mutex::default(), stand: Mutex::default() }
    }

    /// Of `total` things that are counted one by one.
    pub(super) fn of(self, total: u64, thing: &'static str) -> Self {
        *held(&self.stand) = Stand { things_total: total, thing, ..Stand::default() };
        self
    }

    /// So far it is.
    pub(crate) fn show(&self, stand: Stand) {
        let elapsed = self.begin.elapsed();
        let mut shown = held(&self.shown);
        let rate = shown.rate.look(elapsed, stand.bytes);
        let is_fresh = shown.last.is_some_and(|last| elapsed.saturating_sub(last) < SHOWN_MIN);
        if self.bar.is_hidden() || elapsed < QUIET || is_fresh {
            return;
        }
        shown.last = Some(elapsed);
        if let Some(permille) = stand.permille() {
            if !shown.has_bar {
                self.bar.set_style(style("{prefix}  {wide_bar}  {msg}"));
                shown.has_bar = true;
            }
            self.bar.set_position(permille);
        }
        self.bar.set_message(stand.words(rate));
        self.bar.tick();
    }

    /// So many bytes of `total`.
    pub(crate) fn bytes(&self, done: u64, total: u64) {
        self.show(Stand { bytes: done, bytes_total: total, ..Stand::default() });
    }

    /// So many things are done.
    pub(crate) fn set(&self, done: u64) {
        let mut stand = held(&self.stand);
        stand.things = done;
        self.show(*stand);
    }

    /// One more thing is done.
    pub(crate) fn step(&self) {
        let mut stand = held(&self.stand);
        stand.things += 1;
        self.show(*stand);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// What is shown is worth no panic.
fn held<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are constants")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn copy(bytes: u64, files: u64, is_open: bool) -> Stand {
        let (bytes, bytes_total) = (bytes * MIB, 30 * MIB);
        Stand { bytes, bytes_total, things: files, things_total: 17, thing: "file", is_open }
    }

    #[test]
    fn a_bar_says_how_much_how_fast_and_how_long() {
        let words = |stand: Stand, rate: u64| stand.words(Some(rate * MIB));
        assert_eq!(
            words(copy(12, 3, false), 5),
            "40 %  12 MiB of 30 MiB  3 of 17 files  5 MiB/s  4 s left"
        );
        assert_eq!(
            words(copy(30, 17, false), 5),
            "100 %  30 MiB of 30 MiB  17 of 17 files  5 MiB/s"
        );
        // What arrives can be more than was expected.
        assert_eq!(
            words(copy(31, 18, false), 5),
            "100 %  30 MiB of 30 MiB  17 of 17 files  5 MiB/s"
        );
        // Nothing moves: no end is promised.
        assert_eq!(words(copy(12, 3, false), 0), "40 %  12 MiB of 30 MiB  3 of 17 files  0 B/s");
    }

    #[test]
    fn nothing_is_said_of_a_whole_that_is_not_known() {
        assert_eq!(
            copy(12, 3, true).words(Some(5 * MIB)),
            "12 MiB of at least 30 MiB  3 of at least 17 files  5 MiB/s"
        );
        assert_eq!(Stand { is_open: true, ..Stand::default() }.words(Some(0)), "");
        assert_eq!(Stand::default().words(None), "");
    }

    #[test]
    fn things_without_bytes_are_counted() {
        let nodes = Stand { things: 1, things_total: 3, thing: "node", ..Stand::default() };
        assert_eq!(nodes.words(Some(0)), "33 %  1 of 3 nodes");
        let share = Stand { things: 7, things_total: 100, ..Stand::default() };
        assert_eq!(share.words(None), "7 %");
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut rate = Rate::default();
        let mut look = |second, bytes| rate.look(Duration::from_secs(second), bytes);
        assert_eq!(look(0, 0), None);
        assert_eq!(look(2, 200), Some(100));
        assert_eq!(look(4, 400), Some(100));
        // It stands: soon nothing is left of the rate before.
        assert_eq!([look(8, 400), look(12, 400)], [Some(33), Some(0)]);
    }

    #[test]
    fn many_looks_do_not_shorten_the_time_of_the_rate() {
        let mut rate = Rate::default();
        // 100 bytes each millisecond, and nothing in the last second.
        let looks = (0..=6000_u64).map(|ms| (Duration::from_millis(ms), 100 * ms.min(5000)));
        let found = looks.map(|(at, bytes)| rate.look(at, bytes)).last().flatten();
        assert!(found.is_some_and(|rate| (79_000..82_000).contains(&rate)), "{found:?}");
        assert!(rate.looks.len() < 70, "{}", rate.looks.len());
    }
}
