//! Asking a node's server how it is.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use hayase_layout::{ByteCount, InodeId};
pub(crate) use hayase_wire::message::{AreaMoved, ChecksumLine, Sample};
use hayase_wire::message::{
    CacheLine, CacheStatus, Carrier, ClientRole, Flushed, NodeReply, NodeRequest, PROTOCOL_VERSION,
    PeerState, PeerStatus, ServerStatus,
};
use hayase_wire::{BlockingChannel, decode, encode};
use serde::{Deserialize, Serialize};

/// What a server tells, in words and plain numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Served {
    /// Its place among the members.
    pub(crate) server: u16,
    /// Milliseconds since it began.
    pub(crate) up_ms: u64,
    /// Differs each time it is started.
    pub(crate) start_id: u64,
    /// How often it was started.
    pub(crate) incarnation: u64,
    /// Nodes that were declared lost, as it has heard.
    pub(crate) lost: Vec<u16>,
    /// It has heard of server 0 lately, which declares nodes lost.
    pub(crate) has_coordinator: bool,
    /// Bytes of its share of `shared`.
    pub(crate) shared_total: u64,
    /// Bytes left of it.
    pub(crate) shared_free: u64,
    /// Inodes of it; 0 when they are not bounded.
    pub(crate) inodes_total: u64,
    /// Inodes left.
    pub(crate) inodes_free: u64,
    /// `image` or `counted`.
    pub(crate) limiter: String,
    /// Processes that are connected.
    pub(crate) clients: u32,
    /// Files that somebody has open.
    pub(crate) files_open: u64,
    /// Requests since it began.
    pub(crate) requests: u64,
    /// Bytes that passed it on their way to readers.
    pub(crate) bytes_read: u64,
    /// Bytes that passed it on their way to parts.
    pub(crate) bytes_written: u64,
    /// Bytes that the file system of the area gave and took; absent where that is not counted.
    #[serde(default)]
    pub(crate) area: Option<AreaMoved>,
    /// Of both, what went past the page cache.
    #[serde(default)]
    pub(crate) bytes_direct: u64,
    /// Of what was written, bytes of small writes that mounts had gathered.
    #[serde(default)]
    pub(crate) bytes_gathered: u64,
    /// Which way large transfers take.
    #[serde(default)]
    pub(crate) io: String,
    /// Which transport it speaks to the others, and why.
    #[serde(default)]
    pub(crate) network: String,
    /// Its processors are fast enough to authenticate the bytes of files on their way.
    #[serde(default)]
    pub(crate) authenticates: bool,
    /// Its memory.
    pub(crate) resident_bytes: u64,
    /// Milliseconds of CPU since its start.
    #[serde(default)]
    pub(crate) cpu_ms: u64,
    /// System calls like read(2), and like write(2).
    #[serde(default)]
    pub(crate) read_calls: u64,
    #[serde(default)]
    pub(crate) write_calls: u64,
    /// Times that its threads were woken.
    #[serde(default)]
    pub(crate) wake_ups: u64,
    /// The other servers as it sees them.
    pub(crate) peers: Vec<Peer>,
    /// Of a job with a tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cache: Option<CacheServed>,
}

/// The cache area of one server. Paths are from the tier's root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CacheServed {
    /// For people.
    pub(crate) tier: String,
    /// Files that the tier does not have as the job wrote them.
    pub(crate) dirty_files: u64,
    /// Their bytes.
    pub(crate) dirty_bytes: u64,
    /// Of those bytes, how many the tier got already: it shows them when it has the whole file.
    #[serde(default)]
    pub(crate) sent_bytes: u64,
    /// Of those files, how many are open for writing.
    pub(crate) open_files: u64,
    /// Of those files, how many could not be flushed at the last try.
    pub(crate) failed_files: u64,
    /// Bytes of copies.
    pub(crate) clean_bytes: u64,
    /// Since the server began.
    pub(crate) flushed_files: u64,
    /// Since the server began.
    pub(crate) flushed_bytes: u64,
    /// Since the server began.
    pub(crate) fetched_bytes: u64,
    /// Names of second versions.
    pub(crate) conflicts: Vec<String>,
    /// Bytes per second to the tier, when it last took some.
    pub(crate) rate: u64,
    /// Seconds to the deadline, where there is one.
    pub(crate) deadline_s: Option<u64>,
    /// Bytes that will not make it.
    pub(crate) misses_bytes: u64,
    /// What is not durable: some of it.
    pub(crate) lines: Vec<LedgerLine>,
}

