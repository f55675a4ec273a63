//! Runs of the simulation: what failed once, and new seeds from the commit.
//!
//! `HAYASE_SIM_SEED=N` runs one seed; `HAYASE_SIM_SEEDS=N` that many, from `HAYASE_SIM_FIRST` or
//! else from the commit id (`HAYASE_COMMIT`), so that a commit is tried with the same seeds
//! wherever it is tested, and another commit with others. The kind of a run follows from its seed,
//! unless `HAYASE_SIM_KIND` says it, and whether mounts gather small writes, unless `HAYASE_SIM_GATHER` (0 or 1) does. With `HAYASE_SIM_LOG=debug` (or another filter) one seed also
//! shows what the servers say.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hayase_sim::{Kind, Place, Report, Violation, Writes, run_kind};

use crate::log::show_log;

/// Seeds that found something in the root, with what it was.
const FOUND: [(Kind, u64, &str); 27] = [
    (Kind::Links, 30, "an append to a striped file that was late to finish was made twice"),
    (Kind::Links, 38, "a name that was being replaced was missing"),
    (Kind::Links, 195, "a write that was sent again undid what others had written since"),
    (Kind::Links, 5287, "the same in a striped file"),
    (Kind::Links, 5300, "a create dropped its inode when the answer of the shard was lost"),
    (Kind::Restarts, 6, "a name was held for a rename whose coordinator had forgotten it"),
    (Kind::Restarts, 9, "the part of a file that was removed just before a kill stayed"),
    (Kind::Restarts, 42, "an append was overwritten by one that the home's former life had placed"),
    (Kind::Cuts, 3, "a renamed name was removed before its inode knew it, which stayed"),
    (Kind::Cuts, 4, "a write was sent again under a lock that was lost meanwhile"),
    (Kind::Cuts, 56, "a server that moved told nobody who did not hear it the first time"),
    (Kind::Losses, 3, "a name that a lost node held in a rename was waited for without end"),
    (
        Kind::Losses,
        6,
        "a create whose answer was lost removed the part of a file that had its name",
    ),
    (
        Kind::Losses,
        10,
        "bytes of one request travelled as those of an earlier one that was given up",
    ),
    (
        Kind::Losses,
        258_644_779_109_750,
        "a renamed file whose home was away was taken for never named",
    ),
    (
        Kind::Losses,
        408_682_784,
        "a size of before a window, told by a home that did not know yet who gathers (the model's fault)",
    ),
    (Kind::Restarts, 300_618, "a repeated rename was refused by what its first had in its hands"),
    (Kind::Restarts, 301_099, "the same, another way"),
    (Kind::Losses, 301_062, "a create that had happened was refused because its file was gone"),
    (Kind::Cuts, 301_166, "the same, cut off"),
    (
        Kind::Losses,
        63_031_749_850_497,
        "the end of a rename, told twice, took a name that a second one had bound",
    ),
    (Kind::Cuts, 300_738, "a node that was back was not asked to give its cache back"),
    (Kind::Restarts, 1_000_092, "a server that was killed while it told what it holds never told"),
    (Kind::Restarts, 1_007_982, "a name that was held for a rename was waited for by that rename"),
    (Kind::Cuts, 1_005_680, "the home of a removed file was not told when it was back"),
    (Kind::Cuts, 8_001_307, "a home that was lost itself gave a lock back that it had released"),
    (
        Kind::Cuts,
        9_002_198,
        "a write that was sent again, and failed, was taken to have happened once at most",
    ),
];

/// The same in a directory.
const FOUND_IN_DIRECTORY: [(Kind, u64, &str); 3] = [
    (
        Kind::Links,
        1_009_825_178,
        "a server was declared lost while the link to it was there again, since one question got lost",
    ),
    (
        Kind::Cuts,
        9_001_523,
        "a renamed name was removed before its file knew it, since an older rename was told again",
    ),
    (
        Kind::Losses,
        9,
        "a simulated mount that was killed while its server was away joined the next one, and never answered it",
    ),
];

/// The same with writes that mounts gather.
const FOUND_GATHERED: [(Kind, Place, u64, &str); 4] = [
    (
        Kind::Links,
        Place::Directory,
        1_009_825_304,
        "a node that did not answer a request to let an open go was taken for one that hangs, and gathered all the same",
    ),
    (
        Kind::Links,
        Place::Directory,
        1_009_821_734,
        "a server whose heartbeats slept while its connection was there was declared lost",
    ),
    (Kind::Links, Place::Root, 1_009_821_887, "the same"),
    (Kind::Links, Place::Directory, 1_009_823_736, "the same"),
];

