//! N-1 as fast as N-N: the patterns of BT-IO and IOR, written and read back with the writer's own view.

use super::launch::{By, Kind, Mpi, processors, words};
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds::order;
use crate::sample::{Measured, Sample, Samples};
use crate::stats;

/// Of N-N by the same MPI.
const WANTED: f64 = 0.85;
/// BT-IO, of the best that the MPI reaches by itself.
const WANTED_OF_STOCK: f64 = 5.0;

const EACH: [&str; 2] = ["N-N", "N-N again"];
const DIRECTIONS: [&str; 2] = ["write", "read"];

/// The best of these is what a user reaches without us.
const STOCK_MPICH: &[By] = &[
    By::STOCK,
    By::Stock {
        options: &[],
        hints: "romio_cb_write:disable,romio_ds_write:disable,romio_cb_read:disable,romio_ds_read:disable",
    },
];
const STOCK_OPEN_MPI: &[By] = &[
    By::STOCK,
    By::Stock { options: &["--mca", "fcoll", "vulcan"], hints: "" },
    By::Stock { options: &["--mca", "fcoll", "dynamic_gen2"], hints: "" },
    By::Stock { options: &["--mca", "fcoll", "individual"], hints: "" },
];

/// One pattern.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    arguments: &'static str,
    /// Bytes of one step of all, given the ranks.
    step: fn(&Bench, u64) -> u64,
}

const CASES: &[Case] = &[
    Case { name: "nested sub-arrays, collective", arguments: "pattern=nested", step: mesh },
    Case {
        name: "4 MiB blocks, independent",
        arguments: "pattern=blocks block=4194304 calls=own",
        step: large,
    },
    Case {
        name: "4 MiB blocks, collective",
        arguments: "pattern=blocks block=4194304",
        step: large,
    },
    Case {
        name: "47008 B blocks, independent",
        arguments: "pattern=blocks block=47008 calls=own",
        step: odd,
    },
    Case { name: "47008 B blocks, collective", arguments: "pattern=blocks block=47008", step: odd },
];

fn side(bench: &Bench) -> u64 {
    bench.rounds(48, 102) as u64
}
fn mesh(bench: &Bench, _ranks: u64) -> u64 {
    side(bench).pow(3) * 40
}
fn large(_: &Bench, ranks: u64) -> u64 {
    ranks * (4 << 20)
}
fn odd(_: &Bench, ranks: u64) -> u64 {
    ranks * 47008
}

/// Bytes of one file. So many that opening and closing it do not weigh more than in the full run, by far.
fn bytes(bench: &Bench) -> u64 {
    bench.rounds(256, 1024) as u64 * (1 << 20)
}
/// The stock settings move as much in a full run as they do in minutes: an eighth, or less.
fn stock_bytes(bench: &Bench) -> u64 {
    bytes(bench) / bench.rounds(32, 8) as u64
}

/// Each MPI, with as many ranks as processors and with 4.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let (mpis, missing) = Mpi::all(bench)?;
    let mut outcome = Outcome { notes: missing, ..Outcome::default() };
    outcome.notes.push(format!(
        "{} MiB for each run; for the stock settings {} MiB, of which the fastest counts.",
        bytes(bench) >> 20,
        stock_bytes(bench) >> 20
    ));
    for mpi in &mpis {
        let mut all_ranks = vec![processors(), 4];
        all_ranks.dedup();
        for ranks in all_ranks {
            let samples = measure(bench, mpi, ranks)?;
            judge(&mut outcome, mpi, ranks, &samples);
            outcome.samples.extend(samples.0);
        }
    }
    Ok(outcome)
}

/// Kind of work, as samples name it.
fn what(mpi: &Mpi, ranks: u64, case: Case, direction: &str) -> String {
    format!("{} x{ranks} {}, {direction}", mpi.kind.name(), case.name)
}
fn calls_of(what: &str) -> String {
    format!("{what}, calls alone")
}

