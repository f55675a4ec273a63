//! What a program reaches that asks the server itself, with many calls outstanding.

use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::process_times::settle;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds;
use crate::sample::Samples;
use crate::stats;
use crate::workloads::Task;
use crate::workloads::library::Library;

const WHAT: &str = "create";
const THREADS: [(&str, u64); 2] = [("1 thread", 1), ("16 threads", 16)];
const WANTED: f64 = 15_000.0;

/// One node; files are created by 1 and by 16 threads of one program.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let job = Job::up(bench, &JobOptions::nodes(1))?;
    let samples = measure(bench, &job)?;
    job.down()?;
    let rates = samples.rates(WHAT, "16 threads");
    let figure = stats::median(&rates).unwrap_or(f64::NAN);
    let name = "creates by the client library, 16 outstanding, one node";
    let goal = Goal::new(name, figure, "/s", Wanted::AtLeast(WANTED));
    let notes = vec![format!(
        "One program on the node of the server, {} files per round, all in one directory; a create is the new \
         name, inode and part, opened and closed.",
        files(bench)
    )];
    let goals = vec![goal.same_as(stats::consecutive(&rates))];
    Ok(Outcome { goals, tables: vec![table(&samples)], notes, samples: samples.0 })
}

fn files(bench: &Bench) -> u64 {
    bench.rounds(3200, 9600) as u64
}

fn measure(bench: &Bench, job: &Job<'_>) -> anyhow::Result<Samples> {
    let mut worker = job.linked_worker(0)?;
    let served = job.daemons();
    let mut samples = Samples::default();
    for round in 0..bench.rounds(8, 16) {
        for (variant, threads) in THREADS {
            let task = |remove| {
                let (socket, directory) = (job.socket(0), "bench".to_owned());
                let files = files(bench) / threads;
                Task::Library(Library { socket, directory, threads, files, remove })
            };
            let place = (WHAT, variant, round);
            rounds::measure(&mut samples, place, &served, || worker.measure(&task(false)))?;
            worker.measure(&task(true))?;
            settle(&served);
        }
    }
    Ok(samples)
}

fn table(samples: &Samples) -> Table {
    let head =
        ["client library", "creates/s", "half between", "program's CPU us each", "our CPU us"];
    let mut table = Table::new("New files without a mount", &head);
    for (variant, _) in THREADS {
        let rates = samples.rates(WHAT, variant);
        let (low, high) = stats::quartiles(&rates).unwrap_or((f64::NAN, f64::NAN));
        let (own, served) = samples.cpu_per_amount(WHAT, variant);
        table.row(vec![
            variant.to_owned(),
            number(samples.rate(WHAT, variant)),
            format!("{}-{}", number(low), number(high)),
            number(own * 1e6),
            number(served * 1e6),
        ]);
    }
    table
}
