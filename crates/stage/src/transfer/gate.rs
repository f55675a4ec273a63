//! The gate that streams pass: how many work at a time, and how many bytes they hold together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::limits::MEMORY_BYTES;

/// How many may, how many do.
struct State {
    limit: usize,
    inside: usize,
    held: u64,
    /// Whose turn it is to be given bytes.
    next: u64,
}

/// One for all streams of a transfer.
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    units: AtomicU64,
    refusals: AtomicU64,
}

impl Gate {
    /// Lets `limit` streams in.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            state: Mutex::new(State { limit, inside: 0, held: 0, next: 0 }),
            changed: Condvar::new(),
            units: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one number.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more stream may work.
    pub(super) fn enter(&self) -> Turn<'_> {
        let mut state = self.state();
        while state.inside >= state.limit {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.inside += 1;
        Turn { gate: self }
    }

    /// Waits until `bytes` more may be held; more than all may be held by one alone.
    ///
    /// In the order of `number`, which counts units from 0 without a gap: so a part of a file never
    /// waits for one before it that waits for memory.
    pub(super) fn hold(&self, number: u64, bytes: u64) -> Held<'_> {
        let bytes = bytes.min(MEMORY_BYTES);
        let mut state = self.state();
        while state.next != number || state.held + bytes > MEMORY_BYTES {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.next += 1;
        state.held += bytes;
        drop(state);
        self.changed.notify_all();
        Held { gate: self, bytes }
    }

    /// From now on so many streams work; those that are too many go when their unit ends.
    pub(super) fn set(&self, limit: usize) {
        self.state().limit = limit.max(1);
        self.changed.notify_all();
    }

    /// How many streams may work.
    pub(super) fn streams(&self) -> usize {
        self.state().limit
    }

    /// A unit has ended.
    pub(super) fn ended(&self) {
        self.units.fetch_add(1, Ordering::Relaxed);
    }

    /// A call found nobody, or was one too many.
    pub(super) fn refused(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn units(&self) -> u64 {
        self.units.load(Ordering::Relaxed)
    }

    pub(super) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }
}

/// The right to work, until it is dropped.
pub(super) struct Turn<'a> {
    gate: &'a Gate,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.gate.state().inside -= 1;
        self.gate.changed.notify_all();
    }
}

/// The right to hold bytes, until it is dropped.
pub(super) struct Held<'a> {
    gate: &'a Gate,
    bytes: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.gate.state().held -= self.bytes;
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn no_more_work_and_hold_than_may() {
        let (gate, inside, most) = (Gate::new(3), AtomicUsize::new(0), AtomicUsize::new(0));
        let number = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _turn = gate.enter();
                        let _held =
                            gate.hold(number.fetch_add(1, Ordering::SeqCst), MEMORY_BYTES / 2);
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=2).contains(&most.into_inner()), "half of all is held by two at most");
        let state = gate.state();
        assert_eq!((state.inside, state.held), (0, 0));
    }

    #[test]
    fn one_alone_may_hold_more_than_all() {
        let gate = Gate::new(1);
        drop(gate.hold(0, 10 * MEMORY_BYTES));
        drop(gate.hold(1, 10 * MEMORY_BYTES));
    }
}
