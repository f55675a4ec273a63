//! What a program on one processor feels of servers that move bytes on another one (`up --system-cores`): Fixed Work
//! Quantum by `hayase noise`, in pairs of idle and idle, and of idle and busy; and the bad case, where both share one.

mod copying;
mod figures;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use self::figures::{Noise, Row, beyond, differences};
use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::process_times::settle;
use crate::processors::{Places, Stay, keep};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::rounds::PUT_OFF;
use crate::sample::{Measured, Sample};
use crate::stats;
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::sequential::{Operation, Sequential};

/// Size of each file, in blocks of 1 MiB.
const BLOCKS: u64 = 96;
/// A median interruption may be so much longer.
const LONGER_MAX: f64 = 1.1;
/// Pieces that tell how long one takes.
const FIRST_PIECES: u64 = 500;

/// Programs on node 1 read and write files of node 0, all of it on the system's processor.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let places = Places::of_this_machine()?;
    // This program too, and whatever it starts.
    let _stay = Stay::on(places.system)?;
    let pieces = pieces(bench, places)?;
    let pairs = measure_apart(bench, places, pieces)?;
    let (alone, shared) = measure_together(bench, places, pieces)?;
    Ok(outcome(places, &pairs, &alone, &shared))
}

/// All of the same length.
#[derive(Default)]
struct Pairs {
    idle: Vec<Noise>,
    idle_again: Vec<Noise>,
    before_busy: Vec<Noise>,
    busy: Vec<Noise>,
    moved: Moved,
    /// Idle as well, beside [`Self::copying`].
    before_copying: Vec<Noise>,
    copying: Vec<Noise>,
    copied: Moved,
}

/// Bytes that the load moved.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    bytes: f64,
    seconds: f64,
}

impl Moved {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.seconds += other.seconds;
    }

    fn mib_per_second(self) -> f64 {
        self.bytes / self.seconds / 1_048_576.0
    }
}

/// As many as take the time that one measurement has.
fn pieces(bench: &Bench, places: Places) -> anyhow::Result<u64> {
    let first = Noise::measure(bench.hayase(), places.application, FIRST_PIECES)?;
    let seconds = bench.rounds(15, 50) as f64 / 10.0;
    Ok((seconds * 1e6 / first.piece_us()).ceil() as u64)
}

fn measure_apart(bench: &Bench, places: Places, pieces: u64) -> anyhow::Result<Pairs> {
    let Places { system, application } = places;
    let job = up(bench, system)?;
    let mut load = Load::prepare(&job, system)?;
    let mut pairs = Pairs::default();
    let look = || Noise::measure(bench.hayase(), application, pieces);
    for round in 0..bench.rounds(10, 20) {
        // Each place of a round is had by each side as often as by the other.
        let same = |pairs: &mut Pairs| -> anyhow::Result<()> {
            pairs.idle.push(look()?);
            pairs.idle_again.push(look()?);
            Ok(())
        };
        if round % 4 < 2 {
            same(&mut pairs)?;
        }
        if round % 2 == 0 {
            pairs.before_busy.push(look()?);
        }
        let (busy, moved) = load.meanwhile(&job, look)?;
        pairs.busy.push(busy);
        pairs.moved.add(moved);
        if round % 2 != 0 {
            pairs.before_busy.push(look()?);
        }
        if round % 4 >= 2 {
            same(&mut pairs)?;
        }
        copy(&mut pairs, round % 2 == 0, look)?;
    }
    drop(load);
    job.down()?;
    Ok(pairs)
}

/// A pair beside the job at rest: idle, and while memory is copied.
fn copy(
    pairs: &mut Pairs,
    idle_first: bool,
    look: impl Fn() -> anyhow::Result<Noise>,
) -> anyhow::Result<()> {
    if idle_first {
        pairs.before_copying.push(look()?);
    }
    let (noise, copied) = copying::meanwhile(&look)?;
    pairs.copying.push(noise);
    pairs.copied.add(copied);
    if !idle_first {
        pairs.before_copying.push(look()?);
    }
    Ok(())
}

/// Servers and load on the application's processor: idle, then busy.
fn measure_together(
    bench: &Bench,
    places: Places,
    pieces: u64,
) -> anyhow::Result<(Vec<Noise>, Vec<Noise>)> {
    let processor = places.application;
    let job = up(bench, processor)?;
    let mut load = Load::prepare(&job, processor)?;
    let (mut alone, mut shared) = (Vec::new(), Vec::new());
    let look = || Noise::measure(bench.hayase(), processor, pieces);
    for _ in 0..bench.rounds(3, 6) {
        alone.push(look()?);
        shared.push(load.meanwhile(&job, look)?.0);
    }
    drop(load);
    job.down()?;
    Ok((alone, shared))
}

