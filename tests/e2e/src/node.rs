//! One node of a job, as a test sees it: an actor that makes calls there.
//!
//! Each call has a bound in time; a call that hangs fails the test and leaves the actor usable.

mod calls;
mod file;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command as Process, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::actor::{Answer, Command, Loop, Reply, Report, Request, Until};
use crate::expect::Refused;
use crate::patience::patient;
pub use file::{File, Map};

/// No single call may take longer. Recalls of a dead session take 3 s, an fsync may take longer.
const CALL_BOUND: Duration = Duration::from_secs(30);

/// What an actor has at most to say about a loop after the loop's own time is up.
const LOOP_GRACE: Duration = Duration::from_secs(15);

/// A handle to the actor on one node; clones speak to the same one.
#[derive(Clone)]
pub struct Node(Arc<Actor>);

struct Actor {
    index: u16,
    child: Mutex<Child>,
    stdin: Mutex<ChildStdin>,
    waiting: Mutex<HashMap<u64, Sender<Reply>>>,
    next: AtomicU64,
    dead: AtomicBool,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {}", self.0.index)
    }
}

/// A call under way.
pub struct Pending {
    node: u16,
    call: String,
    bound: Duration,
    reply: Receiver<Reply>,
}

impl Node {
    /// Starts the actor of node `index` with `program`, which ends up running `hayase-actor` there.
    ///
    /// # Errors
    /// When it can not be started.
    pub fn start(index: u16, program: &mut Process) -> Result<Self> {
        let mut child = program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("start the actor of node {index}: {program:?}"))?;
        let stdin = child.stdin.take().expect("stdin is a pipe");
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let actor = Arc::new(Actor {
            index,
            child: Mutex::new(child),
            stdin: Mutex::new(stdin),
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
            dead: AtomicBool::new(false),
        });
        let reader = Arc::clone(&actor);
        std::thread::spawn(move || reader.read_replies(stdout));
        let node = Self(actor);
        node.call(Command::Reset).with_context(|| format!("first word to node {index}"))?;
        Ok(node)
    }

    /// Which node.
    pub fn index(&self) -> u16 {
        self.0.index
    }

    /// The process that this test run started for it.
    pub fn pid(&self) -> u32 {
        locked(&self.0.child).id()
    }

    /// Makes one call and waits for its end.
    ///
    /// # Errors
    /// The errno of the call, `TIMEOUT` or `DEAD`.
    pub fn call(&self, command: Command) -> Result<Answer, Refused> {
        self.begin(command).wait()
    }

    /// Makes one call and lets it run.
    pub fn begin(&self, command: Command) -> Pending {
        self.begin_within(command, CALL_BOUND)
    }

    /// Makes one call that may take as long as `bound`.
    pub fn begin_within(&self, command: Command, bound: Duration) -> Pending {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, reply) = channel();
        let call = words(&command);
        let line = serde_json::to_vec(&Request { id, command }).expect("a command is plain data");
        locked(&self.0.waiting).insert(id, sender);
        let sent = {
            let mut stdin = locked(&self.0.stdin);
            stdin
                .write_all(&line)
                .and_then(|()| stdin.write_all(b"\n"))
                .and_then(|()| stdin.flush())
        };
        if sent.is_err() || self.0.dead.load(Ordering::Acquire) {
            locked(&self.0.waiting).remove(&id);
        }
        Pending { node: self.0.index, call, bound, reply }
    }

    /// Starts a loop; its own bound in time ends it.
    pub fn begin_loop(&self, work: Loop, until: Until) -> PendingLoop {
        let bound = Duration::from_secs_f64(until.seconds_max().min(600.0)) + LOOP_GRACE;
        PendingLoop(self.begin_within(Command::Loop { work, until }, bound))
    }

    /// Runs a loop to its end.
    ///
    /// # Errors
    /// As [`Node::call`].
    pub fn run_loop(&self, work: Loop, until: Until) -> Result<Report, Refused> {
        self.begin_loop(work, until).wait()
    }

    /// Ends the actor: it sees the end of its input. Kills what stands between when it does not.
    pub fn stop(&self) {
        let mut child = locked(&self.0.child);
        // Closing stdin needs the handle, which clones share; the actor's death closes the rest.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A loop under way.
pub struct PendingLoop(Pending);

impl PendingLoop {
    /// Waits for its end.
    ///
    /// # Errors
    /// As [`Node::call`].
    pub fn wait(self) -> Result<Report, Refused> {
        let (node, call) = (self.0.node, self.0.call.clone());
        match self.0.wait()? {
            Answer::Report(report) => Ok(report),
            other => Err(Refused { node, call, errno: format!("answered {other:?}") }),
        }
    }
}

impl Pending {
    /// Waits for the end of the call.
    ///
    /// # Errors
    /// As [`Node::call`].
    pub fn wait(self) -> Result<Answer, Refused> {
        let mut reply = self.reply.recv_timeout(self.bound);
        if reply.as_ref().is_err_and(|error| *error == RecvTimeoutError::Timeout) {
            reply = self.reply.recv_timeout(patient(self.bound).saturating_sub(self.bound));
        }
        let errno = match reply {
            Ok(Reply { result: Ok(answer), .. }) => return Ok(answer),
            Ok(Reply { result: Err(errno), .. }) => errno,
            Err(RecvTimeoutError::Timeout) => "TIMEOUT".into(),
            Err(RecvTimeoutError::Disconnected) => "DEAD".into(),
        };
        Err(Refused { node: self.node, call: self.call, errno })
    }
}

impl Actor {
    fn read_replies(&self, stdout: ChildStdout) {
        for line in BufReader::new(stdout).lines() {
            let Some(reply) = line.ok().and_then(|line| serde_json::from_str::<Reply>(&line).ok())
            else {
                break;
            };
            if let Some(sender) = locked(&self.waiting).remove(&reply.id) {
                // A caller that gave up has dropped the other end.
                let _ = sender.send(reply);
            }
        }
        self.dead.store(true, Ordering::Release);
        locked(&self.waiting).clear();
    }
}

/// The command as a person reads it, cut off where data begin.
fn words(command: &Command) -> String {
    const CHARS_MAX: usize = 240;
    let text = format!("{command:?}");
    match text.char_indices().nth(CHARS_MAX) {
        Some((at, _)) => format!("{}..", &text[..at]),
        None => text,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
