//! `hayase run`.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use anyhow::Context;
use hayase_stage::pack::MasterKey;

use super::spread::{self, AreaPlace, How, OutWishes, SpreadError};
use super::transfer::{CopyArgs, KeyArgs, OutKeyArgs, OutSelectionArgs, PackArgs, SelectionArgs};
use super::up::launch;
use crate::config::Environment;
use crate::exit::Status;
use crate::job::Job;
use crate::launch::options::JobOptions;
use crate::launch::preload::preloaded;
use crate::launch::stop::{self, stop};
use crate::output::Output;
use crate::output::headings::{MPI, STAGING};
use crate::process::ProcessId;
use crate::process::child::this_program;
use crate::process::signals::{ENDING, Signals};

/// Start a job's file system, run CMD on its first node, and end the job
///
/// CMD finds $HAYASE_SHARED, $HAYASE_LOCAL, $HAYASE_JOB and $HAYASE_NODE in its environment. On simulated nodes
/// MPICH's `mpiexec` uses all nodes without options. The areas are removed at the end, also when this command is
/// killed: copy results elsewhere in CMD, or with --out. If --out cannot copy everything, the job stays up.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    job: JobOptions,
    /// CMD is an MPI launcher: each file that its ranks write with MPI-IO in `shared` or `cache` becomes a
    /// container, with one part per rank on the node of the rank
    #[arg(long, help_heading = MPI)]
    mpiio: bool,
    /// Before CMD, copy the tree SRC with all nodes to shared/PATH, or to local/PATH on each node (repeatable; see
    /// `hayase stage in`)
    #[arg(long = "in", value_name = "SRC:AREA/PATH", value_parser = spread::parse_in, help_heading = STAGING)]
    stage_in: Vec<(OsString, AreaPlace)>,
    /// After CMD, whatever its exit status, copy shared/PATH to the directory or bucket DST, or local/PATH of each
    /// node: to DST/node-<I> when there are several nodes (repeatable; see `hayase stage out`)
    #[arg(long = "out", value_name = "AREA/PATH:DST", value_parser = spread::parse_out, help_heading = STAGING)]
    stage_out: Vec<(AreaPlace, OsString)>,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", help_heading = None::<&str>)]
    command: Vec<OsString>,
    #[command(flatten, next_help_heading = "Stage-in (--in)")]
    selection: SelectionArgs,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten, next_help_heading = "Stage-out (--out)")]
    out_selection: OutSelectionArgs,
    #[command(flatten)]
    pack: PackArgs,
    #[command(flatten)]
    out_key: OutKeyArgs,
}

const EXAMPLES: &str = "\
Examples:
  hayase run --nodes 3 -- mpiexec -n 6 ./a.out
  hayase run --storage /local/scratch --mpiio -- mpiexec -n 64 ./model
  hayase run --in s3://bucket/images:shared/images --out shared/model:/project/model -- ./train.sh

Exit codes:
  That of CMD. CMD is not run if the job does not start or --in fails (1 or 2), or if --in does not
  copy all files (3). If CMD ended with 0: 1, 2 or 3 if --out did not copy all files, 3 if the tier
  does not have all files.

See also:
  hayase up, hayase stage, hayase exec";

/// Runs one program inside a job of its own; ends with its status.
pub(crate) fn run(
    args: &RunArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let wishes = Wishes::of(args)?;
    let signals = Signals::block(&ENDING)?;
    let command = match args.mpiio {
        true => preloaded(&args.command, environment)?,
        false => args.command.clone(),
    };
    let mut launched = launch(&args.job, environment, &signals, output)?;
    let (result, is_safe) = run_staged((args, &wishes), &command, &launched.job, &signals, output);
    if !is_safe {
        let job = launched.let_go(output);
        let id = &job.settings.job;
        output.problem(&format!(
            "job {id} stays up, since not all results arrived: `hayase exec --job {id} --node I -- sh -c 'ls \
             $HAYASE_SHARED $HAYASE_LOCAL'` shows what node I has, `hayase exec --job {id} --node I -- hayase stage \
             out ...` copies it, and `hayase down --job {id}` ends the job"
        ));
        return result;
    }
    let stopped = stop(&launched.job, stop::How::default(), output);
    launched.reap();
    for note in stopped.notes.iter().chain(&stopped.refused) {
        output.problem(note);
    }
    if stopped.left.is_nothing() && stopped.refused.is_empty() {
        return result;
    }
    for line in &stopped.left.lines {
        output.problem(&format!("not in the tier: {}", line.path));
    }
    let kept = stopped.kept.as_deref().unwrap_or(std::path::Path::new("?"));
    output.problem(&format!("bring the rest there with `hayase resume {}`", kept.display()));
    let status = result?;
    Ok(if status == Status::Program(0) { Status::Partly } else { status })
}

