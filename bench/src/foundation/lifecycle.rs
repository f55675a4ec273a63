//! How long a job takes to come and to go, and what it costs while nobody uses it.

use std::time::Duration;

use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::process_times::{CpuTimes, settle, wake_ups};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::sample::{Measured, Sample};
use crate::stats;

const SECONDS_MAX: f64 = 2.0;

/// How long a job is left alone.
const REST: Duration = Duration::from_secs(10);
/// How long before that it has had nothing to do: until no home is asked any more whether it lives.
const QUIET: Duration = Duration::from_secs(35);

/// Of one daemon in that time, in milliseconds: a tenth of what `ps` can see (one clock tick).
const REST_CPU_MS_MAX: f64 = 1.0;

/// Jobs of three nodes come and go; one is left alone meanwhile.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let (mut ups, mut downs, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = Vec::new();
    for round in 0..bench.rounds(12, 24) {
        let job = Job::up(bench, &JobOptions { shared: "500MiB", ..JobOptions::nodes(3) })?;
        ups.push(job.up_time.as_secs_f64());
        if round == 0 {
            rest = leave_alone(&job);
        }
        downs.push(job.down()?.as_secs_f64());
        for (what, seconds) in [("up", ups[round]), ("down", downs[round])] {
            samples.push(Sample {
                what: what.to_owned(),
                variant: "3 nodes".to_owned(),
                round,
                measured: Measured { amount: 1.0, seconds, own_cpu: 0.0 },
                ..Sample::default()
            });
        }
    }
    let time = |what: &str, times: &[f64]| {
        let figure = stats::median(times).unwrap_or(f64::NAN);
        Goal::new(what, figure, "s", Wanted::AtMost(SECONDS_MAX)).same_as(stats::consecutive(times))
    };
    let busiest = rest.iter().map(|daemon| daemon.cpu_ms).fold(0.0, f64::max);
    let goals = vec![
        time("up of 3 nodes, until a file was made through each mount", &ups),
        time("down of 3 nodes", &downs),
        Goal::new(
            "CPU of an idle daemon in 10 s, the busiest of 6",
            busiest,
            "ms",
            Wanted::AtMost(REST_CPU_MS_MAX),
        ),
    ];
    let notes = vec![
        "`up` is timed from the start of the command until a file was made through the mount of each node \
         (three more commands).\nHomes whose grants are in use are asked each half second whether they live, for 6 s after the last call; then an idle server sends one heartbeat to server 0 each 5 s."
            .to_owned(),
    ];
    Ok(Outcome { goals, tables: vec![times(&ups, &downs), table(&rest)], notes, samples })
}

#[derive(Debug)]
struct Idle {
    name: String,
    cpu_ms: f64,
    wake_ups: u64,
}

fn leave_alone(job: &Job<'_>) -> Vec<Idle> {
    settle(&job.daemons());
    std::thread::sleep(QUIET);
    let daemons: Vec<(String, u32)> = (0..)
        .zip(job.nodes())
        .flat_map(|(node, daemons): (u16, _)| {
            let mount = daemons.mount.map(|process| (format!("mount {node}"), process));
            std::iter::once((format!("serve {node}"), daemons.server)).chain(mount)
        })
        .collect();
    let look = |process: u32| (CpuTimes::of(&[process]), wake_ups(process));
    let before: Vec<_> = daemons.iter().map(|(_, process)| look(*process)).collect();
    std::thread::sleep(REST);
    daemons
        .into_iter()
        .zip(before)
        .map(|((name, process), (cpu, wakes))| {
            let (now, wakes_now) = look(process);
            Idle {
                name,
                cpu_ms: now.since(&cpu) * 1000.0,
                wake_ups: wakes_now.saturating_sub(wakes),
            }
        })
        .collect()
}

fn times(ups: &[f64], downs: &[f64]) -> Table {
    let mut table = Table::new("Three nodes", &["command", "s, median", "least", "most"]);
    for (what, times) in [("up", ups), ("down", downs)] {
        let at = |share| number(stats::quantile(times, share).unwrap_or(f64::NAN));
        table.row(vec![what.to_owned(), at(0.5), at(0.0), at(1.0)]);
    }
    table
}

fn table(rest: &[Idle]) -> Table {
    let mut table = Table::new(
        "Left alone for 10 s, 35 s after its last call",
        &["daemon", "CPU ms", "wake-ups"],
    );
    for idle in rest {
        table.row(vec![idle.name.clone(), number(idle.cpu_ms), idle.wake_ups.to_string()]);
    }
    table
}
