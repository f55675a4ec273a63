//! Simulated jobs: what failed once, and new seeds.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic and tell")]

mod ended;
mod flushing;
mod linked;
mod log;
mod renamed;
mod scale;
mod seeds;
mod unsynced;
