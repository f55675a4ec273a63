//! A server's memory while others keep it busy: it has a bound, and once warm it stays where it is.

use std::time::{Duration, Instant};

use anyhow::Context;

use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::process_times::resident_bytes;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::sample::{Measured, Sample};
use crate::stats;
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::library::Library;
use crate::workloads::sequential::{Operation, Sequential};

/// What a server may hold: 64 transfer slots (64 MiB), the key-value store's tables in memory (five of
/// 8 MiB) and its cache (16 MiB), what its mount uses of the mapped arena (a MiB for each request under way, here
/// fewer than 32), and 40 MiB for what it knows of inodes, opens and connections.
const BOUND_MIB: f64 = 192.0;

/// The last third of the load over the middle third.
const GROWTH_MAX: f64 = 1.1;

const MIB: f64 = 1_048_576.0;

/// Node 1 loads the server of node 0 with large calls; programs of both make and remove files.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let job = Job::up(bench, &JobOptions::nodes(2))?;
    let before: Vec<f64> =
        job.nodes().iter().filter_map(|node| resident_bytes(node.server)).map(mebibytes).collect();
    let readings = load(bench, &job)?;
    job.down()?;
    let third = readings.len() / 3;
    let mut table = Table::new(
        "Resident MiB of a server",
        &["server", "at rest", "1st third", "2nd", "3rd", "most"],
    );
    let (mut most, mut growth) = (0.0_f64, 0.0_f64);
    for (server, before) in before.iter().enumerate() {
        let of = |range: std::ops::Range<usize>| {
            let values: Vec<f64> = readings[range].iter().map(|all| all[server]).collect();
            (stats::median(&values).unwrap_or(f64::NAN), values.iter().copied().fold(0.0, f64::max))
        };
        let (first, second, last) =
            (of(0..third), of(third..2 * third), of(2 * third..readings.len()));
        let largest = first.1.max(second.1).max(last.1);
        most = most.max(largest);
        growth = growth.max(last.0 / second.0);
        let mut row = vec![format!("node {server}")];
        row.extend([*before, first.0, second.0, last.0, largest].map(number));
        table.row(row);
    }
    let name = "memory of a server under load, largest";
    let goals = vec![
        Goal::new(name, most, "MiB", Wanted::AtMost(BOUND_MIB)),
        Goal::new(
            "memory of a server in the last third of the load, of that in the second",
            growth,
            "",
            Wanted::AtMost(GROWTH_MAX),
        ),
    ];
    let notes = vec![format!(
        "For {} s, two programs of node 1 read and write a file of node 0 in 1 MiB calls, and on each node a program \
         with 4 threads makes and removes files by the client library;\nresident memory (`VmRSS`) after every step. \
         The bound: {BOUND_MIB} MiB.",
        load_seconds(bench)
    )];
    Ok(Outcome { goals, tables: vec![table], notes, samples: samples(&readings) })
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

fn load_seconds(bench: &Bench) -> u64 {
    bench.rounds(40, 60) as u64
}

/// Resident MiB of each server after each step.
fn load(bench: &Bench, job: &Job<'_>) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut home = job.worker(0)?;
    let path = job.shared().join("bench");
    home.perform(&Task::MakeDirectory { path: path.clone() })?;
    let file = path.join("file");
    let fill = Sequential::new(Operation::New, &file, 64);
    home.measure(&Task::Sequential(Sequential { keep: true, ..fill }))?;
    let mut bulk: Vec<Worker> = (0..2).map(|_| job.worker(1)).collect::<Result<_, _>>()?;
    let mut names: Vec<Worker> =
        (0..2).map(|node| job.linked_worker(node)).collect::<Result<_, _>>()?;
    let calls = |operation| {
        let work = Sequential::new(operation, &file, 64);
        Task::Sequential(Sequential { milliseconds: 200, cold: true, ..work })
    };
    let churn = |node: usize, remove| {
        let (socket, directory) = (job.socket(node as u16), format!("names-{node}"));
        Task::Library(Library { socket, directory, threads: 4, files: 200, remove })
    };
    let until = Instant::now() + Duration::from_secs(load_seconds(bench));
    let mut readings = Vec::new();
    while Instant::now() < until {
        for (worker, operation) in bulk.iter_mut().zip([Operation::Read, Operation::Overwrite]) {
            worker.ask(&calls(operation))?;
        }
        for remove in [false, true] {
            for (node, worker) in names.iter_mut().enumerate() {
                worker.ask(&churn(node, remove))?;
            }
            for worker in &mut names {
                worker.measured()?;
            }
        }
        for worker in &mut bulk {
            worker.measured()?;
        }
        let of = |node: &crate::job::NodeProcesses| {
            resident_bytes(node.server).map(mebibytes).context("a server has ended")
        };
        readings.push(job.nodes().iter().map(of).collect::<Result<_, _>>()?);
    }
    Ok(readings)
}

/// One sample per reading: the amount is resident MiB.
fn samples(readings: &[Vec<f64>]) -> Vec<Sample> {
    let one = |(round, all): (usize, &Vec<f64>)| {
        let sample = move |(server, resident): (usize, &f64)| Sample {
            what: "resident MiB".to_owned(),
            variant: format!("server {server}"),
            round,
            measured: Measured { amount: *resident, seconds: 0.0, own_cpu: 0.0 },
            ..Sample::default()
        };
        all.iter().enumerate().map(sample).collect::<Vec<_>>()
    };
    readings.iter().enumerate().flat_map(one).collect()
}
