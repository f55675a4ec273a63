//! What a new name costs when programs ask through 1, 2, 4 or 8 servers of a job: it must not grow.

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
use crate::workloads::library::Library;

const SERVERS: u16 = 8;

/// Programs, each through a server of its own.
const THROUGH: [(&str, usize); 4] = [("1", 1), ("2", 2), ("4", 4), ("8", 8)];

const KINDS: [(&str, bool); 2] = [("create", false), ("unlink", true)];

/// Calls that each program has outstanding: what comes together at its server is the same for all.
const OUTSTANDING: u64 = 16;

/// Largest over smallest cost.
const SPAN_MAX: f64 = 1.3;

/// One job of eight servers without mounts. Each has an XFS image, as in a job: ext4 below counted areas looks again at
/// every inode that was removed in the last seconds, which would be measured instead.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let job = Job::up(bench, &JobOptions::servers_with_images(SERVERS))?;
    let mut workers: Vec<Worker> =
        (0..SERVERS).map(|node| job.linked_worker(node)).collect::<Result<_, _>>()?;
    let mut samples = Samples::default();
    for round in 0..=bench.rounds(8, 20) {
        for step in 0..THROUGH.len() {
            let (through, programs) = THROUGH[(round + step) % THROUGH.len()];
            for (what, remove) in KINDS {
                let workers = &mut workers[..programs];
                let sample = one(bench, &job, workers, remove, (what, through, round))?;
                // The first round makes directories and connections.
                samples.0.extend((round > 0).then_some(sample));
            }
        }
    }
    drop(workers);
    job.down()?;
    let goals = KINDS.iter().map(|(what, _)| goal(&samples, what)).collect();
    let notes = vec![format!(
        "A job of {SERVERS} servers with an XFS image each; programs of the client library on 1, 2, 4 or 8 nodes make and \
         remove {} files each in a round, with {OUTSTANDING} calls outstanding; each program has a directory of its own, \
         whose names lie on all servers.\nCPU is that of all servers and programs until they rest.\nAll servers share {} processors, so \
         the rate does not grow with them; on machines of their own it would by the inverse of the cost.",
        files(bench),
        std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
    )];
    Ok(Outcome { goals, tables: vec![table(&samples)], notes, samples: samples.0 })
}

/// Of each program.
fn files(bench: &Bench) -> u64 {
    bench.rounds(1920, 3840) as u64
}

fn goal(samples: &Samples, what: &str) -> Goal {
    let each: Vec<f64> = THROUGH.iter().map(|(through, _)| cost(samples, what, through)).collect();
    let figure = stats::span(&each).unwrap_or(f64::NAN);
    let alone: Vec<f64> = samples.of(what, THROUGH[0].0).map(cpu).collect();
    let name = format!("CPU per {what} through 1, 2, 4, 8 servers, largest over smallest");
    Goal::new(name, figure, "", Wanted::AtMost(SPAN_MAX)).same_as(stats::consecutive(&alone))
}

fn cpu(sample: &Sample) -> f64 {
    (sample.measured.own_cpu + sample.served_cpu) * 1e6 / sample.measured.amount
}

fn cost(samples: &Samples, what: &str, through: &str) -> f64 {
    let costs: Vec<f64> = samples.of(what, through).map(cpu).collect();
    stats::median(&costs).unwrap_or(f64::NAN)
}

fn one(
    bench: &Bench,
    job: &Job<'_>,
    workers: &mut [Worker],
    remove: bool,
    (what, through, round): (&str, &str, usize),
) -> anyhow::Result<Sample> {
    let served = job.daemons();
    settle(&served);
    let before = CpuTimes::of(&served);
    for (node, worker) in (0..).zip(workers.iter_mut()) {
        worker.ask(&Task::Library(Library {
            socket: job.socket(node),
            directory: format!("bench-{through}-{node}"),
            threads: OUTSTANDING,
            files: files(bench) / OUTSTANDING,
            remove,
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
    std::thread::sleep(PUT_OFF);
    settle(&served);
    let served_cpu = CpuTimes::of(&served).since(&before);
    let (what, variant) = (what.to_owned(), through.to_owned());
    Ok(Sample {
        what,
        variant,
        round,
        measured: total,
        meanwhile_cpu,
        served_cpu,
        ..Sample::default()
    })
}

fn table(samples: &Samples) -> Table {
    let head = ["", "through servers", "1000 per second", "CPU us", "of it servers"];
    let mut table = Table::new("Cost of a name", &head);
    for (what, _) in KINDS {
        for (through, _) in THROUGH {
            let (_, served) = samples.cpu_per_amount(what, through);
            table.row(vec![
                what.to_owned(),
                through.to_owned(),
                number(samples.rate(what, through) / 1000.0),
                number(cost(samples, what, through)),
                number(served * 1e6),
            ]);
        }
    }
    table
}
