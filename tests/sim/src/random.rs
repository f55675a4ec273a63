//! Choices from a seed (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014).

use std::cell::Cell;
use std::time::Duration;

/// The same seed makes the same choices.
#[derive(Debug)]
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    /// One whose choices do not depend on how many were made here meanwhile.
    pub(crate) fn split(&self) -> Self {
        Self::new(self.next())
    }

    pub(crate) fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, which is not 0.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub(crate) fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// A time up to `most`, in microseconds.
    pub(crate) fn time(&self, most: Duration) -> Duration {
        Duration::from_micros(self.below(most.as_micros() as u64 + 1))
    }
}
