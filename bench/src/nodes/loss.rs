//! How long a node that died keeps its lock: until it is noticed, declared lost by node 0, and every living server
//! has taken that.

use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::sample::{Measured, Sample};
use crate::stats;
use crate::workloads::locks::{HandOver, now};
use crate::workloads::{Answer, Task};

/// Of the protocol: silence after which a node is declared lost.
const SECONDS_MAX: f64 = 3.0;

/// The holder has the lock, and the other one waits for it, after this.
const SETTLED: Duration = Duration::from_millis(1500);

/// A node holds a lock, another waits for it, and everything of the first is killed.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let (mut times, mut samples) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds(3, 9) {
        // Not always the same time after the last message.
        let phase = Duration::from_millis(1000 * round as u64 / bench.rounds(3, 9) as u64);
        let seconds = one(bench, phase)?;
        times.push(seconds);
        samples.push(Sample {
            what: "lock of a lost node".to_owned(),
            variant: "3 nodes".to_owned(),
            round,
            measured: Measured { amount: 1.0, seconds, own_cpu: 0.0 },
            ..Sample::default()
        });
    }
    let figure = stats::median(&times).unwrap_or(f64::NAN);
    let name = "from kill -9 of a node to its lock in another's hands, median";
    let goal = Goal::new(name, figure, "s", Wanted::AtMost(SECONDS_MAX));
    let mut table = Table::new("A lost node", &["", "s, median", "least", "most"]);
    let at = |share| number(stats::quantile(&times, share).unwrap_or(f64::NAN));
    table.row(vec!["its lock is another's".to_owned(), at(0.5), at(0.0), at(1.0)]);
    let notes = vec![
        "Three nodes; the supervisor of one is killed, and all its daemons with it, after another pause in \
         each round.\nA node whose server does not connect again within 2.2 s is declared lost."
            .to_owned(),
    ];
    Ok(Outcome { goals: vec![goal], tables: vec![table], notes, samples })
}

fn one(bench: &Bench, phase: Duration) -> anyhow::Result<f64> {
    let job = Job::up(bench, &JobOptions { shared: "300MiB", ..JobOptions::nodes(3) })?;
    let path = job.shared().join("lock");
    let mut holder = job.worker(1)?;
    let mut waiter = job.worker(2)?;
    let hold = |milliseconds| {
        let path = path.clone();
        Task::HandOver(HandOver { path, turns: 1, hold_milliseconds: milliseconds })
    };
    // The file is made by node 2, so that it outlives node 1.
    waiter.perform(&hold(0))?;
    holder.ask(&hold(60_000))?;
    std::thread::sleep(SETTLED / 2);
    waiter.ask(&hold(0))?;
    std::thread::sleep(SETTLED / 2 + phase);
    let supervisor = job.nodes()[1].supervisor;
    let supervisor = Pid::from_raw(supervisor.cast_signed()).context("a process number")?;
    let killed = now();
    kill_process(supervisor, Signal::KILL).context("kill a supervisor")?;
    let seconds = match waiter.answer()? {
        Answer::Held { turns } => {
            let turn = turns.first().context("no turn")?;
            turn.from.saturating_sub(killed) as f64 / 1e9
        }
        answer => anyhow::bail!("a worker answered {answer:?}"),
    };
    drop((holder, waiter));
    job.down_after_loss()?;
    Ok(seconds)
}
