//! Bringing up the nodes of a job: all of them, or none. Nodes that are other hosts: [`super::tree`].
//!
//! One supervisor per node ([`super::node_process`]), all started at once.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};

use super::node_error::NodeError;
use super::node_process::{CLEARING_MAX, Supervisor};
use super::tree::Tree;
use crate::config::Environment;
use crate::job::cover::cover;
use crate::job::{Job, Kind};
use crate::output::Output;
use crate::process::child::LOG_LINES;
use crate::process::signals::{Received, Signals};
use crate::process::timespec;
use crate::supervisor::said::{Failure, Ready, Said};
use crate::system::network::Hub;

/// A job whose nodes are up and still depend on this process.
#[derive(Debug)]
pub(crate) struct Launched {
    /// Which.
    pub(crate) job: Job,
    /// What each node said, in their order.
    pub(crate) nodes: Vec<Ready>,
    /// What a person should know of its settings; none before it was looked for.
    pub(crate) warnings: Vec<String>,
    /// Of nodes on this machine.
    supervisors: Vec<Supervisor>,
    /// Of nodes that are other hosts.
    tree: Option<Tree>,
}

/// Starts all nodes and waits until each is ready. On failure everything is taken down again.
pub(crate) fn start(
    job: Job,
    environment: &Environment,
    signals: &Signals,
    output: &Output,
) -> anyhow::Result<Launched> {
    let (nodes, warnings, supervisors) = Default::default();
    let mut launched = Launched { job, nodes, warnings, supervisors, tree: None };
    match launched.bring_up(environment, signals, output) {
        Ok(()) => Ok(launched),
        Err(error) => {
            launched.abandon();
            Err(error)
        }
    }
}

impl Launched {
    fn bring_up(
        &mut self,
        environment: &Environment,
        signals: &Signals,
        output: &Output,
    ) -> anyhow::Result<()> {
        if self.job.settings.kind == Kind::Hosts {
            let tree = self.tree.insert(Tree::open(&self.job, signals)?);
            self.nodes = tree.bring_up(&self.job, signals, output)?;
            return Ok(());
        }
        let settings = &self.job.settings;
        let patience = Duration::from_millis(settings.timeout_ms);
        let deadline = Instant::now() + patience;
        let progress = output.steps("Starting nodes", settings.nodes.into(), "node");
        // Held until every supervisor has opened it for itself.
        let hub = match settings.has_namespaces() {
            true => Some(Hub::create(&environment.path)?),
            false => None,
        };
        for node in 0..settings.nodes {
            let hub = hub.as_ref().map(Hub::path);
            self.supervisors.push(Supervisor::spawn(&self.job, node, hub, signals)?);
        }
        while self.supervisors.iter().any(|supervisor| supervisor.ready.is_none()) {
            if !self.wait(signals, deadline)? {
                return Err(self.late(patience).into());
            }
            progress.set(self.supervisors.iter().filter(|s| s.ready.is_some()).count() as u64);
        }
        self.nodes = self.supervisors.iter().filter_map(|s| s.ready.clone()).collect();
        // Not before: if this process is killed now, the supervisors take it away.
        cover(&self.job.settings);
        Ok(())
    }

    /// Waits for one event; false at the deadline.
    fn wait(&mut self, signals: &Signals, deadline: Instant) -> anyhow::Result<bool> {
        let left = timespec(deadline.saturating_duration_since(Instant::now()));
        let mut fds = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        for supervisor in self.supervisors.iter().filter(|s| s.ready.is_none()) {
            fds.push(PollFd::from_borrowed_fd(supervisor.as_fd(), PollFlags::IN));
        }
        match poll(&mut fds, Some(&left)) {
            Ok(0) => return Ok(false),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("wait for the nodes"),
        }
        drop(fds);
        if let Some(Received { signal, .. }) = signals.next() {
            return Err(NodeError::Interrupted(signal).into());
        }
        for node in 0..self.supervisors.len() {
            self.listen(node)?;
        }
        Ok(true)
    }

    /// Takes what a supervisor has said.
    fn listen(&mut self, node: usize) -> Result<(), NodeError> {
        let supervisor = &mut self.supervisors[node];
        if supervisor.ready.is_some() {
            return Ok(());
        }
        let node = node as u16;
        match supervisor.hear(&self.job.dir.node(node)) {
            Some(Said::Ready(ready)) => {
                supervisor.ready = Some(ready);
                Ok(())
            }
            Some(Said::Failed(Failure { what, help, tail })) => {
                Err(NodeError::NotUp { node, what, help, tail })
            }
            None => Ok(()),
        }
    }

    fn late(&self, after: Duration) -> NodeError {
        let waiting = |(node, s): (usize, &Supervisor)| s.ready.is_none().then_some(node as u16);
        let nodes: Vec<_> = self.supervisors.iter().enumerate().filter_map(waiting).collect();
        let first = self.job.dir.node(nodes.first().copied().unwrap_or(0));
        let tail = ["serve-mount", "serve", "supervisor"]
            .iter()
            .map(|log| first.last_lines(log, LOG_LINES))
            .find(|lines| !lines.is_empty())
            .unwrap_or_default();
        NodeError::Late { nodes, after, tail }
    }

    /// Lets the nodes live on their own: the mark decides it for all of them, whenever this process ends.
    pub(crate) fn let_go(mut self, output: &Output) -> Job {
        if let Err(error) = self.job.dir.mark_kept() {
            tracing::warn!("{error}");
        }
        for supervisor in &mut self.supervisors {
            supervisor.let_go();
        }
        if let Some(tree) = self.tree.take() {
            for host in tree.let_go(&self.job) {
                output.note(&format!("{host} did not confirm that its node stays up"));
            }
        }
        self.job.clone()
    }

    /// Waits for the ends of the supervisors, which `stop` has asked for, so that none stays a zombie.
    pub(crate) fn reap(&mut self) {
        for supervisor in &mut self.supervisors {
            supervisor.wait();
        }
        if let Some(tree) = &mut self.tree {
            tree.end();
        }
    }

    /// Cuts the lifelines and waits until the nodes have cleared away, or kills them.
    fn abandon(&mut self) {
        for supervisor in &mut self.supervisors {
            supervisor.cut();
        }
        if let Some(tree) = &mut self.tree {
            tree.end();
        }
        let deadline = Instant::now() + CLEARING_MAX;
        for supervisor in &mut self.supervisors {
            supervisor.cut_and_wait(deadline);
        }
        crate::job::clean_unless_needed(&self.job);
    }
}
