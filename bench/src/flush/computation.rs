//! What a flush costs a program that computes, when the job's daemons have a core of their own.
//!
//! The daemons of the job, and of the tier, stay on core 0; a loop of fixed work runs on core 1: while nothing
//! is to be done, while files are flushed, and again while nothing is.

use std::process::Command;
use std::time::Duration;

use anyhow::ensure;

use super::distant_tier::DistantTier;
use crate::bench::Bench;
use crate::command::run as run_command;
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds;
use crate::sample::{Measured, Sample, Samples};
use crate::stats;
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::compute::Compute;
use crate::workloads::sequential::{Operation, Sequential};

const OURS: &str = "0";
const THEIRS: usize = 1;

/// Of each answer of the tier: so slow that a flush outlasts the loop.
const DELAY_MS: u64 = 20;
/// Files of so many MiB.
const FILES: usize = 8;
const FILE_MIB: u64 = 64;

/// How long the loop takes about.
const SECONDS: f64 = 1.0;

/// What can not be told from nothing on a machine with other work.
const WANTED: f64 = 1.02;

const WHAT: &str = "computation";
const FLUSH: &str = "during a flush";
const IDLE: [&str; 2] = ["idle", "idle again"];
const PATIENCE: Duration = Duration::from_secs(120);

/// One node.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    ensure!(cores > THEIRS, "a program and the daemons need a core each: there is {cores}");
    let tier = DistantTier::start(bench, DELAY_MS)?;
    let options = JobOptions { tier: Some(tier.path().to_owned()), ..JobOptions::nodes(1) };
    let job = Job::up(bench, &options)?;
    let node = &job.nodes()[0];
    let ours = [Some(node.supervisor), Some(node.server), node.mount, Some(tier.process())];
    for process in ours.into_iter().flatten() {
        keep_on_core(process)?;
    }
    let (mut worker, mut computing) = (job.worker(0)?, job.worker(0)?);
    keep_on_core(worker.process())?;
    go_first(computing.process())?;
    let pieces = pieces_of(&mut computing, SECONDS)?;
    let (mut samples, mut sent) = (Samples::default(), Vec::new());
    for round in 0..bench.rounds(5, 15) {
        for variant in rounds::order(round, IDLE, &[FLUSH]) {
            let is_beside = variant == FLUSH;
            if is_beside {
                write(&mut worker, &job)?;
            }
            let before = sent_bytes(&job)?;
            let task = Task::Compute(Compute { core: THEIRS, pieces });
            samples.0.push(sample(variant, round, computing.measure(&task)?));
            let after = sent_bytes(&job)?;
            if is_beside {
                ensure!(dirty_bytes(&job)? > 0.0, "the flush was over before the loop");
                sent.push((after - before) / (1 << 20) as f64);
            } else {
                ensure!(before == after, "the job flushed something in between");
            }
            drain(bench, &job)?;
        }
    }
    drop((worker, computing));
    job.down()?;
    Ok(outcome(samples, &sent))
}

/// All threads of a process, and those that they start later.
fn keep_on_core(process: u32) -> anyhow::Result<()> {
    let mut command = Command::new("taskset");
    command.args(["--all-tasks", "--pid", "--cpu-list", OURS, &process.to_string()]);
    run_command(&mut command, PATIENCE)?.success("taskset").map(drop)
}

/// Before programs of other people, which would come to its core when ours are busy on the other; not before the
/// kernel's threads, as a real-time process would: what they do for us counts.
fn go_first(process: u32) -> anyhow::Result<()> {
    let mut command = Command::new("renice");
    command.args(["-n", "-20", "-p", &process.to_string()]);
    run_command(&mut command, PATIENCE)?.success("renice").map(drop)
}

/// How much work takes about so long.
fn pieces_of(computing: &mut Worker, seconds: f64) -> anyhow::Result<u64> {
    let mut task = Compute { core: THEIRS, pieces: 16 };
    let found = computing.measure(&Task::Compute(task.clone()))?;
    task.pieces = (found.amount / found.seconds * seconds).ceil() as u64;
    Ok(task.pieces)
}

fn write(worker: &mut Worker, job: &Job<'_>) -> anyhow::Result<()> {
    for index in 0..FILES {
        let path = job.cache().join(format!("f{index}"));
        if path_exists(job, &path)? {
            run_command(job.on_node(0, "rm").arg(&path), PATIENCE)?.success("rm")?;
        }
        let write = Sequential::new(Operation::New, path, FILE_MIB);
        worker.measure(&Task::Sequential(Sequential { keep: true, ..write }))?;
    }
    Ok(())
}

fn path_exists(job: &Job<'_>, path: &std::path::Path) -> anyhow::Result<bool> {
    let mut test = job.on_node(0, "test");
    Ok(run_command(test.arg("-e").arg(path), PATIENCE)?.status.success())
}

fn sent_bytes(job: &Job<'_>) -> anyhow::Result<f64> {
    of_cache(job, "flushed_bytes")
}

fn dirty_bytes(job: &Job<'_>) -> anyhow::Result<f64> {
    of_cache(job, "dirty_bytes")
}

fn of_cache(job: &Job<'_>, name: &str) -> anyhow::Result<f64> {
    let status = job.server_status()?;
    Ok(status.iter().filter_map(|server| server["cache"][name].as_f64()).sum())
}

fn drain(bench: &Bench, job: &Job<'_>) -> anyhow::Result<()> {
    let mut flush = Command::new(bench.hayase());
    flush.arg("flush").arg("--job").arg(job.directory());
    run_command(&mut flush, PATIENCE)?.success("hayase flush").map(drop)
}

fn sample(variant: &str, round: usize, measured: Measured) -> Sample {
    Sample {
        what: WHAT.to_owned(),
        variant: variant.to_owned(),
        round,
        measured,
        ..Sample::default()
    }
}

fn outcome(samples: Samples, sent: &[f64]) -> Outcome {
    let found = samples.compare(WHAT, FLUSH, IDLE);
    let figure = 1.0 / stats::median(&found.ratios).unwrap_or(f64::NAN);
    let name = "computation during a flush, time of that without one";
    let goal = Goal::new(name, figure, "", Wanted::AtMost(WANTED)).same_as(found.same);
    let mut table = Table::new("", &["", "seconds", "of idle"]);
    let seconds = |variant: &str| {
        let all: Vec<f64> =
            samples.of(WHAT, variant).map(|sample| sample.measured.seconds).collect();
        stats::median(&all).unwrap_or(f64::NAN)
    };
    for variant in [IDLE[0], FLUSH, IDLE[1]] {
        let ratio = number(seconds(variant) / seconds(IDLE[0]));
        table.row(vec![variant.to_owned(), number(seconds(variant)), ratio]);
    }
    let notes = vec![format!(
        "The daemons of the job and of its tier stay on core 0; a loop of fixed work runs on core {THEIRS}. Meanwhile {} MiB \
         went to the tier each time.",
        number(stats::median(sent).unwrap_or(f64::NAN))
    )];
    Outcome { goals: vec![goal], tables: vec![table], notes, samples: samples.0 }
}
