//! Waiting until the tier has what a job wrote into its cache area.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::tree::{Answer, Session, WAY_MAX};
use crate::job::Job;
use crate::job::ledgers::NotDurable;
use crate::output::{Output, Stand};
use crate::status::{NodeStatus, look_at_node};
use crate::supervisor::control::Request;

/// Nothing came to the tier for so long: it will not.
const STALL: Duration = Duration::from_secs(30);

/// How often the servers are asked.
const LOOK: Duration = Duration::from_millis(100);

/// How long one round of questions to other hosts may take.
const ROUND: Duration = Duration::from_secs(5);

/// What is left when the waiting is over.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Left {
    /// Files that the tier does not have.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// There may be more: of some files nobody can say.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) at_least: bool,
    /// Some of them, by path.
    pub(crate) lines: Vec<NotDurable>,
    /// Second versions of files that somebody else changed, beside which ours are.
    pub(crate) conflicts: Vec<String>,
    /// Nodes of which nothing is known.
    pub(crate) unknown: Vec<u16>,
    /// Files that went to the tier since the servers began, of those that answer.
    pub(crate) flushed_files: u64,
    /// Their bytes.
    #[serde(rename = "flushed_bytes")]
    pub(crate) flushed: u64,
    /// More may still reach the tier: a node that has not ended has unsent files, or does not answer.
    #[serde(skip)]
    may_move: bool,
}

impl Left {
    /// Everything is durable, as far as anybody can know.
    pub(crate) fn is_nothing(&self) -> bool {
        self.files == 0 && self.unknown.is_empty()
    }

    /// Counts a node that does not answer: it may run and have unsent files.
    fn is_silent(&mut self, node: u16) {
        self.may_move = true;
        self.unknown.push(node);
    }

    fn add(&mut self, mut status: NodeStatus) {
        let node = status.node();
        let has_more = match (status.cache(), &status.left) {
            (Some(cache), _) => cache.dirty_files > 0,
            (None, left) => left.as_ref().is_none_or(|lines| !lines.is_empty()),
        };
        self.may_move |= !status.has_ended && has_more;
        match (status.left.take(), status.cache()) {
            (_, Some(cache)) => {
                self.files += cache.dirty_files;
                self.bytes += cache.dirty_bytes;
                self.flushed_files += cache.flushed_files;
                self.flushed += cache.flushed_bytes;
                self.conflicts.extend(cache.conflicts.iter().cloned());
                self.lines.extend(cache.lines.iter().map(|line| NotDurable {
                    node,
                    path: line.path.clone(),
                    state: line.state.clone(),
                    bytes: line.bytes,
                    at_least: false,
                    errno: line.errno,
                    attempts: line.attempts,
                }));
            }
            (Some(lines), None) => {
                self.files += lines.len() as u64;
                self.bytes += lines.iter().map(|line| line.bytes).sum::<u64>();
                self.at_least |= lines.iter().any(|line| line.at_least);
                self.lines.extend(lines);
            }
            (None, None) => self.unknown.push(node),
        }
    }
}

/// What of `nodes` is not durable now.
pub(crate) fn left(job: &Job, nodes: &[u16], session: Option<&mut Session>) -> Left {
    let mut left = Left::default();
    for &node in nodes {
        left.add(look_at_node(job, node));
    }
    if let Some(session) = session {
        for (node, answer) in session.ask(&Request::Status, ROUND + WAY_MAX) {
            match answer {
                Ok(Answer::Status(value)) => match serde_json::from_value(value) {
                    Ok(status) => left.add(status),
                    Err(_) => left.is_silent(node),
                },
                _ => left.is_silent(node),
            }
        }
    }
    left
}

/// Waits until nothing is left, `patience` has passed, or nothing moves any more. Servers that are
/// silent are waited for as well: they may be starting anew.
pub(crate) fn drain(
    job: &Job,
    nodes: &[u16],
    mut session: Option<&mut Session>,
    patience: Option<Duration>,
    output: &Output,
) -> Left {
    if job.settings.tier.is_none() {
        return Left::default();
    }
    let begin = Instant::now();
    let mut moved = (begin, (0, 0, 0));
    let mut most = (0, 0);
    let mut progress = None;
    loop {
        let left = left(job, nodes, session.as_deref_mut());
        let now = (left.files, left.bytes, left.flushed);
        if now != moved.1 {
            moved = (Instant::now(), now);
        }
        let is_over = patience.is_some_and(|patience| begin.elapsed() >= patience)
            || moved.0.elapsed() >= STALL
            || !left.may_move;
        if left.is_nothing() || is_over {
            return left;
        }
        most = (left.bytes.max(most.0), left.files.max(most.1));
        let bar = progress.get_or_insert_with(|| output.progress("Flushing"));
        bar.show(Stand {
            bytes: most.0 - left.bytes,
            bytes_total: most.0,
            things: most.1 - left.files,
            things_total: most.1,
            thing: "file",
            is_open: left.at_least,
        });
        std::thread::sleep(LOOK);
    }
}
