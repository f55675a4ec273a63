//! Jobs of several kinds: what their storage, network and tier are.

use std::sync::Arc;
use std::time::Duration;

use hayase_layout::ByteCount;
use hayase_server::{DurableAt, KeptUntil};
use hayase_store::{CrashDevice, MemoryStore};
use hayase_tier::Tier;

use super::{Cluster, FrameFaults};

impl Cluster {
    /// Whose network does what `faults` say.
    pub(crate) fn up_with_faults(servers: u16, faults: &Arc<FrameFaults>) -> Self {
        let mut cluster = Self::empty();
        cluster.faults = Some(Arc::clone(faults));
        cluster.started(servers)
    }

    /// With the cache area in front of `tier`.
    pub(crate) fn up_with_tier(servers: u16, tier: Arc<dyn Tier>) -> Self {
        let mut cluster = Self::empty();
        cluster.tier = Some(tier);
        cluster.started(servers)
    }

    /// The same, where files that are open are flushed at once, as they stand.
    pub(crate) fn up_flushing_open(servers: u16, tier: Arc<dyn Tier>) -> Self {
        let mut cluster = Self::empty();
        (cluster.tier, cluster.flush_open) = (Some(tier), Some(Duration::ZERO));
        cluster.started(servers)
    }

    /// The same, where fsync promises that the tier has the bytes.
    pub(crate) fn up_syncing(servers: u16, tier: Arc<dyn Tier>) -> Self {
        let mut cluster = Self::empty();
        (cluster.tier, cluster.durable_at) = (Some(tier), DurableAt::Tier);
        cluster.started(servers)
    }

    /// The same, with little room on each server, and names that survive a restart.
    pub(crate) fn up_small(servers: u16, room: ByteCount, tier: Arc<dyn Tier>) -> Self {
        let mut cluster = Self::empty();
        (cluster.tier, cluster.room) = (Some(tier), room);
        cluster.names = in_memory(servers);
        cluster.started(servers)
    }

    /// With the cache area in front of `tier`, names in memory, and parts on storage that may lose what was not synced.
    pub(crate) fn up_on_crash_devices(servers: u16, tier: Arc<dyn Tier>) -> Self {
        let mut cluster = Self::empty();
        cluster.tier = Some(tier);
        cluster.names = in_memory(servers);
        cluster.devices = Some((0..servers).map(|_| Arc::new(CrashDevice::new())).collect());
        cluster.started(servers)
    }

    /// On disks that a test can slow down, names in memory; with the cache area where there is a tier.
    pub(crate) fn up_on_slow_disks(servers: u16, tier: Option<Arc<dyn Tier>>) -> Self {
        let mut cluster = Self::empty();
        cluster.tier = tier;
        cluster.names = in_memory(servers);
        cluster.slow = Some((0..servers).map(|_| Arc::default()).collect());
        cluster.started(servers)
    }

    /// With names in memory, which can be stopped at any commit.
    pub(crate) fn up_in_memory(servers: u16) -> Self {
        let mut cluster = Self::empty();
        cluster.names = in_memory(servers);
        cluster.started(servers)
    }

    /// The same; names of a directory leave its home when it says so.
    pub(crate) fn up_keeping_names(servers: u16, kept_until: KeptUntil) -> Self {
        let mut cluster = Self::empty();
        cluster.names = in_memory(servers);
        cluster.kept_until = kept_until;
        cluster.started(servers)
    }

    /// A job of servers whose names are in memory, none of which was started yet.
    pub(crate) fn down(servers: u16) -> Self {
        let mut cluster = Self::empty();
        cluster.names = in_memory(servers);
        cluster
    }

    /// Starts all of them.
    pub(crate) fn rise(&mut self, servers: u16) {
        self.start(servers);
    }
}

fn in_memory(servers: u16) -> Option<Vec<Arc<MemoryStore>>> {
    Some((0..servers).map(|_| Arc::new(MemoryStore::new())).collect())
}
