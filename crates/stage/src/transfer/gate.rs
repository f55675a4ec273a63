//! The gate that streams pass: how many work at a time, and how many bytes they hold together.
//!
//! Invariants:
//! 1. What units were given and buffers that wait for the next unit are `memory` bytes together at most;
//!    a single unit that needs more runs alone, so that none waits for ever.
//! 2. Nobody who holds bytes waits for more of them.
//!
//! Buffers go from unit to unit, since an allocator keeps what a stream frees for that stream.
//! Who waits is counted: a small file is so little work that a needless wake-up is a good part of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many may, how many do.
struct State {
    limit: usize,
    inside: usize,
    /// Who waits to get in, and who waits for bytes.
    outside: usize,
    without: usize,
    held: u64,
    /// The most that was held and idle together.
    peak: u64,
    /// Buffers that no unit uses.
    idle: Vec<Vec<u8>>,
    /// Whose turn it is to be given bytes.
    next: u64,
}

impl State {
    fn idle_bytes(&self) -> u64 {
        self.idle.iter().map(|buffer| buffer.capacity() as u64).sum()
    }
}

/// One for all streams of a transfer.
pub(super) struct Gate {
    memory: u64,
    state: Mutex<State>,
    /// One more may get in.
    room: Condvar,
    /// It may be another one's turn to be given bytes, or there are more of them.
    bytes: Condvar,
    units: AtomicU64,
}

impl Gate {
    /// Lets `limit` streams in, which hold `memory` bytes together.
    pub(super) fn new(limit: usize, memory: u64) -> Self {
        let (inside, outside, without) = (0, 0, 0);
        let (held, peak, idle, next) = (0, 0, Vec::new(), 0);
        let state = State { limit, inside, outside, without, held, peak, idle, next };
        Self {
            memory: memory.max(1),
            state: Mutex::new(state),
            room: Condvar::new(),
            bytes: Condvar::new(),
            units: AtomicU64::new(0),
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
            state.outside += 1;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.outside -= 1;
        }
        state.inside += 1;
        Turn { gate: self }
    }

    /// Waits until `bytes` more may be held; more than all may be held by one alone.
    ///
    /// In the order of `number`, which counts units from 0 without a gap: so a part of a file never
    /// waits for one before it that waits for memory.
    pub(super) fn hold(&self, number: u64, bytes: u64) -> Held<'_> {
        let bytes = bytes.min(self.memory);
        let mut state = self.state();
        while state.next != number || state.held + bytes > self.memory {
            state.without += 1;
            state = self.bytes.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.without -= 1;
        }
        state.next += 1;
        state.held += bytes;
        let fits = |buffer: &Vec<u8>| buffer.capacity() as u64 <= bytes;
        let largest = state.idle.iter().enumerate().filter(|(_, buffer)| fits(buffer));
        let largest = largest.max_by_key(|(_, buffer)| buffer.capacity()).map(|(place, _)| place);
        let buffer = largest.map(|place| state.idle.swap_remove(place)).unwrap_or_default();
        while state.held + state.idle_bytes() > self.memory {
            state.idle.pop();
        }
        state.peak = state.peak.max(state.held + state.idle_bytes());
        self.wake_for_bytes(&state);
        drop(state);
        Held { gate: self, bytes, buffer }
    }

    fn wake_for_bytes(&self, state: &State) {
        if state.without > 0 {
            self.bytes.notify_all();
        }
    }

    /// From now on so many streams work; those that are too many go when their unit ends.
    pub(super) fn set(&self, limit: usize) {
        let mut state = self.state();
        state.limit = limit.max(1);
        if state.outside > 0 {
            self.room.notify_all();
        }
    }

    /// How many streams may work.
    pub(super) fn streams(&self) -> usize {
        self.state().limit
    }

    /// The number of the unit that is given bytes next.
    pub(super) fn next(&self) -> u64 {
        self.state().next
    }

    /// The most bytes that were held together, buffers that waited included.
    pub(super) fn peak(&self) -> u64 {
        self.state().peak
    }

    /// A unit has ended.
    pub(super) fn ended(&self) {
        self.units.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn units(&self) -> u64 {
        self.units.load(Ordering::Relaxed)
    }
}