/// One file that the tier does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LedgerLine {
    /// From the tier's root.
    pub(crate) path: String,
    /// `dirty`, `flushing`, `failed`, `open`.
    pub(crate) state: String,
    /// Now.
    pub(crate) bytes: u64,
    /// Of the last failure.
    pub(crate) errno: i32,
    /// In a row.
    pub(crate) attempts: u32,
}

impl LedgerLine {
    /// For people.
    pub(crate) fn in_words(&self) -> String {
        let Self { path, state, bytes, errno, attempts } = self;
        let why = match errno {
            0 => String::new(),
            errno => {
                let error = std::io::Error::from_raw_os_error(*errno);
                format!(", failed {attempts} times: {error}")
            }
        };
        format!("  {state:8} {} {path}{why}", ByteCount(*bytes))
    }
}

/// One server as another sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Peer {
    /// Which.
    pub(crate) server: u16,
    /// `unconnected`, `connected`, `unreachable`.
    pub(crate) state: String,
    /// What its connections travel on: `tcp`, `ucx`; nothing without a connection.
    #[serde(default)]
    pub(crate) over: Option<String>,
}

impl Peer {
    /// What its connections travel on.
    pub(crate) fn over(&self) -> Option<&str> {
        self.over.as_deref()
    }
}

/// One question to the server behind `socket`.
pub(crate) fn server_status(socket: &Path, patience: Duration) -> anyhow::Result<Served> {
    let mut channel = greet(socket, patience)?;
    match ask(&mut channel, &NodeRequest::Status)? {
        NodeReply::Status(status) => Ok(Served::from(*status)),
        NodeReply::Refused(refused) => Err(refused).context("ask for its status"),
        other => bail!("answered with {other:?}"),
    }
}

/// What the server behind `socket` had done by which moment, oldest first.
pub(crate) fn server_history(socket: &Path, patience: Duration) -> anyhow::Result<Vec<Sample>> {
    let mut channel = greet(socket, patience)?;
    match ask(&mut channel, &NodeRequest::History)? {
        NodeReply::History(history) => Ok(history),
        NodeReply::Refused(refused) => Err(refused).context("ask for its history"),
        other => bail!("answered with {other:?}"),
    }
}

/// Versions in the tier that the server behind `socket` has sent, of inodes above `after`: some of them, `most` at most.
pub(crate) fn server_checksums(
    socket: &Path,
    (after, most): (u64, u16),
    patience: Duration,
) -> anyhow::Result<Vec<ChecksumLine>> {
    let mut channel = greet(socket, patience)?;
    match ask(&mut channel, &NodeRequest::Checksums { after, most })? {
        NodeReply::Checksums(lines) => Ok(lines),
        NodeReply::Refused(refused) => Err(refused).context("ask what the tier should hold"),
        other => bail!("answered with {other:?}"),
    }
}

/// Files that can not be reached because nodes are lost, as one server knows them: some by path, and
/// how many.
pub(crate) fn lost_files(
    socket: &Path,
    max: u32,
    patience: Duration,
) -> anyhow::Result<(Vec<String>, u64)> {
    let mut channel = greet(socket, patience)?;
    match ask(&mut channel, &NodeRequest::LostFiles { max })? {
        NodeReply::LostFiles { paths, total } => {
            let words = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
            Ok((paths.iter().map(words).collect(), total))
        }
        NodeReply::Refused(refused) => Err(refused).context("ask for lost files"),
        other => bail!("answered with {other:?}"),
    }
}

/// A server that is asked about files of the cache area, one after the other.
pub(crate) struct CacheServer(BlockingChannel);

impl CacheServer {
    /// The server behind `socket`; each answer may take `patience`.
    pub(crate) fn connect(socket: &Path, patience: Duration) -> anyhow::Result<Self> {
        Ok(Self(greet(socket, patience)?))
    }

    /// How far the flush of a file is; begins it.
    pub(crate) fn flush(&mut self, ino: InodeId) -> anyhow::Result<Flushed> {
        match ask(&mut self.0, &NodeRequest::Flush { ino })? {
            NodeReply::Flushed(flushed) => Ok(flushed),
            NodeReply::Refused(refused) => Err(refused).context("flush"),
            other => bail!("answered with {other:?}"),
        }
    }