fn measure(bench: &Bench, mpi: &Mpi, ranks: u64) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    for case in CASES {
        for round in 0..bench.rounds(5, 5) {
            for variant in order(round, EACH, &["hayase"]) {
                let by = if variant == "hayase" { By::Hayase } else { By::STOCK };
                let files = if variant == "hayase" { "one" } else { "each" };
                let place = (variant, round, files);
                one(bench, mpi, ranks, *case, by, place, bytes(bench), &mut samples)?;
            }
        }
        let settings = if mpi.kind == Kind::Mpich { STOCK_MPICH } else { STOCK_OPEN_MPI };
        // Quick runs have time for those that a goal is about.
        let settings = &settings
            [..bench.rounds(if is_nested(*case) { settings.len() } else { 0 }, settings.len())];
        for (round, by) in settings.iter().enumerate() {
            let place = (STOCK, round, "one");
            one(bench, mpi, ranks, *case, *by, place, stock_bytes(bench), &mut samples)?;
        }
    }
    mpi.clean()?;
    Ok(samples)
}

fn is_nested(case: Case) -> bool {
    case.arguments == "pattern=nested"
}

const STOCK: &str = "stock";

#[expect(clippy::too_many_arguments, reason = "one run in its place among the others")]
fn one(
    bench: &Bench,
    mpi: &Mpi,
    ranks: u64,
    case: Case,
    by: By,
    (variant, round, files): (&str, usize, &str),
    bytes: u64,
    samples: &mut Samples,
) -> anyhow::Result<()> {
    mpi.clean()?;
    let steps = (bytes / (case.step)(bench, ranks)).max(1);
    let mut arguments = words(case.arguments);
    arguments
        .extend(words(&format!("files={files} steps={steps} side={} pin=1 warm=1", side(bench))));
    let said = mpi.run(by, ranks, "file", &arguments)?;
    for direction in DIRECTIONS {
        let phases = said.phases(direction)?;
        let what = what(mpi, ranks, case, direction);
        push(samples, &calls_of(&what), (variant, round), phases.calls());
        push(samples, &what, (variant, round), phases.together());
    }
    Ok(())
}

/// A sample of a program that nobody serves.
pub(super) fn push(
    samples: &mut Samples,
    what: &str,
    (variant, round): (&str, usize),
    measured: Measured,
) {
    let (what, variant) = (what.to_owned(), variant.to_owned());
    let (meanwhile_cpu, served_cpu, requests) = (0.0, 0.0, None);
    samples.0.push(Sample {
        what,
        variant,
        round,
        measured,
        meanwhile_cpu,
        served_cpu,
        requests,
        ..Sample::default()
    });
}

fn judge(outcome: &mut Outcome, mpi: &Mpi, ranks: u64, samples: &Samples) {
    let head = [
        "one file",
        "N-N MiB/s",
        "hayase MiB/s",
        "ratio",
        "half between",
        "A/A",
        "calls alone",
        "best stock MiB/s",
        "of the best stock",
    ];
    let title = format!("{}, {ranks} processes", mpi.kind.name());
    let mut table = Table::new(title, &head);
    for case in CASES {
        for direction in DIRECTIONS {
            let what = what(mpi, ranks, *case, direction);
            let found = samples.compare(&what, "hayase", EACH);
            let figure = stats::median(&found.ratios).unwrap_or(f64::NAN);
            let best = samples.rates(&what, STOCK).into_iter().fold(f64::NAN, f64::max);
            let of_best = samples.rate(&what, "hayase") / best;
            let (low, high) = stats::quartiles(&found.ratios).unwrap_or((f64::NAN, f64::NAN));
            let alone = samples.compare(&calls_of(&what), "hayase", EACH).ratios;
            let rate = |rate: f64| number(rate / 1_048_576.0);
            table.row(vec![
                format!("{}, {direction}", case.name),
                rate(samples.rate(&what, EACH[0])),
                rate(samples.rate(&what, "hayase")),
                number(figure),
                format!("{}-{}", number(low), number(high)),
                number(stats::median(&found.same).unwrap_or(f64::NAN)),
                number(stats::median(&alone).unwrap_or(f64::NAN)),
                rate(best),
                number(of_best),
            ]);
            let goal = Goal::new(format!("{what}: of N-N"), figure, "", Wanted::AtLeast(WANTED));
            outcome.goals.push(goal.same_as(found.same.clone()));
            if direction == "write" && is_nested(*case) {
                let name = format!("{what}: of the best stock setting");
                let goal = Goal::new(name, of_best, "", Wanted::AtLeast(WANTED_OF_STOCK));
                outcome.goals.push(goal.same_as(found.same));
            }
        }
    }
    outcome.tables.push(table);
}
