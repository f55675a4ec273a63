//! Answering a question on the host of the node that it is for.

use super::message::{Answer, Join};
use crate::job::{Job, JobDir, JobError};
use crate::launch::end_node::end_here;
use crate::status::{checksums_of_node, history_of_node, look_at_node};
use crate::supervisor::control::Request;

/// Asks this host's own supervisor, or does without when it has ended.
pub(crate) fn answer(join: &Join, node: u16, request: &Request) -> Answer {
    let dir = JobDir::new(&join.job_dir);
    let job = match dir.settings() {
        Ok(settings) if settings.mark == join.mark => Job { dir, settings },
        Ok(_) | Err(JobError::NotAJob { .. }) => return gone(join, request),
        Err(error) => return Answer::Failed { why: error.with_help() },
    };
    if let Some((_, error)) = job.unknowable([node]).pop() {
        return unknowable(request, &error);
    }
    let told = |value: serde_json::Result<serde_json::Value>| match value {
        Ok(value) => Answer::Status(value),
        Err(error) => Answer::Failed { why: error.to_string() },
    };
    match request {
        Request::Status => told(serde_json::to_value(look_at_node(&job, node))),
        Request::History => match history_of_node(&job, node) {
            Ok(history) => told(serde_json::to_value(history)),
            Err(error) => Answer::Failed { why: format!("{error:#}") },
        },
        Request::Checksums { after, most } => match checksums_of_node(&job, node, *after, *most) {
            Ok(lines) => told(serde_json::to_value(lines)),
            Err(error) => Answer::Failed { why: format!("{error:#}") },
        },
        Request::Unmount | Request::Stop { .. } => end_here(&job, node, request),
    }
}

/// Whether the node runs on this host can not be said: nothing of it is ended or removed.
fn unknowable(request: &Request, error: &JobError) -> Answer {
    let why = error.with_help();
    match request {
        Request::Status | Request::History | Request::Checksums { .. } => Answer::Failed { why },
        Request::Unmount | Request::Stop { .. } => {
            Answer::Done { notes: Vec::new(), was_dead: false, kept: Some(why) }
        }
    }
}

/// Nothing of the job is on this host.
fn gone(join: &Join, request: &Request) -> Answer {
    let why = format!("it has no job {} any more", join.job);
    match request {
        Request::Status | Request::History | Request::Checksums { .. } => Answer::Failed { why },
        Request::Unmount | Request::Stop { .. } => {
            Answer::Done { notes: Vec::new(), was_dead: true, kept: None }
        }
    }
}
