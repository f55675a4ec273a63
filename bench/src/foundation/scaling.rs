//! The same operations from 1, 2 and 3 nodes at once: what one operation costs must not grow.

use std::time::Duration;

use hayase_client::limits::READ_LINGER;

use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::process_times::{CpuTimes, settle};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds::PUT_OFF;
use crate::sample::{Measured, Sample, Samples};
use crate::stats;
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::metadata::{Metadata, Operation};

const KINDS: [(&str, Operation); 3] = [
    ("create+close", Operation::Create),
    ("open+close", Operation::Open),
    ("unlink", Operation::Unlink),
];
const CLIENTS: [&str; 3] = ["1 node", "2 nodes", "3 nodes"];

/// Largest over smallest cost.
const SPAN_MAX: f64 = 1.2;

/// Always three servers; 1, 2 or 3 nodes have a program that works in a directory of its own.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let job = Job::up(bench, &JobOptions { shared: "500MiB", ..JobOptions::nodes(3) })?;
    let samples = measure(bench, &job)?;
    job.down()?;
    let mut goals = Vec::new();
    for (name, cost) in [("CPU", cpu as Cost), ("messages", messages as Cost)] {
        for (what, _) in KINDS {
            let each: Vec<f64> =
                CLIENTS.iter().map(|clients| median_cost(&samples, what, clients, cost)).collect();
            let figure = stats::span(&each).unwrap_or(f64::NAN);
            let alone: Vec<f64> = samples.of(what, CLIENTS[0]).map(cost).collect();
            let name = format!("{name} per {what} from 1, 2, 3 nodes, largest over smallest");
            let goal = Goal::new(name, figure, "", Wanted::AtMost(SPAN_MAX));
            goals.push(goal.same_as(stats::consecutive(&alone)));
        }
    }
    let notes = vec![format!(
        "Three servers; {} files per program and round, each program in its own directory; opened are files that the \
         next node made, each once.\nCPU is that of all \
         servers and mounts, messages are the requests that all servers counted.",
        files(bench)
    )];
    Ok(Outcome { goals, tables: vec![table(&samples)], notes, samples: samples.0 })
}

fn files(bench: &Bench) -> u64 {
    bench.rounds(150, 300) as u64
}

type Cost = fn(&Sample) -> f64;

fn cpu(sample: &Sample) -> f64 {
    sample.served_cpu * 1e6 / sample.measured.amount
}

fn messages(sample: &Sample) -> f64 {
    sample.requests.map_or(f64::NAN, |requests| requests as f64) / sample.measured.amount
}

fn median_cost(samples: &Samples, what: &str, clients: &str, cost: Cost) -> f64 {
    let costs: Vec<f64> = samples.of(what, clients).map(cost).collect();
    stats::median(&costs).unwrap_or(f64::NAN)
}

fn measure(bench: &Bench, job: &Job<'_>) -> anyhow::Result<Samples> {
    let mut workers: Vec<Worker> = (0..3).map(|node| job.worker(node)).collect::<Result<_, _>>()?;
    for (node, worker) in (0..).zip(workers.iter_mut()) {
        worker.perform(&Task::MakeDirectory { path: directory(job, node) })?;
    }
    make_files_to_open(bench, job, &mut workers)?;
    let mut samples = Samples::default();
    for (kinds, rounds, put_off) in [
        (&[KINDS[0], KINDS[2]][..], rounds(bench), PUT_OFF),
        (&[KINDS[1]][..], opening_rounds(bench), READ_LINGER + PUT_OFF),
    ] {
        for round in 0..rounds {
            for step in 0..CLIENTS.len() {
                let clients = (round + step) % CLIENTS.len();
                for (what, operation) in kinds {
                    let place = (*what, CLIENTS[clients], round);
                    let workers = &mut workers[..=clients];
                    samples.0.push(one(bench, job, workers, *operation, place, put_off)?);
                }
            }
        }
    }
    Ok(samples)
}

