//! A server's memory, and the page cache of its parts, while many programs of another node move bytes through it.

use std::time::Duration;

use anyhow::Context;

use crate::bench::Bench;
use crate::command::run as run_program;
use crate::job::{Job, JobOptions};
use crate::process_times::resident_bytes;
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::sample::{Measured, Sample};
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::sequential::{Operation, Sequential};

const PROGRAMS: usize = 16;
/// Size of each file, in blocks of 1 MiB.
const BLOCKS: u64 = 32;
const BEFORE: &str = "before I/O";
const KINDS: [(&str, Operation); 2] = [("WRITE", Operation::Overwrite), ("READ", Operation::Read)];
const GROWTH_MAX: f64 = 1.01;
const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;
const PATIENCE: Duration = Duration::from_secs(60);

/// Programs on node 1 write their files on node 0 and read them, again and again.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let job = Job::up(bench, &JobOptions::nodes(2))?;
    let mut home = job.worker(0)?;
    let directory = job.shared().join("bench");
    home.perform(&Task::MakeDirectory { path: directory.clone() })?;
    let mut clients: Vec<Worker> =
        (0..PROGRAMS).map(|_| job.worker(1)).collect::<Result<_, _>>()?;
    for n in 0..PROGRAMS {
        let fill = Sequential::new(Operation::New, directory.join(n.to_string()), 1);
        home.measure(&Task::Sequential(Sequential { keep: true, ..fill }))?;
    }
    home.perform(&Task::Evict { path: job.image(0) })?;
    let wanted = GIB * if bench.rounds(0, 1) == 0 { 10.0 } else { 160.0 };
    let (mut moved, mut readings) = (0.0, vec![reading(&job, BEFORE, 0.0)?]);
    while moved < wanted {
        for (what, operation) in KINDS {
            for (n, client) in clients.iter_mut().enumerate() {
                let work = Sequential::new(operation, directory.join(n.to_string()), BLOCKS);
                client.ask(&Task::Sequential(Sequential { cold: true, ..work }))?;
            }
            for client in &mut clients {
                moved += client.measured()?.amount;
            }
            readings.push(reading(&job, what, moved)?);
        }
    }
    job.down()?;
    Ok(outcome(&readings))
}

/// After so many bytes.
struct Reading {
    /// What was done just before.
    what: &'static str,
    moved: f64,
    resident: f64,
    cached: f64,
}

fn reading(job: &Job<'_>, what: &'static str, moved: f64) -> anyhow::Result<Reading> {
    let resident = resident_bytes(job.nodes()[0].server).context("the server has ended")? as f64;
    let parts = job.image(0).join("parts").display().to_string();
    let mut command = job.on_node(0, "sh");
    let script =
        format!("find {parts} -type f -exec fincore --bytes --noheadings --output RES {{}} +");
    let told = run_program(command.args(["-c", &script]), PATIENCE)?.success("fincore")?;
    let cached = told.split_whitespace().filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(Reading { what, moved, resident, cached })
}

fn outcome(readings: &[Reading]) -> Outcome {
    let head = ["after GiB", "server MiB", "page cache of the parts MiB"];
    let mut table = Table::new("Memory of node 0", &head);
    let step = readings.len().div_ceil(8).max(1);
    let shown = |at: &usize| at.is_multiple_of(step) || at + 1 == readings.len();
    for reading in (0..readings.len()).filter(shown).map(|at| &readings[at]) {
        let figures = [reading.moved / GIB, reading.resident / MIB, reading.cached / MIB];
        table.row(figures.map(number).into());
    }
    let half = readings.len() / 2;
    let most = |range: std::ops::Range<usize>, of: fn(&Reading) -> f64| {
        readings[range].iter().map(of).fold(f64::NAN, f64::max)
    };
    let growth = most(half..readings.len(), |r| r.resident) / most(0..half, |r| r.resident);
    let cached = most(0..readings.len(), |r| r.cached) / MIB;
    let goals = vec![
        Goal::new(
            "memory of a server, second half of the bytes, of the first",
            growth,
            "",
            Wanted::AtMost(GROWTH_MAX),
        ),
        Goal::new("page cache of the parts, most", cached, "MiB", Wanted::AtMost(PROGRAMS as f64)),
    ];
    let notes = vec![format!(
        "{PROGRAMS} programs on node 1 write a file of {BLOCKS} MiB on node 0 each, then read it, in 1 MiB calls, until so \
         many bytes have moved. The page cache is what fincore(1) tells of all parts on node 0: their first MiB was \
         written there."
    )];
    Outcome { goals, tables: vec![table, table_8(readings)], notes, samples: samples(readings) }
}

fn table_8(readings: &[Reading]) -> Table {
    let head = ["", "most bytes", "page cache of the parts"];
    let mut table = Table::new("Memory of a server, as in table 8 of paper 003", &head);
    for what in [BEFORE, KINDS[0].0, KINDS[1].0] {
        let of = |figure: fn(&Reading) -> f64| {
            let found = readings.iter().filter(|reading| reading.what == what).map(figure);
            number(found.fold(f64::NAN, f64::max))
        };
        table.row(vec![what.to_owned(), of(|r| r.resident), of(|r| r.cached)]);
    }
    table
}

/// The amount is resident bytes, or cached ones.
fn samples(readings: &[Reading]) -> Vec<Sample> {
    let one = |what: &str, round: usize, amount: f64| Sample {
        what: what.to_owned(),
        variant: "server 0".to_owned(),
        round,
        measured: Measured { amount, seconds: 0.0, own_cpu: 0.0 },
        ..Sample::default()
    };
    let all = readings.iter().enumerate();
    all.flat_map(|(n, r)| [one("resident bytes", n, r.resident), one("cached bytes", n, r.cached)])
        .collect()
}
