//! Progress of long work, on a terminal only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work shorter than this shows nothing.
const QUIET: Duration = Duration::from_millis(300);

/// A bar that vanishes with its value.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    begin: std::time::Instant,
}

impl Progress {
    /// Of `total` steps.
    pub(crate) fn new(total: u64, what: &'static str, is_shown: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        if is_shown {
            let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}");
            bar.set_style(style.expect("the template is a constant"));
            bar.set_message(what);
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        Self { bar, begin: std::time::Instant::now() }
    }

    /// `done` steps are done.
    pub(crate) fn set(&self, done: u64) {
        if self.begin.elapsed() > QUIET {
            self.bar.set_position(done);
        }
    }

    /// One more step is done.
    pub(crate) fn step(&self) {
        if self.begin.elapsed() > QUIET {
            self.bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
