//! Large calls to files of another node, past its page cache, by several programs at once; against the least
//! that could move the same bytes: a blocking loop for each program that receives and writes, or reads and sends.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};

use super::at_once::together;
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
         mount's bytes went past the page cache of node 0.\nThe loop moves one file after the other over one socket \
         for each program, past the page cache as well, and waits for no answers.\nCPU: of the server on node 0, and \
         of the loop's far end there.",
        direct / all * 100.0
    )];
    Ok(Outcome { goals, tables: vec![table(&samples)], notes, samples: samples.0 })
}

fn label(what: &str, programs: usize) -> String {
    format!("{what}, {programs} programs")
}

/// Also the bytes of the mount that went past the page cache.
fn measure(bench: &Bench, job: &Job<'_>) -> anyhow::Result<(Samples, f64)> {
    let (mut home, mut far_end) = (job.worker(0)?, job.worker(0)?);
    let most = *PROGRAMS.last().unwrap_or(&1);
    let mut clients: Vec<Worker> = (0..most).map(|_| job.worker(1)).collect::<Result<_, _>>()?;
    let (native, shared) = (job.image(0).join("bench-loop"), job.shared().join("bench"));
    let files = |directory: &PathBuf| -> Vec<PathBuf> {
        (0..most).map(|n| directory.join(n.to_string())).collect()
    };
    // What a program of node 0 writes stays in its memory, and is served from there: of the files one block.
    for (directory, blocks) in [(&native, BLOCKS), (&shared, 1)] {
        home.perform(&Task::MakeDirectory { path: directory.clone() })?;
        for path in files(directory) {
            let fill = Sequential::new(Operation::New, path, blocks);
            home.measure(&Task::Sequential(Sequential { keep: true, sync: true, ..fill }))?;
        }
    }
    home.perform(&Task::Evict { path: job.image(0) })?;
    let server = listen(&mut far_end, &job.nodes()[0].address)?;
    let milliseconds = bench.block_milliseconds() * 4;
    let mut samples = Samples::default();
    // The first writers of node 1 find out that nobody maps the files any more; the second pass by the page cache.
    let warm_up =
        |path| Sequential { cold: true, ..Sequential::new(Operation::Overwrite, path, BLOCKS) };
    for _ in 0..2 {
        for (client, path) in clients.iter_mut().zip(files(&shared)) {
            client.measure(&Task::Sequential(warm_up(path)))?;
        }
    }
    let before = job.counter("bytes_direct")?;
    for round in 0..bench.rounds(5, 11) {
        for (what, programs) in KINDS.iter().flat_map(|what| PROGRAMS.map(|n| (*what, n))) {
            let write = what == "write";
            for variant in rounds::order(round, LOOP, &["mount"]) {
                let served =
                    if variant == "mount" { job.nodes()[0].server } else { far_end.process() };
                let task = |n: usize| match variant {
                    "mount" => {
                        let operation = if write { Operation::Overwrite } else { Operation::Read };
                        let work = Sequential::new(operation, files(&shared)[n].clone(), BLOCKS);
                        Task::Sequential(Sequential { milliseconds, cold: true, ..work })
                    }
                    _ => {
                        let (path, blocks) = (files(&native)[n].clone(), BLOCKS);
                        Task::TcpTransfer(Transfer {
                            server,
                            path,
                            write,
                            direct: true,
                            blocks,
                            milliseconds,
                        })
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
    let mut table = Table::new("Files of another node, past its page cache", &head);
    for (what, programs) in KINDS.iter().flat_map(|what| PROGRAMS.map(|n| (*what, n))) {
        let name = label(what, programs);
        let found = samples.compare(&name, "mount", LOOP);
        let (low, high) = stats::quartiles(&found.ratios).unwrap_or((f64::NAN, f64::NAN));
        let figure = |values: &[f64]| number(stats::median(values).unwrap_or(f64::NAN));
        let rate = |variant: &str| number(samples.rate(&name, variant) / 1_048_576.0);
        table.row(vec![
            name.clone(),
            rate("loop"),
            rate("mount"),
            figure(&found.ratios),
            format!("{}-{}", number(low), number(high)),
            figure(&found.same),
            number(served(samples, &name, "loop")),
            number(served(samples, &name, "mount")),
        ]);
    }
    table
}
