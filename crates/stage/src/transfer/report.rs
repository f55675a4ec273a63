//! What became of each item: the summary, what watchers see of it, and whether the transfer stops early.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hayase_tier::TierError;

use crate::compare::Step;
use crate::item::Item;
use crate::limits::FAILURES_LISTED_MAX;
use crate::pack::PackError;
use crate::{Failure, Observer, Progress, Summary};

/// Counted by all threads of one transfer.
pub(super) struct Report<'a> {
    progress: &'a Progress,
    observer: &'a dyn Observer,
    summary: Mutex<Summary>,
    stop: AtomicBool,
}

impl<'a> Report<'a> {
    pub(super) fn new(progress: &'a Progress, observer: &'a dyn Observer) -> Self {
        let (summary, stop) = (Mutex::default(), AtomicBool::new(false));
        Self { progress, observer, summary, stop }
    }

    fn summary(&self) -> MutexGuard<'_, Summary> {
        // Every change is one push or one addition.
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters as watchers see them.
    pub(super) fn progress(&self) -> &'a Progress {
        self.progress
    }

    /// A tier is full, used up or unreachable: other items would fail as well.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Nothing failed so far.
    pub(super) fn is_complete(&self) -> bool {
        self.summary().is_complete()
    }

    /// A name of the source that was looked at.
    pub(super) fn found(&self) {
        Progress::add(&self.progress.found, 1);
    }

    /// A selected file that is large enough to be moved in parts.
    pub(super) fn large(&self) {
        self.summary().large += 1;
    }

    /// The checksum of the stream that nodes with a share saw.
    pub(super) fn seen(&self, sum: u32) {
        self.summary().seen = sum;
    }

    /// The source was looked at whole.
    pub(super) fn planned(&self) {
        self.progress.is_planned.store(true, Ordering::Relaxed);
    }

    /// An item that has to be done; of one that only gets attributes no bytes have to be moved.
    pub(super) fn wanted(&self, step: Step, item: &Item) {
        Progress::add(&self.progress.items_wanted, 1);
        if step != Step::Attributes {
            Progress::add(&self.progress.bytes_wanted, item.bytes());
        }
    }

    /// An item that is there already.
    pub(super) fn kept(&self) {
        self.summary().kept += 1;
        Progress::add(&self.progress.items_kept, 1);
    }

    /// An item that differs, and that the rule of overwriting spares.
    pub(super) fn spared(&self) {
        self.summary().spared += 1;
    }

    /// Items that arrived.
    pub(super) fn copied(&self, items: u64) {
        self.summary().copied += items;
        Progress::add(&self.progress.items_done, items);
    }

    /// Bytes that have arrived: a connection may hold many that were only handed to it.
    pub(super) fn arrived(&self, bytes: usize) {
        Progress::add(&self.progress.bytes_moved, bytes as u64);
    }

    /// Bytes that an earlier run had brought, and that are right.
    pub(super) fn resumed(&self, bytes: usize) {
        Progress::add(&self.progress.bytes_resumed, bytes as u64);
    }

    /// A pack was written.
    pub(super) fn packed(&self) {
        self.summary().packs += 1;
    }

    /// Items that were removed at the target, or would be.
    pub(super) fn removed(&self, items: u64) {
        self.summary().removed += items;
    }

    /// A dry run would do this.
    pub(super) fn would(&self, step: Step, item: &Item) {
        self.observer.would(step, item);
        self.summary().copied += 1;
    }

    /// A dry run would remove this.
    pub(super) fn would_remove(&self, item: &Item) {
        self.observer.would_remove(item);
    }

    /// One name that did not arrive; stops everything when others would fare the same.
    pub(super) fn failed(&self, name: &str, error: PackError) {
        use TierError::{Full, Quota, Unavailable};
        if let PackError::Tier(Full { .. } | Quota { .. } | Unavailable { .. }) = error {
            self.stop.store(true, Ordering::Relaxed);
            self.summary().is_stopped = true;
        }
        self.observer.failed(name, &error);
        Progress::add(&self.progress.failures, 1);
        let summary = &mut self.summary();
        summary.failures_total += 1;
        if summary.failures.len() < FAILURES_LISTED_MAX {
            summary.failures.push(Failure { name: name.to_owned(), error });
        }
    }

    pub(super) fn into_summary(self) -> Summary {
        self.summary.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
