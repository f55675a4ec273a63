//! Parts of large files on their way: how large those of the next file are, and how long requests took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

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

    /// One request of a part: to read it, or to write it.
    pub(super) fn timed<T, E>(&self, request: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let begin = Instant::now();
        let answer = request()?;
        let micros = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        Ok(answer)
    }

    /// A part has arrived.
    pub(super) fn ended(&self, bytes: usize) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn seen(&self) -> PartsSeen {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        PartsSeen { count: get(&self.count), bytes: get(&self.bytes), micros: get(&self.micros) }
    }
}
