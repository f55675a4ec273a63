//! What commands ask of a node's supervisor, over `node-<i>/control.sock`: one line of JSON there,
//! one back.
//!
//! The socket lies in a directory that only the owner can enter; the supervisor also looks at who
//! calls. Paths of any length work: sockets are reached through their directory's descriptor.

use std::io::{self, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::said::Ready;
use crate::job::NodeDir;
use crate::process::message;
use crate::wiring::areas::Room;

/// Longest line in either direction.
const LINE_BYTES_MAX: u64 = 256 << 10;

/// A caller that does not finish its line within this is dropped.
const CALLER_PATIENCE: Duration = Duration::from_secs(1);

/// One question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub(crate) enum Request {
    /// How are you?
    Status,
    /// What has the server done by which moment? Answered by the relay of a host, not by supervisors.
    History,
    /// Which versions in the tier are the server's, and what do they hold? As [`Self::History`]; of inodes above this.
    Checksums {
        /// Inode.
        after: u64,
        /// Versions, at most.
        most: u16,
    },
    /// End the programs of the job here, and unmount its areas.
    Unmount,
    /// End everything. The answer comes when it is done.
    Stop {
        /// Leave the bytes of the areas in the storage.
        keep: bool,
        /// Remove them also when the tier does not have them.
        #[serde(default)]
        discard: bool,
    },
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub(crate) enum Reply {
    /// Alive.
    Status(Box<NodeState>),
    /// Done, and what somebody should know.
    Done {
        /// Sentences.
        notes: Vec<String>,
        /// Why the storage was not removed although that was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<String>,
    },
    /// Not done.
    Refused {
        /// Why.
        why: String,
    },
}

/// A node as its supervisor sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeState {
    /// What it told when it came up, with the way of its mount to files as it is now; `None` while it comes up.
    pub(crate) ready: Option<Ready>,
    /// Process number of `serve`, or how it ended.
    pub(crate) server: DaemonState,
    /// The same of `serve-mount`.
    pub(crate) mount: DaemonState,
    /// How often `serve` ended and was started again.
    #[serde(default)]
    pub(crate) server_restarts: u32,
    /// The same of `serve-mount`.
    #[serde(default)]
    pub(crate) mount_restarts: u32,
    /// Room in `local`; `None` where it is a directory without a limit of its own.
    pub(crate) local: Option<Room>,
}

/// One child of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DaemonState {
    /// Not yet, or not any more.
    NotStarted,
    /// With this process number.
    Runs(u32),
    /// `exit status: 1`, `signal: 9 (SIGKILL)`.
    Ended(String),
}

/// A question that was sent, whose answer is waited for.
#[derive(Debug)]
pub(crate) struct Call {
    stream: UnixStream,
}

impl Call {
    /// Connects and asks.
    pub(crate) fn send(node: &NodeDir, request: &Request) -> anyhow::Result<Self> {
        let path = node.control_socket();
        let (_dir, short) = short_path(&path)?;
        let mut stream =
            UnixStream::connect(short).with_context(|| format!("connect to {}", path.display()))?;
        stream.set_write_timeout(Some(CALLER_PATIENCE))?;
        stream.write_all(&message::encode(request)).context("ask the supervisor")?;
        Ok(Self { stream })
    }

    /// Waits for the answer.
    pub(crate) fn reply(self, deadline: Instant) -> anyhow::Result<Reply> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let reply = message::receive(&mut BufReader::new(&self.stream), LINE_BYTES_MAX);
        reply.map_err(|error| {
            let what = match error.kind() {
                io::ErrorKind::InvalidData => "read the supervisor's answer",
                _ => "no answer from its supervisor",
            };
            anyhow::Error::new(error).context(what)
        })
    }
}

/// The supervisor's end.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
}

/// Somebody who asked and waits.
#[derive(Debug)]
pub(crate) struct Caller {
    stream: UnixStream,
    /// The process that asks.
    pub(crate) pid: Option<i32>,
}

