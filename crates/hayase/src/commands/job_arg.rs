//! `--job`, as most verbs take it.

use std::ffi::OsString;

use crate::config::Environment;
use crate::job::{Job, JobError, find};

/// Which job is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct JobArg {
    /// Id or directory of the job [default: $HAYASE_JOB, else your only job here]
    #[arg(long, value_name = "JOB")]
    pub(crate) job: Option<OsString>,
}

impl JobArg {
    /// Finds it.
    pub(crate) fn find(&self, environment: &Environment) -> Result<Job, JobError> {
        find(self.job.as_ref(), environment)
    }
}
