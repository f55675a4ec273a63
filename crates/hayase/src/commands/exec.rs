//! `hayase exec`.

use std::ffi::{OsStr, OsString};

use super::job_arg::JobArg;
use crate::config::Environment;
use crate::exit::Status;
use crate::job::JobError;
use crate::launch::enter::{exec, launcher_command};
use crate::launch::preload::preloaded;
use crate::output::Output;

/// Run a program on a node of a job
///
/// The program takes this command's place: standard streams, signals and exit status are its own. It
/// finds $HAYASE_SHARED, $HAYASE_LOCAL, $HAYASE_JOB and $HAYASE_NODE in its environment, and keeps the
/// working directory where the node has it.
///
/// MPI over simulated nodes, with MPICH:
///   hayase exec -- mpiexec -n 6 ./a.out
/// starts two ranks on each of three nodes; mpiexec finds the nodes in its environment
/// (HYDRA_HOST_FILE and `hayase exec --launcher`). Or one by one, with any mpiexec on one machine:
///   mpiexec -n 1 hayase exec --node 0 -- ./a.out : -n 1 hayase exec --node 1 -- ./a.out
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    job: JobArg,
    /// On which node
    #[arg(long, value_name = "I", default_value_t)]
    node: u16,
    /// Be what a launcher of MPI takes for rsh or ssh: CMD is a host and the words of a shell command
    #[arg(long, conflicts_with = "node")]
    launcher: bool,
    /// CMD is a launcher of MPI: files that its ranks write through MPI-IO in `shared` and `cache` are kept as one
    /// part per rank, on the rank's node
    #[arg(long, conflicts_with = "launcher")]
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
