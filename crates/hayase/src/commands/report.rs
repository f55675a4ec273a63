//! `hayase report`.

use std::path::PathBuf;

use hayase_layout::ByteCount;
use serde::Serialize;

use super::job_arg::JobArg;
use crate::config::Environment;
use crate::count::counted;
use crate::exit::Status;
use crate::job::JobId;
use crate::output::{Human, Output, Page};
use crate::report;

/// Write an HTML report of a job: traffic over time, and files that the tier does not have
///
/// The report is one self-contained HTML file. `hayase down --report FILE` writes it at the end of the job,
/// when it is complete.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    job: JobArg,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  hayase report -o run7.html
  hayase down --report run7.html

See also:
  hayase top, hayase status";

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
        page.line(&format!("the report of job {} is in {}", self.job, self.output.display()));
        if self.files > 0 {
            let (files, bytes) = (self.files, ByteCount(self.bytes));
            page.line(&format!("not in the tier: {}, {bytes}", counted(files, "file")));
        }
    }
}
