//! A relay: the part of a start that runs on a node's host (`hayase relay`, never typed).
//!
//! It reads what to do from its standard input, makes its own node, starts the relays below it, and carries
//! messages both ways. When its standard input ends before `keep`, it takes down what it started. It never
//! outlives its work, except in a step of Slurm, which ends every process with its task.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::board::Board;
use super::branches::{Branches, TICK};
use super::lines::{Decoder, encode};
use super::message::{Answer, Down, Join, Start, Up};
use super::{answer, own_node};
use crate::config::Environment;
use crate::exit::Status;
use crate::host::is_same_host;
use crate::job::{Job, JobDir, JobError, Way};
use crate::launch::node_process::{CLEARING_MAX, Supervisor};
use crate::output::Output;
use crate::process::lines::Lines;
use crate::process::signals::{ENDING, Signals};
use crate::supervisor::said::{Failure, Said};

/// Who started us has said nothing for so long: it is not what we take it for.
const FIRST_WORD_MAX: Duration = Duration::from_secs(30);

/// What a relay has in hands.
struct Relay<'a> {
    join: Join,
    node: u16,
    signals: Signals,
    branches: Branches,
    supervisor: Option<Supervisor>,
    board: Option<Board>,
    is_kept: bool,
    answers: (Sender<Answer>, Receiver<Answer>),
    waiting: usize,
    environment: &'a Environment,
    output: &'a Output,
}

/// Runs until its work is done.
pub(crate) fn run(environment: &Environment, output: &Output) -> anyhow::Result<Status> {
    // A batch system that ends its step tells everybody in it: the node is to be taken down in good order
    // before this process, which stands for it, ends.
    let signals = Signals::block(&ENDING)?;
    let stdin: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut stdin = Lines::new(stdin).context("read from the command that started this process")?;
    let mut decoder = Decoder::default();
    let Some(join) = first_word(&mut stdin, &mut decoder)? else { return Ok(Status::Failed) };
    let node = who_am_i(&join, environment)?;
    ensure!(
        join.uid == environment.uid,
        "the job belongs to user {}, but this is user {} here",
        join.uid,
        environment.uid
    );
    output.raw(&encode(node, &Up::Joined))?;
    let below = match join.way.is_flat() {
        true => Vec::new(),
        false => join.nodes.iter().filter(|(other, _)| *other != node).cloned().collect(),
    };
    let branches = Branches::open(Join { nodes: below, ..join.clone() }, Some(&signals));
    let mut relay = Relay {
        join,
        node,
        signals,
        branches,
        supervisor: None,
        board: None,
        is_kept: false,
        answers: channel(),
        waiting: 0,
        environment,
        output,
    };
    relay.work(&mut stdin, &mut decoder)
}

/// The first message, which says who we are; `None` when nobody wants us any more.
fn first_word(stdin: &mut Lines, decoder: &mut Decoder) -> anyhow::Result<Option<Join>> {
    let deadline = Instant::now() + FIRST_WORD_MAX;
    loop {
        while let Some(line) = stdin.next() {
            match decoder.take::<Down>(&line) {
                Ok(Some((_, Down::Join(join)))) => return Ok(Some(*join)),
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => bail!("`hayase relay` is started by `hayase up`"),
            }
        }
        if stdin.is_at_end() || !crate::process::wait_readable(stdin.as_fd(), deadline) {
            return Ok(None);
        }
    }
}

/// The node that this relay is for: told, or found by the name that Slurm gives this host.
fn who_am_i(join: &Join, environment: &Environment) -> anyhow::Result<u16> {
    if let Some(node) = join.you {
        return Ok(node);
    }
    let here = environment
        .slurm_node
        .clone()
        .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    let found = join.nodes.iter().find(|(_, host)| is_same_host(host, &here));
    found
        .map(|(node, _)| *node)
        .with_context(|| format!("{here} is not a node of job {}", join.job))
}

