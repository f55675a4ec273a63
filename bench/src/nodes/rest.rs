//! What servers do while nobody uses them, and what that would be in a job of thousands.
//!
//! Measured in jobs of a few servers: wake-ups, messages, CPU. Each server sends a heartbeat to server 0, which alone
//! feels how many there are: up to 166 servers its share is a straight line, told for more nodes than a machine can
//! hold; in larger jobs servers beat less often, and it hears no more.

use std::time::Duration;

use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::process_times::{CpuTimes, settle, wake_ups};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::sample::{Measured, Sample};
use crate::stats;

/// The last over the first is what the goal speaks of.
const SERVERS: [u16; 3] = [4, 8, 16];

/// Servers whose heartbeats, 5 s apart, are as many as server 0 ever hears.
const HEARD_MAX: f64 = 166.0;

/// Told for these.
const ESTIMATED: [f64; 2] = [1000.0, 10_000.0];

/// Wake-ups of a node may differ so much between the smallest and the largest job.
const SPAN_MAX: f64 = 1.2;

/// Connections are made, and homes are asked no more whether they live.
const QUIET: Duration = Duration::from_secs(8);

/// Between two heartbeats of a server.
const BEAT: Duration = Duration::from_secs(5);

/// One server of an idle job, in one second.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    messages: f64,
    wake_ups: f64,
    cpu_us: f64,
}

/// An idle job: server 0, and the median of the others.
#[derive(Clone, Copy, Debug)]
struct Idle {
    servers: u16,
    coordinator: Rest,
    other: Rest,
}

/// Jobs of servers alone are left alone.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let mut idle = Vec::new();
    for servers in SERVERS {
        let job = Job::up(bench, &JobOptions::servers(servers))?;
        idle.push(leave_alone(bench, &job, servers)?);
        job.down()?;
    }
    let wakes: Vec<f64> = idle.iter().map(|job| job.other.wake_ups).collect();
    let figure = stats::span(&wakes).unwrap_or(f64::NAN);
    let name = "wake-ups of an idle server in jobs of 4, 8, 16, largest over smallest";
    let goal = Goal::new(name, figure, "", Wanted::AtMost(SPAN_MAX));
    let notes = vec![
        "Server 0 declares who is lost, so each other server sends it a heartbeat each 5 s, or each 30 ms for each \
         server of the job if that is longer; servers that share no state have no other traffic.\nThe estimate takes a \
         server other than 0 as measured, and for server 0 the straight line through its measured jobs, up to the 166 \
         servers from which on it hears no more beats; the simulation (`tests/sim`) runs a job of 1,000 and counts the \
         same messages."
            .to_owned(),
    ];
    let samples = idle.iter().flat_map(samples_of).collect();
    Ok(Outcome {
        goals: vec![goal],
        tables: vec![measured_table(&idle), estimate(&idle)],
        notes,
        samples,
    })
}

