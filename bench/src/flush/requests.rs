//! The requests in which an N-1 file comes to the tier, however small the blocks are that its processes wrote.
//!
//! Four processes of an MPI program write blocks of 47008 bytes in turn, a pattern known from checkpoints.
//! In `cache`, in `shared` and in a marked directory it is recorded as a part for each process, and comes out flat:
//! flushed, staged out or exported. The tier counts what it gets.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;

use super::distant_tier::DistantTier;
use crate::bench::Bench;
use crate::command::run as run_command;
use crate::distant_daemon::Counted;
use crate::job::{Job, JobOptions};
use crate::mpiio::launch::{By, Mpi, words};
use crate::report::Outcome;
use crate::report::goal::{Goal, Wanted, number};
use crate::report::table::Table;
use crate::sample::{Measured, Sample};

const BLOCK: u64 = 47_008;
const PROCESSES: u64 = 4;

/// Of the bytes: what is left over at the end of a file is less.
const WANTED: f64 = 0.99;

const PATIENCE: Duration = Duration::from_secs(120);

/// How a file came to the tier, and in what.
struct Drained {
    what: &'static str,
    counted: Counted,
}

/// One node; the tier answers at once.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<Outcome> {
    let mpi = Mpi::any(bench)?;
    let mut tier = DistantTier::start(bench, 0)?;
    let options = JobOptions { tier: Some(tier.path().to_owned()), ..JobOptions::nodes(1) };
    let job = Job::up(bench, &options)?;
    let steps = ((bench.rounds(128, 512) as u64) << 20) / (PROCESSES * BLOCK);
    let bytes = steps * PROCESSES * BLOCK;
    let arguments = words(&format!("pattern=blocks block={BLOCK} steps={steps} do=write"));
    let write = |path: &Path| {
        let on_node = |program: &str| job.on_node(0, program);
        mpi.run_at(on_node, By::Hayase, PROCESSES, (path, &arguments))
    };
    let hayase = |words: &[&str]| {
        let mut command = job.on_node(0, bench.hayase());
        command.args(words);
        command
    };

    let flushed = job.cache().join("flushed");
    write(&flushed)?;
    require_recorded(hayase(&["explain", &flushed.display().to_string()]))?;
    let mut flush = Command::new(bench.hayase());
    flush.arg("flush").arg("--job").arg(job.directory());
    let flushed = drained(&mut tier, &mut flush, ("flushed from `cache`", bytes))?;

    let recorded = job.shared().join("recorded");
    std::fs::create_dir_all(tier.source().join("staged"))?;
    run_command(job.on_node(0, "mkdir").arg(&recorded), PATIENCE)?.success("mkdir")?;
    write(&recorded.join("file"))?;
    let to = tier.path().join("staged");
    let (from, to) = (recorded.display().to_string(), to.display().to_string());
    let mut stage = hayase(&["stage", "out", &from, &to, "--pack", "none"]);
    let staged = drained(&mut tier, &mut stage, ("recorded in `shared`, staged out", bytes))?;

    mpi.run(By::Hayase, PROCESSES, "file", &arguments)?;
    let from = mpi.path(By::Hayase, "file").display().to_string();
    let to = tier.path().join("exported").display().to_string();
    let mut export = hayase(&["container", "export", &from, &to]);
    let exported = drained(&mut tier, &mut export, ("recorded in a directory, exported", bytes))?;
    mpi.clean()?;
    job.down()?;
    Ok(outcome(&[flushed, staged, exported], bytes))
}

/// Else it is another file that is measured.
fn require_recorded(mut explain: Command) -> anyhow::Result<()> {
    let told = run_command(&mut explain, PATIENCE)?.success("explain")?;
    ensure!(told.contains("recorded"), "it is not recorded: {told}");
    Ok(())
}

fn drained(
    tier: &mut DistantTier<'_>,
    command: &mut Command,
    (what, bytes): (&'static str, u64),
) -> anyhow::Result<Drained> {
    let before = tier.counted()?;
    run_command(command, PATIENCE)?.success(what)?;
    let counted = tier.counted()?.since(before);
    ensure!(counted.bytes >= bytes, "{what}: {} bytes of {bytes} came", counted.bytes);
    Ok(Drained { what, counted })
}

fn outcome(all: &[Drained], bytes: u64) -> Outcome {
    let head = ["", "requests", "KiB each", "bytes in requests of 1 MiB or more"];
    let mut table = Table::new("What the tier gets of a file of 47008 B blocks", &head);
    let mut outcome = Outcome::default();
    for Drained { what, counted } in all {
        let requests = counted.requests as f64;
        let cells = [requests, counted.bytes as f64 / requests / 1024.0, counted.large_part()];
        table.row(std::iter::once((*what).to_owned()).chain(cells.map(number)).collect());
        let measured = Measured { amount: requests, seconds: 0.0, own_cpu: 0.0 };
        let (what, variant) = ((*what).to_owned(), "requests".to_owned());
        outcome.samples.push(Sample {
            what: what.clone(),
            variant,
            round: 0,
            measured,
            meanwhile_cpu: 0.0,
            served_cpu: 0.0,
            requests: Some(counted.requests),
            ..Sample::default()
        });
        let name = format!("N-1 file {what}: bytes in requests of 1 MiB or more");
        outcome.goals.push(Goal::new(name, counted.large_part(), "", Wanted::AtLeast(WANTED)));
    }
    outcome.tables.push(table);
    outcome.notes.push(format!(
        "{PROCESSES} processes wrote {} MiB, in turns of {BLOCK} B. Requests are counted outside of the job, by the FUSE \
         daemon that is the tier: its kernel cuts a write(2) into requests of at most 1 MiB.",
        bytes >> 20
    ));
    outcome
}
