//! Taking a job down: mounts on all nodes first, then servers, then what they stood on.
//!
//! Two rounds, each on all nodes at once: an unmount may still need the servers of other nodes.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Serialize;

use super::drain::{Left, drain};
use super::end_node::{LAST_BREATH, ROUND_MAX, end_here, leave_ended};
use super::tree::{Answer, Session, WAY_MAX};
use crate::job::{Job, JobError, Kept, Removable, clean, detach_areas, ledgers};
use crate::output::Output;
use crate::process::{Handle, wait_ended};
use crate::supervisor::control::{Call, Reply, Request};
use crate::supervisor::orphans;

/// What is to become of the bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How<'a> {
    /// They stay in the storage.
    pub(crate) keep: bool,
    /// Those that the tier does not have go too.
    pub(crate) discard: bool,
    /// How long to wait for the tier to have them; as long as it takes some, without.
    pub(crate) drain: Option<Duration>,
    /// Where the page of the job goes.
    pub(crate) report: Option<&'a Path>,
}

/// Both rounds go over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Mounts,
    Rest,
}

impl Round {
    /// For the bar.
    fn phase(self) -> &'static str {
        match self {
            Self::Mounts => "Unmounting",
            Self::Rest => "Stopping servers",
        }
    }

    fn request(self, keep: bool, discard: bool) -> Request {
        match self {
            Self::Mounts => Request::Unmount,
            Self::Rest => Request::Stop { keep, discard },
        }
    }
}

/// What happened on the way.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Stopped {
    /// Nodes that were taken down, or were down already.
    pub(crate) nodes: u16,
    /// What somebody should know: busy mounts, programs that were ended, daemons that were killed.
    pub(crate) notes: Vec<String>,
    /// Every node did what it was asked to; otherwise its processes were ended by force.
    pub(crate) is_complete: bool,
    /// What the tier does not have; all of it is kept.
    pub(crate) left: Left,
    /// The tier may not have files of other hosts of which parts lie here: they are kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keeps_for_others: bool,
    /// Where the bytes of the areas were kept, when that was asked for or has to be.
    pub(crate) kept: Option<std::path::PathBuf>,
    /// Something of a node is still there, as `notes` say: an open file, or storage that could not be put away.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) lives_on: bool,
    /// `hayase resume` does not find there what it needs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_orphaned: bool,
    /// Why something was not ended or removed that should have been: it can not be read, or does not say what is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) refused: Vec<String>,
}

