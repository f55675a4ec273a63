//! A file in parts, read as the plain file that a mount shows, against a striped file that is read the same way.
//!
//! The reader knows nothing of parts: one process that reads the whole file in order, by calls of 1 MiB, and checks
//! every byte. It reads in `shared` of a job, from another node than most of the bytes; and from a mount of a
//! directory of containers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::launch::{By, Mpi, Said, tool, words};
use super::patterns::push;
use crate::bench::Bench;
use crate::command::run as run_command;
use crate::guard::unmount;
use crate::job::{Job, JobOptions};
use crate::journal::Thing;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds::order;
use crate::sample::{Measured, Samples};
use crate::stats;
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::evict::evict;

const NODES: u16 = 3;
/// Has written a third of the bytes.
const READER: u16 = 1;
const STRIPED: [&str; 2] = ["striped", "striped again"];
/// In `shared`, and by `hayase mount`.
const OURS: [&str; 2] = ["shared", "mount"];
/// Cold: nowhere in memory. Warm: in the memory of the nodes that have the bytes, but not behind the reader's mount.
const CACHES: [&str; 2] = ["warm", "cold"];
const IN_ORDER: &str = "pattern=blocks block=1048576 calls=own";
const WANTED: f64 = 0.7;
const PATIENCE: Duration = Duration::from_secs(60);

/// How the file in parts is written. What a file holds tells the place of each word, whoever wrote it and how.
struct Case {
    name: &'static str,
    file: &'static str,
    pattern: &'static str,
    step: u64,
}

const CASES: &[Case] = &[
    Case {
        name: "nested sub-arrays",
        file: "nested",
        pattern: "pattern=nested side=48",
        step: 48 * 48 * 48 * 40,
    },
    Case {
        name: "47008 B blocks",
        file: "blocks",
        pattern: "pattern=blocks block=47008 calls=own",
        step: NODES as u64 * 47008,
    },
];

/// A job and a mount of a directory with the same files in both.
struct Ground<'a> {
    mpi: Mpi,
    mount: Mounted<'a>,
    reader: Worker,
    job: Job<'a>,
}

/// A directory of containers, mounted; until it is dropped.
struct Mounted<'a> {
    bench: &'a Bench,
    point: PathBuf,
}

impl<'a> Mounted<'a> {
    fn new(bench: &'a Bench, directory: &Path) -> anyhow::Result<Self> {
        let point = bench.scratch().join(bench.new_name());
        std::fs::create_dir(&point)?;
        bench.guard().made(Thing::Mount(point.clone()))?;
        let mounted = Self { bench, point };
        tool(Command::new(bench.hayase()).arg("mount").arg(directory).arg(&mounted.point))?;
        Ok(mounted)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        unmount(&self.point);
        let _ = self.bench.guard().removed(Thing::Mount(self.point.clone()));
    }
}

/// Written by one process on each node.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let mib = bench.rounds(96, 512) as u64;
    let mut ground = Ground::new(bench, mib)?;
    let mut samples = Samples::default();
    for round in 0..bench.rounds(3, 7) {
        for case in CASES {
            for cache in CACHES {
                for variant in order(round, STRIPED, &OURS) {
                    let measured = ground.read(case, variant, cache, mib)?;
                    push(&mut samples, &what(case, cache), (variant, round), measured);
                }
            }
        }
    }
    ground.end()?;
    Ok(judge(mib, samples))
}

impl<'a> Ground<'a> {
    fn new(bench: &'a Bench, mib: u64) -> anyhow::Result<Self> {
        let mpi = Mpi::any(bench)?;
        let job = Job::up(bench, &JobOptions::nodes(NODES))?;
        let (ours, striped) = (job.shared().join("ours"), job.shared().join("striped"));
        let end = |mut command: Command| run_command(&mut command, PATIENCE)?.success("a command");
        let mut mkdir = job.on_node(0, "mkdir");
        mkdir.args([&ours, &striped]);
        end(mkdir)?;
        let mut layout = job.on_node(0, bench.hayase());
        layout.args(["layout", "set", "--stripe", "1MiB", "--width", "3"]).arg(&striped);
        end(layout)?;
        let write = |by, path: PathBuf, line: &str| {
            let on_node = |program: &str| job.on_node(0, program);
            mpi.run_at(on_node, by, NODES.into(), (&path, &words(line)))
        };
        for case in CASES {
            let steps = (mib << 20).div_ceil(case.step);
            let line = format!("{} steps={steps} check=all do=write", case.pattern);
            write(By::Hayase, ours.join(case.file), &line)?;
            mpi.run(By::Hayase, NODES.into(), case.file, &words(&line))?;
            let steps = mib.div_ceil(NODES.into());
            let line = format!("{IN_ORDER} steps={steps} check=all do=write");
            write(By::STOCK, striped.join(case.file), &line)?;
        }
        let mount = Mounted::new(bench, &mpi.path(By::Hayase, ""))?;
        let reader = job.worker(READER)?;
        Ok(Self { mpi, mount, reader, job })
    }