const SEEDS: u64 = 40;

fn text(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|text| !text.is_empty())
}

fn number(variable: &str) -> Option<u64> {
    let text = text(variable)?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

fn one(seed: u64) -> Result<Report, Violation> {
    let kind = match text("HAYASE_SIM_KIND") {
        Some(kind) => kind.parse().unwrap_or_else(|error| panic!("{error}")),
        None => Kind::of(seed),
    };
    let writes = match number("HAYASE_SIM_GATHER") {
        Some(0) => Writes::AtOnce,
        Some(_) => Writes::Gathered,
        None => Writes::of(seed),
    };
    run_kind(kind, Place::of(seed), writes, seed)
}

/// The first seed of a commit: its first 12 hexadecimal digits.
pub(crate) fn of_commit() -> Option<u64> {
    let commit = std::env::var("HAYASE_COMMIT").ok()?;
    u64::from_str_radix(commit.get(..12)?, 16).ok()
}

#[test]
fn seeds_that_found_something_stay_good() {
    let in_root = FOUND.map(|found| (Place::Root, found));
    let in_directory = FOUND_IN_DIRECTORY.map(|found| (Place::Directory, found));
    for (place, (kind, seed, what)) in in_root.into_iter().chain(in_directory) {
        run_kind(kind, place, Writes::AtOnce, seed)
            .unwrap_or_else(|violation| panic!("{what} is back: {violation}"));
    }
    for (kind, place, seed, what) in FOUND_GATHERED {
        run_kind(kind, place, Writes::Gathered, seed)
            .unwrap_or_else(|violation| panic!("{what} is back: {violation}"));
    }
}

/// Runs seeds on all processors.
fn all(seeds: Range<u64>) -> (Vec<Report>, Vec<(Kind, u64)>) {
    let (next, found) = (AtomicU64::new(seeds.start), Mutex::new((Vec::new(), Vec::new())));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let result = one(seed);
            let (reports, violations) = &mut *found.lock().unwrap();
            match result {
                Ok(report) => reports.push(report),
                Err(violation) => {
                    println!("{violation}");
                    violations.push((violation.kind, seed));
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

#[test]
fn seeds_of_this_commit() {
    if let Some(seed) = number("HAYASE_SIM_SEED") {
        show_log();
        println!("{:?}", one(seed).unwrap_or_else(|violation| panic!("{violation}")));
        return;
    }
    let first = number("HAYASE_SIM_FIRST").or_else(of_commit).unwrap_or(1);
    let count = number("HAYASE_SIM_SEEDS").unwrap_or(SEEDS);
    let begin = Instant::now();
    let (reports, violations) = all(first..first + count);
    println!("seeds {first} to {} in {:.1} s", first + count - 1, begin.elapsed().as_secs_f64());
    for kind in Kind::ALL {
        tell(kind, &reports);
    }
    assert!(violations.is_empty(), "{} of {count} seeds: {violations:?}", violations.len());
    let calls: u64 = reports.iter().map(|report| report.calls).sum();
    assert!(calls > 50 * count, "programs do something");
}

/// What the runs of a kind were, on one line.
fn tell(kind: Kind, reports: &[Report]) {
    let reports: Vec<_> = reports.iter().filter(|report| report.kind == kind).collect();
    let sum = |what: fn(&Report) -> u64| reports.iter().map(|report| what(report)).sum::<u64>();
    println!(
        "{kind}: {} runs, {} calls, {} of unknown outcome, {} restarts, {} s simulated, links silent for \
         nearly too long in {}, {} histories undecided, {} windows of gathered writes, {} writes lost and told",
        reports.len(),
        sum(|report| report.calls),
        sum(|report| report.unknown),
        sum(|report| report.restarts),
        sum(|report| report.milliseconds) / 1000,
        sum(|report| u64::from(report.harsh)),
        sum(|report| report.undecided),
        sum(|report| report.windows),
        sum(|report| report.refused),
    );
}

#[test]
fn a_seed_is_one_story() {
    for kind in Kind::ALL {
        let traces: Vec<_> = (100..103)
            .map(|seed| {
                let run = || run_kind(kind, Place::of(seed), Writes::Gathered, seed).unwrap();
                (run(), run())
            })
            .collect();
        for (once, again) in &traces {
            assert_eq!(once, again);
        }
        assert_ne!(traces[0].0.trace, traces[1].0.trace);
    }
}
