//! How close the streams and parts that a copy finds come to the best ones, on lines of different length.
//!
//! A copy of loose objects, or of large files in parts, runs through a [`proxy`](super::proxy), down or up; what passes
//! in a window that begins 3 s after its begin (or after the line has changed) is its rate, and the CPU time of the
//! process in that window its cost. The best setting is that of a sweep over fixed ones, in windows that begin as late;
//! it is then measured again in turns with what is found, since of many figures the least is less than it is. One line refuses what comes above a number of requests a second. Then a storm: for two seconds the store refuses
//! everything, and the copy has to arrive whole all the same.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::ground::{Files, Ground, PATIENCE};
use super::program;
use super::proxy::{Conditions, Proxy};
use crate::bench::Bench;
use crate::process_times::CpuTimes;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::sample::{Measured, Sample, Samples};

const MIB: f64 = 1_048_576.0;

/// The line: far below what this machine can do, so that its limit is met and not ours.
const TOTAL: f64 = 48.0 * MIB;
const CONNECTION: f64 = 6.0 * MIB;

/// Time to find the number, and the window after it.
const TO_FIND: Duration = Duration::from_secs(3);
const WINDOW: Duration = Duration::from_millis(2500);
/// Longer where requests are counted: what was saved up before it must not matter.
const WINDOW_COUNTED: Duration = Duration::from_secs(6);
/// Everything is refused for so long.
const STORM: Duration = Duration::from_secs(2);

/// Part of the best rate that must be reached, and of its CPU that may be used.
const RATE_MIN: f64 = 0.95;
const CPU_MAX: f64 = 1.2;

/// What a copy does that is told nothing.
const FOUND: &str = "found";

/// What is copied which way, and the settings of a sweep: options of the command.
#[derive(Clone, Copy)]
struct Load {
    way: Way,
    /// A tree in memory.
    data: &'static str,
    sweep: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Down,
    Up,
}

const STREAMS: &[&str] =
    &["--streams 4", "--streams 8", "--streams 12", "--streams 16", "--streams 32"];
const PARTS: &[&str] = &[
    "--streams 8 --part-size 8MiB",
    "--streams 8 --part-size 16MiB",
    "--streams 12 --part-size 8MiB",
    "--streams 12 --part-size 16MiB",
    "--streams 24 --part-size 8MiB",
];

const LOOSE: Load = Load { way: Way::Down, data: "loose", sweep: STREAMS };
const LOOSE_UP: Load = Load { way: Way::Up, ..LOOSE };
const LARGE: Load = Load { way: Way::Down, data: "large", sweep: PARTS };

/// Enough for the longest run.
const LOOSE_FILES: Files = Files { count: 600, bytes: 1 << 20 };
const LARGE_FILES: Files = Files { count: 3, bytes: 200 << 20 };

/// The round trip before and after the line changes.
const STEP: [u64; 2] = [5, 80];

/// What a store takes that refuses the rest: objects of 1 MiB, so less than the line carries.
const REQUESTS: f64 = 30.0;

fn line(milliseconds: u64) -> Conditions {
    let round_trip = Duration::from_millis(milliseconds);
    Conditions { round_trip, connection: CONNECTION, total: TOTAL, requests: f64::INFINITY }
}

