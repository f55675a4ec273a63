//! Large calls to files of another node, past its page cache, by several programs at once; against the least
//! that could move the same bytes: a blocking loop for each program that receives and writes, or reads and sends.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::homed;
use crate::at_once::together;
use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds;
use crate::sample::Samples;
use crate::stats;
use crate::worker::Worker;
use crate::workloads::sequential::{Operation, Sequential};
use crate::workloads::tcp_loop::Transfer;
use crate::workloads::{Answer, Task};

/// Size of each file, in blocks of 1 MiB.
const BLOCKS: u64 = 96;
const PROGRAMS: [usize; 2] = [1, 4];
const KINDS: [&str; 2] = ["read", "write"];
const LOOP: [&str; 2] = ["loop", "loop again"];
/// Files that only node 1 has written but for a block, and files that a program of node 0 left in its memory.
const MOUNT: [&str; 2] = ["mount", IN_MEMORY];
const IN_MEMORY: &str = "in memory";
const WANTED: f64 = 0.9;
const CPU_SECONDS_PER_GB: f64 = 0.25;
/// Of the bytes: else something else was measured.
const DIRECT_MIN: f64 = 0.95;
const GB: f64 = 1e9;

/// Programs on node 1, files whose parts are on node 0.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let job = Job::up(bench, &JobOptions::nodes(2))?;
    let (samples, direct) = measure(bench, &job)?;
    job.down()?;
    let all: f64 =
        samples.0.iter().filter(|s| s.variant == "mount").map(|s| s.measured.amount).sum();
    let most = *PROGRAMS.last().unwrap_or(&1);
    let mut goals = Vec::new();
    for what in KINDS {
        let name = label(what, most);
        let found = samples.compare(&name, "mount", LOOP);
        let figure = stats::median(&found.ratios).unwrap_or(f64::NAN);
        let goal = format!("remote {what} by {most} programs, of a bare loop");
        goals.push(Goal::new(goal, figure, "", Wanted::AtLeast(WANTED)).same_as(found.same));
        let goal = format!("CPU of the server that has the file, remote {what}");
        goals.push(Goal::new(
            goal,
            served(&samples, &name, "mount"),
            "s/GB",
            Wanted::AtMost(CPU_SECONDS_PER_GB),
        ));
    }
    let goal = "remote bytes that went past the page cache";
    goals.push(Goal::new(goal, direct / all, "", Wanted::AtLeast(DIRECT_MIN)));
    let notes = vec![format!(
        "Programs on node 1, a file of {BLOCKS} MiB on node 0 for each, 1 MiB calls, nothing synced; {:.0} % of the \
         mount's bytes went past the page cache of node 0. In memory: of files that a program of node 0 has written, which \
         stay in its memory and are read and written over there.\nThe loop moves one file after the other over one socket \
         for each program, past the page cache as well, and waits for no answers.\nCPU: of the server on node 0, and \
         of the loop's far end there.",
        direct / all * 100.0
    )];
    Ok(Outcome { goals, tables: vec![table(&samples)], notes, samples: samples.0 })
}

fn label(what: &str, programs: usize) -> String {
    format!("{what}, {programs} programs")
}

/// Kinds and numbers of programs.
fn rows() -> impl Iterator<Item = (&'static str, usize)> {
    KINDS.into_iter().flat_map(|what| PROGRAMS.map(|n| (what, n)))
}

/// Files that a program of node 0 has written.
fn files_of_home(
    home: &mut Worker,
    directory: &Path,
    count: usize,
) -> anyhow::Result<Vec<PathBuf>> {
    home.perform(&Task::MakeDirectory { path: directory.to_owned() })?;
    let paths: Vec<PathBuf> = (0..count).map(|n| directory.join(n.to_string())).collect();
    for path in &paths {
        let fill = Sequential::new(Operation::New, path, BLOCKS);
        home.measure(&Task::Sequential(Sequential { keep: true, sync: true, ..fill }))?;
    }
    Ok(paths)
}

