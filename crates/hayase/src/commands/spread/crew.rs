//! Workers of one step: a process on each node, told by its standard input, heard by its standard output.
//!
//! A worker ends when its standard input does, so none outlives this process.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use hayase_stage::Progress;

use super::{Order, SpreadError};
use crate::commands::transfer::{self, End, Event, Now};
use crate::job::Job;
use crate::output::Output;
use crate::process::child::this_program;
use crate::process::signals::Signals;
use crate::process::{Handle, ProcessId, message};

/// What is kept of what a worker says on its standard error.
const STDERR_BYTES_MAX: u64 = 4096;

/// Nodes of a job, asked to do something together.
#[derive(Clone, Copy)]
pub(super) struct Crew<'a> {
    pub(super) job: &'a Job,
    /// Of all workers of all steps.
    pub(super) progress: &'a Progress,
    pub(super) output: &'a Output,
    /// Those that are held back from this process: one of them ends the workers.
    pub(super) signals: Option<&'a Signals>,
    /// One of them came.
    pub(super) is_ended: &'a AtomicBool,
    /// Dry runs are not told to anybody.
    pub(super) is_looking: bool,
}

/// How often it is looked for signals that are held back.
const SIGNAL_LOOK: Duration = Duration::from_millis(100);

impl Crew<'_> {
    /// Has every order carried out on its node, at the same time; answers in their order.
    ///
    /// # Errors
    /// When no process can be started; what becomes of a worker is in its own answer.
    pub(super) fn run(&self, orders: &[(u16, Order)]) -> anyhow::Result<Vec<anyhow::Result<End>>> {
        let before = Now {
            found: 0,
            items_wanted: Progress::get(&self.progress.items_wanted),
            items_done: Progress::get(&self.progress.items_done),
            bytes_wanted: Progress::get(&self.progress.bytes_wanted),
            bytes_moved: Progress::get(&self.progress.bytes_moved),
            bytes_resumed: Progress::get(&self.progress.bytes_resumed),
            ..Now::default()
        };
        let heard = Mutex::new(vec![Now::default(); orders.len()]);
        let started: Vec<_> = orders
            .iter()
            .map(|(node, order)| Ok((*node, self.start(*node, order)?)))
            .collect::<anyhow::Result<_>>()?;
        let ids = started.iter().map(|(_, worker)| ProcessId::of(worker.child.id().cast_signed()));
        let handles: Vec<Handle> = ids.flatten().filter_map(ProcessId::open).collect();
        let (done, ended) = channel::<()>();
        Ok(thread::scope(|scope| {
            if let Some(signals) = self.signals {
                let is_ended = self.is_ended;
                scope.spawn(move || end_by_signal(signals, &handles, &ended, is_ended));
            }
            let listen = |(place, (node, worker))| {
                let (heard, before) = (&heard, &before);
                scope.spawn(move || {
                    self.listen(node, worker, |now| {
                        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                        let heard: &mut Vec<Now> = &mut heard;
                        heard[place] = now;
                        self.show(before, heard);
                    })
                })
            };
            let threads: Vec<_> = started.into_iter().enumerate().map(listen).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(answer) => answer,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            let answers = threads.into_iter().map(join).collect();
            drop(done);
            answers
        }))
    }

    fn start(&self, node: u16, order: &Order) -> anyhow::Result<Worker> {
        let mut command = this_program("exec");
        command.arg("--job").arg(self.job.dir.path());
        command.args(["--node", &node.to_string(), "--"]);
        // On another host it is where it was said to be; here it may have been replaced since.
        match &self.job.settings.reach {
            Some(reach) => command.arg(&reach.binary),
            None => command.arg(std::env::current_exe().context("find this program")?),
        };
        command.arg("stage-worker");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(signals) = self.signals {
            signals.unblock_in(&mut command);
        }
        let mut child = command.spawn().context("start `hayase exec`")?;
        let order = message::encode(order);
        // One that ended already says why by its status.
        let _ = child.stdin.as_mut().expect("stdin is a pipe").write_all(&order);
        Ok(Worker { child })
    }

    /// Hears a worker to its end.
    fn listen(
        &self,
        node: u16,
        mut worker: Worker,
        mut tell: impl FnMut(Now),
    ) -> anyhow::Result<End> {
        let stdout = worker.child.stdout.take().expect("stdout is a pipe");
        let stderr = worker.child.stderr.take().expect("stderr is a pipe");
        let said = thread::spawn(move || {
            let mut text = Vec::new();
            let mut stderr = stderr;
            let _ = (&mut stderr).take(STDERR_BYTES_MAX).read_to_end(&mut text);
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
            String::from_utf8_lossy(&text).trim().to_owned()
        });
        let mut answer = None;
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.with_context(|| format!("listen to the worker of node {node}"))?;
            match serde_json::from_slice(&line) {
                Ok(Event::Progress(now)) => tell(now),
                Ok(Event::Would { .. }) if self.is_looking => {}
                Ok(Event::Would { action, name, bytes }) => {
                    transfer::tell_would(&action, &name, bytes, self.output);
                }
                Ok(Event::Failed { .. }) => {} // the summary has it too
                Ok(Event::End(end)) => {
                    tell(Now {
                        items_done: end.copied,
                        bytes_moved: end.bytes_moved,
                        bytes_resumed: end.bytes_resumed,
                        ..Now::all_of(&end)
                    });
                    answer = Some(Ok(end));
                }
                Ok(Event::Broken { what, help, is_usage }) => {
                    answer = Some(Err(SpreadError::Broken { node, what, help, is_usage }.into()));
                }
                Err(_) => {} // a shell's greeting
            }
        }
        drop(worker.child.stdin.take());
        let status = worker.child.wait().context("wait for a worker")?;
        let said = said.join().unwrap_or_default();
        answer.unwrap_or_else(|| {
            let how =
                if said.is_empty() { status.to_string() } else { format!("{status}: {said}") };
            Err(SpreadError::Ended { node, how }.into())
        })
    }

    /// Sums up what was heard.
    fn show(&self, before: &Now, heard: &[Now]) {
        let sum = |count: fn(&Now) -> u64| heard.iter().map(count).sum::<u64>();
        let set =
            |counter: &std::sync::atomic::AtomicU64, value| counter.store(value, Ordering::Relaxed);
        let progress = self.progress;
        set(&progress.found, heard.iter().map(|now| now.found).max().unwrap_or(0));
        set(&progress.items_wanted, before.items_wanted + sum(|now| now.items_wanted));
        set(&progress.items_done, before.items_done + sum(|now| now.items_done));
        set(&progress.items_kept, sum(|now| now.items_kept));
        set(&progress.bytes_wanted, before.bytes_wanted + sum(|now| now.bytes_wanted));
        set(&progress.bytes_moved, before.bytes_moved + sum(|now| now.bytes_moved));
        set(&progress.bytes_resumed, before.bytes_resumed + sum(|now| now.bytes_resumed));
        set(&progress.failures, sum(|now| now.failures));
        progress.is_planned.store(heard.iter().all(|now| now.is_planned), Ordering::Relaxed);
    }
}

/// Passes what asks this process to end on to the workers, until the step is done.
fn end_by_signal(
    signals: &Signals,
    workers: &[Handle],
    ended: &Receiver<()>,
    is_ended: &AtomicBool,
) {
    while ended.recv_timeout(SIGNAL_LOOK) == Err(RecvTimeoutError::Timeout) {
        while let Some(received) = signals.next() {
            is_ended.store(true, Ordering::Relaxed);
            workers.iter().for_each(|worker| worker.signal(received.signal));
        }
    }
}

impl Now {
    /// Of a copy that has ended.
    fn all_of(end: &End) -> Self {
        Self {
            found: end.found,
            items_wanted: end.copied,
            items_kept: end.kept,
            bytes_wanted: end.bytes_moved + end.bytes_resumed,
            failures: end.failures_total,
            is_planned: true,
            ..Self::default()
        }
    }
}

/// A process that ends with this value, at the latest.
struct Worker {
    child: Child,
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
