//! `hayase run`.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};

use super::up::{UpArgs, launch};
use crate::config::Environment;
use crate::exit::Status;
use crate::job::Job;
use crate::launch::signals::{ENDING, Signals};
use crate::launch::stop::{How, stop};
use crate::output::Output;
use crate::process::ProcessId;

/// Start a job's file system, run CMD on its first node, and take it down again
///
/// CMD finds $HAYASE_SHARED, $HAYASE_LOCAL, $HAYASE_JOB and $HAYASE_NODE in its environment. On
/// simulated nodes MPICH's `mpiexec` needs no options to use all of them. The areas are removed at
/// the end, also when this command is killed: copy results elsewhere in CMD.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    up: UpArgs,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs one program inside a job of its own; ends with its status.
pub(crate) fn run(
    args: &RunArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let signals = Signals::block(&ENDING)?;
    let mut launched = launch(&args.up, environment, &signals, output)?;
    let result = run_program(&launched.job, &args.command, &signals);
    let stopped = stop(&launched.job, How::default(), output);
    launched.reap();
    for note in &stopped.notes {
        output.note(note);
    }
    if stopped.left.is_nothing() {
        return result.map(status_of);
    }
    for line in &stopped.left.lines {
        output.note(&format!("not in the tier: {}", line.path));
    }
    let kept = stopped.kept.as_deref().unwrap_or(std::path::Path::new("?"));
    output.note(&format!("bring the rest there with `hayase resume {}`", kept.display()));
    let status = result.map(status_of)?;
    Ok(if status == Status::Program(0) { Status::Partly } else { status })
}

/// The program is a child that enters the node and becomes the command; it gets the signals we get.
fn run_program(job: &Job, command: &[OsString], signals: &Signals) -> anyhow::Result<ExitStatus> {
    let mut exec = Command::new("/proc/self/exe");
    exec.arg0("hayase").arg("exec").arg("--job").arg(job.dir.path()).args(["--node", "0", "--"]);
    exec.args(command);
    signals.unblock_in(&mut exec);
    let mut child = exec.spawn().context("start `hayase exec`")?;
    let handle = ProcessId::of(child.id() as i32).and_then(ProcessId::open);
    while let Some(handle) = &handle {
        let mut fds = [
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(handle.pidfd.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("wait for the program"),
        }
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
