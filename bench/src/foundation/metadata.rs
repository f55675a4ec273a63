//! Names and inodes through the mount, against the least FUSE daemon with passthrough on the same
//! image; stat(2) of what the kernel has cached, against the image itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::minimal::Minimal;
use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds;
use crate::sample::Samples;
use crate::stats;
use crate::workloads::Task;
use crate::workloads::library::Library;
use crate::workloads::metadata::{Metadata, Operation};

const MINIMAL: [&str; 2] = ["minimal", "minimal again"];
const NATIVE: [&str; 2] = ["native", "native again"];

/// Name, operation, what it is measured against, what else is shown. In this order in a directory.
const KINDS: [(&str, Operation, [&str; 2], [&str; 2]); 5] = [
    ("create+close", Operation::Create, MINIMAL, ["mount", "native"]),
    ("stat, cached", Operation::Stat, NATIVE, ["mount", "minimal"]),
    ("open+close", Operation::Open, MINIMAL, ["mount", "native"]),
    (FIRST_OPEN, Operation::Open, MINIMAL, ["mount", "native"]),
    ("unlink", Operation::Unlink, MINIMAL, ["mount", "native"]),
];

/// Of files that the mount has never seen: programs made them by the client library. No goal: what the
/// mount has made itself it may open without asking, and this shows the price of asking.
const FIRST_OPEN: &str = "open+close, first";

/// Of the directory in which names are made and removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// Only the program has ever made some: they are at its node.
    Own,
    /// Another node has, too: they are at all nodes, two of three elsewhere.
    Spread,
}

/// So many changes by another node spread the names of a directory, many times over.
const FILES_OF_OTHERS: u64 = 64;

/// They are spread within this.
const SPREADING: Duration = Duration::from_secs(1);

/// One node: every name and inode is at home.
pub(crate) fn run_on_one_node(bench: &Bench) -> anyhow::Result<Outcome> {
    let wanted =
        [("create+close", 0.5), ("open+close", 0.7), ("unlink", 0.5), ("stat, cached", 0.9)];
    run(bench, (1, Names::Own), &wanted)
}

/// Three nodes: the program works in a directory of its own.
pub(crate) fn run_on_three_nodes(bench: &Bench) -> anyhow::Result<Outcome> {
    let wanted = [("create+close", 0.35), ("open+close", 0.35), ("unlink", 0.35)];
    run(bench, (3, Names::Own), &wanted)
}

/// The same where another node was busy in the directory. No goal: the price of sharing one.
pub(crate) fn run_in_a_spread_directory(bench: &Bench) -> anyhow::Result<Outcome> {
    run(bench, (3, Names::Spread), &[])
}

fn run(
    bench: &Bench,
    (nodes, names): (u16, Names),
    wanted: &[(&str, f64)],
) -> anyhow::Result<Outcome> {
    let job = Job::up(bench, &JobOptions { shared: "500MiB", ..JobOptions::nodes(nodes) })?;
    let samples = measure(bench, &job, names)?;
    job.down()?;
    let goal = |(what, wanted): &(&str, f64)| {
        let kind = KINDS.iter().find(|(name, ..)| name == what);
        let baseline = kind.map_or(MINIMAL, |(_, _, baseline, _)| *baseline);
        let found = samples.compare(what, "mount", baseline);
        let figure = stats::median(&found.ratios).unwrap_or(f64::NAN);
        let against =
            if baseline == NATIVE { "of native" } else { "of a minimal passthrough daemon" };
        let count = if nodes == 1 { "one node" } else { "three nodes" };
        let name = format!("{what}, {count}, {against}");
        Goal::new(name, figure, "", Wanted::AtLeast(*wanted)).same_as(found.same)
    };
    let whose = match names {
        Names::Own => "Nobody else works in the directory, whose names are at its node.",
        Names::Spread => {
            "Another node has made files in the directory before: its names are at all nodes."
        }
    };
    let notes = vec![format!(
        "{whose}\nOne program on node 0 of {nodes}, {} files in one directory, one call after the other; opened are files that \
         it has just made,\nand in the row \"{FIRST_OPEN}\" files that another program made by the client library: each \
         is looked up and opened once.\nThe minimal daemon: \
         same `fuser`, two threads, a directory of the same XFS image, one `O_PATH` descriptor per inode, nothing \
         written down.",
        files(bench)
    )];
    let goals = wanted.iter().map(goal).collect();
    Ok(Outcome { goals, tables: vec![table(&samples, (nodes, names))], notes, samples: samples.0 })
}