pub(super) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let ground = Ground::new(bench)?;
    for (load, files) in [(LARGE, LARGE_FILES), (LOOSE, LOOSE_FILES)] {
        ground.make_tree(load.data, files)?;
    }
    let tuning = Tuning { proxy: Proxy::start(ground.address()?, line(0))?, ground };
    let repeats = bench.rounds(3, 5);
    let (mut samples, mut goals) = (Samples::default(), Vec::new());
    let mut table = Table::new(
        "600 objects of 1 MiB, or 3 of 200 MiB",
        &["", "MiB/s", "CPU ms/MiB", "of the best", "CPU of the best"],
    );
    let mut chosen = "";
    for (what, load, line) in &lines(bench.rounds(0, 1) == 0) {
        tuning.prepare(*load)?;
        let window = |what: &str, setting: &str, round| {
            tuning.proxy.set(*line);
            tuning.window(*load, (what, setting, round), |_| sleep(TO_FIND))
        };
        for round in 0..bench.rounds(1, 2) {
            for setting in load.sweep {
                samples.0.push(window(&sweep_of(what), setting, round)?);
            }
        }
        let best = choose(&samples, load.sweep, what)?;
        // In turns: what a processor does for a byte differs from minute to minute.
        for round in 0..repeats {
            let turns = if round % 2 == 0 { [best, FOUND] } else { [FOUND, best] };
            for setting in turns {
                samples.0.push(window(what, setting, round)?);
            }
        }
        judge(&samples, what, (what, best), &mut table, &mut goals);
        if *what == trip(STEP[1]) {
            chosen = best;
        }
    }
    let what = format!("{} to {} ms", STEP[0], STEP[1]);
    samples.0.extend(tuning.step(&what, repeats)?);
    judge(&samples, &what, (&trip(STEP[1]), chosen), &mut table, &mut goals);
    goals.push(tuning.storm(LOOSE_FILES)?);
    Ok(Outcome { goals, tables: vec![table], notes: Vec::new(), samples: samples.0 })
}

/// What is copied through which line.
fn lines(is_quick: bool) -> Vec<(String, Load, Conditions)> {
    let trips: &[u64] = if is_quick { &[0, 80] } else { &[0, 5, 20, 80] };
    let mut lines: Vec<_> =
        trips.iter().map(|&length| (trip(length), LOOSE, line(length))).collect();
    lines.push(("20 ms, up".to_owned(), LOOSE_UP, line(20)));
    lines.push(("20 ms, large files".to_owned(), LARGE, line(20)));
    let refusing = Conditions { requests: REQUESTS, ..line(5) };
    lines.push((format!("503 above {REQUESTS}/s"), LOOSE, refusing));
    lines
}

/// A line of so many milliseconds.
fn trip(milliseconds: u64) -> String {
    format!("{milliseconds} ms")
}

/// Samples of the sweep on a line.
fn sweep_of(line: &str) -> String {
    format!("{line}, sweep")
}

