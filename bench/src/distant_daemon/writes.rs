//! How large the writes are that come in.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// From this size on a write is a large one.
pub(crate) const LARGE: u64 = 1 << 20;

/// Counters of all writes so far.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    requests: AtomicU64,
    bytes: AtomicU64,
    large_bytes: AtomicU64,
}

/// What they say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// Writes.
    pub(crate) requests: u64,
    /// Bytes of all of them.
    pub(crate) bytes: u64,
    /// Bytes of those that were large.
    pub(crate) large_bytes: u64,
}

impl Writes {
    /// One more, of so many bytes.
    pub(super) fn came(&self, bytes: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if bytes >= LARGE {
            self.large_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Up to now.
    pub(super) fn counted(&self) -> Counted {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counted {
            requests: of(&self.requests),
            bytes: of(&self.bytes),
            large_bytes: of(&self.large_bytes),
        }
    }
}

impl Counted {
    /// What came since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests - earlier.requests,
            bytes: self.bytes - earlier.bytes,
            large_bytes: self.large_bytes - earlier.large_bytes,
        }
    }

    /// Of all bytes.
    pub(crate) fn large_part(self) -> f64 {
        self.large_bytes as f64 / self.bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_writes_are_told_from_others() {
        let writes = Writes::default();
        writes.came(LARGE - 1);
        let before = writes.counted();
        for bytes in [LARGE, 3 * LARGE, 5] {
            writes.came(bytes);
        }
        let found = writes.counted().since(before);
        let (bytes, large_bytes) = (4 * LARGE + 5, 4 * LARGE);
        assert_eq!(found, Counted { requests: 3, bytes, large_bytes });
        assert!(found.large_part() > 0.99 && found.large_part() < 1.0);
    }
}
