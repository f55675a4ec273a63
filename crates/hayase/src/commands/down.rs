//! `hayase down`.

use std::time::Instant;

use serde::Serialize;

use super::job_arg::JobArg;
use crate::config::Environment;
use crate::exit::Status;
use crate::job::{JobId, Kind};
use crate::launch::stop::{Stopped, stop, stop_here};
use crate::output::{Human, Output, Page};

/// End a job: its programs, mounts and servers, and remove its areas
///
/// Programs that `hayase exec` or `hayase run` started are ended. Other processes that use an area
/// are left alone: the area is detached and vanishes when they let go.
#[derive(Debug, clap::Args)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    job: JobArg,
    /// Leave the areas' bytes in the storage
    #[arg(long)]
    keep: bool,
    /// End only what the job has on this host, and reach no other: for epilogs of batch systems
    #[arg(long)]
    here: bool,
}

#[derive(Debug, Serialize)]
struct Down<'a> {
    job: &'a JobId,
    took_ms: u64,
    #[serde(flatten)]
    stopped: Stopped,
}

/// Takes a job down, in whatever state it is.
pub(crate) fn run(
    args: &DownArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let begin = Instant::now();
    let job = args.job.find(environment)?;
    let stopped = if args.here && job.settings.kind == Kind::Hosts {
        stop_here(&job, args.keep)
    } else {
        stop(&job, args.keep, output)
    };
    let took_ms = begin.elapsed().as_millis() as u64;
    let status = if stopped.is_complete { Status::Done } else { Status::Partly };
    output.show(&Down { job: &job.settings.job, took_ms, stopped })?;
    Ok(status)
}

impl Human for Down<'_> {
    fn write(&self, page: &mut Page) {
        let seconds = self.took_ms as f64 / 1000.0;
        page.title(&format!("job {} is down ({seconds:.2} s)", self.job));
        for note in &self.stopped.notes {
            page.line(note);
        }
        match &self.stopped.kept {
            Some(place) => page.pair("kept", &place.display()),
            None => page.line("the areas `shared` and `local` were removed"),
        }
    }
}
