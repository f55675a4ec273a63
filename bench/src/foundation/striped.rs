//! A striped file over three disks of equal, limited speed, against a file that is whole on one.

use std::path::Path;

use crate::bench::Bench;
use crate::command::run as run_command;
use crate::disk_limit::{self, DiskLimit, device_of_mount};
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds;
use crate::sample::Samples;
use crate::stats;
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::metadata::{Metadata, Operation as Names};
use crate::workloads::sequential::{Operation, Sequential};

/// Of each node's disk, in each direction.
const LIMIT_MIB: u64 = 80;

const NODES: u16 = 3;
const WHOLE: [&str; 2] = ["whole", "whole again"];
const KINDS: [&str; 2] = ["write", "read"];
const WANTED: f64 = 2.4;

/// Node 1 writes and reads; files are made by node 0.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let limit = DiskLimit::new(bench.guard())?;
    let job = Job::up(bench, &JobOptions { shared: "800MiB", ..JobOptions::nodes(NODES) })?;
    let mut workers: Vec<Worker> =
        (0..NODES).map(|node| job.worker(node)).collect::<Result<_, _>>()?;
    let alone = slow_down(&limit, &job, &mut workers)?;
    let samples = measure(bench, &job, &mut workers)?;
    drop(workers);
    job.down()?;
    let goal = |what: &&str| {
        let found = samples.compare(what, "striped", WHOLE);
        let figure = stats::median(&found.ratios).unwrap_or(f64::NAN);
        let name = format!("striped file over 3 nodes, {what}, of a remote file on one node");
        Goal::new(name, figure, "", Wanted::AtLeast(WANTED)).same_as(found.same)
    };
    let each: Vec<String> = alone.iter().map(|rate| number(*rate)).collect();
    let notes = vec![format!(
        "Each node's disk is limited to {LIMIT_MIB} MiB/s in both directions (control group); direct writes next to \
         the parts: {} MiB/s.\nA program on node 1, stripes of 1 MiB, 1 MiB calls, {} MiB per file. Writes include \
         fsync(2), reads begin with cold caches everywhere.\nThe whole file is on node 0.",
        each.join(", "),
        blocks(bench)
    )];
    let goals = KINDS.iter().map(goal).collect();
    Ok(Outcome { goals, tables: vec![table(&samples)], notes, samples: samples.0 })
}

/// Size of a file, in blocks of 1 MiB.
fn blocks(bench: &Bench) -> u64 {
    bench.rounds(120, 240) as u64
}

/// Limits all disks and proves it; what a direct write on each node reaches, in MiB/s.
fn slow_down(
    limit: &DiskLimit<'_>,
    job: &Job<'_>,
    workers: &mut [Worker],
) -> anyhow::Result<Vec<f64>> {
    let mut alone = Vec::new();
    for ((node, daemons), worker) in (0..).zip(job.nodes()).zip(workers) {
        let device = device_of_mount(daemons.server, &job.image(node))?;
        limit.limit(&device, LIMIT_MIB << 20)?;
        for process in [Some(daemons.server), daemons.mount, Some(worker.process())] {
            let Some(process) = process else { continue };
            limit.add(process)?;
        }
        alone.push(disk_limit::prove(worker, &job.image(node), 64, LIMIT_MIB)?);
    }
    Ok(alone)
}

fn measure(bench: &Bench, job: &Job<'_>, workers: &mut [Worker]) -> anyhow::Result<Samples> {
    let shared = job.shared();
    for name in ["whole", "striped"] {
        workers[0].perform(&Task::MakeDirectory { path: shared.join(name) })?;
    }
    let mut layout = job.on_node(0, bench.hayase());
    layout.args(["layout", "set", "--stripe", "1MiB", "--width", "3"]);
    run_command(layout.arg(shared.join("striped")), std::time::Duration::from_secs(20))?
        .success("hayase layout set")?;
    let served = job.daemons();
    let mut samples = Samples::default();
    for round in 0..bench.rounds(5, 9) {
        for variant in rounds::order(round, WHOLE, &["striped"]) {
            let place = if variant == "striped" { "striped" } else { "whole" };
            let directory = shared.join(place);
            one(bench, job, workers, &served, (&mut samples, &directory, variant, round))?;
        }
    }
    Ok(samples)
}

fn one(
    bench: &Bench,
    job: &Job<'_>,
    workers: &mut [Worker],
    served: &[u32],
    (samples, directory, variant, round): (&mut Samples, &Path, &str, usize),
) -> anyhow::Result<()> {
    let name = |operation| {
        let (directory, prefix) = (directory.to_owned(), "f".to_owned());
        Task::Metadata(Metadata { operation, directory, prefix, files: 1, milliseconds: 0 })
    };
    workers[0].measure(&name(Names::Create))?;
    let path = directory.join("f0");
    let write = Sequential::new(Operation::Overwrite, &path, blocks(bench));
    let write = Task::Sequential(Sequential { sync: true, ..write });
    rounds::measure(samples, ("write", variant, round), served, || workers[1].measure(&write))?;
    for (node, worker) in (0..).zip(workers.iter_mut()) {
        worker.perform(&Task::Evict { path: job.image(node).join("parts") })?;
    }
    let read = Sequential::new(Operation::Read, &path, blocks(bench));
    let read = Task::Sequential(Sequential { cold: true, ..read });
    rounds::measure(samples, ("read", variant, round), served, || workers[1].measure(&read))?;
    workers[0].measure(&name(Names::Unlink))?;
    Ok(())
}

fn table(samples: &Samples) -> Table {
    let head = ["1 MiB calls", "one node MiB/s", "3 nodes MiB/s", "ratio", "half between", "A/A"];
    let mut table = Table::new("Striped file, limited disks", &head);
    for what in KINDS {
        let found = samples.compare(what, "striped", WHOLE);
        let (low, high) = stats::quartiles(&found.ratios).unwrap_or((f64::NAN, f64::NAN));
        let figure = |values: &[f64]| number(stats::median(values).unwrap_or(f64::NAN));
        let rate = |variant: &str| number(samples.rate(what, variant) / 1_048_576.0);
        table.row(vec![
            what.to_owned(),
            rate("whole"),
            rate("striped"),
            figure(&found.ratios),
            format!("{}-{}", number(low), number(high)),
            figure(&found.same),
        ]);
    }
    table
}