/// Of the settings that are as fast as the fastest on a line the one that costs least: what a person would choose.
fn choose(samples: &Samples, sweep: &[&'static str], line: &str) -> anyhow::Result<&'static str> {
    let what = sweep_of(line);
    let rate = |setting: &str| samples.rate(&what, setting);
    let top = sweep.iter().map(|setting| rate(setting)).fold(0.0, f64::max);
    let fast = sweep.iter().filter(|setting| rate(setting) >= RATE_MIN * top);
    let cost = |setting: &str| samples.cpu_per_amount(&what, setting).0;
    fast.min_by(|a, b| cost(a).total_cmp(&cost(b))).copied().context("a sweep of nothing")
}

/// What was [`FOUND`] in `what` against the setting that was chosen for a line.
fn judge(
    samples: &Samples,
    what: &str,
    (line, chosen): (&str, &str),
    table: &mut Table,
    goals: &mut Vec<Goal>,
) {
    let measured = |what: &str, variant: &str| {
        (samples.rate(what, variant), samples.cpu_per_amount(what, variant).0)
    };
    let best = measured(line, chosen);
    let mut row = |name: String, (rate, cpu): (f64, f64)| {
        let of_best = (rate / best.0, cpu / best.1);
        let cells = [rate / MIB, cpu * MIB * 1e3, of_best.0, of_best.1];
        table.row(std::iter::once(name).chain(cells.map(number)).collect());
        of_best
    };
    row(format!("{line}, `{chosen}`"), best);
    let (rate, cpu) = row(format!("{what}, {FOUND}"), measured(what, FOUND));
    let name = format!("{what}: rate from 3 s on, of the best of a sweep");
    goals.push(Goal::new(name, rate, "", Wanted::AtLeast(RATE_MIN)));
    let name = format!("{what}: CPU for a byte, of the best of a sweep");
    goals.push(Goal::new(name, cpu, "", Wanted::AtMost(CPU_MAX)));
}

struct Tuning<'a> {
    // Dropped first: it stands before the server of the other.
    proxy: Proxy,
    ground: Ground<'a>,
}

impl Tuning<'_> {
    /// Puts into the bucket what is copied from it, and nothing else.
    fn prepare(&self, load: Load) -> anyhow::Result<()> {
        self.ground.empty_bucket()?;
        if load.way == Way::Down {
            let url = self.ground.url(load.data);
            self.ground
                .run(self.ground.hayase(&["stage", "out", load.data, &url, "--pack", "none"]))?;
        }
        Ok(())
    }

    fn copy(&self, load: Load, setting: &str) -> Command {
        let options = if setting == FOUND { "" } else { setting };
        let url = self.ground.url(load.data);
        let mut command = self.ground.hayase(&match load.way {
            Way::Down => ["stage", "in", &url, "in"],
            Way::Up => ["stage", "out", load.data, &url],
        });
        command.args(options.split_whitespace());
        if load.way == Way::Up {
            command.args(["--pack", "none"]);
        }
        command.env("AWS_ENDPOINT_URL", self.proxy.endpoint());
        command
    }

    /// Begins a copy, does `before`, and then looks at it for a window.
    fn window(
        &self,
        load: Load,
        (what, setting, round): (&str, &str, usize),
        before: impl FnOnce(&Proxy),
    ) -> anyhow::Result<Sample> {
        let mut command = self.copy(load, setting);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut copy = Killed(command.spawn().context("start a copy")?);
        let process = copy.0.id();
        before(&self.proxy);
        let (bytes, cpu) = (self.proxy.passed(), CpuTimes::of(&[process]));
        let window = if self.proxy.is_counted() { WINDOW_COUNTED } else { WINDOW };
        sleep(window);
        let (bytes, cpu) = (self.proxy.passed() - bytes, CpuTimes::of(&[process]).since(&cpu));
        ensure!(copy.0.try_wait()?.is_none(), "a copy ({setting}) ended in the window");
        drop(copy);
        self.forget(load.way)?;
        let measured =
            Measured { amount: bytes as f64, seconds: window.as_secs_f64(), own_cpu: cpu };
        Ok(Sample {
            what: what.to_owned(),
            variant: setting.to_owned(),
            round,
            measured,
            ..Sample::default()
        })
    }

    /// What is found again after the line has changed.
    fn step(&self, what: &str, repeats: usize) -> anyhow::Result<Vec<Sample>> {
        self.prepare(LOOSE)?;
        let [before, after] = STEP;
        let change = |proxy: &Proxy| {
            sleep(TO_FIND);
            proxy.set(line(after));
            sleep(TO_FIND);
        };
        let window = |round| {
            self.proxy.set(line(before));
            self.window(LOOSE, (what, FOUND, round), change)
        };
        (0..repeats).map(window).collect()
    }

    /// Removes what a copy brought, which would not be copied again.
    fn forget(&self, way: Way) -> anyhow::Result<()> {
        match way {
            Way::Down => self.ground.clear("in"),
            Way::Up => self.ground.empty_bucket(),
        }
    }

    /// The store refuses everything for a while: the copy arrives whole, and says so.
    fn storm(&self, files: Files) -> anyhow::Result<Goal> {
        let open = line(5);
        self.proxy.set(open);
        let refused = self.proxy.refused();
        let arrived = std::thread::scope(|scope| {
            let proxy = &self.proxy;
            scope.spawn(move || {
                sleep(TO_FIND);
                proxy.set(Conditions { requests: 0.0, ..open });
                sleep(STORM);
                proxy.set(open);
            });
            program::run(self.copy(LOOSE, FOUND), PATIENCE, |_| Ok(()))
        });
        ensure!(self.proxy.refused() > refused, "nothing was refused: there was no storm");
        arrived.context("a copy through a storm of 503")?;
        let mut count = 0;
        for directory in std::fs::read_dir(self.ground.path("in"))? {
            count += std::fs::read_dir(directory?.path())?.count();
        }
        let missing = files.count - count.min(files.count);
        self.ground.clear("in")?;
        let name = "files that a storm of 503 kept from arriving";
        Ok(Goal::new(name, missing as f64, "", Wanted::AtMost(0.0)))
    }
}

/// A copy that does not outlive its measurement.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
