//! Repeating calls of a tier that is unreachable.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hayase_tier::TierError;

use super::report::Report;
use crate::limits::TRIES_MAX;
use crate::pack::PackError;

/// Repeats calls, and counts how many were refused.
pub(super) struct Retries<'a> {
    report: &'a Report<'a>,
    refusals: AtomicU64,
}

impl<'a> Retries<'a> {
    pub(super) fn new(report: &'a Report<'a>) -> Self {
        Self { report, refusals: AtomicU64::new(0) }
    }

    /// Repeats a call while the tier is unreachable, with longer and longer pauses.
    pub(super) fn again<T>(
        &self,
        mut call: impl FnMut() -> Result<T, PackError>,
    ) -> Result<T, PackError> {
        let mut tries = 0;
        loop {
            match call() {
                Err(PackError::Tier(TierError::Unavailable { .. }))
                    if tries + 1 < TRIES_MAX && !self.report.is_stopped() =>
                {
                    self.refusals.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(100 << tries));
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    /// Calls that were repeated.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }
}