    /// Where the reader finds it.
    fn path(&self, case: &Case, variant: &str) -> PathBuf {
        match variant {
            "shared" => self.job.shared().join("ours").join(case.file),
            "mount" => self.mount.point.join(case.file),
            _ => self.job.shared().join("striped").join(case.file),
        }
    }

    fn read(
        &mut self,
        case: &Case,
        variant: &str,
        cache: &str,
        mib: u64,
    ) -> anyhow::Result<Measured> {
        let path = self.path(case, variant);
        match cache {
            "cold" => drop_caches()?,
            // Whatever was dropped before is read once more.
            _ => drop(self.read_once(variant, &path, mib)?),
        }
        // What the reader's mount has of it.
        match variant {
            "mount" => evict(&path)?,
            _ => drop(self.reader.perform(&Task::Evict { path: path.clone() })?),
        }
        Ok(self.read_once(variant, &path, mib)?.phases("read")?.calls())
    }

    fn read_once(&self, variant: &str, path: &Path, mib: u64) -> anyhow::Result<Said> {
        let arguments = words(&format!("{IN_ORDER} steps={mib} check=all do=read"));
        let start = |program: &Path| match variant {
            "mount" => Command::new(program),
            _ => self.job.on_node(READER, program),
        };
        self.mpi.run_alone(start, (path, &arguments))
    }

    fn end(self) -> anyhow::Result<()> {
        drop((self.reader, self.mount));
        self.mpi.clean()?;
        self.job.down().map(drop)
    }
}

/// Of every file system: what is dirty is written, what is clean is dropped.
pub(super) fn drop_caches() -> anyhow::Result<()> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "1").context("drop cached pages")
}

fn what(case: &Case, cache: &str) -> String {
    format!("{}, {cache}", case.name)
}

fn judge(mib: u64, samples: Samples) -> Outcome {
    let note = format!(
        "{mib} MiB, written by 3 processes on 3 nodes; one process reads all of it in order by calls of 1 MiB (the calls \
         alone are timed) and checks every byte. In `shared`, striped (1 MiB over the 3 nodes) and in parts alike, from \
         node {READER}, which has a third of the bytes; `hayase mount` shows a directory of containers on this machine's \
         disk. Cold: in no memory. Warm: in memory of the nodes that have the bytes, but not behind the reader's mount. \
         Disks and links of the nodes are this machine's."
    );
    let mut outcome = Outcome { notes: vec![note], ..Outcome::default() };
    let head = [
        "through a mount",
        "striped MiB/s",
        "A/A",
        "in parts MiB/s",
        "ratio",
        "hayase mount MiB/s",
        "ratio",
    ];
    let mut table = Table::new("Read in order", &head);
    for what in CASES.iter().flat_map(|case| CACHES.map(|cache| what(case, cache))) {
        let rate = |variant: &str| number(samples.rate(&what, variant) / 1_048_576.0);
        let same = samples.compare(&what, OURS[0], STRIPED).same;
        let mut row =
            vec![what.clone(), rate(STRIPED[0]), number(stats::median(&same).unwrap_or(f64::NAN))];
        for (variant, place) in OURS.into_iter().zip(["in `shared`", "by `hayase mount`"]) {
            let found = samples.compare(&what, variant, STRIPED);
            let figure = stats::median(&found.ratios).unwrap_or(f64::NAN);
            row.extend([rate(variant), number(figure)]);
            let name = format!("{what}, read {place}: of a striped file");
            let goal = Goal::new(name, figure, "", Wanted::AtLeast(WANTED));
            outcome.goals.push(goal.same_as(found.same));
        }
        table.row(row);
    }
    outcome.tables.push(table);
    outcome.samples = samples.0;
    outcome
}
