//! A file on another node, against the least that could move the same bytes: one socket, blocking
//! calls of 1 MiB, and a file at the far end.

use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};

use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds;
use crate::sample::{Sample, Samples};
use crate::stats;
use crate::worker::Worker;
use crate::workloads::sequential::{Operation, Sequential};
use crate::workloads::tcp_loop::Transfer;
use crate::workloads::{Answer, Task};

/// Size of each file, in blocks of 1 MiB.
const BLOCKS: u64 = 128;

const TCP: [&str; 2] = ["tcp", "tcp again"];
const KINDS: [&str; 2] = ["read", "write"];
const WANTED: f64 = 0.5;
const GIB: f64 = (1 << 30) as f64;

/// Node 1 reads and writes files of node 0.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let job = Job::up(bench, &JobOptions::nodes(2))?;
    let samples = measure(bench, &job)?;
    job.down()?;
    let goal = |what: &&str| {
        let found = samples.compare(what, "mount", TCP);
        let figure = stats::median(&found.ratios).unwrap_or(f64::NAN);
        let name = format!("remote file, {what}, of a TCP loop");
        Goal::new(name, figure, "", Wanted::AtLeast(WANTED)).same_as(found.same)
    };
    let notes = vec![format!(
        "A program on node 1, a file of {BLOCKS} MiB whose part is on node 0, 1 MiB calls. The file is in the page \
         cache of node 0;\nnode 1 drops its own pages before each pass, so every byte travels. Nothing is synced.\n\
         CPU is that of all processes of both nodes: program, daemons, and the loop's far end."
    )];
    let goals = KINDS.iter().map(goal).collect();
    Ok(Outcome { goals, tables: vec![table(&samples)], notes, samples: samples.0 })
}

fn measure(bench: &Bench, job: &Job<'_>) -> anyhow::Result<Samples> {
    let (mut home, mut far_end, mut client) = (job.worker(0)?, job.worker(0)?, job.worker(1)?);
    let beside = job.image(0).join("bench-tcp");
    home.perform(&Task::MakeDirectory { path: beside.clone() })?;
    home.perform(&Task::MakeDirectory { path: job.shared().join("bench") })?;
    let (native, shared) = (beside.join("file"), job.shared().join("bench/file"));
    for path in [&native, &shared] {
        let fill = Sequential::new(Operation::New, path, BLOCKS);
        home.measure(&Task::Sequential(Sequential { keep: true, ..fill }))?;
    }
    let server = listen(&mut far_end, &job.nodes()[0].address)?;
    let mut served = job.daemons();
    served.push(far_end.process());
    let milliseconds = bench.block_milliseconds() * 2;
    let read_before = job.counter("bytes_read")?;
    let mut samples = Samples::default();
    for round in 0..bench.rounds(7, 15) {
        for what in KINDS {
            let write = what == "write";
            for variant in rounds::order(round, TCP, &["mount"]) {
                let task = if variant == "mount" {
                    let operation = if write { Operation::Overwrite } else { Operation::Read };
                    let work = Sequential::new(operation, &shared, BLOCKS);
                    Task::Sequential(Sequential { milliseconds, cold: true, ..work })
                } else {
                    let path = native.clone();
                    Task::TcpTransfer(Transfer {
                        server,
                        path,
                        write,
                        direct: false,
                        blocks: BLOCKS,
                        milliseconds,
                    })
                };
                let place = (what, variant, round);
                rounds::measure(&mut samples, place, &served, || client.measure(&task))?;
            }
        }
    }
    check_travelled(&samples, job.counter("bytes_read")? - read_before)?;
    Ok(samples)
}

fn listen(far_end: &mut Worker, address: &str) -> anyhow::Result<SocketAddr> {
    let address = address.parse().context("read the address of node 0")?;
    match far_end.perform(&Task::TcpServe { address })? {
        Answer::Listening { port } => Ok(SocketAddr::new(address, port)),
        answer => bail!("the far end answered {answer:?}"),
    }
}

/// Reads that a cache of node 1 had answered would prove nothing.
fn check_travelled(samples: &Samples, served: u64) -> anyhow::Result<()> {
    let read: f64 = samples.of("read", "mount").map(|sample| sample.measured.amount).sum();
    ensure!(
        served as f64 >= read * 0.99,
        "{read} bytes were read through the mount, but the servers gave only {served}"
    );
    Ok(())
}

fn table(samples: &Samples) -> Table {
    let head = [
        "1 MiB calls",
        "TCP loop MiB/s",
        "mount MiB/s",
        "ratio",
        "half between",
        "A/A",
        "CPU s/GiB: TCP",
        "mount",
    ];
    let mut table = Table::new("Remote file, one part", &head);
    for what in KINDS {
        let found = samples.compare(what, "mount", TCP);
        let (low, high) = stats::quartiles(&found.ratios).unwrap_or((f64::NAN, f64::NAN));
        let figure = |values: &[f64]| number(stats::median(values).unwrap_or(f64::NAN));
        let rate = |variant: &str| number(samples.rate(what, variant) / 1_048_576.0);
        table.row(vec![
            what.to_owned(),
            rate("tcp"),
            rate("mount"),
            figure(&found.ratios),
            format!("{}-{}", number(low), number(high)),
            figure(&found.same),
            number(cpu_per_gib(samples, what, "tcp")),
            number(cpu_per_gib(samples, what, "mount")),
        ]);
    }
    table
}

fn cpu_per_gib(samples: &Samples, what: &str, variant: &str) -> f64 {
    let of = |sample: &Sample| {
        (sample.measured.own_cpu + sample.served_cpu) / sample.measured.amount * GIB
    };
    let figures: Vec<f64> = samples.of(what, variant).map(of).collect();
    stats::median(&figures).unwrap_or(f64::NAN)
}
