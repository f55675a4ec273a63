//! Answering a question on the host of the node that it is for.

use std::iter;
use std::time::{Duration, Instant};

use super::message::{Answer, Join};
use crate::commands::status::{history_of_node, look_at_node};
use crate::commands::verify::checksums_of_node;
use crate::job::{Job, JobDir, JobError, Kept, Removable, clean_node};
use crate::launch::stop::{LAST_BREATH, ROUND_MAX, leave_ended};
use crate::process::wait_ended;
use crate::supervisor::control::{Call, Reply, Request};
use crate::supervisor::orphans;

/// Added to what a node may take, for the way there and back.
pub(crate) const WAY_MAX: Duration = Duration::from_secs(10);

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

/// Asks the supervisor of this host's node to unmount or to stop, and cleans up after one that has ended.
pub(crate) fn end_here(job: &Job, node: u16, request: &Request) -> Answer {
    let is_stop = matches!(request, Request::Stop { .. });
    let Some((_, handle)) = job.supervisor(node) else {
        if *request == Request::Unmount {
            let ended = orphans::end(job, node);
            return Answer::Done { notes: ended.notes, was_dead: true, kept: ended.lives };
        }
        let (notes, kept) = end_dead_node(job, node, request);
        return Answer::Done { notes, was_dead: true, kept: kept.map(|kept| kept.to_string()) };
    };
    let asked = Call::send(&job.dir.node(node), request);
    let reply = asked.and_then(|call| call.reply(Instant::now() + ROUND_MAX));
    if is_stop && !wait_ended(std::slice::from_ref(&handle), LAST_BREATH) {
        handle.signal(rustix::process::Signal::KILL);
        wait_ended(std::slice::from_ref(&handle), LAST_BREATH);
        let (notes, kept) = end_dead_node(job, node, request);
        let more = notes.into_iter().chain(kept.map(|kept| kept.to_string()));
        let why = iter::once("its supervisor hung and was killed".to_owned()).chain(more);
        return Answer::Failed { why: why.collect::<Vec<_>>().join("; ") };
    }
    match reply {
        Ok(Reply::Done { notes, kept }) => Answer::Done { notes, was_dead: false, kept },
        Ok(other) => Answer::Failed { why: format!("unexpected answer {other:?}") },
        Err(error) => Answer::Failed { why: format!("{error:#}") },
    }
}

/// Removes what a node has whose supervisor has ended, or leaves it to `hayase resume`; answers what somebody should know,
/// and why it was not removed though that was asked for.
fn end_dead_node(job: &Job, node: u16, request: &Request) -> (Vec<String>, Option<Kept>) {
    let &Request::Stop { keep, discard } = request else { return (Vec::new(), None) };
    let removable = match (keep, discard) {
        (true, _) => None,
        (false, true) => Some(Removable::discarded(&job.settings)),
        (false, false) => Some(Removable::check(&job.settings, [node])),
    };
    match removable {
        Some(Ok(removable)) => {
            clean_node(job, node, removable);
            (Vec::new(), None)
        }
        kept => {
            let kept = kept.and_then(Result::err);
            (leave_ended(job, node, kept.is_none()), kept)
        }
    }
}