/// Takes every node down and removes what the job made. Works on a job that is half dead as well.
pub(crate) fn stop(job: &Job, how: How<'_>, output: &Output) -> Stopped {
    let mut keep = how.keep;
    let nodes = job.settings.nodes;
    let mut stopped = Stopped { nodes, is_complete: true, ..Stopped::default() };
    let supervisors: Vec<Option<Handle>> =
        (0..nodes).map(|node| job.supervisor(node).map(|(_, handle)| handle)).collect();
    let elsewhere = job.nodes_elsewhere();
    let unknowable = job.unknowable((0..nodes).filter(|node| !elsewhere.contains(node)));
    stopped.leaves(&unknowable);
    let is_unknowable =
        |node: usize| unknowable.iter().any(|(known, _)| usize::from(*known) == node);
    for (node, found) in supervisors.iter().enumerate() {
        if found.is_none() && !elsewhere.contains(&(node as u16)) && !is_unknowable(node) {
            stopped.finds_dead(job, node as u16);
        }
    }
    // Only now: what connects us carries the job's mark where we do.
    let mut session = (!elsewhere.is_empty()).then(|| Session::open(job, &elsewhere));
    for round in [Round::Mounts, Round::Rest] {
        if round == Round::Rest && !how.discard {
            let here: Vec<u16> = (0..nodes).filter(|node| !elsewhere.contains(node)).collect();
            stopped.left = drain(job, &here, session.as_mut(), how.drain, output);
            // Parts of its files may lie on any node.
            let is_unknown = !unknowable.is_empty() && job.settings.tier.is_some();
            keep |= !stopped.left.is_nothing() || is_unknown;
        }
        if round == Round::Rest {
            stopped.report(job, how.report);
        }
        let request = round.request(keep, how.discard);
        let calls: Vec<_> = supervisors
            .iter()
            .enumerate()
            .filter(|(_, found)| found.is_some())
            .map(|(node, _)| (node, Call::send(&job.dir.node(node as u16), &request)))
            .collect();
        let progress = output.steps(round.phase(), calls.len() as u64, "node");
        if let Some(session) = &mut session {
            stopped.ask_elsewhere(session, job, &request);
        }
        let deadline = Instant::now() + ROUND_MAX;
        for (node, call) in calls {
            match call.and_then(|call| call.reply(deadline)) {
                Ok(Reply::Done { notes, kept }) => {
                    stopped.notes.extend(notes.iter().map(|note| format!("node {node}: {note}")));
                    stopped.refused.extend(kept);
                }
                Ok(other) => stopped.fails(node, &format!("unexpected answer {other:?}")),
                Err(error) => stopped.fails(node, &format!("{error:#}")),
            }
            progress.step();
        }
    }
    for (node, handle) in supervisors.iter().enumerate() {
        let Some(handle) = handle else { continue };
        if !wait_ended(std::slice::from_ref(handle), LAST_BREATH) {
            stopped.fails(node, "its supervisor hung and was killed");
            handle.signal(Signal::KILL);
            wait_ended(std::slice::from_ref(handle), LAST_BREATH);
        }
    }
    drop(session);
    let removable = match (how.discard, how.keep) {
        (true, _) => Some(Removable::discarded(&job.settings)),
        (false, true) => None,
        (false, false) => Some(Removable::check(&job.settings, 0..nodes)),
    };
    match removable {
        Some(Ok(removable)) if !keep && stopped.refused.is_empty() => clean(job, removable),
        removable => {
            stopped.refuses(removable.and_then(Result::err));
            let mut is_left = true;
            for node in (0..nodes).filter(|node| !elsewhere.contains(node)) {
                // Also a node that was killed above. One that ended by itself has removed its directory.
                let has_ended = job.supervisor(node).is_none() && !is_unknowable(node.into());
                if has_ended && job.dir.node(node).path().exists() {
                    let notes = leave_ended(job, node, stopped.refused.is_empty());
                    stopped.is_complete &= notes.is_empty();
                    is_left &= notes.is_empty();
                    stopped.notes.extend(notes.iter().map(|note| format!("node {node}: {note}")));
                }
            }
            stopped.lives_on = !is_left;
            let have_ended = supervisors.iter().all(Option::is_none) && unknowable.is_empty();
            stopped.is_kept_of(job);
            // Programs that have a file of the job open are found by its mounts.
            if have_ended && is_left && elsewhere.is_empty() {
                detach_areas(&job.settings);
            }
        }
    }
    stopped
}

/// Ends and removes what this host has of a job on several hosts. The job directory of the launcher stays until
/// `down` without `--here`, if other nodes may still be told by it.
pub(crate) fn stop_here(job: &Job, how: How<'_>, output: &Output) -> Stopped {
    let nodes = job.nodes_here();
    let mut stopped =
        Stopped { nodes: nodes.len() as u16, is_complete: true, ..Stopped::default() };
    stopped.leaves(&job.unknowable_here());
    stopped.end_all_here(job, &nodes, &Request::Unmount);
    let mut keep = how.keep;
    if !how.discard {
        stopped.left = drain(job, &nodes, None, how.drain, output);
        stopped.keeps_for_others =
            nodes.iter().any(|node| ledgers::keeps_for_others(&job.settings, *node));
        keep |= !stopped.left.is_nothing() || stopped.keeps_for_others;
    }
    stopped.report(job, how.report);
    stopped.end_all_here(job, &nodes, &Request::Stop { keep, discard: how.discard });
    if keep && !how.keep {
        stopped.refuses(Removable::check(&job.settings, nodes).err());
    }
    let is_kept = keep || !stopped.refused.is_empty();
    if is_kept {
        stopped.is_kept_of(job);
    }
    stopped
}

