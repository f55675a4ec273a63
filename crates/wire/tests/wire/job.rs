//! Members of one job, on a clock that stands still while nothing can happen.

use std::future::Future;

use hayase_layout::ServerId;
use hayase_wire::{Credentials, PeerIdentity, Secret};
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
    Credentials { secret: Secret::from_bytes([3; 32]), me, encrypt: false }
}
