//! Everything below one place in the tree: its links, what was sent to them, and what came back.
//!
//! The one who typed and every relay have the same. Whoever does not join within the patience is lost, and told
//! by its own name; the hosts that it was to start are taken over by the one above it. What was sent before is
//! sent again to links that are made later.

use std::collections::VecDeque;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::link::Link;
use super::message::{Down, Join, NodeHost, Up};
use super::split::split;
use super::way::relay_command;
use crate::process::signals::Signals;
use crate::process::timespec;
use crate::supervisor::said::Failure;

/// Messages that are kept to be sent again: a start's files are few, and questions fewer.
const SENT_MAX: usize = 3 * super::super::hosts::HOSTS_MAX;

/// The links of one place in the tree.
#[derive(Debug)]
pub(crate) struct Branches {
    /// What every relay below is told of the job; `nodes` and `you` differ.
    join: Join,
    links: Vec<Link>,
    sent: Vec<Down>,
    events: VecDeque<(u16, Up)>,
    is_closed: bool,
    /// Relays end by themselves now, and nobody is lost by that.
    may_end: bool,
}

impl Branches {
    /// Starts relays on all of `join.nodes`, the first hosts directly and the others through them.
    pub(crate) fn open(join: Join, signals: Option<&Signals>) -> Self {
        let nodes = join.nodes.clone();
        let mut branches = Self {
            join,
            links: Vec::new(),
            sent: Vec::new(),
            events: VecDeque::new(),
            is_closed: false,
            may_end: false,
        };
        branches.reach(&nodes, signals);
        branches
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.join.patience_ms)
    }

    fn reach(&mut self, nodes: &[NodeHost], signals: Option<&Signals>) {
        if nodes.is_empty() {
            return;
        }
        if self.join.way.is_flat() {
            return self.link(nodes.to_vec(), nodes.len(), signals);
        }
        for run in split(nodes, self.join.fanout) {
            self.link(run, 1, signals);
        }
    }

    fn link(&mut self, nodes: Vec<NodeHost>, heads: usize, signals: Option<&Signals>) {
        let hosts: Vec<&str> = nodes[..heads].iter().map(|(_, host)| host.as_str()).collect();
        let patience = self.patience();
        let command = relay_command(&self.join.way, &hosts, &self.join.binary, patience);
        let deadline = Instant::now() + patience;
        let log = self.join.way.is_flat().then(|| self.join.job_dir.join("srun.log"));
        match Link::start(command, nodes.clone(), heads, deadline, signals, log) {
            Ok(mut link) => {
                let you = (!self.join.way.is_flat()).then(|| nodes[0].0);
                let join = Join { nodes, you, ..self.join.clone() };
                link.send(&Down::Join(Box::new(join)));
                for message in &self.sent {
                    link.send(message);
                }
                if self.is_closed {
                    link.close();
                }
                self.links.push(link);
            }
            Err(error) => {
                let what = format!("start `{}`: {error}", self.join.way.program());
                for (node, _) in nodes {
                    self.lose(node, what.clone(), Vec::new());
                }
            }
        }
    }

    fn lose(&mut self, node: u16, what: String, tail: Vec<String>) {
        self.events.push_back((node, Up::Lost(Failure { what, help: None, tail })));
    }

    /// Sends to everybody below.
    pub(crate) fn send(&mut self, message: Down) {
        if matches!(message, Down::Keep) {
            self.may_end = true;
        }
        for link in &mut self.links {
            link.send(&message);
        }
        if self.sent.len() < SENT_MAX {
            self.sent.push(message);
        }
    }

    /// Nothing more will be sent: relays end when they have done what they were told, and take nodes down that
    /// were not to be kept.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.may_end = true;
        for link in &mut self.links {
            link.close();
        }
    }

    /// Takes what has come, and notices who does not come.
    pub(crate) fn turn(&mut self, signals: Option<&Signals>) {
        let (mut over, mut index) = (Vec::new(), 0);
        while index < self.links.len() {
            let link = &mut self.links[index];
            let taken = link.take();
            self.events.extend(taken);
            match link.ended() {
                Some(status) => over.push((self.links.swap_remove(index), Some(status))),
                None if Instant::now() >= link.deadline && !link.missing().is_empty() => {
                    // srun serves those that did join; a single host is given up.
                    let link = self.links.swap_remove(index);
                    over.push((link, None));
                }
                None => index += 1,
            }
        }
        for (link, status) in over {
            self.end_of(link, status, signals);
        }
    }

    /// A link has ended, or its time is over.
    fn end_of(&mut self, mut link: Link, status: Option<ExitStatus>, signals: Option<&Signals>) {
        let tail = link.tail();
        let missing = link.missing();
        link.kill();
        if self.may_end && missing.is_empty() {
            return;
        }
        let program = self.join.way.program().to_owned();
        let what = match status {
            Some(status) if missing.is_empty() => {
                format!("the connection to it ended: {program}: {status}")
            }
            Some(status) => format!("{program} did not reach it: {status}"),
            None => format!("no answer through {program} within {} s", self.patience().as_secs()),
        };
        if missing.is_empty() || self.join.way.is_flat() {
            for (node, _) in &link.nodes {
                self.lose(*node, what.clone(), tail.clone());
            }
            return;
        }
        self.lose(missing[0].0, what, tail);
        self.reach(&link.nodes[1..], signals);
    }

    /// The next thing that a node said, or that is said of it.
    pub(crate) fn next(&mut self) -> Option<(u16, Up)> {
        self.events.pop_front()
    }

    /// Nobody is left below.
    pub(crate) fn is_over(&self) -> bool {
        self.links.is_empty()
    }

    /// Waits until something may have happened below or on one of `also`, at most `patience`.
    pub(crate) fn wait(&self, also: &[std::os::fd::BorrowedFd<'_>], patience: Duration) {
        let mut fds: Vec<PollFd<'_>> =
            also.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        for link in &self.links {
            fds.extend(
                link.readable().into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            );
            fds.extend(link.writable().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        }
        if let Err(error) = poll(&mut fds, Some(&timespec(patience)))
            && error != rustix::io::Errno::INTR
        {
            tracing::warn!("poll: {error}");
        }
    }

    /// Waits until everybody below has ended, or ends the programs by force: what they had started then sees
    /// the end of its standard input.
    pub(crate) fn finish(&mut self, patience: Duration) {
        self.close();
        let deadline = Instant::now() + patience;
        while !self.is_over() && Instant::now() < deadline {
            self.wait(&[], TICK);
            self.turn(None);
        }
        for link in &mut self.links {
            link.kill();
        }
        self.links.clear();
    }
}

/// The pause between two looks at what has no descriptor to wait for: deadlines, and files of servers. Only
/// relays and commands at work have it; a job that is up has neither.
pub(crate) const TICK: Duration = Duration::from_millis(20);