/// The right to work, until it is dropped.
pub(super) struct Turn<'a> {
    gate: &'a Gate,
}

impl Turn<'_> {
    /// For the next unit: the same, unless more work now than may.
    pub(super) fn next(self) -> Self {
        let gate = self.gate;
        let stays = {
            let state = gate.state();
            state.inside <= state.limit
        };
        if stays {
            return self;
        }
        drop(self);
        gate.enter()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        state.inside -= 1;
        if state.outside > 0 && state.inside < state.limit {
            self.gate.room.notify_one();
        }
    }
}

/// The right to hold bytes, until it is dropped.
pub(super) struct Held<'a> {
    gate: &'a Gate,
    bytes: u64,
    /// To be used for some of them; what is in it means nothing.
    pub(super) buffer: Vec<u8>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        state.held -= self.bytes;
        let buffer = std::mem::take(&mut self.buffer);
        let kept = state.held + state.idle_bytes() + buffer.capacity() as u64;
        if buffer.capacity() > 0 && kept <= self.gate.memory {
            state.idle.push(buffer);
        }
        self.gate.wake_for_bytes(&state);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const MEMORY: u64 = 192 << 20;

    #[test]
    fn no_more_work_and_hold_than_may() {
        let (gate, inside, most) = (Gate::new(3, MEMORY), AtomicUsize::new(0), AtomicUsize::new(0));
        let number = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _turn = gate.enter();
                        let _held = gate.hold(number.fetch_add(1, Ordering::SeqCst), MEMORY / 2);
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
    fn a_turn_stays_until_fewer_may_work() {
        let gate = Gate::new(2, MEMORY);
        let (first, second) = (gate.enter().next(), gate.enter());
        gate.set(1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(first.next()));
            while gate.state().outside == 0 {
                std::thread::yield_now();
            }
            assert_eq!(gate.state().inside, 1);
            drop(second);
            waits.join().unwrap();
        });
        assert_eq!(gate.state().inside, 0);
    }

    #[test]
    fn one_alone_may_hold_more_than_all() {
        let gate = Gate::new(1, MEMORY);
        drop(gate.hold(0, 10 * MEMORY));
        drop(gate.hold(1, 10 * MEMORY));
    }

    #[test]
    fn buffers_are_used_again_and_count_while_they_wait() {
        let gate = Gate::new(1, 1000);
        let held = |number, bytes, wanted: usize| {
            let mut held = gate.hold(number, bytes);
            let found = held.buffer.capacity();
            held.buffer.resize(wanted, 0);
            held.buffer.shrink_to_fit();
            found
        };
        assert_eq!(held(0, 400, 400), 0);
        assert_eq!(held(1, 500, 300), 400);
        // Too large for what this one may hold.
        assert_eq!(held(2, 200, 0), 0);
        assert_eq!(gate.state().idle_bytes(), 300);
        // All is wanted: nothing may lie idle.
        assert_eq!(held(3, 1000, 0), 300);
        let state = gate.state();
        assert_eq!((state.idle_bytes(), state.peak), (0, 1000));
    }

    /// Units of any size by any number of streams: each gets through, and no more is held than may be.
    #[test]
    fn every_unit_gets_through_a_small_gate() {
        for memory in [1, 7, 64, 1000] {
            let (gate, number) = (Gate::new(8, memory), Mutex::new(0_u64));
            let held_now = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            let _turn = gate.enter();
                            let taken = {
                                let mut number = number.lock().unwrap();
                                *number += 1;
                                *number - 1
                            };
                            // The same for each run: a unit in three is larger than all.
                            let bytes = [3, 40, 2000][taken as usize % 3];
                            let mut held = gate.hold(taken, bytes);
                            let counted = bytes.min(memory);
                            let now = held_now.fetch_add(counted, Ordering::SeqCst) + counted;
                            assert!(now <= memory, "{now} of {memory}");
                            held.buffer.reserve_exact(counted as usize);
                            std::thread::yield_now();
                            held_now.fetch_sub(counted, Ordering::SeqCst);
                        }
                    });
                }
            });
            let state = gate.state();
            assert_eq!((state.next, state.held, state.inside), (800, 0, 0));
            assert!(state.peak <= memory, "{} of {memory}", state.peak);
        }
    }
}
