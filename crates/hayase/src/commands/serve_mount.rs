//! `hayase serve-mount`: the daemon behind a mount of `shared`.

use std::path::PathBuf;

use super::serve::report;
use crate::config::Environment;
use crate::exit::Status;
use crate::job::job_at;
use crate::output::Output;
use crate::supervisor::daemon::{depend_on, raise_open_files};
use crate::supervisor::said::DaemonSaid;

/// Run the FUSE daemon of one node (started by `hayase up`; runs in the foreground and logs to standard error)
#[derive(Debug, clap::Args)]
pub(crate) struct ServeMountArgs {
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

/// Serves the mount until it is unmounted or a signal ends it.
pub(crate) fn run(
    args: &ServeMountArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    crate::process::set_name(c"hayase-mount");
    depend_on(args.parent)?;
    crate::logging::start(&environment.log);
    raise_open_files();
    let serve = || {
        let job = job_at(&args.job_dir)?;
        let node = job.check_node(args.node)?;
        let output = *output;
        let say = move |said: DaemonSaid| output.line(&said);
        crate::wiring::serve_mount::serve_mount(&job.dir, &job.settings, node, say)
    };
    report(serve(), args.parent.is_some(), output)
}
