//! `hayase node`: started by `up` and `run`, never typed.

use std::path::PathBuf;

use crate::config::Environment;
use crate::exit::Status;
use crate::job::JobDir;
use crate::output::Output;

/// Keep one node of a job (started by `up`)
#[derive(Debug, clap::Args)]
pub(crate) struct NodeArgs {
    /// The job's directory
    #[arg(long)]
    job_dir: PathBuf,
    /// Which node
    #[arg(long)]
    node: u16,
    /// The network in the middle of simulated nodes
    #[arg(long)]
    hub: Option<PathBuf>,
}

/// Keeps the node until it is to end.
pub(crate) fn run(
    args: &NodeArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    crate::logging::start(&environment.log);
    let dir = JobDir::new(&args.job_dir);
    crate::supervisor::run(dir, args.node, args.hub.as_deref(), environment, output)
}
