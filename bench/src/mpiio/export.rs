//! `hayase container export` against cp(1) of the flat file, both durable.

use std::process::Command;

use super::launch::{By, Mpi, make_cold, sync, tool, words};
use super::patterns::push;
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds::order;
use crate::sample::{Measured, Samples};
use crate::stats;

const WANTED: f64 = 0.5;
const COPY: [&str; 2] = ["cp", "cp again"];

struct Case {
    name: &'static str,
    pattern: &'static str,
    step: u64,
}

const CASES: &[Case] = &[
    Case { name: "nested sub-arrays", pattern: "pattern=nested side=48", step: 48 * 48 * 48 * 40 },
    Case { name: "47008 B blocks", pattern: "pattern=blocks block=47008", step: 4 * 47008 },
];
const CACHES: [&str; 2] = ["warm", "cold"];

/// The container is written by 4 processes.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let mpi = Mpi::any(bench)?;
    let bytes = bench.rounds(96, 1024) as u64 * (1 << 20);
    let mut samples = Samples::default();
    for case in CASES {
        mpi.clean()?;
        let steps = bytes / case.step;
        mpi.run(
            By::Hayase,
            4,
            "file",
            &words(&format!("{} steps={steps} do=write", case.pattern)),
        )?;
        let flat = mpi.path(By::STOCK, "file");
        tool(
            Command::new(bench.hayase())
                .args(["container", "export"])
                .arg(mpi.path(By::Hayase, "file"))
                .arg(&flat),
        )?;
        for cache in CACHES {
            for round in 0..bench.rounds(2, 5) {
                for variant in order(round, COPY, &["export"]) {
                    let measured = one(bench, &mpi, variant, cache)?;
                    push(&mut samples, &what(case, cache), (variant, round), measured);
                }
            }
        }
    }
    mpi.clean()?;
    let note = format!(
        "{} MiB. `cp --reflink=never` and sync(1) of the copy, against `hayase container export`, which syncs too; each is done twice, and the second counts.",
        bytes >> 20
    );
    let mut outcome = Outcome { notes: vec![note], ..Outcome::default() };
    let head = ["export", "cp MiB/s", "export MiB/s", "ratio", "A/A"];
    let mut table = Table::new("Export", &head);
    for what in CASES.iter().flat_map(|case| CACHES.map(|cache| what(case, cache))) {
        let found = samples.compare(&what, "export", COPY);
        let figure = stats::median(&found.ratios).unwrap_or(f64::NAN);
        let rate = |variant: &str| number(samples.rate(&what, variant) / 1_048_576.0);
        let same = number(stats::median(&found.same).unwrap_or(f64::NAN));
        table.row(vec![what.clone(), rate(COPY[0]), rate("export"), number(figure), same]);
        let goal = Goal::new(format!("export, {what}: of cp"), figure, "", Wanted::AtLeast(WANTED));
        outcome.goals.push(goal.same_as(found.same));
    }
    outcome.tables.push(table);
    outcome.samples = samples.0;
    Ok(outcome)
}

fn what(case: &Case, cache: &str) -> String {
    format!("{}, {cache}", case.name)
}

/// Done twice, of which the second counts: a new file takes memory that this machine's host may have taken back
/// meanwhile, and what that costs is not the copy's. What the first took is free for the second.
fn one(bench: &Bench, mpi: &Mpi, variant: &str, cache: &str) -> anyhow::Result<Measured> {
    copy(bench, mpi, variant, cache)?;
    copy(bench, mpi, variant, cache)
}

fn copy(bench: &Bench, mpi: &Mpi, variant: &str, cache: &str) -> anyhow::Result<Measured> {
    let (container, flat) = (mpi.path(By::Hayase, "file"), mpi.path(By::STOCK, "file"));
    let copy = mpi.path(By::STOCK, "copy");
    if copy.exists() {
        std::fs::remove_file(&copy)?;
    }
    if cache == "cold" {
        make_cold(&container)?;
        make_cold(&flat)?;
    }
    sync(copy.parent().unwrap_or(&copy))?;
    let mut command = match variant {
        "export" => {
            let mut command = Command::new(bench.hayase());
            command.args(["container", "export"]).arg(&container).arg(&copy);
            command
        }
        _ => {
            let mut command = Command::new("sh");
            command
                .args(["-c", "cp --reflink=never \"$1\" \"$2\" && sync \"$2\"", "sh"])
                .arg(&flat)
                .arg(&copy);
            command
        }
    };
    let seconds = tool(&mut command)?.1.as_secs_f64();
    let amount = std::fs::metadata(&copy)?.len() as f64;
    Ok(Measured { amount, seconds, own_cpu: 0.0 })
}
