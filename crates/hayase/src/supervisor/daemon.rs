//! One daemon of a node: `serve` or `serve-mount`, a child of the supervisor.

use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use rustix::process::Signal;

use super::control::DaemonState;
use super::said::{DaemonSaid, Failure, MountTold};
use crate::advice::{Advice, Advise};
use crate::job::JobDir;
use crate::process::child::{self, Child, LOG_LINES, this_program};
use crate::process::signals::Signals;
use crate::process::{Handle, ProcessId, wait_ended};

/// A child, running or not.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// `serve` or `serve-mount`.
    name: &'static str,
    /// Says when it is ready, and when something changed.
    child: Child<DaemonSaid>,
    handle: Option<Handle>,
    ended: Option<Ended>,
}

#[derive(Clone, Debug)]
struct Ended {
    how: String,
    status: Option<i32>,
}

impl Ended {
    fn of(waited: std::io::Result<ExitStatus>) -> Self {
        match waited {
            Ok(status) => Self { how: status.to_string(), status: status.code() },
            Err(error) => Self { how: error.to_string(), status: None },
        }
    }
}

/// What UCX is told beyond the transport's own settings: it speaks on stderr only, leaves signals and the allocator
/// alone, and an error in it ends the process instead of stopping it.
const UCX: [(&str, &str); 5] = [
    ("UCX_LOG_FILE", "stderr"),
    ("UCX_LOG_LEVEL", "error"),
    ("UCX_ERROR_SIGNALS", ""),
    ("UCX_MEM_EVENTS", "n"),
    ("UCX_HANDLE_ERRORS", "none"),
];

/// Takes the settings of UCX away that are meant for the job's MPI.
fn own_ucx(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"UCX_") {
            command.env_remove(name);
        }
    }
    command.envs(UCX);
}

impl Daemon {
    /// Starts `hayase <name>` for one node. Call it from the thread that lives as long as the
    /// supervisor: the child asks to be ended with its parent *thread*.
    pub(crate) fn start(
        name: &'static str,
        dir: &JobDir,
        node: u16,
        signals: &Signals,
    ) -> anyhow::Result<Self> {
        let log = child::log(&dir.node(node).log(name))?;
        let mut command = this_program(name);
        command.arg("--job-dir").arg(dir.path()).arg("--node").arg(node.to_string());
        command.arg("--parent").arg(std::process::id().to_string());
        own_ucx(&mut command);
        command.stderr(log);
        Self::spawn(name, command, signals)
    }

    /// A program that says on its standard output when it is ready.
    pub(super) fn spawn(
        name: &'static str,
        mut command: Command,
        signals: &Signals,
    ) -> anyhow::Result<Self> {
        command.stdin(Stdio::null());
        let child = Child::spawn(name, command, signals)?;
        let handle = ProcessId::of(child.id() as i32).and_then(ProcessId::open);
        Ok(Self { name, child, handle, ended: None })
    }

    /// Its process number.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// What it said, if anything: `Some` when it is ready; an error when it will not be.
    pub(crate) fn poll_ready(
        &mut self,
        dir: &JobDir,
        node: u16,
    ) -> anyhow::Result<Option<Option<MountTold>>> {
        while let Some(said) = self.child.next() {
            match said {
                DaemonSaid::Ready(told) => return Ok(Some(told)),
                DaemonSaid::Failed(failure) => return Err(DaemonFailed(failure).into()),
                DaemonSaid::Changed(_) => self.warn_of(&said),
            }
        }
        if self.child.is_silent() {
            let tail = dir.node(node).last_lines(self.name, LOG_LINES);
            let ended = Ended::of(self.child.wait());
            let what = format!("`hayase {}` ended before it was ready: {}", self.name, ended.how);
            self.ended = Some(ended);
            return Err(DaemonFailed(Failure { what, help: None, tail }).into());
        }
        Ok(None)
    }

