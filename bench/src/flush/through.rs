//! Half an area is written into `cache` and into `shared`, in turn; then it drains, and is read again, first from
//! the copy and then, when the copy was given up, from the tier. At the end twice the area is written at once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::slow_tier::SlowTier;
use crate::bench::Bench;
use crate::command::run as run_command;
use crate::disk_limit::{self, DiskLimit};
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds;
use crate::sample::{Measured, Sample, Samples};
use crate::stats;
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::sequential::{Operation, Sequential};

/// Of the tier's disk, in each direction.
const LIMIT_MIB: u64 = 80;

const PLAIN: [&str; 2] = ["shared", "shared again"];
const PATIENCE: Duration = Duration::from_secs(600);

/// MiB of the area: of a quick run, and of a full one.
const AREAS: [(u64, &str); 2] = [(1024, "1GiB"), (8192, "8GiB")];

/// All of it on one node.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let (area, shared) = AREAS[bench.rounds(0, 1)];
    let tier = SlowTier::new(bench, (area * 4) << 20)?;
    let limit = DiskLimit::new(bench.guard())?;
    limit.limit(&tier.device()?, LIMIT_MIB << 20)?;
    let options = JobOptions { shared, tier: Some(tier.path().to_owned()), ..JobOptions::nodes(1) };
    let job = Job::up(bench, &options)?;
    let mut worker = job.worker(0)?;
    let node = &job.nodes()[0];
    for process in [node.server, worker.process()] {
        limit.add(process)?;
    }
    let direct = disk_limit::prove(&mut worker, tier.path(), 128, LIMIT_MIB)?;
    let mut measured = Through {
        bench,
        job: &job,
        tier: tier.path(),
        worker: &mut worker,
        samples: Samples::default(),
    };
    for round in 0..bench.rounds(3, 7) {
        for variant in rounds::order(round, PLAIN, &["cache"]) {
            measured.one(variant, round, area / 2)?;
        }
    }
    measured.twice(area)?;
    let samples = std::mem::take(&mut measured.samples);
    drop(worker);
    job.down()?;
    Ok(outcome(samples, direct, area))
}

struct Through<'a> {
    bench: &'a Bench,
    job: &'a Job<'a>,
    tier: &'a Path,
    worker: &'a mut Worker,
    samples: Samples,
}

impl Through<'_> {
    /// One file of so many MiB, in one of the areas.
    fn one(&mut self, variant: &str, round: usize, blocks: u64) -> anyhow::Result<()> {
        let is_cached = variant == "cache";
        let place = if is_cached { self.job.cache() } else { self.job.shared() };
        let path = place.join("f");
        let write = Sequential::new(Operation::New, &path, blocks);
        let write = Task::Sequential(Sequential { keep: true, ..write });
        let found = self.worker.measure(&write)?;
        self.keep("write", variant, round, found);
        if is_cached {
            let drained = self.drain()?;
            self.keep("drain", variant, round, drained);
        }
        let read = || Task::Sequential(Sequential::new(Operation::Read, &path, blocks));
        for what in ["read warm", "read again"] {
            let found = self.worker.measure(&read())?;
            self.keep(what, variant, round, found);
        }
        if is_cached {
            self.hayase(&["evict"], &path)?;
            self.worker.perform(&Task::Evict { path: self.tier.to_owned() })?;
            let found = self.worker.measure(&read())?;
            self.keep("read from the tier", variant, round, found);
        }
        let mut remove = self.job.on_node(0, "rm");
        run_command(remove.arg(&path), PATIENCE)?.success("remove the file")?;
        self.drain()?;
        Ok(())
    }

    /// Twice the area, in files of an eighth of it: who writes waits for the tier.
    fn twice(&mut self, area: u64) -> anyhow::Result<()> {
        let begin = Instant::now();
        for index in 0..16 {
            let path = self.job.cache().join(format!("large{index}"));
            let write = Sequential::new(Operation::New, path, area / 8);
            self.worker.measure(&Task::Sequential(Sequential { keep: true, ..write }))?;
        }
        let seconds = begin.elapsed().as_secs_f64();
        let found = Measured { amount: ((2 * area) << 20) as f64, seconds, own_cpu: 0.0 };
        self.keep("write twice the area", "cache", 0, found);
        self.drain()?;
        Ok(())
    }

    /// Until the tier has everything; how many bytes that were, and how long it took.
    fn drain(&mut self) -> anyhow::Result<Measured> {
        let before = self.job.server_status()?;
        let dirty = before.iter().filter_map(|server| server["cache"]["dirty_bytes"].as_f64());
        let (amount, begin) = (dirty.sum(), Instant::now());
        let mut flush = Command::new(self.bench.hayase());
        flush.arg("flush").arg("--job").arg(self.job.directory());
        run_command(&mut flush, PATIENCE)?.success("hayase flush")?;
        Ok(Measured { amount, seconds: begin.elapsed().as_secs_f64(), own_cpu: 0.0 })
    }

    fn hayase(&self, words: &[&str], path: &PathBuf) -> anyhow::Result<()> {
        let mut command = self.job.on_node(0, self.bench.hayase());
        run_command(command.args(words).arg(path), PATIENCE)?.success("hayase evict").map(drop)
    }

    fn keep(&mut self, what: &str, variant: &str, round: usize, measured: Measured) {
        self.samples.0.push(Sample {
            what: what.to_owned(),
            variant: variant.to_owned(),
            round,
            measured,
            ..Sample::default()
        });
    }
}

fn outcome(samples: Samples, direct: f64, area: u64) -> Outcome {
    let limit = direct * 1_048_576.0;
    let against = |what: &str, wanted| {
        let found = samples.compare(what, "cache", PLAIN);
        let figure = stats::median(&found.ratios).unwrap_or(f64::NAN);
        let name = format!("{what} in cache, of the same in shared");
        Goal::new(name, figure, "", Wanted::AtLeast(wanted)).same_as(found.same)
    };
    let of_limit = |what: &str| {
        let name = format!("{what}, of what the tier's disk may do");
        Goal::new(name, samples.rate(what, "cache") / limit, "", Wanted::AtLeast(0.9))
    };
    let goals = vec![
        against("write", 0.85),
        of_limit("drain"),
        of_limit("write twice the area"),
        of_limit("read from the tier"),
        against("read again", 0.85),
    ];
    let notes = vec![format!(
        "The area is {area} MiB, files have half of it; 1 MiB calls through the page cache, without fsync(2).\n\
         The tier's disk is limited to {LIMIT_MIB} MiB/s in both directions; a direct write made {} MiB/s.\n\
         Before it is read from the tier, the file is given up by the job and dropped from the memory of the tier's file system.\n\
         The drain is timed from the end of the write, over what the tier did not have by then.",
        number(direct)
    )];
    let mut table = Table::new("MiB/s", &["work", "shared", "cache"]);
    for what in
        ["write", "drain", "write twice the area", "read from the tier", "read warm", "read again"]
    {
        let rate = |variant: &str| number(samples.rate(what, variant) / 1_048_576.0);
        table.row(vec![what.to_owned(), rate("shared"), rate("cache")]);
    }
    Outcome { goals, tables: vec![table], notes, samples: samples.0 }
}