impl ControlSocket {
    /// Begins to listen; callers who come before the node is ready wait in the queue.
    pub(crate) fn bind(node: &NodeDir) -> anyhow::Result<Self> {
        let path = node.control_socket();
        let (_dir, short) = short_path(&path)?;
        let listener =
            UnixListener::bind(short).with_context(|| format!("listen on {}", path.display()))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener })
    }

    /// The next caller with a whole question; `None` when there is none, or none that is allowed.
    pub(crate) fn accept(&self) -> Option<(Caller, Request)> {
        let (stream, _) = self.listener.accept().ok()?;
        match greet(stream) {
            Ok(asked) => Some(asked),
            Err(error) => {
                tracing::warn!("a caller on the control socket: {error:#}");
                None
            }
        }
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn greet(stream: UnixStream) -> anyhow::Result<(Caller, Request)> {
    let peer = rustix::net::sockopt::socket_peercred(&stream)?;
    let me = rustix::process::geteuid();
    if peer.uid != me && !peer.uid.is_root() {
        bail!("user {} may not ask", peer.uid.as_raw());
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(CALLER_PATIENCE))?;
    stream.set_write_timeout(Some(CALLER_PATIENCE))?;
    let request = message::receive(&mut BufReader::new(&stream), LINE_BYTES_MAX);
    let request = request.context("read a request")?;
    Ok((Caller { stream, pid: Some(peer.pid.as_raw_nonzero().get()) }, request))
}

impl Caller {
    /// Answers; a caller who went away is no trouble.
    pub(crate) fn answer(mut self, reply: &Reply) {
        if let Err(error) = self.stream.write_all(&message::encode(reply)) {
            tracing::info!("a caller did not wait for its answer: {error}");
        }
    }
}

/// A path for a socket that fits into the 108 bytes of an address, whatever its directory is called;
/// good while the descriptor lives.
fn short_path(path: &std::path::Path) -> anyhow::Result<(OwnedFd, PathBuf)> {
    let (parent, name) = path
        .parent()
        .zip(path.file_name())
        .with_context(|| format!("{} names no socket", path.display()))?;
    let dir = rustix::fs::open(parent, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .with_context(|| format!("open {}", parent.display()))?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    Ok((dir, short))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobDir;

    #[test]
    fn a_question_is_answered_however_long_the_path_is() {
        let top = tempfile::tempdir().unwrap();
        let dir = JobDir::new(top.path().join("x".repeat(100)).join("y".repeat(100)));
        std::fs::create_dir_all(dir.node(0).path()).unwrap();
        let socket = ControlSocket::bind(&dir.node(0)).unwrap();
        assert!(socket.accept().is_none());
        let call = Call::send(&dir.node(0), &Request::Stop { keep: true, discard: false }).unwrap();
        let (caller, request) = socket.accept().unwrap();
        assert_eq!(request, Request::Stop { keep: true, discard: false });
        assert_eq!(caller.pid, Some(std::process::id() as i32));
        let reply = Reply::Done { notes: vec!["a".into()], kept: None };
        caller.answer(&reply);
        assert_eq!(call.reply(Instant::now() + Duration::from_secs(1)).unwrap(), reply);
    }

    #[test]
    fn rubbish_and_silence_are_dropped() {
        let top = tempfile::tempdir().unwrap();
        let dir = JobDir::new(top.path());
        std::fs::create_dir_all(dir.node(0).path()).unwrap();
        let socket = ControlSocket::bind(&dir.node(0)).unwrap();
        for bytes in [&b"rubbish\n"[..], b"half a li"] {
            let mut stream = UnixStream::connect(dir.node(0).control_socket()).unwrap();
            stream.write_all(bytes).unwrap();
            drop(stream);
            assert!(socket.accept().is_none());
        }
        let call = Call::send(&dir.node(0), &Request::Status).unwrap();
        let error = call.reply(Instant::now() + Duration::from_millis(20)).unwrap_err();
        assert!(error.to_string().contains("no answer"), "{error:#}");
    }
}
