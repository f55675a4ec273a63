//! What a server is told at its start.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hayase_layout::{Groups, NodeId, ServerId};
use hayase_store::Area;
use hayase_tier::Tier;
use hayase_wire::Secret;

/// One server of one job.
pub struct Settings {
    /// Its number in the job.
    pub server: ServerId,
    /// The node that it serves.
    pub node: NodeId,
    /// Servers of the job.
    pub servers: u16,
    /// Which of them have storage, and whose storage the others use.
    pub groups: Groups,
    /// Its host, for people.
    pub host: String,
    /// The job's secret.
    pub secret: Secret,
    /// Larger each time the server is started, so that old news of it are known as such.
    pub start_id: u64,
    /// The node's socket, in a directory that only the owner may enter.
    pub socket: PathBuf,
    /// Addresses to listen on, best first; ports are chosen by the kernel unless `port` is given.
    pub listen: Vec<IpAddr>,
    /// 0: any free port.
    pub port: u16,
    /// Where the members meet; seen by all nodes.
    pub job_dir: PathBuf,
    /// The node's share of `shared`: `parts/` and `meta/` are kept in its root.
    pub area: Box<dyn Area>,
    /// Mounts of the node's that connect: after a restart they are waited for.
    pub mounts: u16,
    /// The cache area, when the job has a tier.
    pub cache: Option<CacheSettings>,
    /// Encrypt what travels between servers, not only authenticate it.
    pub encrypt: bool,
    /// After this long an operation over several servers that is not finished is taken over by who
    /// finds its intent ([`Settings::INTENT_AGE`]).
    pub intent_age: Duration,
    /// How long to wait for the other servers at the start.
    pub wait: Duration,
}

impl Settings {
    /// Whoever carries such an operation out has finished, or given up, after this.
    pub const INTENT_AGE: Duration = crate::limits::INTENT_AGE;
}

/// The cache area of a job.
pub struct CacheSettings {
    /// What it stands in front of.
    pub tier: Arc<dyn Tier>,
    /// Where bytes must be when fsync(2) returns.
    pub durable_at: DurableAt,
    /// When the job ends, as far as anybody knows.
    pub deadline: Option<SystemTime>,
}

/// What fsync(2) of a file in the cache area promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DurableAt {
    /// The node's storage has the bytes: they survive a restart of the node.
    #[default]
    Node,
    /// The tier has them: they survive the job.
    Tier,
}