/// What the copies are told, known to be possible before anything starts.
struct Wishes {
    copy_in: CopyArgs,
    key_in: Option<Vec<u8>>,
    out: OutWishes,
}

impl Wishes {
    fn of(args: &RunArgs) -> anyhow::Result<Self> {
        let unused = |options, about| Err(SpreadError::Unused { options, about }.into());
        let has_in = args.selection.is_given() || args.key.is_given();
        if args.stage_in.is_empty() && has_in {
            return unused("--include, --exclude and --key-..", "--in");
        }
        let selection = args.out_selection.to_selection();
        let has_out = selection.is_given() || args.pack.is_given() || args.out_key.is_given();
        if args.stage_out.is_empty() && has_out {
            return unused(
                "--out-include, --out-exclude, --pack, --zstd and --out-key-..",
                "--out",
            );
        }
        let key = args.out_key.given()?;
        for (_, target) in &args.stage_out {
            args.pack.check(target, key.is_some())?;
        }
        let (copy, pack) = (CopyArgs::of(selection), args.pack.clone());
        let out = OutWishes { copy, pack, key, is_of_run: true };
        let key_in = args.key.given()?;
        key_in.as_deref().map(MasterKey::parse).transpose()?;
        Ok(Self { copy_in: CopyArgs::of(args.selection.clone()), key_in, out })
    }
}

/// Stages in, runs the program, stages out. The status, and whether nothing is lost with the areas.
fn run_staged(
    (args, wishes): (&RunArgs, &Wishes),
    command: &[OsString],
    job: &Job,
    signals: &Signals,
    output: &Output,
) -> (anyhow::Result<Status>, bool) {
    let how = How { spread: None, nodes: job.settings.nodes, signals: Some(signals) };
    for (source, target) in &args.stage_in {
        let wishes = (&wishes.copy_in, wishes.key_in.clone());
        match spread::stage_in((job, how), source, target, wishes, output) {
            Ok(Status::Done) => {}
            other => return (other, true),
        }
    }
    let status = match run_program(job, command, signals) {
        Ok(status) => status,
        Err(error) => return (Err(error), true),
    };
    let mut left = None;
    for (source, target) in &args.stage_out {
        match spread::stage_out((job, how), source, target, &wishes.out, output) {
            Ok(Status::Done) => {}
            other => left = left.or(Some(other)),
        }
    }
    let is_safe = left.is_none();
    match (status.success(), left) {
        (true, Some(other)) => (other, is_safe),
        (_, left) => {
            if let Some(Err(error)) = left {
                output.fail(&error);
            }
            (Ok(status_of(status)), is_safe)
        }
    }
}

/// The program is a child that enters the node and becomes the command; it gets the signals we get.
fn run_program(job: &Job, command: &[OsString], signals: &Signals) -> anyhow::Result<ExitStatus> {
    let mut exec = this_program("exec");
    exec.arg("--job").arg(job.dir.path()).args(["--node", "0", "--"]).args(command);
    signals.unblock_in(&mut exec);
    let mut child = exec.spawn().context("start `hayase exec`")?;
    let handle = ProcessId::of(child.id() as i32).and_then(ProcessId::open);
    while let Some(handle) = &handle {
        handle.wait_ended_or_readable(signals.as_fd()).context("wait for the program")?;
        while let Some(received) = signals.next() {
            if !received.is_from_terminal {
                handle.signal(received.signal);
            }
        }
        if handle.has_ended() {
            break;
        }
    }
    child.wait().context("wait for the program")
}

/// As shells do it: 128 and the signal's number when a signal ended it.
fn status_of(status: ExitStatus) -> Status {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Status::Program(u8::try_from(code).unwrap_or(u8::MAX))
}