fn leave_alone(bench: &Bench, job: &Job<'_>, servers: u16) -> anyhow::Result<Idle> {
    settle(&job.daemons());
    std::thread::sleep(QUIET);
    // Asking is counted, too: once per server and question.
    let asked = job.requests_of_each()?;
    let before = job.requests_of_each()?;
    let look = |process: u32| (CpuTimes::of(&[process]), wake_ups(process));
    let processes: Vec<u32> = job.nodes().iter().map(|node| node.server).collect();
    let begin = std::time::Instant::now();
    let looks: Vec<_> = processes.iter().map(|process| look(*process)).collect();
    // So many heartbeats of each.
    std::thread::sleep(BEAT * bench.rounds(2, 4) as u32);
    let seconds = begin.elapsed().as_secs_f64();
    let rests = processes.iter().zip(&looks).map(|(process, (cpu, wakes))| {
        let (now, wakes_now) = look(*process);
        (now.since(cpu) * 1e6 / seconds, wakes_now.saturating_sub(*wakes) as f64 / seconds)
    });
    let rests: Vec<(f64, f64)> = rests.collect();
    let after = job.requests_of_each()?;
    let spans = asked.iter().zip(&before).zip(&after);
    let messages = spans.map(|((asked, before), after)| {
        let question = before.saturating_sub(*asked).min(1);
        (after - before).saturating_sub(question) as f64 / seconds
    });
    let all: Vec<Rest> = rests
        .iter()
        .zip(messages)
        .map(|(&(cpu_us, wake_ups), messages)| Rest { messages, wake_ups, cpu_us })
        .collect();
    let of = |part: fn(&Rest) -> f64| {
        stats::median(&all.iter().skip(1).map(part).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    };
    let other = Rest {
        messages: of(|rest| rest.messages),
        wake_ups: of(|rest| rest.wake_ups),
        cpu_us: of(|rest| rest.cpu_us),
    };
    Ok(Idle { servers, coordinator: all[0], other })
}

fn measured_table(idle: &[Idle]) -> Table {
    let head = ["servers", "which", "messages served /s", "wake-ups /s", "CPU us/s"];
    let mut table = Table::new("Left alone", &head);
    for job in idle {
        for (which, rest) in [("server 0", job.coordinator), ("another", job.other)] {
            table.row(row(job.servers.to_string(), which, rest));
        }
    }
    table
}

fn row(servers: String, which: &str, rest: Rest) -> Vec<String> {
    let figures = [rest.messages, rest.wake_ups, rest.cpu_us].map(number);
    [servers, which.to_owned()].into_iter().chain(figures).collect()
}

fn estimate(idle: &[Idle]) -> Table {
    let head = ["servers", "which", "messages served /s", "wake-ups /s", "CPU us/s"];
    let mut table = Table::new("On paper, from the message counts above", &head);
    for servers in ESTIMATED {
        let line = |part: fn(&Rest) -> f64| {
            let points: Vec<_> =
                idle.iter().map(|job| (f64::from(job.servers), part(&job.coordinator))).collect();
            on_line(&points, servers.min(HEARD_MAX))
        };
        let coordinator = Rest {
            messages: line(|rest| rest.messages),
            wake_ups: line(|rest| rest.wake_ups),
            cpu_us: line(|rest| rest.cpu_us),
        };
        table.row(row(number(servers), "server 0", coordinator));
        if let Some(largest) = idle.last() {
            table.row(row(number(servers), "another", largest.other));
        }
    }
    table
}

/// The value at `x` of the line of least squares through `points`.
fn on_line(points: &[(f64, f64)], x: f64) -> f64 {
    let count = points.len() as f64;
    let mean = |part: fn(&(f64, f64)) -> f64| points.iter().map(part).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let above: f64 = points.iter().map(|(px, py)| (px - mean_x) * (py - mean_y)).sum();
    let below: f64 = points.iter().map(|(px, _)| (px - mean_x).powi(2)).sum();
    mean_y + above / below * (x - mean_x)
}

fn samples_of(job: &Idle) -> impl Iterator<Item = Sample> + use<> {
    let servers = job.servers;
    let both = [("server 0", job.coordinator), ("another server", job.other)];
    both.into_iter().map(move |(what, rest)| Sample {
        what: what.to_owned(),
        variant: format!("{servers} servers at rest"),
        round: 0,
        measured: Measured { amount: rest.wake_ups, seconds: 1.0, own_cpu: 0.0 },
        meanwhile_cpu: rest.cpu_us / 1e6,
        served_cpu: rest.cpu_us / 1e6,
        requests: Some(rest.messages.round() as u64),
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_its_points() {
        assert!((on_line(&[(4.0, 3.0), (8.0, 7.0), (16.0, 15.0)], 1000.0) - 999.0).abs() < 1e-9);
        assert!((on_line(&[(1.0, 0.0), (2.0, 2.0), (3.0, 1.0)], 2.0) - 1.0).abs() < 1e-9);
    }
}
