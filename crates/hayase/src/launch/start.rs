//! Bringing up the nodes of a job: all of them, or none. Nodes that are other hosts: [`super::tree`].
//!
//! One supervisor per node, all started at once. Its standard input is the *lifeline*: while the
//! other end (here) is open, the node knows that somebody wants it. `keep` lets it live on its own; an
//! end without it, also when this process is killed, makes it take everything down. Its standard
//! output tells progress, one JSON object in a line ([`Said`]).

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::cover::cover;
use super::lines::Lines;
use super::network::Hub;
use super::signals::{Received, Signals};
use super::tree::Tree;
use crate::advice::{Advice, Advise};
use crate::config::Environment;
use crate::job::{Job, Kind, NodeDir};
use crate::output::Output;
use crate::process::timespec;
use crate::supervisor::said::{Failure, Ready, Said};

/// Lines of a log that are shown when a node does not come up.
const LOG_LINES: usize = 12;

/// How long supervisors may take to clear away after a failed start.
pub(crate) const CLEARING_MAX: Duration = Duration::from_secs(10);

/// Why the nodes did not come up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    /// One of them said so, or ended.
    #[error("node {node} did not come up: {what}{}", quote(.tail))]
    NotUp {
        /// Which.
        node: u16,
        /// In words.
        what: String,
        /// What it knew to do about it.
        help: Option<String>,
        /// The last lines of its log.
        tail: Vec<String>,
    },
    /// Not all were ready in time.
    #[error("no answer from node {} within {} s{}", list(.nodes), .after.as_secs(), quote(.tail))]
    Late {
        /// Which.
        nodes: Vec<u16>,
        /// How long was waited.
        after: Duration,
        /// The last lines of the first one's log.
        tail: Vec<String>,
    },
    /// Its host can not be reached.
    #[error("node {node} did not come up: {host}: {what}{}", quote_stderr(.tail))]
    NotReached {
        /// Which.
        node: u16,
        /// Its host.
        host: String,
        /// In words.
        what: String,
        /// The last lines that ssh or srun printed.
        tail: Vec<String>,
    },
    /// Not all hosts were ready in time.
    #[error("no answer from {} within {} s{}", .hosts.join(", "), .after.as_secs(), unmade(.silent))]
    LateHosts {
        /// Which.
        hosts: Vec<String>,
        /// Those of them that have not even made their directories.
        silent: Vec<String>,
        /// How long was waited.
        after: Duration,
    },
    /// Somebody wanted us to stop.
    #[error("interrupted by {0:?} while the nodes came up; nothing was left behind")]
    Interrupted(Signal),
}

impl NodeError {
    /// What the user can try next.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::NotUp { help, .. } => {
                help.clone().or(Some("`hayase doctor` checks what this machine can do".to_owned()))
            }
            Self::Late { .. } | Self::LateHosts { .. } => {
                Some("allow more time with --timeout SECONDS".to_owned())
            }
            Self::NotReached { host, tail, .. } => Some(unreached_help(host, tail)),
            Self::Interrupted(_) => None,
        }
    }
}

impl Advise for NodeError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::failure(self.help()))
    }
}

/// A log's end, below the message.
fn quote(tail: &[String]) -> String {
    quote_as("the end of its log", tail)
}

fn quote_stderr(tail: &[String]) -> String {
    quote_as("its last output", tail)
}

fn quote_as(what: &str, tail: &[String]) -> String {
    if tail.is_empty() {
        return String::new();
    }
    let lines: Vec<_> = tail.iter().map(|line| format!("    {line}")).collect();
    format!("\n  {what}:\n{}", lines.join("\n"))
}

fn unmade(silent: &[String]) -> String {
    if silent.is_empty() {
        return String::new();
    }
    format!("; {} did not even make its directories", silent.join(", "))
}

