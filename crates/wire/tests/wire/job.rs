//! Members of one job, on a clock that stands still while nothing can happen.

use std::future::Future;
use std::sync::Arc;

use hayase_layout::ServerId;
use hayase_wire::{Credentials, KnownServer, KnownServers, PeerIdentity, Secret, ServerKey};
use tokio::task::LocalSet;

/// Runs a test; its time passes only while everybody waits for it.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(LocalSet::new().run_until(test));
}

/// Those of a server of the job.
pub(crate) fn credentials(server: ServerId) -> Credentials {
    let me = PeerIdentity { server, start_id: 7 };
    let secret = Secret::from_bytes([3; 32]);
    Credentials { secret, me, key: key(server), known: known(), encrypt: false }
}

/// By which a server of the job proves itself.
pub(crate) fn key(server: ServerId) -> ServerKey {
    ServerKey::of(Secret::from_bytes([100 + server.0 as u8; 32]))
}

/// The servers of the job.
pub(crate) fn known() -> Arc<KnownServers> {
    let known = |server: u16| KnownServer {
        host: format!("n{server}"),
        key: key(ServerId(server)).public(),
    };
    Arc::new((0..8).map(known).collect())
}
