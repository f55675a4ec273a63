//! `hayase status`: jobs of this user, with their nodes and servers. Room: [`page`] (what it looks like).

mod page;

use serde::Serialize;

use super::job_arg::JobArg;
use crate::config::Environment;
use crate::exit::Status;
use crate::job::{Job, JobError, Registry};
use crate::metrics::{self, Measured};
use crate::output::Output;
use crate::status::{JobStatus, look_at};

/// Show jobs, their nodes, areas and servers
///
/// Without --job and $HAYASE_JOB it shows all your jobs on this machine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    job: JobArg,
    /// List dirty files: those that the tier does not have yet, and why
    #[arg(long)]
    ledger: bool,
    /// Print the counters of all nodes in the format of Prometheus
    #[arg(long, conflicts_with = "ledger")]
    prometheus: bool,
}

const EXAMPLES: &str = "\
Examples:
  hayase status
  hayase status --job run7 --ledger
  hayase status --json | jq '.jobs[].state'

Exit codes:
  0 done; 2 there is no such job; 3 the files of a job cannot be read.

See also:
  hayase top, hayase explain";

/// Everything that is told: always a list, however many jobs were meant.
#[derive(Debug, Serialize)]
struct AllJobs {
    jobs: Vec<JobStatus>,
    #[serde(skip)]
    with_ledger: bool,
}

/// Asks every node of every job that is meant.
pub(crate) fn run(
    args: &StatusArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let registry = Registry::open(&environment.runtime)?;
    let (jobs, damaged) = if args.job.job.is_some() || environment.job.is_some() {
        (vec![args.job.find(environment)?], Vec::new())
    } else {
        (registry.jobs(), registry.damaged())
    };
    damaged.iter().for_each(|error| output.problem(&error.with_help()));
    let is_judged = |job: &Job| job.unknowable(job.all_nodes()).is_empty();
    let is_known = damaged.iter().all(JobError::is_theirs) && jobs.iter().all(is_judged);
    let status = if is_known { Status::Done } else { Status::Partly };
    let with_ledger = args.ledger;
    let jobs: Vec<_> = jobs.iter().map(look_at).collect();
    if args.prometheus {
        output.raw(counters(&jobs).as_bytes())?;
        return Ok(status);
    }
    output.show(&AllJobs { jobs, with_ledger })?;
    Ok(status)
}

/// Of all nodes, as Prometheus reads them.
fn counters(jobs: &[JobStatus]) -> String {
    let mut measured = Vec::new();
    for job in jobs {
        measured.extend(job.nodes.iter().map(|node| Measured {
            job: job.job.as_str(),
            node: node.node,
            host: &node.host,
            served: node.server.as_ref(),
        }));
    }
    metrics::text(&measured)
}
