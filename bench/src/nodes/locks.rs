//! Locks of a file on another node: as fast as one program can, and from hand to hand.

use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::process_times::settle;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds;
use crate::sample::{Measured, Samples};
use crate::stats;
use crate::worker::Worker;
use crate::workloads::locks::{Alone, HandOver, hand_overs};
use crate::workloads::{Answer, Task};

const RATE_WANTED: f64 = 5000.0;
const HAND_OVER_MAX_MS: f64 = 2.0;

const ALONE: &str = "lock or unlock";
const HANDED: &str = "hand-over";
const REMOTE: &str = "another node";
const OWN: &str = "its own node";

/// So long that the other program has asked and waits.
const HOLD_MS: u64 = 4;

/// A file of node 0; programs on nodes 1 and 2.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let job = Job::up(bench, &JobOptions { shared: "300MiB", ..JobOptions::nodes(3) })?;
    let mut samples = Samples::default();
    alone(bench, &job, &mut samples)?;
    let times = handed(bench, &job, &mut samples)?;
    job.down()?;
    let rates = samples.rates(ALONE, REMOTE);
    let rate = stats::median(&rates).unwrap_or(f64::NAN);
    let of_rounds: Vec<f64> = times.iter().filter_map(|round| stats::median(round)).collect();
    let all: Vec<f64> = times.concat();
    let handed = stats::median(&all).unwrap_or(f64::NAN) * 1000.0;
    let goals = vec![
        Goal::new(
            "uncontended remote lock and unlock calls",
            rate,
            "/s",
            Wanted::AtLeast(RATE_WANTED),
        )
        .same_as(stats::consecutive(&rates)),
        Goal::new(
            "contended hand-over between two nodes",
            handed,
            "ms",
            Wanted::AtMost(HAND_OVER_MAX_MS),
        )
        .same_as(stats::consecutive(&of_rounds)),
    ];
    let notes = vec![format!(
        "The file's home is node 0; fcntl(2) through the mounts.\nAlone: one program on another node locks and unlocks, \
         each call waits for the answer of the home.\nHanded over: programs on two further nodes hold the lock for \
         {HOLD_MS} ms in turn; the time is from the call that gives it up to the return of the other's call, which waits \
         by then."
    )];
    let tables = vec![rates_table(&samples), times_table(&all)];
    Ok(Outcome { goals, tables, notes, samples: samples.0 })
}

fn alone(bench: &Bench, job: &Job<'_>, samples: &mut Samples) -> anyhow::Result<()> {
    let (mut own, mut other) = (job.worker(0)?, job.worker(1)?);
    let path = job.shared().join("alone");
    let work = Task::Alone(Alone { path, milliseconds: 4 * bench.block_milliseconds() });
    // Made by its own node.
    own.measure(&work)?;
    other.measure(&work)?;
    let served = job.daemons();
    for round in 0..bench.rounds(8, 24) {
        for (variant, worker) in [(REMOTE, &mut other), (OWN, &mut own)] {
            settle(&served);
            rounds::measure(samples, (ALONE, variant, round), &served, || worker.measure(&work))?;
        }
    }
    Ok(())
}

/// Per round.
fn handed(bench: &Bench, job: &Job<'_>, samples: &mut Samples) -> anyhow::Result<Vec<Vec<f64>>> {
    let path = job.shared().join("handed");
    let mut maker = job.worker(0)?;
    let turn = |turns| {
        let path = path.clone();
        Task::HandOver(HandOver { path, turns, hold_milliseconds: HOLD_MS })
    };
    maker.perform(&turn(1))?;
    let mut workers = [job.worker(1)?, job.worker(2)?];
    let turns = bench.rounds(60, 150) as u32;
    let mut times = Vec::new();
    for round in 0..bench.rounds(6, 16) {
        for worker in &mut workers {
            worker.ask(&turn(turns))?;
        }
        let held: Vec<_> = workers.iter_mut().map(turns_of).collect::<anyhow::Result<_>>()?;
        let seconds = hand_overs(&held);
        let measured =
            Measured { amount: seconds.len() as f64, seconds: seconds.iter().sum(), own_cpu: 0.0 };
        rounds::measure(samples, (HANDED, REMOTE, round), &[], || Ok(measured))?;
        times.push(seconds);
    }
    Ok(times)
}

fn turns_of(worker: &mut Worker) -> anyhow::Result<Vec<crate::workloads::locks::Held>> {
    match worker.answer()? {
        Answer::Held { turns } => Ok(turns),
        answer => anyhow::bail!("a worker answered {answer:?}"),
    }
}

fn rates_table(samples: &Samples) -> Table {
    let head = ["from", "calls per second", "us per call", "its CPU us", "our CPU us"];
    let mut table = Table::new("Locks that nobody else wants", &head);
    for variant in [REMOTE, OWN] {
        let rate = samples.rate(ALONE, variant);
        let (own, served) = samples.cpu_per_amount(ALONE, variant);
        table.row(vec![
            variant.to_owned(),
            number(rate),
            number(1e6 / rate),
            number(own * 1e6),
            number(served * 1e6),
        ]);
    }
    table
}

fn times_table(times: &[f64]) -> Table {
    let mut table = Table::new("From hand to hand", &["hand-overs", "ms, median", "95 %", "most"]);
    let at = |share| number(stats::quantile(times, share).unwrap_or(f64::NAN) * 1000.0);
    table.row(vec![times.len().to_string(), at(0.5), at(0.95), at(1.0)]);
    table
}
