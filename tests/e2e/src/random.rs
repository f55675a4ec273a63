//! Numbers that look random and come again with the same seed.

/// A sequence from one seed (xorshift64*).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// One of `0..bound`; 0 for an empty range.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { (self.next() >> 11) % bound }
    }
}
