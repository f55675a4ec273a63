//! Broken and hostile bytes for every decoder.
//!
//! A target takes any bytes and must come back: with a value, or with an error. It also says what it
//! did with them, as one number; inputs that make it do something new are kept and changed further,
//! so that the search goes deeper than one flipped bit. Works with a stable compiler, in a test. Compiled to count edges
//! ([`coverage`]), inputs that take a new one are kept too.
//!
//! Rooms: [`targets`] are the decoders, `mutate` changes bytes, `search` looks for trouble.

#![deny(unsafe_code, clippy::undocumented_unsafe_blocks)]

pub mod coverage;
mod mutate;
mod search;
pub mod targets;

pub use search::{Found, Searched, replay, search};

/// A decoder.
pub struct Target {
    /// In messages, and as the directory of inputs that once broke it (`fuzz/found/NAME`).
    pub name: &'static str,
    /// Good inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Decodes; the same number for inputs that are treated alike.
    pub run: fn(&[u8]) -> u64,
}
