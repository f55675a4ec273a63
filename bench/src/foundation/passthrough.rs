//! A file whose bytes are on the node of the program, against a file beside the parts: same image,
//! same kernel calls, only that one goes through the mount.

use std::path::PathBuf;

use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds;
use crate::sample::Samples;
use crate::stats;
use crate::workloads::Task;
use crate::workloads::random::Random;
use crate::workloads::sequential::{Operation, Sequential};

/// Size of each file, in blocks of 1 MiB: more than processors cache, far less than memory.
const BLOCKS: u64 = 128;

const NATIVE: [&str; 2] = ["native", "native again"];

/// What is measured, its unit, and the goal.
const KINDS: [(&str, &str, f64); 5] = [
    ("sequential read", "MiB/s", 0.85),
    ("overwrite", "MiB/s", 0.85),
    ("new write", "MiB/s", 0.85),
    ("random read", "1000/s", 0.8),
    ("random write", "1000/s", 0.8),
];

/// Daemons that use less than this share of the time that the I/O took do nothing for it.
const SHARE_MAX: f64 = 0.01;

/// The I/O of one open that the share is taken of: the open itself takes our processes some 0.5 ms.
const LONG: &str = "mount, one open for a second";
const LONG_MILLISECONDS: u64 = 1000;

/// As the kernel is, and as Linux 6.1 would be.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let mut samples = Samples::default();
    measure(bench, None, &mut samples)?;
    measure(bench, Some("6.1"), &mut samples)?;
    let mut goals = Vec::new();
    for (what, _, wanted) in KINDS {
        let found = samples.compare(what, "mount", NATIVE);
        let figure = stats::median(&found.ratios).unwrap_or(f64::NAN);
        let name = format!("local file, {what}, of native");
        goals.push(Goal::new(name, figure, "", Wanted::AtLeast(wanted)).same_as(found.same));
    }
    let shares = opened_once().map(|what| samples.served_share(what, LONG));
    let share = shares.fold(0.0, f64::max);
    let name = "local file, CPU of our processes as a share of the time";
    goals.push(Goal::new(name, share, "", Wanted::AtMost(SHARE_MAX)));
    let notes = vec![format!(
        "One program on the node of the file; {BLOCKS} MiB per file, all of it in the page cache; 1 MiB and \
         4 KiB calls.\nNew write is create, write and close. The CPU goal is the largest of the four other rows, of one \
         file that is opened, used for a second and closed; the column counts the open and close of each short block, in\n\
         the row of new writes also a pass that is not timed.\n\
         With `--kernel-profile 6.1` there is no passthrough: no goal, only figures."
    )];
    Ok(Outcome { goals, tables: vec![table(&samples)], notes, samples: samples.0 })
}

fn measure(
    bench: &Bench,
    profile: Option<&'static str>,
    samples: &mut Samples,
) -> anyhow::Result<()> {
    let options = JobOptions { shared: "3600MiB", kernel_profile: profile, ..JobOptions::nodes(1) };
    let job = Job::up(bench, &options)?;
    let mut worker = job.worker(0)?;
    let beside = job.image(0).join("bench-native");
    let within = job.shared().join("bench");
    for path in [beside.clone(), within.clone()] {
        worker.perform(&Task::MakeDirectory { path })?;
    }
    let path = |variant: &str| -> PathBuf {
        match variant {
            "native" => beside.join("a"),
            "native again" => beside.join("b"),
            _ => within.join("file"),
        }
    };
    let name = |variant: &str| match profile {
        None => variant.to_owned(),
        Some(profile) => format!("{variant} ({profile})"),
    };
    for variant in ["native", "native again", "mount"] {
        let fill = Sequential::new(Operation::New, path(variant), BLOCKS);
        worker.measure(&Task::Sequential(Sequential { keep: true, ..fill }))?;
    }
    let served = job.daemons();
    for round in 0..bench.rounds(9, 15) {
        for (what, ..) in KINDS {
            for variant in rounds::order(round, NATIVE, &["mount"]) {
                let task = task(what, path(variant), bench.block_milliseconds(), round);
                let name = name(variant);
                let place = (what, name.as_str(), round);
                rounds::measure(samples, place, &served, || worker.measure(&task))?;
            }
        }
    }
    if profile.is_none() {
        for what in opened_once() {
            let task = task(what, path("mount"), LONG_MILLISECONDS, 0);
            rounds::measure(samples, (what, LONG, 0), &served, || worker.measure(&task))?;
        }
    }
    drop(worker);
    job.down()?;
    Ok(())
}

/// The kinds that open one file and close it when they are done.
fn opened_once() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(what, ..)| *what).filter(|what| *what != "new write")
}

fn task(what: &str, path: PathBuf, milliseconds: u64, round: usize) -> Task {
    let passes = |operation, path| {
        let work = Sequential::new(operation, path, BLOCKS);
        Task::Sequential(Sequential { milliseconds, ..work })
    };
    let random = |write| {
        let seed = round as u64 + 1;
        Task::Random(Random { write, path: path.clone(), mebibytes: BLOCKS, milliseconds, seed })
    };
    match what {
        "sequential read" => passes(Operation::Read, path),
        "overwrite" => passes(Operation::Overwrite, path),
        "new write" => passes(Operation::New, path.with_extension("new")),
        "random read" => random(false),
        _ => random(true),
    }
}

fn table(samples: &Samples) -> Table {
    let head = [
        "1 program, cached",
        "unit",
        "native",
        "mount",
        "of native",
        "half between",
        "A/A",
        "our CPU",
        "6.1: of native",
        "6.1: our CPU",
    ];
    let mut table = Table::new("Local files", &head);
    for (what, unit, _) in KINDS {
        let scale = if unit == "MiB/s" { 1_048_576.0 } else { 1000.0 };
        let found = samples.compare(what, "mount", NATIVE);
        let older = samples.compare(what, "mount (6.1)", ["native (6.1)", "native again (6.1)"]);
        let figure = |values: &[f64]| number(stats::median(values).unwrap_or(f64::NAN));
        let (low, high) = stats::quartiles(&found.ratios).unwrap_or((f64::NAN, f64::NAN));
        let percent = |variant| format!("{:.1} %", samples.served_share(what, variant) * 100.0);
        table.row(vec![
            what.to_owned(),
            unit.to_owned(),
            number(samples.rate(what, "native") / scale),
            number(samples.rate(what, "mount") / scale),
            figure(&found.ratios),
            format!("{}-{}", number(low), number(high)),
            figure(&found.same),
            percent("mount"),
            figure(&older.ratios),
            percent("mount (6.1)"),
        ]);
    }
    table
}
