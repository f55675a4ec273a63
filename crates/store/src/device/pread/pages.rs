//! Whether the bytes of a part may be in the page cache: a guess from how they came, to choose the faster way.
//!
//! Here: counts. Not here: correctness, which does not hang on the guess: the kernel keeps both ways of reading
//! and writing the same.

use std::sync::atomic::{AtomicU64, Ordering};

/// What went through the page cache counts for it, each transfer past it against it.
#[derive(Default)]
pub(super) struct Pages {
    /// Bytes.
    through: AtomicU64,
    /// Transfers.
    past: AtomicU64,
    /// What others had open was so long when they gave it back.
    left: AtomicU64,
}

/// What one transfer past the page cache weighs: about its bytes.
const TRANSFER_BYTES: u64 = 1 << 20;
/// What others read and write of a file that they have open is not counted: it is taken for much.
const HANDED_OUT_BYTES: u64 = 1 << 40;

impl Pages {
    pub(super) fn written(&self, bytes: usize) {
        self.through.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn handed_out(&self) {
        self.through.fetch_max(HANDED_OUT_BYTES, Ordering::Relaxed);
    }

    /// Nobody else has the file any more: at most all its `size` bytes are in memory.
    pub(super) fn given_back(&self, size: u64) {
        self.through.fetch_min(size, Ordering::Relaxed);
        self.left.store(size, Ordering::Relaxed);
    }

    pub(super) fn passed_by(&self) {
        self.past.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn hold_most(&self) -> bool {
        let past = self.past.load(Ordering::Relaxed).saturating_mul(TRANSFER_BYTES);
        self.through.load(Ordering::Relaxed) > past
    }

    /// Whether a write that ends at `end` is over bytes that others have left in memory: past them it would have
    /// to wait until they are on the disk, and throw them away.
    pub(super) fn hold_what_is_written_over(&self, end: u64) -> bool {
        end <= self.left.load(Ordering::Relaxed) && self.hold_most()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_is_where_most_came_through() {
        let pages = Pages::default();
        assert!(!pages.hold_most(), "nothing is known");
        pages.written(4096);
        assert!(pages.hold_most());
        pages.passed_by();
        assert!(!pages.hold_most());
        pages.handed_out();
        assert!(pages.hold_most());
        pages.given_back(5);
        assert!(!pages.hold_most(), "less than what passed by");
    }

    #[test]
    fn what_others_left_is_written_over_in_memory_and_what_is_new_is_not() {
        let pages = Pages::default();
        pages.handed_out();
        assert!(!pages.hold_what_is_written_over(1), "how much is not known yet");
        pages.given_back(10 << 20);
        assert!(pages.hold_what_is_written_over(10 << 20));
        assert!(!pages.hold_what_is_written_over((10 << 20) + 1), "behind the old end");
        (0..10).for_each(|_| pages.passed_by());
        assert!(!pages.hold_what_is_written_over(1 << 20), "as much has passed by since");
    }
}