fn files(bench: &Bench) -> u64 {
    bench.rounds(100, 200) as u64
}

fn rounds(bench: &Bench) -> usize {
    bench.rounds(25, 51)
}

/// Another node makes files in the directory, and takes them away.
fn spread_names(job: &Job<'_>, directory: &Path) -> anyhow::Result<()> {
    let mut other = job.worker(1)?;
    for operation in [Operation::Create, Operation::Unlink] {
        other.measure(&Task::Metadata(Metadata {
            operation,
            directory: directory.to_owned(),
            prefix: "other-".to_owned(),
            files: FILES_OF_OTHERS,
            milliseconds: 0,
        }))?;
    }
    std::thread::sleep(SPREADING);
    Ok(())
}

fn measure(bench: &Bench, job: &Job<'_>, names: Names) -> anyhow::Result<Samples> {
    let mut worker = job.worker(0)?;
    let (source, native) = (job.image(0).join("bench-minimal"), job.image(0).join("bench-native"));
    let shared = job.shared().join("bench");
    let mut make = |path: PathBuf| worker.perform(&Task::MakeDirectory { path });
    make(shared.clone())?;
    for name in ["a", "b"] {
        make(source.join(name))?;
        make(native.join(name))?;
    }
    let made = Library {
        socket: job.socket(0),
        directory: "bench-first".to_owned(),
        threads: rounds(bench) as u64,
        files: files(bench),
        remove: false,
    };
    job.linked_worker(0)?.measure(&Task::Library(made))?;
    if names == Names::Spread {
        spread_names(job, &shared)?;
    }
    let minimal = Minimal::start(bench, job, &source)?;
    // Where XFS puts a directory makes a tenth of difference: the two of a baseline take turns.
    let directory = |variant: &str, round: usize| {
        let mine = if round.is_multiple_of(2) == variant.ends_with("again") { "b" } else { "a" };
        match variant {
            "minimal" | "minimal again" => minimal.path().join(mine),
            "native" | "native again" => native.join(mine),
            _ => shared.clone(),
        }
    };
    let mut served = job.daemons();
    served.push(minimal.process());
    let mut samples = Samples::default();
    for round in 0..rounds(bench) {
        for (what, operation, baseline, others) in KINDS {
            let mut order = rounds::order(round, baseline, &others);
            // Every directory goes through all operations, also where nothing is compared.
            let all = ["minimal", "minimal again", "native", "native again", "mount"];
            order.extend(all.iter().filter(|name| !order.contains(*name)).collect::<Vec<_>>());
            for variant in order {
                let (directory, prefix) = match (what, variant) {
                    (FIRST_OPEN, "mount") => {
                        (job.shared().join("bench-first"), format!("{round}-"))
                    }
                    _ => (directory(variant, round), format!("file-{round}-")),
                };
                let work = Metadata {
                    operation,
                    directory,
                    prefix,
                    files: files(bench),
                    milliseconds: bench.block_milliseconds() / 4,
                };
                let task = Task::Metadata(work);
                rounds::measure(&mut samples, (what, variant, round), &served, || {
                    worker.measure(&task)
                })?;
            }
        }
    }
    Ok(samples)
}

fn table(samples: &Samples, (nodes, names): (u16, Names)) -> Table {
    let head = [
        "1000 per second",
        "native",
        "minimal",
        "mount",
        "of minimal",
        "of native",
        "half between",
        "A/A",
        "our CPU us each",
        "minimal's",
    ];
    let title = match (nodes, names) {
        (1, _) => "Names, one node",
        (_, Names::Own) => "Names, three nodes",
        (_, Names::Spread) => "Names, three nodes, spread",
    };
    let mut table = Table::new(title, &head);
    for (what, _, baseline, _) in KINDS {
        let of = |pair| samples.compare(what, "mount", pair);
        let found = of(baseline);
        let (low, high) = stats::quartiles(&found.ratios).unwrap_or((f64::NAN, f64::NAN));
        let figure = |values: &[f64]| number(stats::median(values).unwrap_or(f64::NAN));
        let rate = |variant: &str| number(samples.rate(what, variant) / 1000.0);
        let cpu = |variant| number(samples.cpu_per_amount(what, variant).1 * 1e6);
        table.row(vec![
            what.to_owned(),
            rate("native"),
            rate("minimal"),
            rate("mount"),
            figure(&of(MINIMAL).ratios),
            figure(&of(NATIVE).ratios),
            format!("{}-{}", number(low), number(high)),
            figure(&found.same),
            cpu("mount"),
            cpu("minimal"),
        ]);
    }
    table
}
