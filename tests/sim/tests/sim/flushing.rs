//! Jobs in front of a tier, with troubles chosen by seeds: what failed once, and the same ones each time, or others
//! with `HAYASE_SIM_TIER_FIRST` and `HAYASE_SIM_TIER_SEEDS`. Not those of `seeds.rs`. Thousands of others
//! are tried by the suites `sim-tier` and `sim-tier-cut` (`docs/results/simulation.md`).

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hayase_sim::{
    AfterEnd, Flushed, Plan, STRIPED, STRIPED_CUT, WHOLE, WHOLE_CUT, emptied_after_power_cut,
    flushing, server_ends_before_fsync,
};

use crate::log::show_log;

/// Seeds of a run, unless `HAYASE_SIM_TIER_SEEDS` says how many.
const SEEDS: u64 = 60;

/// Seeds that found something, with what it was.
const FOUND: [(u64, Plan, &str); 11] = [
    (
        5159,
        WHOLE,
        "the job's own version, which a file was to replace whose name a power cut took, was taken for somebody else's",
    ),
    (255, STRIPED, "files that waited for another one took all streams from it"),
    (185, STRIPED, "a file to which a power cut gave its name back was still one without a name"),
    (
        183,
        STRIPED,
        "the home that lost a rename with its power let fsync(2) answer for a file that was under neither name",
    ),
    (222, STRIPED, "a rename did not say what it replaces to a file whose record a power cut took"),
    (
        23,
        STRIPED_CUT,
        "a file whose home a power cut let believe that it has its name came before the file that has it",
    ),
    (
        700_022,
        STRIPED_CUT,
        "no home knew which of two files of one name was renamed over the other",
    ),
    (481_129_146, STRIPED_CUT, "the same where both were to replace one version"),
    (481_129_228, STRIPED_CUT, "the same where a flush of each had failed"),
    (
        481_129_222,
        STRIPED_CUT,
        "a file that had its new name in the tier, and not in the ledger, left a second version of the one before",
    ),
    (
        36_000_120,
        STRIPED_CUT,
        "a file did not know that it was in the tier, and the one before it became a second version",
    ),
];

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The first seed, unless `HAYASE_SIM_TIER_FIRST` says which.
const FIRST: u64 = 1;

#[test]
fn what_failed_once_does_not_fail_again() {
    for (seed, plan, what) in FOUND {
        if let Err(violations) = flushing(seed, plan) {
            panic!("{what}: HAYASE_SIM_SEED={seed}:\n{}", violations.join("\n"));
        }
    }
}

#[test]
fn what_was_synced_comes_to_the_tier_whatever_happens() {
    try_seeds(WHOLE);
}

#[test]
fn what_was_synced_on_several_servers_comes_to_the_tier_whatever_happens() {
    try_seeds(STRIPED);
}

#[test]
fn what_was_synced_comes_to_the_tier_by_resume_after_a_power_cut() {
    try_seeds(WHOLE_CUT);
}

#[test]
fn what_was_synced_on_several_servers_comes_to_the_tier_by_resume_after_a_power_cut() {
    try_seeds(STRIPED_CUT);
}

/// Syncing what is left of a part would succeed: that some is missing has to be known.
#[test]
fn a_part_that_lost_bytes_is_not_synced() {
    for seed in 1..6 {
        let after = server_ends_before_fsync(seed, true);
        assert_eq!(after, AfterEnd { is_synced: false, is_in_tier: false }, "seed {seed}");
    }
}

#[test]
fn a_file_that_lost_bytes_is_whole_again_when_it_was_emptied() {
    for seed in 1..6 {
        let after = emptied_after_power_cut(seed);
        assert_eq!(after, AfterEnd { is_synced: true, is_in_tier: true }, "seed {seed}");
    }
}

#[test]
fn a_part_whose_server_was_killed_is_synced() {
    for seed in 1..6 {
        let after = server_ends_before_fsync(seed, false);
        assert_eq!(after, AfterEnd { is_synced: true, is_in_tier: true }, "seed {seed}");
    }
}

/// Runs seeds on all processors. What they were together, and what failed.
fn flush_all(seeds: Range<u64>, plan: Plan) -> (Flushed, Vec<String>) {
    let next = AtomicU64::new(seeds.start);
    let found = Mutex::new((Flushed::default(), Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let result = flushing(seed, plan);
            let (all, failed) = &mut *found.lock().unwrap();
            match result {
                Ok(flushed) => {
                    all.restarts += flushed.restarts;
                    all.synced += flushed.synced;
                    all.seen += flushed.seen;
                }
                Err(violations) => {
                    failed.push(format!("HAYASE_SIM_SEED={seed}:\n{}", violations.join("\n")));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    found.into_inner().unwrap()
}

fn try_seeds(plan: Plan) {
    let seeds = match variable("HAYASE_SIM_SEED") {
        Some(seed) => {
            show_log();
            seed..seed + 1
        }
        None => {
            let first = variable("HAYASE_SIM_TIER_FIRST").unwrap_or(FIRST);
            let seeds = if plan.is_cut { SEEDS / 2 } else { SEEDS };
            first..first + variable("HAYASE_SIM_TIER_SEEDS").unwrap_or(seeds)
        }
    };
    let (all, failed) = flush_all(seeds.clone(), plan);
    println!("seeds {seeds:?} of {plan:?}: {all:?}");
    assert!(failed.is_empty(), "{} seeds failed\n{}", failed.len(), failed.join("\n"));
    // A run in which nothing happens shows nothing.
    let runs = seeds.end - seeds.start;
    assert!(all.restarts >= runs && all.synced >= runs && all.seen >= runs, "{all:?}");
}
