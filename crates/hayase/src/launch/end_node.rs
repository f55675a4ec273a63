//! Ending one node on its own host: through its supervisor, or without it where that has ended.
//!
//! Not here: the order in which the nodes of a job end ([`super::stop`]), how other hosts are reached ([`super::tree`]).

use std::iter;
use std::time::{Duration, Instant};

use super::tree::Answer;
use crate::job::{Job, Kept, Removable, clean_node, forget_kept_node, left_names};
use crate::process::wait_ended;
use crate::supervisor::control::{Call, Reply, Request};
use crate::supervisor::orphans;
use crate::wiring::resume::{expect_unused, keep_node};

/// How long a node may take for its mounts, and again for everything else.
pub(crate) const ROUND_MAX: Duration = Duration::from_secs(30);

/// How long a server may take to end after its supervisor has.
const SERVER_END_MAX: Duration = Duration::from_secs(10);
const SERVER_END_STEP: Duration = Duration::from_millis(50);

/// How long a supervisor may take to end after it said that all is done.
pub(crate) const LAST_BREATH: Duration = Duration::from_secs(5);

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

/// Leaves the storage of a node whose supervisor has ended to `hayase resume`, and, if it `is_all`, nothing else of it. Answers
/// what went wrong; then its directory stays too.
pub(crate) fn leave_ended(job: &Job, node: u16, is_all: bool) -> Vec<String> {
    let (uid, own) = (job.settings.uid, rustix::process::geteuid().as_raw());
    if uid != own {
        // The user of the job could not read what another user writes here.
        return vec![format!("only user {uid}, whose job it is, can end it: nothing was changed")];
    }
    // A server ends by itself after its supervisor, and writes until then.
    let until = Instant::now() + SERVER_END_MAX;
    while left_names::is_served(&job.settings, node) {
        if Instant::now() > until {
            return vec!["its server still runs: nothing was changed".to_owned()];
        }
        std::thread::sleep(SERVER_END_STEP);
    }
    if let Err(error) = expect_unused(&job.settings, node) {
        return vec![format!("{error:#}; then call `hayase down` again")];
    }
    let notes = keep_node(&job.settings, node);
    if notes.is_empty() && is_all {
        forget_kept_node(job, node);
    }
    notes
}
