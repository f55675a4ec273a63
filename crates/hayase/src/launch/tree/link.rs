//! One program that reaches other hosts for us: its standard streams, and who is expected behind it.

use std::collections::{HashSet, VecDeque};
use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use super::lines::{Decoder, encode};
use super::message::{Down, NodeHost, Up};
use super::outbox::Outbox;
use crate::job::MARK_VARIABLE;
use crate::job::last_lines;
use crate::process::child::LOG_LINES;
use crate::process::lines::Lines;
use crate::process::signals::Signals;

/// Who speaks on the way down: everybody listens, so it need not be told apart.
const SENDER_ABOVE: u16 = 0;

/// Where a program's standard error goes.
#[derive(Debug)]
enum Errors {
    /// To us: the last lines are kept.
    Here { lines: Lines, tail: VecDeque<String> },
    /// To a file, for programs that live longer than we do.
    File(PathBuf),
}

/// A running ssh, srun or local relay.
#[derive(Debug)]
pub(crate) struct Link {
    /// Everybody behind it; the first `heads` are started by it directly.
    pub(crate) nodes: Vec<NodeHost>,
    heads: usize,
    joined: HashSet<u16>,
    /// When all heads must have joined.
    pub(crate) deadline: Instant,
    child: Child,
    outbox: Outbox,
    lines: Lines,
    errors: Errors,
    decoder: Decoder,
    ended: Option<ExitStatus>,
}

impl Link {
    /// Starts the program.
    pub(crate) fn start(
        mut command: Command,
        nodes: Vec<NodeHost>,
        heads: usize,
        deadline: Instant,
        signals: Option<&Signals>,
        log: Option<PathBuf>,
    ) -> std::io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Started by a program of the job, it is none: those are ended before the connection is.
        command.env_remove(MARK_VARIABLE);
        if let Some(log) = &log {
            let mut options = OpenOptions::new();
            command.stderr(options.append(true).create(true).mode(0o600).open(log)?);
        }
        if let Some(signals) = signals {
            signals.unblock_in(&mut command);
        }
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().expect("stdin is a pipe");
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let errors = match (child.stderr.take(), log) {
            (None, log) => Errors::File(log.unwrap_or_default()),
            (Some(stderr), _) => {
                let lines = Lines::new(OwnedFd::from(stderr))?;
                Errors::Here { lines, tail: VecDeque::new() }
            }
        };
        Ok(Self {
            nodes,
            heads,
            joined: HashSet::new(),
            deadline,
            outbox: Outbox::new(OwnedFd::from(stdin))?,
            lines: Lines::new(OwnedFd::from(stdout))?,
            errors,
            child,
            decoder: Decoder::default(),
            ended: None,
        })
    }

    /// Sends something to everybody behind it.
    pub(crate) fn send(&mut self, message: &Down) {
        self.outbox.send(&encode(SENDER_ABOVE, message));
    }

    /// Ends what it reads: relays that were not told to keep their nodes take them down.
    pub(crate) fn close(&mut self) {
        self.outbox.close();
    }

    /// Takes what has come; notes who joined.
    pub(crate) fn take(&mut self) -> Vec<(u16, Up)> {
        self.outbox.flush();
        if let Errors::Here { lines, tail } = &mut self.errors {
            while let Some(line) = lines.next() {
                if tail.len() == LOG_LINES {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
        }
        let mut taken = Vec::new();
        while let Some(line) = self.lines.next() {
            match self.decoder.take::<Up>(&line) {
                Ok(Some((node, message))) => {
                    if matches!(message, Up::Joined) {
                        self.joined.insert(node);
                    }
                    taken.push((node, message));
                }
                Ok(None) => {}
                // A banner, or whatever a login script prints.
                Err(line) => tracing::debug!("passed over on the way: {line}"),
            }
        }
        taken
    }

    /// Nodes that it should have started and that have not joined.
    pub(crate) fn missing(&self) -> Vec<NodeHost> {
        let heads = &self.nodes[..self.heads];
        heads.iter().filter(|(node, _)| !self.joined.contains(node)).cloned().collect()
    }

    /// How its process ended, when it has and when all that it said was taken.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() && self.lines.is_at_end() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// The last lines of its standard error.
    pub(crate) fn tail(&self) -> Vec<String> {
        match &self.errors {
            Errors::Here { tail, .. } => tail.iter().cloned().collect(),
            Errors::File(path) => last_lines(path, LOG_LINES),
        }
    }

    /// What to wait for.
    pub(crate) fn readable(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = Vec::new();
        let errors = match &self.errors {
            Errors::Here { lines, .. } => Some(lines),
            Errors::File(_) => None,
        };
        let open = std::iter::once(&self.lines).chain(errors).filter(|lines| !lines.is_at_end());
        fds.extend(open.map(AsFd::as_fd));
        fds
    }

    /// Likewise, for writing.
    pub(crate) fn writable(&self) -> Option<BorrowedFd<'_>> {
        self.outbox.wants_to_write()
    }

    /// Ends it by force.
    pub(crate) fn kill(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }
}