impl Stopped {
    /// Nothing is left of the job that the tier should have, or that should have been removed.
    pub(crate) fn is_all(&self) -> bool {
        self.is_complete
            && self.left.is_nothing()
            && self.refused.is_empty()
            && !self.keeps_for_others
    }

    /// The storage stays.
    fn is_kept_of(&mut self, job: &Job) {
        self.kept = Some(job.settings.job_storage());
        self.is_orphaned = !job.all_nodes().all(|node| ledgers::can_resume(&job.settings, node));
    }

    /// Of these nodes nothing is ended or removed.
    fn leaves(&mut self, unknowable: &[(u16, JobError)]) {
        self.refused.extend(unknowable.iter().map(|(_, error)| error.with_help()));
    }

    /// One round on this host.
    fn end_all_here(&mut self, job: &Job, nodes: &[u16], request: &Request) {
        for &node in nodes {
            match end_here(job, node, request) {
                Answer::Done { notes, was_dead, kept } => {
                    self.notes.extend(notes.iter().map(|note| format!("node {node}: {note}")));
                    self.refused.extend(kept);
                    if was_dead && *request == Request::Unmount {
                        self.notes.push(format!("node {node}: its supervisor had ended before"));
                    }
                }
                Answer::Failed { why } => self.fails(node.into(), &why),
                Answer::Status(_) => {}
            }
        }
    }

    /// One round on other hosts; those of this host were asked before, and work meanwhile.
    fn ask_elsewhere(&mut self, session: &mut Session, job: &Job, request: &Request) {
        let is_last = matches!(request, Request::Stop { .. });
        for (node, answer) in session.ask(request, ROUND_MAX + WAY_MAX) {
            let host = job.settings.host(node);
            match answer {
                Ok(Answer::Done { notes, was_dead, kept }) => {
                    let kept = kept.map(|why| format!("{host}: {why}"));
                    self.refused.extend(kept.filter(|why| !self.refused.contains(why)));
                    let notes = notes.iter().map(|note| format!("node {node} ({host}): {note}"));
                    self.notes.extend(notes);
                    if was_dead && !is_last {
                        let what = format!("node {node} ({host}): its supervisor had ended before");
                        self.notes.push(what);
                    }
                }
                Ok(other) => {
                    self.fails(node.into(), &format!("{host}: unexpected answer {other:?}"));
                }
                // Told once.
                Err(why) if is_last => self.fails(node.into(), &format!("{host}: {why}")),
                Err(_) => {}
            }
        }
    }

    /// Writes the page of the job while its servers can still be asked.
    fn report(&mut self, job: &Job, path: Option<&Path>) {
        let Some(path) = path else { return };
        if let Err(error) = crate::report::write(job, path) {
            self.is_complete = false;
            self.notes.push(format!("{error:#}"));
        }
    }

    /// Something is wrong with the storage; that files of it are not in the tier is told by what is left.
    fn refuses(&mut self, kept: Option<Kept>) {
        let why = kept.filter(Kept::is_wrong).map(|kept| kept.to_string());
        self.refused.extend(why.filter(|why| !self.refused.contains(why)));
    }

    /// A node of this host without a supervisor.
    fn finds_dead(&mut self, job: &Job, node: u16) {
        self.notes.push(format!("node {node}: its supervisor had ended before"));
        let ended = orphans::end(job, node);
        self.notes.extend(ended.notes.iter().map(|note| format!("node {node}: {note}")));
        self.refused.extend(ended.lives);
    }

    fn fails(&mut self, node: usize, what: &str) {
        self.is_complete = false;
        self.notes.push(format!("node {node}: {what}"));
    }
}