impl Relay<'_> {
    fn work(&mut self, stdin: &mut Lines, decoder: &mut Decoder) -> anyhow::Result<Status> {
        loop {
            while let Some(line) = stdin.next() {
                if let Ok(Some((_, message))) = decoder.take::<Down>(&line) {
                    self.handle(message)?;
                }
            }
            self.turn()?;
            let is_over = stdin.is_at_end() && self.waiting == 0;
            if is_over || self.signals.next().is_some() {
                return Ok(self.end());
            }
            let mut also = vec![self.signals.as_fd()];
            if !stdin.is_at_end() {
                also.push(stdin.as_fd());
            }
            if let Some(supervisor) = self.supervisor.as_ref().filter(|s| !s.is_silent()) {
                also.push(supervisor.as_fd());
            }
            self.branches.wait(&also, TICK);
        }
    }

    fn tell(&self, message: &Up) -> anyhow::Result<()> {
        self.output.raw(&encode(self.node, message))
    }

    fn handle(&mut self, message: Down) -> anyhow::Result<()> {
        self.branches.send(message.clone());
        match message {
            Down::Join(_) => {}
            Down::Start(start) => {
                if let Err(error) = self.start(&start) {
                    let failure = Failure::new(&error, self.output);
                    self.tell(&Up::Said(Said::Failed(failure)))?;
                }
            }
            Down::File(file) => {
                if let Some(board) = &self.board {
                    board.put(&file)?;
                }
            }
            Down::Keep => {
                self.keep();
                self.tell(&Up::Kept)?;
            }
            Down::Ask(request) => {
                let (join, node, sender) = (self.join.clone(), self.node, self.answers.0.clone());
                self.waiting += 1;
                // A thread, since a node may take its time, and those below must not wait for it.
                std::thread::spawn(move || {
                    let answer = answer::answer(&join, node, &request);
                    let _ = sender.send(answer);
                });
            }
        }
        Ok(())
    }

    /// The node lives without the launcher from here on.
    fn keep(&mut self) {
        self.is_kept = true;
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.let_go();
        }
    }

    fn start(&mut self, start: &Start) -> anyhow::Result<()> {
        if self.supervisor.is_some() {
            return Ok(());
        }
        let dir = JobDir::new(&self.join.job_dir);
        let is_private = own_node::prepare(&dir, self.node, start, self.environment)?;
        self.tell(&Up::Ground { is_private })?;
        self.board = Some(Board::new(&dir, self.node, is_private));
        let job = Job { dir, settings: start.settings.clone() };
        match Supervisor::spawn(&job, self.node, None, &self.signals) {
            Ok(supervisor) => self.supervisor = Some(supervisor),
            Err(error) => {
                crate::job::clean_unstarted_node(&job, self.node);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Carries up what has come from below, from the supervisor and from the node's server.
    fn turn(&mut self) -> anyhow::Result<()> {
        self.branches.turn(Some(&self.signals));
        while let Some((node, message)) = self.branches.next() {
            self.output.raw(&encode(node, &message))?;
        }
        while let Ok(answer) = self.answers.1.try_recv() {
            self.waiting -= 1;
            self.tell(&Up::Told(answer))?;
        }
        if let Some(supervisor) = &mut self.supervisor {
            let dir = JobDir::new(&self.join.job_dir).node(self.node);
            if let Some(said) = supervisor.hear(&dir) {
                self.tell(&Up::Said(said))?;
            }
        }
        let files = self.board.as_mut().map(Board::news).unwrap_or_default();
        for file in files {
            self.tell(&Up::File(file))?;
        }
        Ok(())
    }

    /// Nobody speaks to us any more.
    fn end(&mut self) -> Status {
        self.branches.close();
        // Whoever ended the launcher may have done so while it told its nodes that they stay.
        if !self.is_kept && JobDir::new(&self.join.job_dir).is_kept() {
            self.keep();
        }
        if self.is_kept {
            self.branches.finish(CLEARING_MAX);
            // Slurm ends what a task has left: the node lives as long as its task does.
            if let (Way::Slurm { .. }, Some(supervisor)) = (&self.join.way, &mut self.supervisor) {
                supervisor.outlast(&self.signals);
            }
            return Status::Done;
        }
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.cut_and_wait(Instant::now() + CLEARING_MAX);
            let dir = JobDir::new(&self.join.job_dir);
            match dir.settings() {
                Ok(settings) => {
                    crate::job::clean_node_unless_needed(&Job { dir, settings }, self.node);
                }
                Err(JobError::NotAJob { .. }) => {}
                Err(error) => tracing::warn!("what the node has left stays: {}", error.with_help()),
            }
        }
        self.branches.finish(CLEARING_MAX);
        Status::Done
    }
}
