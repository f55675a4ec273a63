//! The programs that are measured: each does one kind of work and says how long it took.
//!
//! A *worker* is this same binary, started on a node by `hayase exec`. It reads tasks as lines of
//! JSON, does one after the other and answers each with a line, so that the bench decides what runs
//! when, and blocks on different nodes, mounts and directories can take turns.
//! Not here: who starts workers and what their figures mean ([`crate::worker`], [`crate::foundation`], [`crate::nodes`]).

pub(crate) mod block;
pub(crate) mod compute;
pub(crate) mod evict;
pub(crate) mod library;
pub(crate) mod locks;
pub(crate) mod look;
pub(crate) mod metadata;
pub(crate) mod random;
pub(crate) mod ring;
pub(crate) mod sequential;
pub(crate) mod small;
pub(crate) mod tcp_loop;

use std::io::{BufRead, Write};
use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::sample::Measured;

/// What a worker is told to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub(crate) enum Task {
    /// Make a directory and those above it.
    MakeDirectory {
        /// Which.
        path: PathBuf,
    },
    /// Large calls from the start to the end of a file.
    Sequential(sequential::Sequential),
    /// Large requests by a server's ring.
    Ring(ring::RingTransfers),
    /// Small calls anywhere in a file.
    Random(random::Random),
    /// Small calls that fill a file from its start to its end.
    Small(small::Small),
    /// Computing, and nothing else.
    Compute(compute::Compute),
    /// Names and inodes.
    Metadata(metadata::Metadata),
    /// New files by the client library.
    Library(library::Library),
    /// Lock and unlock a file that nobody else wants.
    Alone(locks::Alone),
    /// Hold a lock in turn with another program.
    HandOver(locks::HandOver),
    /// Look at some names once.
    Look(look::Look),
    /// Give files to [`Task::TcpTransfer`], from a thread of its own until the worker ends.
    TcpServe {
        /// Where to listen.
        address: std::net::IpAddr,
    },
    /// Move a file over a socket.
    TcpTransfer(tcp_loop::Transfer),
    /// Write back and drop the cached pages of every file below a directory.
    Evict {
        /// Which.
        path: PathBuf,
    },
}

/// What a worker answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub(crate) enum Answer {
    /// Done; there was nothing to measure.
    Done,
    /// Done.
    Measured(Measured),
    /// When a lock was held, each time.
    Held {
        /// In order.
        turns: Vec<locks::Held>,
    },
    /// Done at this moment, in nanoseconds of the monotonic clock.
    Moment {
        /// Since some time before.
        at: u64,
    },
    /// Listens on this port.
    Listening {
        /// Of TCP.
        port: u16,
    },
    /// Not done.
    Failed {
        /// Why, with all its causes.
        why: String,
    },
}

/// Does tasks until standard input ends.
pub(crate) fn serve() -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let task = serde_json::from_str(&line.context("read a task")?).context("read a task")?;
        let answer =
            perform(&task).unwrap_or_else(|error| Answer::Failed { why: format!("{error:#}") });
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        output.write_all(&line).and_then(|()| output.flush()).context("answer")?;
    }
    Ok(())
}

fn perform(task: &Task) -> anyhow::Result<Answer> {
    Ok(match task {
        Task::MakeDirectory { path } => {
            std::fs::create_dir_all(path).with_context(|| format!("make {}", path.display()))?;
            Answer::Done
        }
        Task::Sequential(work) => Answer::Measured(work.run()?),
        Task::Ring(work) => Answer::Measured(work.run()?),
        Task::Random(work) => Answer::Measured(work.run()?),
        Task::Small(work) => Answer::Measured(work.run()?),
        Task::Compute(work) => Answer::Measured(work.run()?),
        Task::Metadata(work) => Answer::Measured(work.run()?),
        Task::Library(work) => Answer::Measured(work.run()?),
        Task::Alone(work) => Answer::Measured(work.run()?),
        Task::HandOver(work) => Answer::Held { turns: work.run()? },
        Task::Look(work) => Answer::Moment { at: work.run()? },
        Task::TcpServe { address } => Answer::Listening { port: tcp_loop::serve(*address)? },
        Task::TcpTransfer(work) => Answer::Measured(work.run()?),
        Task::Evict { path } => {
            evict::evict(path)?;
            Answer::Done
        }
    })
}