/// Also the bytes of the mount that went past the page cache.
fn measure(bench: &Bench, job: &Job<'_>) -> anyhow::Result<(Samples, f64)> {
    let (mut home, mut far_end) = (job.worker(0)?, job.worker(0)?);
    let most = *PROGRAMS.last().unwrap_or(&1);
    let mut clients: Vec<Worker> = (0..most).map(|_| job.worker(1)).collect::<Result<_, _>>()?;
    let native = files_of_home(&mut home, &job.image(0).join("bench-loop"), most)?;
    let left = files_of_home(&mut home, &job.shared().join("left"), most)?;
    let past = homed::make(job, &mut clients, &job.shared().join("past"), BLOCKS)?;
    let server = listen(&mut far_end, &job.nodes()[0].address)?;
    let milliseconds = bench.block_milliseconds() * 4;
    let mut samples = Samples::default();
    let before = job.counter("bytes_direct")?;
    for round in 0..bench.rounds(5, 11) {
        for (what, programs) in rows() {
            let write = what == "write";
            for variant in rounds::order(round, LOOP, &MOUNT) {
                let is_mount = MOUNT.contains(&variant);
                let served = if is_mount { job.nodes()[0].server } else { far_end.process() };
                let operation = if write { Operation::Overwrite } else { Operation::Read };
                let call = |path: &PathBuf| {
                    let work = Sequential::new(operation, path.clone(), BLOCKS);
                    Task::Sequential(Sequential { milliseconds, cold: true, ..work })
                };
                let task = |n: usize| match variant {
                    "mount" => call(&past[n]),
                    IN_MEMORY => call(&left[n]),
                    _ => {
                        let (path, blocks) = (native[n].clone(), BLOCKS);
                        let direct = true;
                        let transfer =
                            Transfer { server, path, write, direct, blocks, milliseconds };
                        Task::TcpTransfer(transfer)
                    }
                };
                let name = label(what, programs);
                rounds::measure(&mut samples, (&name, variant, round), &[served], || {
                    let clients = clients[..programs].iter_mut().enumerate();
                    together(clients.map(|(n, client)| (client, task(n))))
                })?;
            }
        }
    }
    let direct = job.counter("bytes_direct")? - before;
    Ok((samples, direct as f64))
}

fn listen(far_end: &mut Worker, address: &str) -> anyhow::Result<SocketAddr> {
    let address = address.parse().context("read the address of node 0")?;
    match far_end.perform(&Task::TcpServe { address })? {
        Answer::Listening { port } => Ok(SocketAddr::new(address, port)),
        answer => bail!("the far end answered {answer:?}"),
    }
}

/// CPU seconds of the serving side for each GB.
fn served(samples: &Samples, what: &str, variant: &str) -> f64 {
    samples.cpu_per_amount(what, variant).1 * GB
}

fn table(samples: &Samples) -> Table {
    let head = [
        "1 MiB calls",
        "loop MiB/s",
        "mount MiB/s",
        "ratio",
        "half between",
        "A/A",
        "serving CPU s/GB: loop",
        "mount",
    ];
    let mut table = Table::new("Files of another node", &head);
    let rows = MOUNT.into_iter().flat_map(|variant| rows().map(move |row| (variant, row)));
    for (variant, (what, programs)) in rows {
        let name = label(what, programs);
        let found = samples.compare(&name, variant, LOOP);
        let (low, high) = stats::quartiles(&found.ratios).unwrap_or((f64::NAN, f64::NAN));
        let figure = |values: &[f64]| number(stats::median(values).unwrap_or(f64::NAN));
        let rate = |variant: &str| number(samples.rate(&name, variant) / 1_048_576.0);
        table.row(vec![
            if variant == IN_MEMORY { format!("{name}, in memory") } else { name.clone() },
            rate("loop"),
            rate(variant),
            figure(&found.ratios),
            format!("{}-{}", number(low), number(high)),
            figure(&found.same),
            number(served(samples, &name, "loop")),
            number(served(samples, &name, variant)),
        ]);
    }
    table
}
