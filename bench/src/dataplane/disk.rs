//! Requests of 1 MiB past the page cache by the ring that servers use, beside fio's engine for the same.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::bench::Bench;
use crate::command::run as run_program;
use crate::huge_pages::HugePages;
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds;
use crate::sample::{Measured, Sample, Samples};
use crate::stats;
use crate::workloads::Task;
use crate::workloads::ring::RingTransfers;
use crate::workloads::sequential::{Operation, Sequential};

/// Size of the file, in blocks of 1 MiB.
const BLOCKS: u64 = 256;
/// Requests under way.
const DEPTH: u32 = 16;
const KINDS: [&str; 2] = ["read", "write"];
const FIO: [&str; 2] = ["fio", "fio again"];
const MIB: f64 = 1_048_576.0;
const WANTED: f64 = 0.95;
const CPU_MICROSECONDS: f64 = 25.0;
const PATIENCE: Duration = Duration::from_secs(60);

/// Both on files that are written already, so that neither waits for room.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let job = Job::up(bench, &JobOptions::nodes(1))?;
    // fio takes more than its buffers.
    let lent = HugePages::lend(2 * u64::from(DEPTH));
    let samples = measure(bench, &job, lent.is_some())?;
    job.down()?;
    let mut goals = Vec::new();
    for what in KINDS {
        let found = samples.compare(what, "ring", FIO);
        let figure = stats::median(&found.ratios).unwrap_or(f64::NAN);
        let name = format!("server to disk, {what}, of fio with registered buffers");
        goals.push(Goal::new(name, figure, "", Wanted::AtLeast(WANTED)).same_as(found.same));
        let name = format!("CPU of the disk side, {what}");
        goals.push(Goal::new(
            name,
            cpu(&samples, what, "ring"),
            "us/MiB",
            Wanted::AtMost(CPU_MICROSECONDS),
        ));
    }
    let notes = vec![format!(
        "A file of {BLOCKS} MiB, O_DIRECT, requests of 1 MiB one behind the other, {DEPTH} under way.\n\
         ring: the server's module, one thread, its transfer slots registered (2 MiB pages). \
         fio: ioengine=io_uring, fixedbufs, registerfiles, buffers in {}.",
        if lent.is_some() {
            "huge pages"
        } else {
            "4 KiB pages, since the kernel has no huge ones left"
        }
    )];
    Ok(Outcome { goals, tables: vec![table(&samples)], notes, samples: samples.0 })
}

fn measure(bench: &Bench, job: &Job<'_>, huge: bool) -> anyhow::Result<Samples> {
    let mut worker = job.linked_worker(0)?;
    let beside = job.image(0).join("bench");
    worker.perform(&Task::MakeDirectory { path: beside.clone() })?;
    let files = FIO.map(|name| beside.join(name.replace(' ', "-")));
    for path in files.iter().chain([&beside.join("ring")]) {
        let fill = Sequential::new(Operation::New, path, BLOCKS);
        worker.measure(&Task::Sequential(Sequential { keep: true, sync: true, ..fill }))?;
    }
    let milliseconds = bench.block_milliseconds() * 12;
    let mut samples = Samples::default();
    for round in 0..bench.rounds(7, 15) {
        for what in KINDS {
            for variant in rounds::order(round, FIO, &["ring"]) {
                let write = what == "write";
                let measured = match FIO.iter().position(|fio| *fio == variant) {
                    Some(which) => fio(job, &files[which], (write, huge), milliseconds)?,
                    None => worker.measure(&Task::Ring(RingTransfers {
                        path: beside.join("ring"),
                        write,
                        blocks: BLOCKS,
                        depth: DEPTH,
                        milliseconds,
                    }))?,
                };
                samples.0.push(sample(what, variant, round, measured));
            }
        }
    }
    Ok(samples)
}

fn sample(what: &str, variant: &str, round: usize, measured: Measured) -> Sample {
    Sample {
        what: what.to_owned(),
        variant: variant.to_owned(),
        round,
        measured,
        ..Sample::default()
    }
}

fn fio(
    job: &Job<'_>,
    path: &Path,
    (write, huge): (bool, bool),
    milliseconds: u64,
) -> anyhow::Result<Measured> {
    let side = if write { "write" } else { "read" };
    let mut command = job.on_node(0, "fio");
    command.args(["--name=bench", "--output-format=json", "--ioengine=io_uring", "--fixedbufs=1"]);
    command.args([
        "--registerfiles=1",
        "--direct=1",
        "--bs=1M",
        "--time_based=1",
        "--fallocate=none",
        "--scramble_buffers=0",
    ]);
    command.arg(if huge { "--iomem=shmhuge" } else { "--iomem=malloc" });
    command.arg(format!("--rw={side}")).arg(format!("--iodepth={DEPTH}"));
    command.arg(format!("--size={BLOCKS}M")).arg(format!("--runtime={milliseconds}ms"));
    command.arg(filename(path));
    let text = run_program(&mut command, PATIENCE)?.success("fio")?;
    let start = text.find('{').context("fio writes no JSON")?;
    let told: Value = serde_json::from_str(&text[start..]).context("read what fio says")?;
    let job = &told["jobs"][0];
    let figure = |value: &Value| value.as_f64().with_context(|| format!("fio says {value}"));
    let (amount, milliseconds) = (figure(&job[side]["io_bytes"])?, figure(&job[side]["runtime"])?);
    ensure!(milliseconds > 0.0, "fio ran for no time");
    let seconds = milliseconds / 1000.0;
    let own_cpu = (figure(&job["usr_cpu"])? + figure(&job["sys_cpu"])?) / 100.0 * seconds;
    Ok(Measured { amount, seconds, own_cpu })
}

/// fio takes a colon for the end of a name.
fn filename(path: &Path) -> String {
    let path: PathBuf = path.to_owned();
    format!("--filename={}", path.display().to_string().replace(':', "\\:"))
}

/// Microseconds of CPU for each MiB.
fn cpu(samples: &Samples, what: &str, variant: &str) -> f64 {
    let (own, _) = samples.cpu_per_amount(what, variant);
    own * MIB * 1e6
}

fn table(samples: &Samples) -> Table {
    let head = [
        "1 MiB requests",
        "fio MiB/s",
        "ring MiB/s",
        "ratio",
        "half between",
        "A/A",
        "CPU us/MiB: fio",
        "ring",
    ];
    let mut table = Table::new("Past the page cache", &head);
    for what in KINDS {
        let found = samples.compare(what, "ring", FIO);
        let (low, high) = stats::quartiles(&found.ratios).unwrap_or((f64::NAN, f64::NAN));
        let figure = |values: &[f64]| number(stats::median(values).unwrap_or(f64::NAN));
        let rate = |variant: &str| number(samples.rate(what, variant) / MIB);
        table.row(vec![
            what.to_owned(),
            rate("fio"),
            rate("ring"),
            figure(&found.ratios),
            format!("{}-{}", number(low), number(high)),
            figure(&found.same),
            number(cpu(samples, what, "fio")),
            number(cpu(samples, what, "ring")),
        ]);
    }
    table
}
