//! What a server is told at its start.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hayase_layout::{Groups, NodeId, ServerId};
use hayase_store::Area;
use hayase_tier::Tier;
use hayase_wire::{Credentials, KnownServers, PeerIdentity, Secret, ServerKey};

use crate::names::kept_names::KeptUntil;
use crate::network::TransportChoice;

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
    /// Random: tells this start from one with other storage. (Which of two starts came later is
    /// counted in the storage itself.)
    pub nonce: u32,
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
    /// Move large requests past the page cache, where the kernel and the file system can.
    pub direct_io: bool,
    /// How it speaks to the other servers.
    pub transport: TransportChoice,
    /// Encrypt what travels between servers, not only authenticate it.
    pub encrypt: bool,
    /// After this long an operation over several servers that is not finished is taken over by who
    /// finds its intent ([`Settings::INTENT_AGE`]).
    pub intent_age: Duration,
    /// When names of a directory leave its home.
    pub kept_until: KeptUntil,
    /// How long to wait for the other servers at the start.
    pub wait: Duration,
}

impl Settings {
    /// Whoever carries such an operation out has finished, or given up, after this.
    pub const INTENT_AGE: Duration = crate::limits::INTENT_AGE;

    /// As whom the server is known in this incarnation.
    pub(crate) fn identity(&self, incarnation: u64) -> PeerIdentity {
        PeerIdentity { server: self.server, start_id: start_id(incarnation, self.nonce) }
    }

    /// With which `me` speaks to the `known` servers.
    pub(crate) fn credentials(
        &self,
        me: PeerIdentity,
        key: ServerKey,
        known: Arc<KnownServers>,
    ) -> Credentials {
        Credentials { secret: self.secret.clone(), me, key, known, encrypt: self.encrypt }
    }
}

/// Grows from start to start, whatever the clock says, so that old news of a server are known as such.
fn start_id(incarnation: u64, nonce: u32) -> u64 {
    incarnation << 32 | u64::from(nonce)
}

/// The cache area of a job.
pub struct CacheSettings {
    /// What it stands in front of.
    pub tier: Arc<dyn Tier>,
    /// Where bytes must be when fsync(2) returns.
    pub durable_at: DurableAt,
    /// When the job ends, as far as anybody knows.
    pub deadline: Option<SystemTime>,
    /// A file that stays open for writing for so long is flushed as it stands, again and again.
    pub flush_open: Option<Duration>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_ids_grow_whatever_is_random_in_them() {
        assert!(start_id(2, 0) > start_id(1, u32::MAX));
        assert_ne!(start_id(1, 4), start_id(1, 5), "other storage, another server");
        assert_ne!(start_id(1, 0), 0, "nobody is called so");
    }
}
