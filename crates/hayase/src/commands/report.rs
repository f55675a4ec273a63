//! `hayase report`.

use std::path::PathBuf;

use hayase_layout::ByteCount;
use serde::Serialize;

use super::job_arg::JobArg;
use crate::config::Environment;
use crate::exit::Status;
use crate::job::JobId;
use crate::output::{Human, Output, Page};
use crate::report;

/// Write the page of a job: what its nodes moved and when, and what is not in the tier
///
/// The page is one HTML file that needs nothing else. `hayase down --report FILE` writes it when the job
/// ends, which is when it says most.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    job: JobArg,
    /// Where to
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Debug, Serialize)]
struct ReportTold {
    job: JobId,
    output: PathBuf,
    /// That the tier does not have.
    files: u64,
    bytes: u64,
}

/// Gathers and writes.
pub(crate) fn run(
    args: &ReportArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let job = args.job.find(environment)?;
    let written = report::write(&job, &args.output)?;
    let (files, bytes) = written.not_durable();
    let job = job.settings.job;
    output.show(&ReportTold { job, output: args.output.clone(), files, bytes })?;
    Ok(Status::Done)
}

impl Human for ReportTold {
    fn write(&self, page: &mut Page) {
        page.line(&format!("the page of job {} is {}", self.job, self.output.display()));
        if self.files > 0 {
            let (files, bytes) = (self.files, ByteCount(self.bytes));
            page.line(&format!("not in the tier: {files} files, {bytes}"));
        }
    }
}
