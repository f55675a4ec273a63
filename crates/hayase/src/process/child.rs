//! Children that run this program, and say messages on their standard output.

use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};

use anyhow::Context;
use serde::de::DeserializeOwned;

use super::lines::Lines;
use super::signals::Signals;

/// The last lines of a child's log, or of what it said on standard error, that are shown when it does not come up.
pub(crate) const LOG_LINES: usize = 12;

/// The verb `verb` of the program that runs, also where another file has its path by now.
pub(crate) fn this_program(verb: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("hayase").arg(verb);
    command
}

/// A log, for the standard error of a child: new lines go behind those of earlier children.
pub(crate) fn log(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).mode(0o600).open(path);
    file.with_context(|| format!("open {}", path.display()))
}

/// A child whose messages are of type `M`. Its end is noticed by nobody but the holder: dropped, it runs on.
#[derive(Debug)]
pub(crate) struct Child<M> {
    /// For the log.
    name: &'static str,
    process: std::process::Child,
    lines: Lines,
    messages: PhantomData<fn() -> M>,
}

impl<M: DeserializeOwned> Child<M> {
    /// Starts `command`, in which `signals` are no longer blocked. Standard input and error are as it says.
    pub(crate) fn spawn(
        name: &'static str,
        mut command: Command,
        signals: &Signals,
    ) -> anyhow::Result<Self> {
        command.stdout(Stdio::piped());
        signals.unblock_in(&mut command);
        let mut process = command.spawn().with_context(|| format!("start `hayase {name}`"))?;
        let stdout = process.stdout.take().expect("stdout is a pipe");
        let lines = Lines::new(OwnedFd::from(stdout));
        let lines = lines.with_context(|| format!("listen to `hayase {name}`"))?;
        Ok(Self { name, process, lines, messages: PhantomData })
    }

    /// The next message that has come, without waiting. Other lines go to the log.
    pub(crate) fn next(&mut self) -> Option<M> {
        while let Some(line) = self.lines.next() {
            match serde_json::from_str(&line) {
                Ok(message) => return Some(message),
                Err(_) => tracing::warn!("`hayase {}` said: {line}", self.name),
            }
        }
        None
    }

    /// Its output has ended, which it does with the child, and all of it was taken.
    pub(crate) fn is_silent(&self) -> bool {
        self.lines.is_at_end()
    }

    /// Its process number.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its standard input, the first time, where that is a pipe.
    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.process.stdin.take()
    }

    /// How it ended, if it has.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }
}

/// Readable when it has said something, or has ended.
impl<M> AsFd for Child<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lines.as_fd()
    }
}
