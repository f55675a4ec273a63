//! What the processes of a job do while nobody uses it: CPU time and wake-ups of each, in a job of three nodes, and in
//! one with a cache area in front of shared storage.

use std::time::{Duration, Instant};

use anyhow::Context;

use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::process_times::{CpuTimes, settle, wake_ups};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::sample::{Measured, Sample};

const NODES: u16 = 3;

/// Between two heartbeats of a server at rest; mounts and supervisors have none.
const BEAT_SECONDS: f64 = 5.0;

/// Connections are made, and homes are asked no more whether they live.
const QUIET: Duration = Duration::from_secs(8);

/// Wake-ups per second of any process, heartbeats included.
const WAKE_UPS_MAX: f64 = 1.0;

/// CPU of any process, heartbeats included.
const CPU_US_PER_SECOND: f64 = 100.0;

/// One process in one second.
#[derive(Clone, Debug)]
struct Rest {
    job: &'static str,
    process: String,
    has_heartbeats: bool,
    wake_ups: f64,
    cpu_us: f64,
}

/// Both jobs, one after the other.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let seconds = bench.rounds(20, 60) as u64;
    let plain = JobOptions { shared: "300MiB", ..JobOptions::nodes(NODES) };
    let tier = bench.scratch().join("idle-tier");
    std::fs::create_dir_all(&tier).context("make shared storage")?;
    let cached = JobOptions { tier: Some(tier), ..plain.clone() };
    let mut rests = Vec::new();
    for (name, options) in [("shared and local", plain), ("with cache", cached)] {
        let job = Job::up(bench, &options)?;
        rests.extend(leave_alone(&job, name, Duration::from_secs(seconds)));
        job.down()?;
    }
    Ok(outcome(&rests, seconds))
}

fn leave_alone(job: &Job<'_>, name: &'static str, span: Duration) -> Vec<Rest> {
    settle(&job.daemons());
    std::thread::sleep(QUIET);
    let mut processes = Vec::new();
    for (number, node) in job.nodes().iter().enumerate() {
        processes.push((format!("server {number}"), node.server, true));
        processes.extend(node.mount.map(|mount| (format!("mount {number}"), mount, false)));
        processes.push((format!("supervisor {number}"), node.supervisor, false));
    }
    let begin = Instant::now();
    let before: Vec<_> = processes
        .iter()
        .map(|(_, process, _)| (CpuTimes::of(&[*process]), wake_ups(*process)))
        .collect();
    std::thread::sleep(span);
    let seconds = begin.elapsed().as_secs_f64();
    let rests =
        processes.into_iter().zip(before).map(|((process, number, beats), (cpu, woken))| Rest {
            job: name,
            process,
            has_heartbeats: beats,
            wake_ups: wake_ups(number).saturating_sub(woken) as f64 / seconds,
            cpu_us: CpuTimes::of(&[number]).since(&cpu) * 1e6 / seconds,
        });
    rests.collect()
}

fn outcome(rests: &[Rest], seconds: u64) -> Outcome {
    let most = |wanted: fn(&Rest) -> bool, part: fn(&Rest) -> f64| {
        rests.iter().filter(|rest| wanted(rest)).map(part).fold(f64::NAN, f64::max)
    };
    let goals = vec![
        Goal::new(
            "wake-ups of a server at rest, heartbeats included, most",
            most(|rest| rest.has_heartbeats, |rest| rest.wake_ups),
            "/s",
            Wanted::AtMost(WAKE_UPS_MAX),
        ),
        Goal::new(
            "wake-ups of a process without heartbeats, most",
            most(|rest| !rest.has_heartbeats, |rest| rest.wake_ups),
            "/s",
            Wanted::AtMost(0.0),
        ),
        Goal::new(
            "CPU of a process at rest, heartbeats included, most",
            most(|_| true, |rest| rest.cpu_us),
            "us/s",
            Wanted::AtMost(CPU_US_PER_SECOND),
        ),
    ];
    let notes = vec![format!(
        "Jobs of {NODES} nodes, left alone for {seconds} s. A server beats each {BEAT_SECONDS:.0} s; server 0 hears \
         the beats of the others. Wake-ups: how often threads went to sleep by themselves."
    )];
    let head = ["job", "process", "wake-ups /s", "per 5 s", "CPU us/s"];
    let mut table = Table::new("Left alone", &head);
    for rest in rests {
        table.row(vec![
            rest.job.to_owned(),
            rest.process.clone(),
            number(rest.wake_ups),
            number(rest.wake_ups * BEAT_SECONDS),
            number(rest.cpu_us),
        ]);
    }
    let samples = rests.iter().map(|rest| sample(rest, seconds)).collect();
    Outcome { goals, tables: vec![table], notes, samples }
}

/// The amount is wake-ups.
fn sample(rest: &Rest, seconds: u64) -> Sample {
    let seconds = seconds as f64;
    Sample {
        what: rest.process.clone(),
        variant: rest.job.to_owned(),
        round: 0,
        measured: Measured { amount: rest.wake_ups * seconds, seconds, own_cpu: 0.0 },
        meanwhile_cpu: rest.cpu_us * seconds / 1e6,
        served_cpu: rest.cpu_us * seconds / 1e6,
        ..Sample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::goal::Verdict;

    #[test]
    fn the_most_restless_process_decides() {
        let rest = |process: &str, has_heartbeats, wake_ups, cpu_us| {
            let (job, process) = ("one", process.to_owned());
            Rest { job, process, has_heartbeats, wake_ups, cpu_us }
        };
        let verdicts = |rests: &[Rest]| -> Vec<Verdict> {
            outcome(rests, 20).goals.iter().map(Goal::verdict).collect()
        };
        let calm = [rest("server 0", true, 0.9, 99.0), rest("mount 0", false, 0.0, 0.0)];
        assert_eq!(verdicts(&calm), [Verdict::Holds; 3]);
        let restless = [
            calm[0].clone(),
            rest("server 1", true, 10.0, 200.0),
            rest("mount 0", false, 0.1, 1.0),
        ];
        assert_eq!(verdicts(&restless), [Verdict::Short; 3]);
    }
}
