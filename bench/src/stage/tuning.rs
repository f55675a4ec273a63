//! How close the streams and parts that a copy finds come to the best ones, on lines of different length.
//!
//! A copy of loose objects, or of large files in parts, runs through a [`proxy`](super::proxy), down or up; what passes
//! in a window that begins 3 s after its begin (or after the line has changed) is its rate, and the CPU time of the
//! process in that window its cost. A sweep over fixed settings, in windows that begin as late, has a fastest one, and one
//! that costs least of those that are about as fast: both are measured again in turns with what is found, since of many
//! figures the least is less than it is. The rate is judged against the first, the CPU against the second. One line
//! refuses what comes above a number of requests a second. Then a storm: for two seconds the store refuses everything,
//! and the copy has to arrive whole all the same.

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

/// Part of the best rate that must be reached, and of the least CPU that may be used.
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
    let repeats = bench.rounds(2, 5);
    let (mut samples, mut goals, mut notes) = (Samples::default(), Vec::new(), Vec::new());
    let mut table = Table::new(
        "600 objects of 1 MiB, or 3 of 200 MiB",
        &["", "MiB/s", "CPU ms/MiB", "of the best", "CPU of the best"],
    );
    let mut last = None;
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
            for setting in best.turns(round) {
                samples.0.push(window(what, setting, round)?);
            }
        }
        judge(&samples, what, best, &mut table, &mut goals);
        if line.requests.is_finite() {
            notes.push(refusals(&samples, *load, what));
        }
        if *what == trip(STEP[1]) {
            last = Some(best);
        }
    }
    let best = last.context("no line is like that after the step")?;
    let what = format!("{} to {} ms", STEP[0], STEP[1]);
    samples.0.extend(tuning.step(&what, best, repeats)?);
    judge(&samples, &what, best, &mut table, &mut goals);
    goals.push(tuning.storm(LOOSE_FILES)?);
    Ok(Outcome { goals, tables: vec![table], notes, samples: samples.0 })
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

/// The best settings of a sweep.
#[derive(Clone, Copy)]
struct Best {
    fastest: &'static str,
    /// Costs least of those that are about as fast: what a person would choose.
    cheapest: &'static str,
}

impl Best {
    /// What is measured in one round, in which order.
    fn turns(self, round: usize) -> Vec<&'static str> {
        let mut turns = vec![self.fastest, FOUND];
        if self.cheapest != self.fastest {
            turns.push(self.cheapest);
        }
        let len = turns.len();
        turns.rotate_left(round % len);
        turns
    }
}

fn choose(samples: &Samples, sweep: &[&'static str], line: &str) -> anyhow::Result<Best> {
    let what = sweep_of(line);
    let rate = |setting: &&&str| samples.rate(&what, setting);
    let cost = |setting: &str| samples.cpu_per_amount(&what, setting).0;
    let fastest = sweep.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let fastest = fastest.context("a sweep of nothing")?;
    let fast = sweep.iter().filter(|setting| rate(setting) >= RATE_MIN * rate(&fastest));
    let cheapest = fast.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(fastest);
    Ok(Best { fastest, cheapest })
}

/// What was [`FOUND`] in `what` against the best settings, which were measured in turns with it.
fn judge(samples: &Samples, what: &str, best: Best, table: &mut Table, goals: &mut Vec<Goal>) {
    let rate = |setting: &str| samples.rate(what, setting);
    let cost = |setting: &str| samples.cpu_per_amount(what, setting).0;
    let of_best =
        |setting: &str| (rate(setting) / rate(best.fastest), cost(setting) / cost(best.cheapest));
    let mut row = |name: String, setting: &str| {
        let (of_fastest, of_cheapest) = of_best(setting);
        let cells = [rate(setting) / MIB, cost(setting) * MIB * 1e3, of_fastest, of_cheapest];
        table.row(std::iter::once(name).chain(cells.map(number)).collect());
    };
    row(format!("{what}, `{}`", best.fastest), best.fastest);
    if best.cheapest != best.fastest {
        row(format!("{what}, `{}`", best.cheapest), best.cheapest);
    }
    row(format!("{what}, {FOUND}"), FOUND);
    let (of_fastest, of_cheapest) = of_best(FOUND);
    let name = format!("{what}: rate from 3 s on, of the fastest of a sweep");
    goals.push(Goal::new(name, of_fastest, "", Wanted::AtLeast(RATE_MIN)));
    let name = format!("{what}: CPU for a byte, of the cheapest fast one of a sweep");
    goals.push(Goal::new(name, of_cheapest, "", Wanted::AtMost(CPU_MAX)));
}

/// What the store refused of the requests of each setting.
fn refusals(samples: &Samples, load: Load, what: &str) -> String {
    let part = |what: &str, setting: &str| {
        let sum = |part: fn(&Sample) -> Option<u64>| {
            samples.of(what, setting).filter_map(part).sum::<u64>() as f64
        };
        number(sum(|sample| sample.refused) / sum(|sample| sample.requests))
    };
    let swept =
        load.sweep.iter().map(|setting| format!("`{setting}` {}", part(&sweep_of(what), setting)));
    let swept: Vec<_> = swept.collect();
    let found = part(what, FOUND);
    format!(
        "{what}, part of the requests that were refused: {FOUND} {found}; {}.",
        swept.join(", ")
    )
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
        let seen = || [self.proxy.passed(), self.proxy.asked(), self.proxy.refused()];
        let (before, cpu) = (seen(), CpuTimes::of(&[process]));
        let window = if self.proxy.is_counted() { WINDOW_COUNTED } else { WINDOW };
        sleep(window);
        let (now, cpu) = (seen(), CpuTimes::of(&[process]).since(&cpu));
        ensure!(copy.0.try_wait()?.is_none(), "a copy ({setting}) ended in the window");
        drop(copy);
        self.forget(load.way)?;
        let [bytes, requests, refused] = [0, 1, 2].map(|at: usize| now[at] - before[at]);
        let measured =
            Measured { amount: bytes as f64, seconds: window.as_secs_f64(), own_cpu: cpu };
        Ok(Sample {
            what: what.to_owned(),
            variant: setting.to_owned(),
            round,
            measured,
            requests: Some(requests),
            refused: Some(refused),
            ..Sample::default()
        })
    }

    /// What is found again after the line has changed, in turns with the best settings of the line that it becomes.
    fn step(&self, what: &str, best: Best, repeats: usize) -> anyhow::Result<Vec<Sample>> {
        self.prepare(LOOSE)?;
        let [before, after] = STEP;
        let change = |proxy: &Proxy| {
            sleep(TO_FIND);
            proxy.set(line(after));
            sleep(TO_FIND);
        };
        let window = |setting, round| {
            if setting == FOUND {
                self.proxy.set(line(before));
                return self.window(LOOSE, (what, setting, round), change);
            }
            self.proxy.set(line(after));
            self.window(LOOSE, (what, setting, round), |_| sleep(TO_FIND))
        };
        let turns = (0..repeats)
            .flat_map(|round| best.turns(round).into_iter().map(move |setting| (setting, round)));
        turns.map(|(setting, round)| window(setting, round)).collect()
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
