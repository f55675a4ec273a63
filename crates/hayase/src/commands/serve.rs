//! `hayase serve`: the server daemon.

use std::path::PathBuf;

use hayase_server::{NAMES_LOST, ServeError};

use crate::config::Environment;
use crate::exit::Status;
use crate::job::job_at;
use crate::output::Output;
use crate::supervisor::daemon::{depend_on, raise_open_files};
use crate::supervisor::said::{DaemonSaid, Failure};

/// Run the server of one node (started by `hayase up`; runs in the foreground and logs to standard error)
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Directory of the job
    #[arg(long, value_name = "DIR")]
    job_dir: PathBuf,
    /// Number of the node
    #[arg(long, value_name = "I")]
    node: u16,
    /// End when this process ends
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<i32>,
}

/// Serves until a signal ends it.
pub(crate) fn run(
    args: &ServeArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    crate::process::set_name(c"hayase-serve");
    depend_on(args.parent)?;
    crate::logging::start(&environment.log);
    raise_open_files();
    let serve = || {
        let job = job_at(&args.job_dir)?;
        let node = job.check_node(args.node)?;
        let ready = || output.line(&DaemonSaid::Ready(None));
        crate::wiring::serve::serve(&job.dir, &job.settings, node, ready)
    };
    report(serve(), args.parent.is_some(), output)
}

/// Tells the supervisor why a daemon ended; in the foreground the usual message is enough.
pub(crate) fn report(
    result: anyhow::Result<()>,
    has_supervisor: bool,
    output: &Output,
) -> anyhow::Result<Status> {
    match result {
        Ok(()) => Ok(Status::Done),
        Err(error) if has_supervisor => {
            tracing::error!("{error:#}");
            let _ = output.line(&DaemonSaid::Failed(Failure::new(&error, output)));
            match error.downcast_ref::<ServeError>().is_some_and(ServeError::may_have_lost_names) {
                true => Ok(Status::Program(NAMES_LOST)),
                false => Ok(Status::Failed),
            }
        }
        Err(error) => Err(error),
    }
}
