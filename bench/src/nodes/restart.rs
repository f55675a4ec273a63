//! How long a server that was killed is away, against the number of files that it keeps.

use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::Bench;
use crate::job::{Job, JobOptions};
use crate::process_times::{CpuTimes, settle};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::sample::{Measured, Sample, Samples};
use crate::workloads::Task;
use crate::workloads::library::Library;
use crate::workloads::look::Look;

const SECONDS_MAX: f64 = 1.0;

/// Files on the server; the last one is what the goal speaks of.
const FILES: [u64; 3] = [1000, 10_000, 100_000];

const THREADS: u64 = 16;

/// Files of one directory.
const DIRECTORY_FILES: u64 = 10_000;

/// Names that are looked for: half of all lie on the server that was killed, so one of these does.
const LOOKS: usize = 32;

/// Pauses before a restart grow with restarts of the last two minutes: a job has few.
const KILLS: (usize, usize) = (1, 3);

/// A job for each number of files; its server 0 is killed and looked for from both nodes.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let mut samples = Samples::default();
    for files in FILES {
        let mut job = Job::up(bench, &JobOptions { shared: "800MiB", ..JobOptions::nodes(2) })?;
        fill(&job, files)?;
        settle(&job.daemons());
        for round in 0..bench.rounds(KILLS.0, KILLS.1) {
            one(&mut job, files, round, &mut samples)?;
        }
        job.down()?;
    }
    let [.., most] = FILES;
    let answers: Vec<f64> = samples.of("own", &variant(most)).map(|s| s.measured.seconds).collect();
    let figure = crate::stats::median(&answers).unwrap_or(f64::NAN);
    let name = "from kill -9 of a server with 100,000 files to its first answer";
    let goal = Goal::new(name, figure, "s", Wanted::AtMost(SECONDS_MAX));
    let notes = vec![
        "Two nodes; all files are made on node 0, so that its server has their inodes and parts, and half of their \
         names.\nThe answer is the last of stat(2) of 32 names that are not there, asked through the mount as soon as \
         the server is dead: about half of them lie on it.\nIt includes the supervisor's pause before a restart (50 ms at first, doubled by each restart \
         of the last two minutes) and the time until both nodes have reported what they hold."
            .to_owned(),
    ];
    Ok(Outcome { goals: vec![goal], tables: vec![table(&samples)], notes, samples: samples.0 })
}

fn variant(files: u64) -> String {
    format!("{files} files")
}

fn fill(job: &Job<'_>, files: u64) -> anyhow::Result<()> {
    let mut worker = job.linked_worker(0)?;
    for directory in 0..files.div_ceil(DIRECTORY_FILES) {
        worker.measure(&Task::Library(Library {
            socket: job.socket(0),
            directory: format!("bench-{directory}"),
            threads: THREADS,
            files: files.min(DIRECTORY_FILES) / THREADS,
            remove: false,
        }))?;
    }
    Ok(())
}

fn one(job: &mut Job<'_>, files: u64, round: usize, samples: &mut Samples) -> anyhow::Result<()> {
    let mut workers = [job.worker(0)?, job.worker(1)?];
    let name = |look| job.shared().join(format!("bench-0/no-such-file-{round}-{look}"));
    let paths: Vec<_> = (0..LOOKS).map(name).collect();
    for worker in &mut workers {
        // The way there is known, the name is not.
        worker.perform(&Task::Look(Look { paths: vec![job.shared().join("bench-0")] }))?;
    }
    let server = job.nodes()[0].server.cast_signed();
    let killed = crate::workloads::locks::now();
    kill_process(Pid::from_raw(server).context("a process number")?, Signal::KILL)?;
    // Not before its connections are dead: what was asked of it would be asked again.
    std::thread::sleep(Duration::from_millis(2));
    for worker in &mut workers {
        worker.ask(&Task::Look(Look { paths: paths.clone() }))?;
    }
    for (what, worker) in ["own", "other"].iter().zip(&mut workers) {
        let answered = worker.moment()?;
        samples.0.push(Sample {
            what: (*what).to_owned(),
            variant: variant(files),
            round,
            measured: Measured {
                amount: files as f64,
                seconds: answered.saturating_sub(killed) as f64 / 1e9,
                own_cpu: 0.0,
            },
            ..Sample::default()
        });
    }
    job.look_again()?;
    let server = [job.nodes()[0].server];
    settle(&server);
    // Since its start: what the restart cost.
    let cpu = CpuTimes::of(&server).since(&CpuTimes::default());
    if let Some(own) = samples.0.iter_mut().rev().find(|sample| sample.what == "own") {
        own.served_cpu = cpu;
    }
    Ok(())
}

fn table(samples: &Samples) -> Table {
    let head = ["files", "own node s", "other node s", "CPU of the new server ms"];
    let mut table = Table::new("First answer after kill -9", &head);
    for files in FILES {
        let of = |what, part: fn(&Sample) -> f64| {
            let values: Vec<f64> = samples.of(what, &variant(files)).map(part).collect();
            crate::stats::median(&values).unwrap_or(f64::NAN)
        };
        table.row(vec![
            files.to_string(),
            number(of("own", |sample| sample.measured.seconds)),
            number(of("other", |sample| sample.measured.seconds)),
            number(of("own", |sample| sample.served_cpu * 1000.0)),
        ]);
    }
    table
}
