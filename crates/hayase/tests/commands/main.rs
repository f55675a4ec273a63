//! The command as a person uses it: its help, its errors, and whole jobs.
//!
//! [`help`], [`bad_input`], [`examples`], [`packs`], [`stage`] and most of [`containers`] need nothing; [`flips`], [`guides`], [`jobs`],
//! [`packs_in_areas`], [`printed`] and most of [`spread`] need root and mounts need FUSE: they say `SKIP` without.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "says which tests were skipped")]

mod bad_input;
mod cache_bucket;
mod containers;
mod examples;
mod flips;
mod guides;
mod help;
mod jobs;
mod killed_jobs;
mod many_nodes;
mod packs;
mod packs_in_areas;
mod printed;
mod spread;
mod stage;
mod support;
mod wrong_inputs;
