//! Several processes on two nodes, each with a file of its own there: against the file system of the spool, and gfarm2fs.
//!
//! Source: issue 8; paper 004, figure 4.

use std::path::PathBuf;

use anyhow::Context;

use super::cluster::{Cluster, HAYASE};
use super::programs::{fastest, start};
use crate::at_once::together;
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds;
use crate::sample::{Measured, Samples};
use crate::stats;
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::sequential::{Operation, Sequential};

/// Options of gfarm2fs (see `bench/gfarm/cluster.sh`).
const KINDS: [&str; 4] = ["big", "bare", "closed", "direct"];

/// Nodes of the processes.
const PROGRAMS: [u16; 4] = [1, 1, 2, 2];
/// MiB of each file.
const BLOCKS: u64 = 128;
const TRIES: usize = 3;

const NATIVE: [&str; 2] = ["native", "native again"];
const OTHER: [&str; 2] = ["gfarm2fs", "gfarm2fs again"];
const MOUNT: &str = "mount";

/// What is done, of native, of gfarm2fs.
const WANTED: [(&str, f64, f64); 2] = [("write", 0.85, 1.4), ("read", 0.85, 1.6)];
/// CPU of our daemon, of that of gfarm2fs.
const CPU_WANTED: f64 = 0.1;

/// The options with which gfarm2fs did best.
struct Best<'a> {
    write: &'a str,
    read: &'a str,
}

/// Files that are new each time, written, read and removed.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let cluster = Cluster::up(bench, &KINDS)?;
    let mut workers = start(bench, PROGRAMS.len())?;
    std::fs::create_dir(cluster.mount(HAYASE, 1).join("local"))?;
    for node in [1, 2] {
        std::fs::create_dir_all(cluster.native(node).join("local"))?;
    }
    let best = choose(&cluster, &mut workers)?;
    let samples = measure(bench, &cluster, &mut workers, &best)?;
    drop(workers);
    Ok(judge(samples, &best))
}

/// Every kind moves the same files as what is measured later.
fn choose(cluster: &Cluster, workers: &mut [Worker]) -> anyhow::Result<Best<'static>> {
    let mut reads = Vec::new();
    let write = fastest(&KINDS, TRIES, |kind, attempt| {
        let files = files(cluster, OTHER[0], (kind, kind), &format!("try-{kind}-{attempt}"));
        let written = together(workers.iter_mut().zip(tasks(Operation::New, &files.written)))?;
        reads.push(together(workers.iter_mut().zip(tasks(Operation::Read, &files.read)))?);
        remove(cluster, &files.written)?;
        Ok(written)
    })?;
    // In the order in which they were measured.
    let mut reads = reads.into_iter();
    let read = fastest(&KINDS, TRIES, |_, _| reads.next().context("as many reads as writes"))?;
    Ok(Best { write, read })
}

/// The files of one variant; gfarm2fs may show them best in two ways.
struct Files {
    written: Vec<PathBuf>,
    read: Vec<PathBuf>,
}

fn files(cluster: &Cluster, variant: &str, (write, read): (&str, &str), name: &str) -> Files {
    let of = |kind: &str| {
        let place = |node| match variant {
            MOUNT => cluster.mount(HAYASE, node),
            "native" | "native again" => cluster.native(node),
            _ => cluster.mount(kind, node),
        };
        let path = |(program, node)| place(node).join(format!("local/{variant}-{name}-{program}"));
        (0..).zip(PROGRAMS).map(path).collect()
    };
    Files { written: of(write), read: of(read) }
}

fn tasks(operation: Operation, paths: &[PathBuf]) -> Vec<Task> {
    let task = |path: &PathBuf| {
        let work = Sequential::new(operation, path, BLOCKS);
        Task::Sequential(Sequential { keep: true, cold: true, ..work })
    };
    paths.iter().map(task).collect()
}

fn remove(cluster: &Cluster, paths: &[PathBuf]) -> anyhow::Result<()> {
    paths.iter().try_for_each(std::fs::remove_file)?;
    cluster.await_removals()
}

