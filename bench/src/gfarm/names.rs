//! Names and inodes through our mount, against gfarm2fs: both ask the same metadata server.

use std::path::PathBuf;

use anyhow::Context;

use super::cluster::{Cluster, HAYASE};
use super::programs::{fastest, start};
use crate::bench::Bench;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds;
use crate::sample::{Measured, Sample, Samples};
use crate::stats;
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::metadata::{Metadata, Operation};

/// Options of gfarm2fs (see `bench/gfarm/cluster.sh`).
const KINDS: [&str; 2] = ["big", "closed"];
const TRIES: usize = 3;

const OTHER: [&str; 2] = ["gfarm2fs", "gfarm2fs again"];
const MOUNT: &str = "mount";
/// No mount at all.
const BARE: &str = "libgfarm";
const BARE_PROGRAM: &str = "bench/gfarm/bare.py";

/// Of gfarm2fs, with a goal or without. In this order in a directory.
const ROWS: [(&str, Operation, Option<f64>); 4] = [
    ("create+close", Operation::Create, Some(5.0)),
    (FIRST_STAT, Operation::Look, Some(5.0)),
    ("stat, again", Operation::Stat, None),
    ("unlink", Operation::Unlink, None),
];
/// Of files that another node made.
const FIRST_STAT: &str = "stat";

/// One program on node 1, and one on node 2 that makes what the first finds.
struct Programs<'a> {
    cluster: &'a Cluster,
    workers: Vec<Worker>,
    files: u64,
}

impl Programs<'_> {
    fn task(&self, (kind, node): (&str, u16), operation: Operation, prefix: &str) -> Task {
        Task::Metadata(Metadata {
            operation,
            directory: self.directory(kind, node),
            prefix: prefix.to_owned(),
            files: self.files,
            milliseconds: 0,
        })
    }

    fn directory(&self, kind: &str, node: u16) -> PathBuf {
        self.cluster.mount(kind, node).join("names")
    }

    /// Runs a block on files that are there when they must be, and not when they must not; none is left.
    fn one<T>(
        &mut self,
        kind: &str,
        operation: Operation,
        prefix: &str,
        block: impl FnOnce(&mut Worker, &Task) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        if operation != Operation::Create {
            let task = self.task((HAYASE, 2), Operation::Create, prefix);
            self.workers[1].measure(&task)?;
        }
        let task = self.task((kind, 1), operation, prefix);
        let found = block(&mut self.workers[0], &task)?;
        if operation != Operation::Unlink {
            let task = self.task((HAYASE, 2), Operation::Unlink, prefix);
            self.workers[1].measure(&task)?;
        }
        self.cluster.await_removals()?;
        Ok(found)
    }

    /// Creates and closes by libgfarm alone, in one process of node 1; none is left.
    fn bare(&self, round: usize) -> anyhow::Result<Sample> {
        let (name, files) = (format!("bare-{round}"), self.files.to_string());
        let directory = self.directory(HAYASE, 1).join(&name);
        let said =
            self.cluster.on(1, &["python3", BARE_PROGRAM, &format!("/names/{name}"), &files])?;
        let seconds = said.trim().parse().context("how long libgfarm took")?;
        std::fs::remove_dir_all(&directory).context("remove what libgfarm made")?;
        self.cluster.await_removals()?;
        let measured = Measured { amount: self.files as f64, seconds, own_cpu: 0.0 };
        let (what, variant) = (ROWS[0].0.to_owned(), BARE.to_owned());
        let (meanwhile_cpu, served_cpu, requests) = (0.0, 0.0, None);
        Ok(Sample {
            what,
            variant,
            round,
            measured,
            meanwhile_cpu,
            served_cpu,
            requests,
            ..Sample::default()
        })
    }
}