    /// Gives the room of a file back; the errno says why it stays.
    pub(crate) fn evict(&mut self, ino: InodeId) -> anyhow::Result<Result<(), i32>> {
        match ask(&mut self.0, &NodeRequest::Evict { ino })? {
            NodeReply::Done => Ok(Ok(())),
            NodeReply::Refused(refused) => Ok(Err(refused.errno)),
            other => bail!("answered with {other:?}"),
        }
    }
}

fn greet(socket: &Path, patience: Duration) -> anyhow::Result<BlockingChannel> {
    let mut channel = BlockingChannel::connect(socket, patience)?;
    channel.set_wait(Some(patience))?;
    let hello = NodeRequest::Hello {
        version: PROTOCOL_VERSION,
        role: ClientRole::Requests,
        process: u64::from_le_bytes(crate::job::random()?),
        arena_slots: 0,
        mount: false,
        returning: false,
    };
    match ask(&mut channel, &hello)? {
        NodeReply::Welcome { .. } => Ok(channel),
        other => bail!("greeted with {other:?}"),
    }
}

fn ask(channel: &mut BlockingChannel, request: &NodeRequest) -> anyhow::Result<NodeReply> {
    let (reply, _) = channel.call(&encode(request)?, None)?;
    Ok(decode(&reply)?)
}

impl From<CacheStatus> for CacheServed {
    fn from(status: CacheStatus) -> Self {
        let words = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let line = |line: &CacheLine| LedgerLine {
            path: words(&line.path),
            state: line.state.clone(),
            bytes: line.bytes,
            errno: line.errno,
            attempts: line.attempts,
        };
        Self {
            dirty_files: status.dirty_files,
            dirty_bytes: status.dirty_bytes,
            sent_bytes: status.sent_bytes,
            open_files: status.open_files,
            failed_files: status.failed_files,
            clean_bytes: status.clean_bytes,
            flushed_files: status.flushed_files,
            flushed_bytes: status.flushed_bytes,
            fetched_bytes: status.fetched_bytes,
            conflicts: status.conflicts.iter().map(|path| words(path)).collect(),
            rate: status.rate,
            deadline_s: status.deadline_s,
            misses_bytes: status.misses_bytes,
            lines: status.lines.iter().map(line).collect(),
            tier: status.tier,
        }
    }
}

impl From<ServerStatus> for Served {
    fn from(status: ServerStatus) -> Self {
        let peer = |peer: &PeerStatus| Peer {
            server: peer.server.0,
            over: peer.over.map(|over| match over {
                Carrier::Stream => "tcp".to_owned(),
                Carrier::Ucx => "ucx".to_owned(),
                Carrier::Relay => "relay".to_owned(),
            }),
            state: match peer.state {
                PeerState::Unconnected => "unconnected".to_owned(),
                PeerState::Connected => "connected".to_owned(),
                PeerState::Unreachable => "unreachable".to_owned(),
            },
        };
        Self {
            server: status.server.0,
            up_ms: status.up_ms,
            start_id: status.start_id,
            incarnation: status.incarnation,
            lost: status.lost.iter().map(|server| server.0).collect(),
            has_coordinator: status.has_coordinator,
            shared_total: status.shared.total,
            shared_free: status.shared.free,
            inodes_total: status.shared.inodes,
            inodes_free: status.shared.inodes_free,
            limiter: status.limiter,
            clients: status.clients,
            files_open: status.files_open,
            requests: status.requests,
            bytes_read: status.bytes_read,
            bytes_written: status.bytes_written,
            area: status.area,
            bytes_direct: status.bytes_direct,
            bytes_gathered: status.bytes_gathered,
            io: status.io,
            network: status.network,
            authenticates: status.authenticates,
            resident_bytes: status.resident_bytes,
            cpu_ms: status.process.cpu_ms,
            read_calls: status.process.read_calls,
            write_calls: status.process.write_calls,
            wake_ups: status.process.wake_ups,
            peers: status.peers.iter().map(peer).collect(),
            cache: status.cache.map(|cache| CacheServed::from(*cache)),
        }
    }
}
