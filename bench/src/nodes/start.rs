//! How long many servers take to come up together.

use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::sample::{Measured, Sample};
use crate::stats;

const SECONDS_MAX: f64 = 20.0;

/// The last one is what the goal speaks of.
const SERVERS: [u16; 4] = [8, 16, 32, 64];

/// Jobs of servers alone come and go.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let mut table = Table::new("Servers on one machine", &["servers", "up s", "down s"]);
    let (mut samples, mut figures) = (Vec::new(), Vec::new());
    for servers in SERVERS {
        let (mut ups, mut downs) = (Vec::new(), Vec::new());
        for round in 0..bench.rounds(1, 5) {
            let job = Job::up(bench, &JobOptions::servers(servers))?;
            ups.push(job.up_time.as_secs_f64());
            downs.push(job.down()?.as_secs_f64());
            for (what, seconds) in [("up", ups[round]), ("down", downs[round])] {
                samples.push(sample(what, servers, round, seconds));
            }
        }
        let of = |times: &[f64]| number(stats::median(times).unwrap_or(f64::NAN));
        table.row(vec![servers.to_string(), of(&ups), of(&downs)]);
        figures = ups;
    }
    let most = figures.iter().copied().fold(f64::NAN, f64::max);
    let goal = Goal::new("up of 64 servers, the slowest", most, "s", Wanted::AtMost(SECONDS_MAX));
    let notes = vec![
        "`hayase up --no-mounts --no-image --no-namespaces --nodes N`: a supervisor and a server for each node, \
         plain processes with loopback addresses, until all have met.\nEach server waits for its own journals to be \
         on the disk."
            .to_owned(),
    ];
    Ok(Outcome { goals: vec![goal], tables: vec![table], notes, samples })
}

fn sample(what: &str, servers: u16, round: usize, seconds: f64) -> Sample {
    Sample {
        what: what.to_owned(),
        variant: format!("{servers} servers"),
        round,
        measured: Measured { amount: f64::from(servers), seconds, own_cpu: 0.0 },
        ..Sample::default()
    }
}
