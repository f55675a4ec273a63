//! `--job`, as most verbs take it.

use std::ffi::OsString;

use crate::config::Environment;
use crate::job::{Job, JobError, find, find_any};

/// Which job is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct JobArg {
    /// Name or directory of the job [default: $HAYASE_JOB, else your only job on this machine]
    #[arg(long, value_name = "JOB")]
    pub(crate) job: Option<OsString>,
}

impl JobArg {
    /// Finds it.
    pub(crate) fn find(&self, environment: &Environment) -> Result<Job, JobError> {
        find(self.job.as_ref(), environment)
    }

    /// Finds it also where it can not be said of some of its nodes whether they run.
    pub(crate) fn find_any(&self, environment: &Environment) -> Result<Job, JobError> {
        find_any(self.job.as_ref(), environment)
    }
}
