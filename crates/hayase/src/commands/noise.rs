//! `hayase noise`.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use serde::Serialize;

use crate::exit::Status;
use crate::noise::fwq::{self, Measured, SAMPLES_MAX, WORK_MAX};
use crate::noise::plot;
use crate::noise::slowdown::{Baseline, Noise, Program, examine};
use crate::number::within;
use crate::output::{Human, Output, Page};
use crate::processors::Processors;

/// 2^18 steps: a quarter of a millisecond or so.
const WORK_DEFAULT: u8 = 18;

/// Pieces of work on each processor.
const SAMPLES_DEFAULT: u64 = 100_000;

/// The program whose slowdown is told, as in paper 003: so many processes, which meet each millisecond.
const PROCESSES_DEFAULT: u64 = 100_000;
const PHASE_MS_DEFAULT: f64 = 1.0;

/// Measure operating system noise on processors, and the slowdown that it causes at scale
///
/// Runs a fixed small amount of work repeatedly on each processor (Fixed Work Quantum, FWQ) and reports how much some
/// repetitions were delayed. With a command it measures twice: without the command and while the command runs (for
/// example I/O). The slowdown is computed with Tsafrir's formula from the longest delay seen, for a parallel
/// program whose processes synchronize after each phase.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NoiseArgs {
    /// Processors to measure, for example 0-3,8 [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    processors: Option<Processors>,

    /// Size of a work quantum: 2^BITS steps
    #[arg(long, short, value_name = "BITS", default_value_t = WORK_DEFAULT,
          value_parser = within::<u8>(1..=WORK_MAX.into()))]
    work: u8,

    /// Number of work quanta on each processor
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = SAMPLES_DEFAULT,
          value_parser = within::<u64>(1..=SAMPLES_MAX))]
    count: u64,

    /// Sample to use as the noise-free baseline
    #[arg(long, value_enum, default_value_t = Baseline::Least)]
    baseline: Baseline,

    /// Number of processes of the parallel program
    #[arg(long, value_name = "N", default_value_t = PROCESSES_DEFAULT,
          value_parser = within::<u64>(1..=u64::MAX))]
    processes: u64,

    /// Milliseconds of computation between two synchronizations
    #[arg(long, value_name = "MS", default_value_t = PHASE_MS_DEFAULT, value_parser = milliseconds)]
    phase: f64,

    /// Plot the samples to FILE (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Command to run during the second measurement; it is stopped afterwards
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  hayase noise
  hayase noise --processors 2-15 --plot noise.svg
  hayase noise --processes 10000 -- dd if=/dev/zero of=/tmp/areas/shared/f bs=1M

See also:
  hayase up --system-cores --cpu-budget";

#[derive(Debug, Serialize)]
struct Told {
    program: Program,
    work: u8,
    baseline: Baseline,
    /// Without the command; one for each processor.
    alone: Vec<Noise>,
    /// With it.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<Vec<Noise>>,
    command: Vec<String>,
    /// How the command ended, when it did not run all the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_early: Option<String>,
}

/// Measures, tells and draws.
pub(crate) fn run(args: &NoiseArgs, output: &Output) -> anyhow::Result<Status> {
    let processors = match &args.processors {
        Some(list) => {
            list.require().context("--processors")?;
            list.numbers().to_vec()
        }
        None => fwq::allowed().context("ask which processors may be used")?,
    };
    let alone = measure(args, &processors, output, "Measuring")?;
    let (mut beside, mut ended_early) = (None, None);
    if !args.command.is_empty() {
        let mut command = Beside::start(&args.command)?;
        beside = Some(measure(args, &processors, output, "Measuring with the command")?);
        ended_early = command.0.try_wait()?.map(|status| status.to_string());
    }
    if let Some(path) = &args.plot {
        draw(path, &alone, beside.as_deref())?;
    }
    let program = Program { processes: args.processes, phase_seconds: args.phase / 1e3 };
    let told =
        |all: &[Measured]| all.iter().map(|one| examine(one, args.baseline, program)).collect();
    output.show(&Told {
        program,
        work: args.work,
        baseline: args.baseline,
        alone: told(&alone),
        beside: beside.as_deref().map(told),
        command: args.command.clone(),
        ended_early,
    })?;
    Ok(Status::Done)
}

fn measure(
    args: &NoiseArgs,
    processors: &[usize],
    output: &Output,
    what: &'static str,
) -> anyhow::Result<Vec<Measured>> {
    let progress = output.steps(what, 100, "");
    fwq::measure(processors, args.work, args.count as usize, &|percent| progress.set(percent))
}

fn draw(path: &Path, alone: &[Measured], beside: Option<&[Measured]>) -> anyhow::Result<()> {
    let mut panels = Vec::new();
    for one in alone {
        panels.push((format!("processor {}, alone", one.processor), one));
    }
    for one in beside.unwrap_or_default() {
        panels.push((format!("processor {}, beside the command", one.processor), one));
    }
    let svg = plot::svg("The same work again and again", &panels);
    std::fs::write(path, svg).with_context(|| format!("draw to {}", path.display()))
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|ms: &f64| *ms > 0.0 && ms.is_finite());
    found.ok_or_else(|| "expected milliseconds greater than 0, for example 0.5".to_owned())
}

/// The command, in a process group of its own, so that all of it ends.
struct Beside(Child);

impl Beside {
    fn start(command: &[String]) -> anyhow::Result<Self> {
        let child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {}", command[0]))?;
        Ok(Self(child))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let group = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group {
            // Gone already: nothing to end.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

impl Human for Told {
    fn write(&self, page: &mut Page) {
        table(page, "alone", &self.alone);
        if let Some(beside) = &self.beside {
            page.blank();
            table(page, &format!("beside `{}`", self.command.join(" ")), beside);
        }
        if let Some(how) = &self.ended_early {
            page.line(&format!("the command did not run to the end of it: {how}"));
        }
        page.blank();
        page.line(&format!(
            "slowdown: of {} processes that meet every {} ms, by the longest delay",
            self.program.processes,
            self.program.phase_seconds * 1e3,
        ));
    }
}

fn table(page: &mut Page, title: &str, noise: &[Noise]) {
    page.title(title);
    let head = [
        "processor",
        "samples",
        "seconds",
        "work us",
        "noise rate",
        "interruptions",
        "median us",
        "longest us",
        "every s",
        "slowdown",
    ];
    let rows = noise.iter().map(|noise| {
        vec![
            noise.processor.to_string(),
            noise.samples.to_string(),
            format!("{:.1}", noise.seconds),
            format!("{:.1}", noise.work_us),
            format!("{:.2e}", noise.rate),
            noise.interruptions.to_string(),
            format!("{:.1}", noise.median_us),
            format!("{:.1}", noise.longest_us),
            format!("{:.3}", noise.interval_seconds),
            format!("{:.3}", noise.slowdown),
        ]
    });
    page.table(&head, rows.collect());
}
