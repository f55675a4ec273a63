//! Files that programs without a mount have open for writing, or had a moment ago: mounts are granted nothing of them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use hayase_layout::InodeId;
use tokio::time::Instant;

use crate::limits::{BESIDE_KEPT, BESIDE_SWEEP_STEP};

/// Files that programs have open for writing, or had a moment ago.
#[derive(Default)]
pub(crate) struct WrittenByPrograms {
    files: RefCell<HashMap<InodeId, Writers>>,
    sweep_at: Cell<usize>,
}

struct Writers {
    count: u32,
    /// When the last of them ended.
    ended: Instant,
}

impl Writers {
    /// What was asked for while it was written may be answered still.
    fn count_still(&self) -> bool {
        self.count > 0 || self.ended.elapsed() < BESIDE_KEPT
    }
}

impl WrittenByPrograms {
    pub(crate) fn begin(&self, ino: InodeId) {
        let mut files = self.files.borrow_mut();
        if files.len() >= self.sweep_at.get().max(BESIDE_SWEEP_STEP) {
            files.retain(|_, writers| writers.count_still());
            self.sweep_at.set(files.len() + BESIDE_SWEEP_STEP);
        }
        files.entry(ino).or_insert_with(|| Writers { count: 0, ended: Instant::now() }).count += 1;
    }

    pub(crate) fn end(&self, ino: InodeId) {
        if let Some(writers) = self.files.borrow_mut().get_mut(&ino) {
            writers.count = writers.count.saturating_sub(1);
            writers.ended = Instant::now();
        }
    }

    pub(crate) fn has(&self, ino: InodeId) -> bool {
        self.files.borrow().get(&ino).is_some_and(Writers::count_still)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_counts_as_written_for_a_while_after_its_last_writer() {
        let (files, ino) = (WrittenByPrograms::default(), InodeId(7));
        assert!(!files.has(ino));
        files.begin(ino);
        files.begin(ino);
        files.end(ino);
        tokio::time::advance(2 * BESIDE_KEPT).await;
        assert!(files.has(ino), "one is left");
        files.end(ino);
        assert!(files.has(ino) && !files.has(InodeId(8)));
        tokio::time::advance(BESIDE_KEPT).await;
        assert!(!files.has(ino));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_is_forgotten() {
        let files = WrittenByPrograms::default();
        for ino in 0..10 * BESIDE_SWEEP_STEP as u64 {
            files.begin(InodeId(ino));
            files.end(InodeId(ino));
            tokio::time::advance(BESIDE_KEPT / BESIDE_SWEEP_STEP as u32).await;
        }
        assert!(files.files.borrow().len() <= 2 * BESIDE_SWEEP_STEP + 1);
    }
}