fn measure(
    bench: &Bench,
    cluster: &Cluster,
    workers: &mut [Worker],
    best: &Best<'_>,
) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    for round in 0..=bench.rounds(6, 20) {
        for variant in rounds::order(round, NATIVE, &[OTHER[0], MOUNT, OTHER[1]]) {
            let files = files(cluster, variant, (best.write, best.read), &round.to_string());
            let mut of_round = Samples::default();
            for (what, kind, operation, paths) in [
                ("write", best.write, Operation::New, &files.written),
                ("read", best.read, Operation::Read, &files.read),
            ] {
                let served = cluster.daemons(if variant == MOUNT { HAYASE } else { kind });
                let tasks = tasks(operation, paths);
                let block =
                    || -> anyhow::Result<Measured> { together(workers.iter_mut().zip(&tasks)) };
                rounds::measure(&mut of_round, (what, variant, round), &served, block)?;
            }
            if round == 0 && !NATIVE.contains(&variant) {
                lie_at_home(cluster, &files.written)?;
            }
            remove(cluster, &files.written)?;
            // The first round makes connections.
            samples.0.extend(of_round.0.into_iter().filter(|_| round > 0));
        }
    }
    Ok(samples)
}

fn lie_at_home(cluster: &Cluster, paths: &[PathBuf]) -> anyhow::Result<()> {
    for (path, node) in paths.iter().zip(PROGRAMS) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        cluster.await_hosts(&format!("/local/{name}"), &[node])?;
    }
    Ok(())
}

fn judge(samples: Samples, best: &Best<'_>) -> Outcome {
    let head = [
        "MiB/s",
        "native",
        "mount",
        "gfarm2fs",
        "its options",
        "of native",
        "of gfarm2fs",
        "half between",
        "A/A",
        "its A/A",
        "our CPU ms/GiB",
        "its",
    ];
    let mut table = Table::new("4 processes on 2 nodes, a file each", &head);
    let mut goals = Vec::new();
    for (what, of_native, of_other) in WANTED {
        let native = samples.compare(what, MOUNT, NATIVE);
        let other = samples.compare(what, MOUNT, OTHER);
        let figure = |values: &[f64]| stats::median(values).unwrap_or(f64::NAN);
        let cpu = |variant| samples.cpu_per_amount(what, variant).1;
        let (low, high) = stats::quartiles(&other.ratios).unwrap_or((f64::NAN, f64::NAN));
        let rate = |variant| number(samples.rate(what, variant) / 1_048_576.0);
        table.row(vec![
            format!("{what}, 1 MiB calls"),
            rate(NATIVE[0]),
            rate(MOUNT),
            rate(OTHER[0]),
            if what == "write" { best.write } else { best.read }.to_owned(),
            number(figure(&native.ratios)),
            number(figure(&other.ratios)),
            format!("{}-{}", number(low), number(high)),
            number(figure(&native.same)),
            number(figure(&other.same)),
            number(cpu(MOUNT) * 1e3 * 1_073_741_824.0),
            number(cpu(OTHER[0]) * 1e3 * 1_073_741_824.0),
        ]);
        let goal = |of: &str, figure, wanted, same| {
            Goal::new(format!("local files, {what}, of {of}"), figure, "", wanted).same_as(same)
        };
        let least = Wanted::AtLeast;
        goals.push(goal("native", figure(&native.ratios), least(of_native), native.same));
        goals.push(goal("gfarm2fs", figure(&other.ratios), least(of_other), other.same));
        let name = format!("local files, {what}, CPU of our daemon, of that of gfarm2fs");
        goals.push(Goal::new(name, cpu(MOUNT) / cpu(OTHER[0]), "", Wanted::AtMost(CPU_WANTED)));
    }
    let notes = vec![format!(
        "Each process writes a new file of {BLOCKS} MiB (create, write and close), opens it and reads it once; what \
         this node's kernel keeps of it is dropped before the read, where that can be; the next one begins when Gfarm's \
         servers have removed it.\nCPU is that of the daemons of \
         the mounts, with all processes of theirs, until they rest; Gfarm's own servers are not counted.\n\
         Options of gfarm2fs: `big` is `big_writes`, `bare` that with `unbuffered`, `closed` that with all caches of attributes \
         off, `direct` is `direct_io` with them off; `closed` and `direct` are as coherent between nodes as our mount."
    )];
    Outcome { goals, tables: vec![table], notes, samples: samples.0 }
}