    /// How it serves files by now; `None` when that has not changed since it was asked last.
    pub(crate) fn changed(&mut self) -> Option<MountTold> {
        let mut last = None;
        while let Some(said) = self.child.next() {
            match said {
                DaemonSaid::Changed(told) => last = Some(told),
                DaemonSaid::Ready(_) | DaemonSaid::Failed(_) => self.warn_of(&said),
            }
        }
        last
    }

    /// Nobody waits for this now.
    fn warn_of(&self, said: &DaemonSaid) {
        tracing::warn!("`hayase {}` said: {said:?}", self.name);
    }

    /// Takes note of its end; `Some` when it is new.
    pub(crate) fn reap(&mut self) -> Option<String> {
        if self.ended.is_some() {
            return None;
        }
        let status = self.child.try_wait().ok()??;
        self.ended = Some(Ended::of(Ok(status)));
        Some(format!("`hayase {}` ended: {status}", self.name))
    }

    /// For `status`.
    pub(crate) fn state(&self) -> DaemonState {
        match &self.ended {
            None => DaemonState::Runs(self.child.id()),
            Some(ended) => DaemonState::Ended(ended.how.clone()),
        }
    }

    /// Whether it ended with this exit status.
    pub(crate) fn ended_with(&self, status: u8) -> bool {
        self.ended.as_ref().is_some_and(|ended| ended.status == Some(status.into()))
    }

    /// Waits until it has ended by itself; false when `patience` was not enough.
    pub(crate) fn wait(&mut self, patience: Duration) -> bool {
        if self.ended.is_some() {
            return true;
        }
        let has_ended =
            self.handle.as_ref().is_none_or(|h| wait_ended(std::slice::from_ref(h), patience));
        if has_ended {
            self.ended = Some(Ended::of(self.child.wait()));
        }
        has_ended
    }

    /// Asks it to end, then makes it. A note when that was necessary.
    pub(crate) fn stop(&mut self, patience: Duration) -> Option<String> {
        if self.ended.is_some() {
            return None;
        }
        let begin = Instant::now();
        match &self.handle {
            Some(handle) => handle.signal(Signal::TERM),
            // It could not be looked at when it was started; it is ours, so its number is not another's before we wait.
            None => drop(self.child.kill()),
        }
        if self.wait(patience) {
            return None;
        }
        let waited = begin.elapsed().as_millis();
        if let Some(handle) = &self.handle {
            handle.signal(Signal::KILL);
        }
        let gone = self.wait(Duration::from_secs(5));
        let end = if gone { "was killed" } else { "does not even end by SIGKILL" };
        Some(format!("`hayase {}` did not end within {waited} ms and {end}", self.name))
    }
}

/// Readable when it has said something, or has ended.
impl AsFd for Daemon {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.child.as_fd()
    }
}

/// A daemon that told why it does not run.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.what)]
pub(crate) struct DaemonFailed(pub(crate) Failure);

impl Advise for DaemonFailed {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::failure(self.0.help.clone()))
    }
}

/// What a daemon does first: it ends when the supervisor `parent` does, however that ends.
pub(crate) fn depend_on(parent: Option<i32>) -> anyhow::Result<()> {
    let Some(parent) = parent else { return Ok(()) };
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .context("ask for a signal when the supervisor ends")?;
    let now = rustix::process::getppid().ok_or_else(|| anyhow!("the supervisor has ended"))?;
    if now.as_raw_nonzero().get() != parent {
        bail!("the supervisor has ended");
    }
    Ok(())
}

/// Open files that a daemon asks for: a mount keeps one for each file on its node that is open or
/// was a moment ago, a server one for each part that it uses.
const OPEN_FILES_WANTED: u64 = 262_144;

/// Raises the limit of open files: beyond the hard limit where we may, else as far as that goes.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map(|hard| hard.max(OPEN_FILES_WANTED));
    if setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum: wanted }).is_ok() {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!("raise the limit of open files: {error}");
    }
}