fn up(bench: &Bench, processor: usize) -> anyhow::Result<Job<'_>> {
    Job::up(bench, &JobOptions { system_core: Some(processor), ..JobOptions::nodes(2) })
}

/// A reader and a writer.
struct Load {
    programs: Vec<(Worker, Task)>,
}

impl Load {
    fn prepare(job: &Job<'_>, processor: usize) -> anyhow::Result<Self> {
        let directory = job.shared().join("bench");
        let mut home = job.worker(0)?;
        keep(home.process(), processor)?;
        home.perform(&Task::MakeDirectory { path: directory.clone() })?;
        let mut programs = Vec::new();
        for (name, operation) in [("read", Operation::Read), ("written", Operation::Overwrite)] {
            let path = directory.join(name);
            let fill = Sequential::new(Operation::New, &path, BLOCKS);
            home.measure(&Task::Sequential(Sequential { keep: true, sync: true, ..fill }))?;
            let mut worker = job.worker(1)?;
            keep(worker.process(), processor)?;
            let work = Sequential::new(operation, &path, BLOCKS);
            let task = Task::Sequential(Sequential { cold: true, ..work });
            // The first requests find out that nobody on node 0 maps the file any more.
            worker.measure(&task)?;
            programs.push((worker, task));
        }
        home.perform(&Task::Evict { path: job.image(0) })?;
        Ok(Self { programs })
    }

    /// What `look` finds while the load goes on; and what moved meanwhile.
    fn meanwhile(
        &mut self,
        job: &Job<'_>,
        look: impl Fn() -> anyhow::Result<Noise>,
    ) -> anyhow::Result<(Noise, Moved)> {
        let is_over = AtomicBool::new(false);
        let begin = Instant::now();
        let (noise, bytes) = std::thread::scope(|scope| {
            let is_over = &is_over;
            let runs = self.programs.iter_mut().map(|(worker, task)| {
                scope.spawn(move || -> anyhow::Result<f64> {
                    let mut bytes = 0.0;
                    while !is_over.load(Ordering::Relaxed) {
                        bytes += worker.measure(task)?.amount;
                    }
                    Ok(bytes)
                })
            });
            let runs: Vec<_> = runs.collect();
            // Until they are in full swing.
            std::thread::sleep(PUT_OFF);
            let noise = look();
            is_over.store(true, Ordering::Relaxed);
            let bytes: anyhow::Result<f64> =
                runs.into_iter().map(|run| run.join().expect("a load does not panic")).sum();
            (noise, bytes)
        });
        let seconds = begin.elapsed().as_secs_f64();
        std::thread::sleep(PUT_OFF);
        settle(&job.daemons());
        Ok((noise?, Moved { bytes: bytes?, seconds }))
    }
}

fn outcome(places: Places, pairs: &Pairs, alone: &[Noise], shared: &[Noise]) -> Outcome {
    let rate = |run: &Noise| run.rate;
    let idle = differences(&pairs.idle, &pairs.idle_again, rate);
    let busy = differences(&pairs.before_busy, &pairs.busy, rate);
    let same = longer(&pairs.idle, &pairs.idle_again);
    let serving = longer(&pairs.before_busy, &pairs.busy);
    let goals = vec![
        Goal::new(
            "noise with busy servers on another processor, of half the 95 % interval of idle and idle",
            beyond(&idle, &busy),
            "",
            Wanted::AtMost(1.0),
        ),
        Goal::new(
            "median interruption, busy of idle",
            stats::median(&serving).unwrap_or(f64::NAN),
            "",
            Wanted::AtMost(LONGER_MAX),
        )
        .same_as(same.clone()),
    ];
    let quiet = [&pairs.idle, &pairs.idle_again, &pairs.before_busy, &pairs.before_copying];
    let quiet: Vec<Noise> = quiet.into_iter().flatten().copied().collect();
    let rows = [
        ("idle", quiet.as_slice()),
        ("servers busy on another processor", &pairs.busy),
        ("memory copied on another processor", &pairs.copying),
        ("idle, for the next", alone),
        ("servers busy on the same processor", shared),
    ];
    let copying = differences(&pairs.before_copying, &pairs.copying, rate);
    let same_processor = differences(alone, shared, rate);
    let compared = [
        ("idle and idle", idle.as_slice()),
        ("idle and busy on another processor", &busy),
        ("idle and memory copied on another processor", &copying),
        ("idle and busy on the same processor", &same_processor),
    ];
    let copying = longer(&pairs.before_copying, &pairs.copying);
    let lengths = [
        ("idle of idle", same.as_slice()),
        ("servers busy on another processor, of idle", &serving),
        ("memory copied on another processor, of idle", &copying),
    ];
    let tables = vec![table(&rows), difference_table(&idle, &compared), length_table(&lengths)];
    Outcome { goals, tables, notes: notes(places, pairs), samples: samples(&rows) }
}

