//! `hayase exec`.

use std::ffi::{OsStr, OsString};

use super::job_arg::JobArg;
use crate::config::Environment;
use crate::exit::Status;
use crate::job::JobError;
use crate::launch::enter::{exec, launcher_command};
use crate::launch::preload::preloaded;
use crate::number::node;
use crate::output::Output;
use crate::output::headings::MPI;

/// Run a program on a node of a job
///
/// The program replaces this command: it has the same standard streams, signals and exit status. It finds
/// $HAYASE_SHARED, $HAYASE_LOCAL, $HAYASE_JOB and $HAYASE_NODE in its environment. It starts in the current directory
/// if the node has that directory.
///
/// On simulated nodes MPICH's `mpiexec` finds all nodes in its environment (HYDRA_HOST_FILE and `hayase exec
/// --launcher`). With another mpiexec, start the ranks one by one, as in the last example.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    job: JobArg,
    /// Number of the node
    #[arg(long, value_name = "I", default_value_t, value_parser = node)]
    node: u16,
    /// Act as rsh or ssh for an MPI launcher: CMD is a host, followed by a shell command
    #[arg(long, conflicts_with = "node", help_heading = MPI)]
    launcher: bool,
    /// CMD is an MPI launcher: each file that its ranks write with MPI-IO in `shared` or `cache` becomes a
    /// container, with one part per rank on the node of the rank
    #[arg(long, conflicts_with = "launcher", help_heading = MPI)]
    mpiio: bool,
    /// The node is this host, or it is not up: look no further
    #[arg(long, hide = true)]
    here: bool,
    /// Program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  hayase exec -- sh -c 'ls -l $HAYASE_SHARED'
  hayase exec --node 2 -- sh -c 'df -h $HAYASE_SHARED'
  hayase exec --mpiio -- mpiexec -n 64 ./model /tmp/areas/shared/checkpoint
  mpiexec -n 1 hayase exec --node 0 -- ./a.out : -n 1 hayase exec --node 1 -- ./a.out

Exit codes:
  That of the program; 126 if it cannot be run, 127 if it is not found;
  1 or 2 if there is no such job or node.";

/// Becomes the program; returns only when that fails.
pub(crate) fn run(
    args: &ExecArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let mut job = args.job.find(environment)?;
    if args.here {
        job.settings.reach = None;
    }
    if !job.is_alive() {
        return Err(JobError::Dead { job: job.settings.job.to_string() }.into());
    }
    let error = if args.launcher {
        let (node, text) = launcher_command(&args.command, &job)?;
        exec(&job, node, OsStr::new("/bin/sh"), &["-c".into(), text], environment)
    } else {
        let node = job.check_node(args.node)?;
        let command = match args.mpiio {
            true => preloaded(&args.command, environment)?,
            false => args.command.clone(),
        };
        let (program, arguments) = command.split_first().expect("clap requires one");
        exec(&job, node, program, arguments, environment)
    };
    match error.program_status() {
        Some(status) => {
            output.fail(&error.into());
            Ok(Status::Program(status))
        }
        None => Err(error.into()),
    }
}