/// All rows, in turns with gfarm2fs.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let cluster = Cluster::up(bench, &KINDS)?;
    let (workers, files) = (start(bench, 2)?, bench.rounds(200, 500) as u64);
    let mut programs = Programs { cluster: &cluster, workers, files };
    std::fs::create_dir(programs.directory(HAYASE, 1))?;
    let mut best = Vec::new();
    for (what, operation, _) in ROWS {
        best.push(fastest(&KINDS, TRIES, |kind, attempt| {
            let prefix = format!("try-{what}-{kind}-{attempt}-").replace("+", "-");
            programs.one(kind, operation, &prefix, Worker::measure)
        })?);
    }
    let mut samples = Samples::default();
    for round in 0..=bench.rounds(8, 20) {
        for ((what, operation, _), best) in ROWS.into_iter().zip(&best) {
            for variant in rounds::order(round, OTHER, &[MOUNT]) {
                let kind = if variant == MOUNT { HAYASE } else { best };
                let served = cluster.daemons(kind);
                let mut of_round = Samples::default();
                let prefix = format!("{what}-{variant}-{round}-");
                programs.one(kind, operation, &prefix, |worker, task| {
                    let place = (what, variant, round);
                    rounds::measure(&mut of_round, place, &served, || worker.measure(task))
                })?;
                // The first round makes connections.
                samples.0.extend(of_round.0.into_iter().filter(|_| round > 0));
            }
        }
        let bare = programs.bare(round)?;
        samples.0.extend((round > 0).then_some(bare));
    }
    drop(programs);
    Ok(judge(files, samples, &best))
}

fn judge(files: u64, samples: Samples, best: &[&str]) -> Outcome {
    let head = [
        "per second",
        "mount",
        "gfarm2fs",
        "its options",
        "of gfarm2fs",
        "half between",
        "A/A",
        "our CPU us each",
        "its",
    ];
    let mut table = Table::new("1 program on node 1", &head);
    let mut goals = Vec::new();
    for ((what, _, wanted), best) in ROWS.into_iter().zip(best) {
        let found = samples.compare(what, MOUNT, OTHER);
        let figure = |values: &[f64]| stats::median(values).unwrap_or(f64::NAN);
        let (low, high) = stats::quartiles(&found.ratios).unwrap_or((f64::NAN, f64::NAN));
        let cpu = |variant| number(samples.cpu_per_amount(what, variant).1 * 1e6);
        table.row(vec![
            what.to_owned(),
            number(samples.rate(what, MOUNT)),
            number(samples.rate(what, OTHER[0])),
            (*best).to_owned(),
            number(figure(&found.ratios)),
            format!("{}-{}", number(low), number(high)),
            number(figure(&found.same)),
            cpu(MOUNT),
            cpu(OTHER[0]),
        ]);
        if let Some(wanted) = wanted {
            let name = format!("{what} through the mount, of gfarm2fs");
            let goal = Goal::new(name, figure(&found.ratios), "", Wanted::AtLeast(wanted));
            goals.push(goal.same_as(found.same));
        }
    }
    let bare = samples.rate(ROWS[0].0, BARE);
    let bare_ratio = bare / samples.rate(ROWS[0].0, OTHER[0]);
    let notes = vec![format!(
        "{files} files in one directory, one call after the other. The row \"{FIRST_STAT}\" is the first look at files that \
         another node has just made; \"stat, again\" is of what has just been looked at, which the kernel answers by \
         itself where a mount lets it.\nA create asks the metadata server whether \
         the name is there, for the file, for its attributes and for its close, and a file server for its place, so that the \
         kernel can write it by itself; after eight files in a row that stayed without bytes our mount asks for no place \
         and for no attributes, and closes behind close(2). gfarm2fs always asks. libgfarm \
         alone, in one process without any mount, looks up, makes and closes {} a second, {} of gfarm2fs \
         (`{BARE_PROGRAM}`). Many looks in one directory are one request of our mount.\nOptions of gfarm2fs: `big` is `big_writes`, with attributes and names up to a second old (a second and a \
         half in our mount); `closed` always asks.",
        number(bare),
        number(bare_ratio),
    )];
    Outcome { goals, tables: vec![table], notes, samples: samples.0 }
}
