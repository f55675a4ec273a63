//! Runs of the simulation: what failed once, and new seeds from the commit.
//!
//! `HAYASE_SIM_SEED=N` runs one seed; `HAYASE_SIM_SEEDS=N` that many, from `HAYASE_SIM_FIRST` or
//! else from the commit id (`HAYASE_COMMIT`), so that a commit is tried with the same seeds
//! wherever it is tested, and another commit with others.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Instant;

use hayase_sim::{Report, run};

/// Seeds that found something, with what it was.
const FOUND: [(u64, &str); 0] = [];

const SEEDS: u64 = 40;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// The first seed of a commit: its first 12 hexadecimal digits.
fn of_commit() -> Option<u64> {
    let commit = std::env::var("HAYASE_COMMIT").ok()?;
    u64::from_str_radix(commit.get(..12)?, 16).ok()
}

#[test]
fn seeds_that_found_something_stay_good() {
    for (seed, what) in FOUND {
        run(seed).unwrap_or_else(|violation| panic!("{what} is back: {violation}"));
    }
}

#[test]
fn seeds_of_this_commit() {
    if let Some(seed) = number("HAYASE_SIM_SEED") {
        println!("{:?}", run(seed).unwrap_or_else(|violation| panic!("{violation}")));
        return;
    }
    let first = number("HAYASE_SIM_FIRST").or_else(of_commit).unwrap_or(1);
    let count = number("HAYASE_SIM_SEEDS").unwrap_or(SEEDS);
    let begin = Instant::now();
    let (mut sum, mut harsh) = (Report::default(), 0);
    for seed in first..first + count {
        let report = run(seed).unwrap_or_else(|violation| panic!("{violation}"));
        sum.calls += report.calls;
        sum.unknown += report.unknown;
        sum.milliseconds += report.milliseconds;
        harsh += u64::from(report.harsh);
    }
    println!(
        "seeds {first} to {}: {} calls, {} of unknown outcome, {} s simulated in {:.1} s; links were \
         silent for long in {harsh} runs",
        first + count - 1,
        sum.calls,
        sum.unknown,
        sum.milliseconds / 1000,
        begin.elapsed().as_secs_f64(),
    );
    assert!(sum.calls > 100 * count, "programs do something");
}

#[test]
fn a_seed_is_one_story() {
    let traces: Vec<_> = (100..110).map(|seed| (run(seed).unwrap(), run(seed).unwrap())).collect();
    for (once, again) in &traces {
        assert_eq!(once, again);
    }
    assert_ne!(traces[0].0.trace, traces[1].0.trace);
}
