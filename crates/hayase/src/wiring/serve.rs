//! The server of a node.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use hayase_layout::{NodeId, ServerId};
use hayase_server::{CacheSettings, DurableAt, TransportChoice};
use tokio::signal::unix::{SignalKind, signal};

use super::areas::open_shared;
use super::places;
use crate::job::addresses;
use crate::job::{FsyncAt, JobDir, KernelProfile, Settings, TransportName, random};
use crate::metrics::listener;

/// Serves until a signal ends it; calls `ready` once, when every server of the job is known.
pub(crate) fn serve(
    dir: &JobDir,
    settings: &Settings,
    node: u16,
    ready: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let server = hayase_server::Settings {
        server: ServerId(node),
        node: NodeId(node),
        servers: settings.nodes,
        groups: settings.groups(),
        host: settings.host(node),
        secret: dir.secret()?,
        nonce: u32::from_le_bytes(random()?),
        socket: dir.node(node).server_socket(),
        listen: addresses::of(settings, node)?,
        port: 0,
        job_dir: dir.path().to_owned(),
        area: open_shared(dir, settings, node)?,
        mounts: settings.mounts_of(node),
        cache: cache(settings, node)?,
        // io_uring came with Linux 5.1.
        direct_io: settings.direct_io
            && settings.kernel_profile.is_none_or(|profile| profile != KernelProfile::V4_18),
        transport: match settings.transport {
            TransportName::Auto => TransportChoice::Auto,
            TransportName::Tcp => TransportChoice::Tcp,
            TransportName::Ucx => TransportChoice::Ucx,
        },
        encrypt: settings.encrypt,
        intent_age: hayase_server::Settings::INTENT_AGE,
        kept_until: hayase_server::KeptUntil::default(),
        wait: Duration::from_millis(settings.timeout_ms),
    };
    let socket = server.socket.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("wait for signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("wait for signals")?;
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        if let Some(address) = settings.metrics_address(node) {
            let (job, host) = (settings.job.to_string(), settings.host(node));
            listener::listen(address, listener::Told { job, node, host, socket })?;
        }
        let ready = || {
            // Whoever started us is gone; the end follows by itself.
            if let Err(error) = ready() {
                tracing::warn!("{error:#}");
            }
        };
        hayase_server::serve(server, crate::exit::at_once, ready, stop).await?;
        anyhow::Ok(())
    })
}

/// What stands behind the cache area, if the job has one.
fn cache(settings: &Settings, node: u16) -> anyhow::Result<Option<CacheSettings>> {
    let Some(tier) = &settings.tier else { return Ok(None) };
    let owner = settings.owner_in_tier(node);
    let place = places::open_owned(tier, &owner).context("open the tier")?;
    let durable_at = match tier.fsync {
        FsyncAt::Node => DurableAt::Node,
        FsyncAt::Tier => DurableAt::Tier,
    };
    let deadline = tier.deadline_ms.map(|ms| UNIX_EPOCH + Duration::from_millis(ms));
    let flush_open = (tier.flush_open_s > 0).then(|| Duration::from_secs(tier.flush_open_s.into()));
    let tier = match tier.faults {
        Some(faults) => faults.around(place.tier),
        None => place.tier,
    };
    Ok(Some(CacheSettings { tier, durable_at, deadline, flush_open }))
}
