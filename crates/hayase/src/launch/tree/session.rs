//! Questions to the nodes of a job that are other hosts, from a command that somebody typed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::branches::{Branches, TICK};
use super::message::{Answer, Down, Join, NodeHost, Up};
use crate::job::{Job, Reach};
use crate::supervisor::control::Request;

/// How long a host may take to answer a command at all.
pub(crate) const JOIN_PATIENCE: Duration = Duration::from_secs(8);

/// Added to what a node may take, for the way there and back.
pub(crate) const WAY_MAX: Duration = Duration::from_secs(10);

/// How long relays may take to end when everything was asked.
const ENDING_MAX: Duration = Duration::from_secs(5);

/// A tree of relays that lives as long as one command.
#[derive(Debug)]
pub(crate) struct Session {
    branches: Branches,
    nodes: BTreeSet<u16>,
    lost: BTreeMap<u16, String>,
}

/// What relays are told of `job` first.
pub(crate) fn join_of(job: &Job, nodes: &[u16], patience: Duration) -> Join {
    let settings = &job.settings;
    let nobody = Reach::default();
    let reach = settings.reach.as_ref().unwrap_or(&nobody);
    let host = |node: &u16| -> Option<NodeHost> {
        Some((*node, reach.hosts.get(usize::from(*node))?.clone()))
    };
    Join {
        job: settings.job.clone(),
        mark: settings.mark.clone(),
        job_dir: job.dir.path().to_owned(),
        uid: settings.uid,
        nodes: nodes.iter().filter_map(host).collect(),
        you: None,
        way: reach.way.clone(),
        fanout: reach.fanout,
        binary: reach.binary.clone(),
        patience_ms: patience.as_millis() as u64,
    }
}

impl Session {
    /// Starts relays on the hosts of `nodes`.
    pub(crate) fn open(job: &Job, nodes: &[u16]) -> Self {
        let branches = Branches::open(join_of(job, nodes, JOIN_PATIENCE), None);
        Self { branches, nodes: nodes.iter().copied().collect(), lost: BTreeMap::new() }
    }

    /// Asks all of them; an answer, or why there is none, for each.
    pub(crate) fn ask(
        &mut self,
        request: &Request,
        patience: Duration,
    ) -> BTreeMap<u16, Result<Answer, String>> {
        let deadline = Instant::now() + patience;
        let mut answers: BTreeMap<u16, Result<Answer, String>> = BTreeMap::new();
        self.branches.send(Down::Ask(request.clone()));
        while self.is_waiting(&answers) && Instant::now() < deadline {
            self.branches.turn(None);
            while let Some((node, message)) = self.branches.next() {
                match message {
                    Up::Told(answer) => drop(answers.entry(node).or_insert(Ok(answer))),
                    Up::Lost(failure) => {
                        let tail = failure.tail.last().map(|line| format!(": {line}"));
                        self.lost.insert(node, failure.what + &tail.unwrap_or_default());
                    }
                    _ => {}
                }
            }
            if self.is_waiting(&answers) {
                self.branches.wait(&[], TICK);
            }
        }
        for node in &self.nodes {
            answers.entry(*node).or_insert_with(|| {
                let late = || format!("no answer within {} s", patience.as_secs());
                Err(self.lost.get(node).cloned().unwrap_or_else(late))
            });
        }
        answers
    }

    fn is_waiting(&self, answers: &BTreeMap<u16, Result<Answer, String>>) -> bool {
        let is_open = |node: &u16| !answers.contains_key(node) && !self.lost.contains_key(node);
        self.nodes.iter().any(is_open)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.branches.finish(ENDING_MAX);
    }
}
