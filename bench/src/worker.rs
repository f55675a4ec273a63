//! A workload program on a node, seen from the bench.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sample::Measured;
use crate::workloads::{Answer, Task};

/// No single task takes longer than this, unless something hangs.
const TASK_PATIENCE: Duration = Duration::from_secs(120);

/// Ended when dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    /// What was read and not used yet.
    heard: Vec<u8>,
}

impl Worker {
    /// Starts `command`, which becomes a worker.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Ok(Self { child: child.context("start a workload program")?, heard: Vec::new() })
    }

    /// Its number; of the program itself, since `hayase exec` becomes it.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Gives it a task; [`Worker::answer`] must follow.
    pub(crate) fn ask(&mut self, task: &Task) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(task)?;
        line.push(b'\n');
        let stdin = self.child.stdin.as_mut().context("the worker has no standard input")?;
        stdin.write_all(&line).context("give a task to a worker")
    }

    /// Waits for what it says to the task before.
    pub(crate) fn answer(&mut self) -> anyhow::Result<Answer> {
        match serde_json::from_str(&self.line()?)? {
            Answer::Failed { why } => bail!("{why}"),
            answer => Ok(answer),
        }
    }

    /// A task that measures nothing.
    pub(crate) fn perform(&mut self, task: &Task) -> anyhow::Result<Answer> {
        self.ask(task)?;
        self.answer()
    }

    /// A task that measures.
    pub(crate) fn measure(&mut self, task: &Task) -> anyhow::Result<Measured> {
        self.ask(task)?;
        self.measured()
    }

    /// The answer to a task that measures.
    pub(crate) fn measured(&mut self) -> anyhow::Result<Measured> {
        match self.answer()? {
            Answer::Measured(measured) => Ok(measured),
            answer => bail!("a worker answered {answer:?} to a task that measures"),
        }
    }

    /// The moment at which the task before was done.
    pub(crate) fn moment(&mut self) -> anyhow::Result<u64> {
        match self.answer()? {
            Answer::Moment { at } => Ok(at),
            answer => bail!("a worker answered {answer:?} to a question of when"),
        }
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let until = Instant::now() + TASK_PATIENCE;
        loop {
            if let Some(end) = self.heard.iter().position(|&byte| byte == b'\n') {
                let line = self.heard.drain(..=end).collect();
                return String::from_utf8(line).context("a worker speaks UTF-8");
            }
            let left = until.saturating_duration_since(Instant::now());
            let stdout = self.child.stdout.as_mut().context("the worker has no output")?;
            let mut wait = [PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN)];
            let left = Timespec::try_from(left).context("wait for a worker")?;
            if poll(&mut wait, Some(&left)).context("wait for a worker")? == 0 {
                bail!("a task took more than {} s: something hangs", TASK_PATIENCE.as_secs());
            }
            let mut buffer = [0; 4096];
            match stdout.read(&mut buffer).context("listen to a worker")? {
                0 => bail!("a worker ended in the middle of a task"),
                count => self.heard.extend_from_slice(&buffer[..count]),
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A worker ends with its input; one that hangs in a call may need more.
        drop(self.child.stdin.take());
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
