//! The supervisor of a node of this machine, as a child of the process that starts the node.
//!
//! Its standard input is the *lifeline*: while the other end (here) is open, the node knows that somebody wants it.
//! `keep` lets it live on its own; an end without it, also when this process is killed, makes it take everything down.
//! Its standard output tells progress, one JSON object in a line ([`Said`]).

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

use crate::job::{Job, NodeDir};
use crate::process::lines::Lines;
use crate::process::signals::Signals;
use crate::supervisor::said::{Failure, Ready, Said};

/// Lines of a log that are shown when a node does not come up.
pub(super) const LOG_LINES: usize = 12;

/// How long supervisors may take to clear away after a failed start.
pub(crate) const CLEARING_MAX: Duration = Duration::from_secs(10);

/// A supervisor that this process started.
#[derive(Debug)]
pub(crate) struct Supervisor {
    child: Child,
    lifeline: Option<ChildStdin>,
    /// What it says.
    pub(crate) lines: Lines,
    has_spoken: bool,
    /// What it said when the node was up.
    pub(super) ready: Option<Ready>,
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

    /// Cuts its lifeline.
    pub(super) fn cut(&mut self) {
        self.lifeline = None;
    }

    /// Cuts its lifeline and waits until the node has cleared away, or kills it.
    pub(crate) fn cut_and_wait(&mut self, deadline: Instant) {
        self.cut();
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