fn rounds(bench: &Bench) -> usize {
    bench.rounds(12, 24)
}

/// Fewer: each waits until what it opened is closed, which is part of its cost.
fn opening_rounds(bench: &Bench) -> usize {
    bench.rounds(5, 9)
}

/// What a node opens was made by the next one, and is opened once: a file that a node has open, or had
/// a moment ago, is opened without a message.
fn make_files_to_open(bench: &Bench, job: &Job<'_>, workers: &mut [Worker]) -> anyhow::Result<()> {
    for node in 0..3 {
        let maker = &mut workers[(node + 1) % 3];
        let directory = directory_to_open(job, node as u16);
        maker.perform(&Task::MakeDirectory { path: directory.clone() })?;
        for place in
            CLIENTS.iter().flat_map(|clients| (0..opening_rounds(bench)).map(|r| (*clients, r)))
        {
            maker.measure(&Task::Metadata(Metadata {
                operation: Operation::Create,
                directory: directory.clone(),
                prefix: prefix_to_open(place),
                files: files(bench),
                milliseconds: 0,
            }))?;
        }
    }
    Ok(())
}

fn directory_to_open(job: &Job<'_>, node: u16) -> std::path::PathBuf {
    job.shared().join(format!("bench-open-{node}"))
}

fn prefix_to_open((clients, round): (&str, usize)) -> String {
    format!("{}-{round}-", &clients[..1])
}

fn directory(job: &Job<'_>, node: u16) -> std::path::PathBuf {
    job.shared().join(format!("bench-{node}"))
}

/// All `workers` at once, with what the daemons put off.
fn one(
    bench: &Bench,
    job: &Job<'_>,
    workers: &mut [Worker],
    operation: Operation,
    (what, variant, round): (&str, &str, usize),
    put_off: Duration,
) -> anyhow::Result<Sample> {
    let served = job.daemons();
    // Asking is counted too.
    let asking = job.requests()?;
    let requests = job.requests()?;
    let asking = requests - asking;
    settle(&served);
    let before = CpuTimes::of(&served);
    for (node, worker) in (0..).zip(workers.iter_mut()) {
        let (directory, prefix) = match operation {
            Operation::Open => (directory_to_open(job, node), prefix_to_open((variant, round))),
            // Other names in each round: which server decides about a name is a matter of luck.
            _ => (directory(job, node), format!("file-{round}-")),
        };
        worker.ask(&Task::Metadata(Metadata {
            operation,
            directory,
            prefix,
            files: files(bench),
            milliseconds: 0,
        }))?;
    }
    let mut total = Measured { amount: 0.0, seconds: 0.0, own_cpu: 0.0 };
    for worker in workers {
        let measured = worker.measured()?;
        total.amount += measured.amount;
        total.seconds = total.seconds.max(measured.seconds);
        total.own_cpu += measured.own_cpu;
    }
    let meanwhile_cpu = CpuTimes::of(&served).since(&before);
    std::thread::sleep(put_off);
    settle(&served);
    let served_cpu = CpuTimes::of(&served).since(&before);
    let requests = Some((job.requests()? - requests).saturating_sub(asking));
    let (what, variant) = (what.to_owned(), variant.to_owned());
    Ok(Sample {
        what,
        variant,
        round,
        measured: total,
        meanwhile_cpu,
        served_cpu,
        requests,
        ..Sample::default()
    })
}

fn table(samples: &Samples) -> Table {
    let head = ["per operation", "nodes", "1000 per second", "our CPU us", "messages"];
    let mut table = Table::new("Cost of an operation", &head);
    for (what, _) in KINDS {
        for clients in CLIENTS {
            table.row(vec![
                what.to_owned(),
                clients.to_owned(),
                number(samples.rate(what, clients) / 1000.0),
                number(median_cost(samples, what, clients, cpu)),
                number(median_cost(samples, what, clients, messages)),
            ]);
        }
    }
    table
}
