//! A whole job in one process: servers on a simulated network, storage in memory, a clock that
//! jumps, and everything that happens chosen by one seed.
//!
//! The servers are the real ones, above the trait of transports and below the messages of
//! processes. Rooms: `network`, `job` and `crash_point` are the ground, `mount` stands for a node's
//! kernel and FUSE daemon, `workload` is what programs do, `kind` and `faults` are what happens to
//! them, `check` what must be true of what they saw.

#![forbid(unsafe_code)]

mod check;
mod counted;
mod crash_point;
mod faults;
mod history;
mod job;
mod kind;
mod mount;
mod network;
mod random;
mod run;
mod scale;
mod workload;

pub use kind::{Kind, UnknownKind};
pub use run::{Report, Violation, run, run_kind};
pub use scale::{Effort, Scale, scale};
