//! Parts of large files on their way: how large those of the next file are, and how long requests took.
//!
//! A part counts when it has arrived, with all its requests: what was read only to be compared tells nothing of
//! moving it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Totals since the begin.
#[derive(Clone, Copy, Default)]
pub(super) struct PartsSeen {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) micros: u64,
}

pub(super) struct PartRequests {
    size: AtomicU64,
    count: AtomicU64,
    bytes: AtomicU64,
    micros: AtomicU64,
}

impl PartRequests {
    /// Parts have `size` bytes until another size is set.
    pub(super) fn new(size: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self { size: AtomicU64::new(size), count: zero(), bytes: zero(), micros: zero() }
    }

    /// Files that begin from now on have such parts.
    pub(super) fn set_size(&self, bytes: u64) {
        self.size.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// 0 when no part has come to its end.
    pub(super) fn size_used(&self) -> u64 {
        if self.count.load(Ordering::Relaxed) == 0 { 0 } else { self.size() }
    }

    /// A part has arrived, by requests that took so long together.
    pub(super) fn ended(&self, bytes: usize, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn seen(&self) -> PartsSeen {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        PartsSeen { count: get(&self.count), bytes: get(&self.bytes), micros: get(&self.micros) }
    }
}

/// How long one request of a part takes: to read it, or to write it.
pub(super) fn timed<E>(request: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let begin = Instant::now();
    request().map(|()| begin.elapsed())
}
