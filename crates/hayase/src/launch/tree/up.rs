//! Bringing up the nodes of a job that are other hosts: all of them, or none.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::board::{Board, SEALER};
use super::branches::{Branches, TICK};
use super::message::{BoardFile, Down, Start, Up};
use super::own_node::secret_text;
use super::session::join_of;
use crate::job::Job;
use crate::launch::node_error::NodeError;
use crate::launch::node_process::CLEARING_MAX;
use crate::output::Output;
use crate::process::signals::Signals;
use crate::supervisor::said::{Failure, Ready, Said};

/// A host that says nothing for a part of the timeout is named, while those who would start others after
/// it still have their time.
const PATIENCE_SHARE: u64 = 4;
const PATIENCE_MIN: Duration = Duration::from_secs(1);
const PATIENCE_MAX: Duration = Duration::from_secs(10);

/// The nodes of a job on their hosts, while they depend on this process.
#[derive(Debug)]
pub(crate) struct Tree {
    branches: Branches,
    ready: BTreeMap<u16, Ready>,
    /// By node: whether its job directory is its own.
    private: BTreeMap<u16, bool>,
    /// Files of servers that came, to be sent on once it is known who needs them.
    files: Vec<BoardFile>,
    sent: usize,
    board: Board,
}

impl Tree {
    /// Starts relays on all hosts of `job`, and tells them to bring their nodes up.
    pub(crate) fn open(job: &Job, signals: &Signals) -> anyhow::Result<Self> {
        let settings = &job.settings;
        let nodes: Vec<u16> = (0..settings.nodes).collect();
        let share = Duration::from_millis(settings.timeout_ms / PATIENCE_SHARE);
        let patience = share.clamp(PATIENCE_MIN, PATIENCE_MAX);
        let secret = secret_text(&job.dir.secret()?);
        let mut branches = Branches::open(join_of(job, &nodes, patience), Some(signals));
        let settings = settings.clone();
        branches.send(Down::Start(Box::new(Start { settings, secret })));
        Ok(Self {
            branches,
            ready: BTreeMap::new(),
            private: BTreeMap::new(),
            files: Vec::new(),
            sent: 0,
            board: Board::of_root(&job.dir),
        })
    }

    /// Waits until every node is ready.
    pub(crate) fn bring_up(
        &mut self,
        job: &Job,
        signals: &Signals,
        output: &Output,
    ) -> anyhow::Result<Vec<Ready>> {
        let nodes = usize::from(job.settings.nodes);
        let patience = Duration::from_millis(job.settings.timeout_ms);
        let deadline = Instant::now() + patience;
        let progress = output.steps("Starting nodes", nodes as u64, "node");
        while self.ready.len() < nodes {
            if let Some(received) = signals.next() {
                return Err(NodeError::Interrupted(received.signal).into());
            }
            if Instant::now() >= deadline {
                return Err(self.late(job, patience).into());
            }
            self.branches.wait(&[signals.as_fd()], TICK);
            self.branches.turn(Some(signals));
            while let Some((node, message)) = self.branches.next() {
                self.take(job, node, message)?;
            }
            self.send_files(nodes);
            progress.set(self.ready.len() as u64);
        }
        Ok(self.ready.values().cloned().collect())
    }

    fn take(&mut self, job: &Job, node: u16, message: Up) -> anyhow::Result<()> {
        match message {
            Up::Ground { is_private } => drop(self.private.insert(node, is_private)),
            Up::Said(Said::Ready(ready)) => drop(self.ready.insert(node, ready)),
            Up::Said(Said::Failed(Failure { what, help, tail })) => {
                let what = format!("on {}: {what}", job.settings.host(node));
                return Err(NodeError::NotUp { node, what, help, tail }.into());
            }
            Up::Lost(Failure { what, tail, .. }) => {
                let host = job.settings.host(node);
                return Err(NodeError::NotReached { node, host, what, tail }.into());
            }
            Up::File(file) => {
                self.board.put(&file)?;
                self.files.push(file);
            }
            Up::Joined | Up::Kept | Up::Told(_) => {}
        }
        Ok(())
    }

    /// Sends files to those who do not see the directory that they were put into.
    fn send_files(&mut self, nodes: usize) {
        if self.private.len() < nodes {
            return;
        }
        let sealer_is_private = self.private.get(&SEALER).copied().unwrap_or_default();
        let any_is_private = self.private.values().any(|is_private| *is_private);
        for file in &self.files[self.sent..] {
            let is_wanted = if file.to.is_some() { sealer_is_private } else { any_is_private };
            if is_wanted {
                self.branches.send(Down::File(file.clone()));
            }
        }
        self.sent = self.files.len();
    }

    fn late(&self, job: &Job, after: Duration) -> NodeError {
        let waiting = (0..job.settings.nodes).filter(|node| !self.ready.contains_key(node));
        let nodes: Vec<u16> = waiting.collect();
        let hosts = nodes.iter().map(|node| job.settings.host(*node)).collect();
        let silent = nodes.iter().filter(|node| !self.private.contains_key(node));
        let silent = silent.map(|node| job.settings.host(*node)).collect();
        NodeError::LateHosts { hosts, silent, after }
    }

    /// Lets the nodes live on their own; names those that did not confirm it.
    pub(crate) fn let_go(mut self, job: &Job) -> Vec<String> {
        self.branches.send(Down::Keep);
        let deadline = Instant::now() + CLEARING_MAX;
        let mut waiting: Vec<u16> = (0..job.settings.nodes).collect();
        while !waiting.is_empty() && Instant::now() < deadline && !self.branches.is_over() {
            self.branches.wait(&[], TICK);
            self.branches.turn(None);
            while let Some((node, message)) = self.branches.next() {
                if matches!(message, Up::Kept) {
                    waiting.retain(|other| *other != node);
                }
            }
        }
        if !job.settings.reach.as_ref().is_some_and(|reach| reach.way.is_flat()) {
            self.branches.finish(CLEARING_MAX);
        }
        // srun stays: Slurm ends a step's processes with it. It sees the end of its standard input now.
        waiting.iter().map(|node| job.settings.host(*node)).collect()
    }

    /// Ends the relays; those nodes that were not told to stay are taken down by them.
    pub(crate) fn end(&mut self) {
        self.branches.finish(CLEARING_MAX);
    }
}
