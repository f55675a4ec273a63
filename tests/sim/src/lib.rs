//! A whole job in one process: servers on a simulated network, storage in memory, a clock that
//! jumps, and everything that happens chosen by one seed.
//!
//! The servers are the real ones, above the trait of transports and below the messages of
//! processes. Rooms: `network` and `job` are the ground, `mount` stands for a node's kernel and
//! FUSE daemon, `workload` is what programs do, `faults` what happens to them, `check` what must be
//! true of what they saw.
//! What is not here: kernels (passthrough, mappings), full disks, machines that die
//! (`tests/e2e` does those with real ones).

#![forbid(unsafe_code)]

mod check;
mod faults;
mod history;
mod job;
mod mount;
mod network;
mod random;
mod run;
mod workload;

pub use run::{Report, Violation, run};
