//! What a server tells of itself.

use hayase_layout::{NodeId, ServerId};
use serde::{Deserialize, Serialize};

/// Room in an area, in bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AreaUse {
    pub total: u64,
    pub free: u64,
    /// Inodes; 0 and 0 when the area does not bound them.
    pub inodes: u64,
    pub inodes_free: u64,
}

/// Bytes that the file system of an area gave and took since it was mounted: to and from kernels for programs, and its server
/// for other nodes and for the tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AreaMoved {
    pub read: u64,
    pub written: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerState {
    /// Never needed so far.
    Unconnected,
    Connected,
    /// Did not answer within its deadline; tried again at the next request.
    Unreachable,
}

/// What frames between two servers travel on.
///
/// The best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Carrier {
    Ucx,
    /// Bytes in order: TCP, but in tests.
    Stream,
    /// The same, by way of the coordinator: they do not reach each other.
    Relay,
}

/// What a server knows of another one without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    pub server: ServerId,
    pub state: PeerState,
    /// Of its connections that live, the worst.
    pub over: Option<Carrier>,
}

/// What a server had done by some moment since it began, and what it held then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub requests: u64,
    /// That passed this server on their way to readers and to parts: not what a node's kernel moved itself.
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// `None` where the area has no file system of its own.
    pub area: Option<AreaMoved>,
    /// To and from the tier.
    pub flushed_bytes: u64,
    pub fetched_bytes: u64,
    /// That the tier did not have.
    pub dirty_bytes: u64,
    /// Of the area.
    pub used_bytes: u64,
}

/// What a process has used since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// Milliseconds of CPU, in the process and in the kernel for it, all its threads together.
    pub cpu_ms: u64,
    /// read(2), write(2) and their like.
    pub read_calls: u64,
    pub write_calls: u64,
    /// Times that its threads went to sleep and were woken.
    pub wake_ups: u64,
}

/// For `hayase status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    pub server: ServerId,
    pub node: NodeId,
    pub host: String,
    /// Milliseconds since this incarnation began.
    pub up_ms: u64,
    pub start_id: u64,
    /// Starts of this server, this one included.
    pub incarnation: u64,
    /// Nodes that were declared lost.
    pub lost: Vec<ServerId>,
    /// Server 0, which declares nodes lost, was heard of lately.
    pub has_coordinator: bool,
    pub shared: AreaUse,
    /// `image` or `counted`.
    pub limiter: String,
    pub clients: u32,
    pub files_open: u64,
    pub requests: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// `None` where the area has no file system of its own.
    pub area: Option<AreaMoved>,
    /// Of both, what went past the page cache of the parts.
    pub bytes_direct: u64,
    /// Of what was written, bytes of small writes that mounts had gathered.
    pub bytes_gathered: u64,
    /// Which way large transfers take, for a person.
    pub io: String,
    /// Which transport it speaks to the others, and why, for a person.
    pub network: String,
    /// Its CPU is fast enough to authenticate the bytes of files on their way ([`crate::session::authenticates_payloads`]).
    pub authenticates: bool,
    pub resident_bytes: u64,
    /// What the process has used since its start.
    pub process: ProcessUse,
    pub peers: Vec<PeerStatus>,
    /// Of a job with a tier.
    pub cache: Option<Box<super::CacheStatus>>,
}