fn unreached_help(host: &str, tail: &[String]) -> String {
    let is_missing = |line: &String| line.contains("not found") || line.contains("No such file");
    if tail.iter().any(is_missing) {
        return "install hayase at the same path on every host, or name its place there with \
                --remote-hayase PATH"
            .to_owned();
    }
    format!(
        "every host must reach the others without a password: try `ssh -o BatchMode=yes {host} true`; \
         with --fanout 4096 only this host starts the others"
    )
}

fn list(nodes: &[u16]) -> String {
    nodes.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

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

/// A supervisor that this process started.
#[derive(Debug)]
pub(crate) struct Supervisor {
    child: Child,
    lifeline: Option<ChildStdin>,
    /// What it says.
    pub(crate) lines: Lines,
    has_spoken: bool,
    ready: Option<Ready>,
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
            fds.push(PollFd::from_borrowed_fd(supervisor.lines.as_fd(), PollFlags::IN));
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
            supervisor.lifeline = None;
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

impl Supervisor {
    /// Starts the supervisor of a node of this machine. `signals` are those that this process blocks.
    pub(crate) fn spawn(
        job: &Job,
        node: u16,
        hub: Option<PathBuf>,
        signals: &Signals,
    ) -> anyhow::Result<Self> {
        let path = job.dir.node(node).log("supervisor");
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("open {}", path.display()))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("hayase").arg("node").arg("--job-dir").arg(job.dir.path());
        command.arg("--node").arg(node.to_string());
        if let Some(hub) = hub {
            command.arg("--hub").arg(hub);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).current_dir("/");
        signals.unblock_in(&mut command);
        let mut child = command.spawn().context("start a node's supervisor")?;
        let lifeline = child.stdin.take();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let lines = Lines::new(OwnedFd::from(stdout)).context("listen to a node")?;
        Ok(Self { child, lifeline, lines, has_spoken: false, ready: None })
    }

    /// What it has said, or that it ended without a word. `dir` is its node's.
    pub(crate) fn hear(&mut self, dir: &NodeDir) -> Option<Said> {
        while let Some(line) = self.lines.next() {
            match serde_json::from_str(&line) {
                Ok(said) => {
                    self.has_spoken = true;
                    return Some(said);
                }
                Err(_) => tracing::warn!("a supervisor said: {line}"),
            }
        }
        if self.has_spoken || !self.lines.is_at_end() {
            return None;
        }
        self.has_spoken = true;
        let tail = dir.last_lines("supervisor", LOG_LINES);
        let what = "its supervisor ended".to_owned();
        Some(Said::Failed(Failure { what, help: None, tail }))
    }

    /// Lets the node live on its own.
    pub(crate) fn let_go(&mut self) {
        if let Some(mut lifeline) = self.lifeline.take()
            && let Err(error) = lifeline.write_all(b"keep\n")
        {
            tracing::warn!("let a node go: {error}");
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) {
        let _ = self.child.wait();
    }

    /// Waits for its end; a signal that comes meanwhile is passed on to it.
    pub(crate) fn outlast(&mut self, signals: &Signals) {
        while !self.lines.is_at_end() {
            let mut fds = [
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.lines.as_fd(), PollFlags::IN),
            ];
            if let Err(error) = poll(&mut fds, None)
                && error != rustix::io::Errno::INTR
            {
                tracing::warn!("poll: {error}");
                break;
            }
            while self.lines.next().is_some() {}
            if signals.next().is_some() {
                let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            }
        }
        self.wait();
    }

    /// Cuts its lifeline and waits until the node has cleared away, or kills it.
    pub(crate) fn cut_and_wait(&mut self, deadline: Instant) {
        self.lifeline = None;
        // Its output ends with it: no need to poll for the end of the process.
        while !self.lines.is_at_end() && crate::process::wait_readable(self.lines.as_fd(), deadline)
        {
            while self.lines.next().is_some() {}
        }
        if !self.lines.is_at_end() {
            let _ = self.child.kill();
        }
        self.wait();
    }
}
