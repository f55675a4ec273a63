//! The supervisor of a node of this machine, as a child of the process that starts the node.
//!
//! Its standard input is the *lifeline*: while the other end (here) is open, the node knows that somebody wants it.
//! `keep` lets it live on its own; an end without it, also when this process is killed, makes it take everything down.
//! Its standard output tells progress, one JSON object in a line ([`Said`]).

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::job::{Job, NodeDir};
use crate::process::child::{self, Child, LOG_LINES, this_program};
use crate::process::signals::Signals;
use crate::supervisor::said::{Failure, Ready, Said};

/// How long supervisors may take to clear away after a failed start.
pub(crate) const CLEARING_MAX: Duration = Duration::from_secs(10);

/// A supervisor that this process started.
#[derive(Debug)]
pub(crate) struct Supervisor {
    child: Child<Said>,
    lifeline: Option<ChildStdin>,
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
        let log = child::log(&job.dir.node(node).log("supervisor"))?;
        let mut command = this_program("node");
        command.arg("--job-dir").arg(job.dir.path()).arg("--node").arg(node.to_string());
        if let Some(hub) = hub {
            command.arg("--hub").arg(hub);
        }
        command.stdin(Stdio::piped()).stderr(log).current_dir("/");
        let mut child = Child::spawn("node", command, signals)?;
        let lifeline = child.take_stdin();
        Ok(Self { child, lifeline, has_spoken: false, ready: None })
    }

    /// What it has said, or that it ended without a word. `dir` is its node's.
    pub(crate) fn hear(&mut self, dir: &NodeDir) -> Option<Said> {
        if let Some(said) = self.child.next() {
            self.has_spoken = true;
            return Some(said);
        }
        if self.has_spoken || !self.child.is_silent() {
            return None;
        }
        self.has_spoken = true;
        let tail = dir.last_lines("supervisor", LOG_LINES);
        let what = "its supervisor ended".to_owned();
        Some(Said::Failed(Failure { what, help: None, tail }))
    }

    /// It has ended, and all that it said was heard.
    pub(crate) fn is_silent(&self) -> bool {
        self.child.is_silent()
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
        while !self.is_silent() {
            let mut fds = [
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.child.as_fd(), PollFlags::IN),
            ];
            if let Err(error) = poll(&mut fds, None)
                && error != rustix::io::Errno::INTR
            {
                tracing::warn!("poll: {error}");
                break;
            }
            while self.child.next().is_some() {}
            if signals.next().is_some()
                && let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
            {
                let _ = kill_process(pid, Signal::TERM);
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
        while !self.is_silent() && crate::process::wait_readable(self.as_fd(), deadline) {
            while self.child.next().is_some() {}
        }
        if !self.is_silent() {
            let _ = self.child.kill();
        }
        self.wait();
    }
}

/// Readable when it has said something, or has ended.
impl AsFd for Supervisor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.child.as_fd()
    }
}