fn notes(places: Places, pairs: &Pairs) -> Vec<String> {
    let Places { system, application } = places;
    let (moved, copied) = (pairs.moved.mib_per_second(), pairs.copied.mib_per_second());
    vec![
        format!(
            "`hayase noise --baseline median` on processor {application}; servers, mounts, and programs that read and \
             write files of the other node in 1 MiB calls on processor {system}, which takes the interrupts of devices \
             too (`up --system-cores {system} --move-interrupts`; {moved:.0} MiB/s meanwhile).\n{} pairs of each kind, \
             all of the same length. Interval: in which 95 % of the differences of idle and idle lie (Student's t). The \
             last row shares processor {application}.\nSlowdown: of 100,000 processes that meet each millisecond, by \
             the longest delay of all runs (Tsafrir's formula, as in paper 003, table 10).",
            pairs.busy.len()
        ),
        format!(
            "For comparison, what no server can avoid where processors share caches and memory: a thread on processor \
             {system} copies memory, 1 MiB at a time ({copied:.0} MiB/s), while servers and programs rest."
        ),
    ]
}

/// Median interruptions of `after`, of those of `before`, pair by pair.
fn longer(before: &[Noise], after: &[Noise]) -> Vec<f64> {
    let medians = |runs: &[Noise]| runs.iter().map(|run| run.median_us).collect::<Vec<_>>();
    stats::ratios(&medians(after), &medians(before))
}

fn table(rows: &[(&str, &[Noise])]) -> Table {
    let head = [
        "case",
        "noise rate %",
        "interruptions /s",
        "median us",
        "longest us",
        "every s",
        "slowdown",
        "mean piece us",
    ];
    let mut table = Table::new("Noise, as in table 10 of paper 003", &head);
    for (case, runs) in rows {
        let row = Row::of(runs);
        let pieces: Vec<f64> = runs.iter().map(Noise::piece_us).collect();
        let figures = [
            row.rate * 100.0,
            row.interruptions_per_second,
            row.median_us,
            row.longest_us,
            row.interval_seconds,
            row.slowdown,
            stats::median(&pieces).unwrap_or(f64::NAN),
        ];
        let figures = figures.map(number);
        table.row(std::iter::once((*case).to_owned()).chain(figures).collect());
    }
    table
}

fn difference_table(idle: &[f64], rows: &[(&str, &[f64])]) -> Table {
    let head = ["pair", "pairs", "median difference %", "half between", "95 % of idle and idle"];
    let mut table = Table::new("Differences of the noise rate", &head);
    let percent = |value: f64| format!("{:+.3}", value * 100.0);
    let (mean, half) = stats::interval_95(idle).unwrap_or((f64::NAN, f64::NAN));
    for (pair, differences) in rows {
        let (low, high) = stats::quartiles(differences).unwrap_or((f64::NAN, f64::NAN));
        table.row(vec![
            (*pair).to_owned(),
            differences.len().to_string(),
            percent(stats::median(differences).unwrap_or(f64::NAN)),
            format!("{} to {}", percent(low), percent(high)),
            format!("{} to {}", percent(mean - half), percent(mean + half)),
        ]);
    }
    table
}

fn length_table(rows: &[(&str, &[f64])]) -> Table {
    let head = ["median interruption", "pairs", "ratio", "half between"];
    let mut table = Table::new("Length of the median interruption", &head);
    for (pair, ratios) in rows {
        let (low, high) = stats::quartiles(ratios).unwrap_or((f64::NAN, f64::NAN));
        table.row(vec![
            (*pair).to_owned(),
            ratios.len().to_string(),
            number(stats::median(ratios).unwrap_or(f64::NAN)),
            format!("{} to {}", number(low), number(high)),
        ]);
    }
    table
}

/// The amount is the noise rate, or microseconds.
fn samples(rows: &[(&str, &[Noise])]) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (case, runs) in rows {
        for (round, run) in runs.iter().enumerate() {
            let parts = [
                ("noise rate", run.rate),
                ("median interruption, us", run.median_us),
                ("longest interruption, us", run.longest_us),
                ("mean piece, us", run.piece_us()),
            ];
            samples.extend(parts.map(|(what, amount)| Sample {
                what: what.to_owned(),
                variant: (*case).to_owned(),
                round,
                measured: Measured { amount, seconds: run.seconds, own_cpu: 0.0 },
                ..Sample::default()
            }));
        }
    }
    samples
}
