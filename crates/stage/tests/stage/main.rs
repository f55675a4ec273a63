//! Trees on their way between tiers: packs by themselves, and whole transfers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "says which tests were skipped")]

mod packs;
mod transfer;
