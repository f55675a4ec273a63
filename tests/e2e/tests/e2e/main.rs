//! Promises of `docs/SEMANTICS.md`, and what a job does when something goes wrong: a group of tests per file.

mod areas;
mod cache;
mod cache_faults;
mod cache_ledger;
mod cache_lists;
mod cache_order;
mod cache_power;
mod cache_striped;
mod cache_striped_resumed;
mod cache_told;
mod coherence_append;
mod coherence_blocks;
mod coherence_directories;
mod coherence_locks;
mod coherence_losses;
mod coherence_model;
mod coherence_names;
mod coherence_opens;
mod coherence_restarts;
mod coherence_sizes;
mod coherence_truncate;
mod daemons;
mod direct;
mod faults;
mod full_disk;
mod gathering;
mod storage_nodes;
mod strangers;
mod trees;
mod ucx;

use std::process::ExitCode;

use hayase_e2e::{Suite, groups};

/// The longest first, as they took on a loaded machine of two processors.
const SUITES: [fn() -> Suite; 30] = [
    coherence_names::suite,
    cache_faults::suite,
    gathering::suite,
    trees::suite,
    coherence_model::suite,
    cache::suite,
    storage_nodes::suite,
    faults::suite,
    cache_order::suite,
    daemons::suite,
    cache_striped::suite,
    cache_ledger::suite,
    cache_lists::suite,
    cache_power::suite,
    areas::suite,
    full_disk::suite,
    strangers::suite,
    ucx::suite,
    coherence_restarts::suite,
    coherence_losses::suite,
    coherence_opens::suite,
    direct::suite,
    coherence_directories::suite,
    coherence_locks::suite,
    cache_striped_resumed::suite,
    cache_told::suite,
    coherence_sizes::suite,
    coherence_truncate::suite,
    coherence_append::suite,
    coherence_blocks::suite,
];

fn main() -> ExitCode {
    ucx::as_stranger().unwrap_or_else(|| groups::run(&SUITES.map(|suite| suite())))
}
