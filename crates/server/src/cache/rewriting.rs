//! Compacting the ledger's log in the background, while records are added.
//!
//! Its fsyncs are those of a thread for disks: what waits for them is this task, and nobody who changes a file. What makes
//! that safe is in [`hayase_store::Rewrite`] and what it leads to.

use hayase_wire::message::Refused;

use super::{Cache, ledger_refused};
use crate::disk::Disk;
use crate::limits::LEDGER_PAUSE;

/// Keeps the log of the ledger short, until the task is dropped.
pub(crate) async fn keep_short(cache: &Cache, disk: &Disk) {
    loop {
        cache.ledger_is_long.notified().await;
        if !cache.ledger.borrow().is_long() {
            continue;
        }
        if let Err(error) = rewrite(cache, disk).await {
            tracing::warn!(%error, "the log of the ledger stays long for now");
            tokio::time::sleep(LEDGER_PAUSE).await;
        }
    }
}

async fn rewrite(cache: &Cache, disk: &Disk) -> Result<(), Refused> {
    let rewrite = cache.ledger.borrow_mut().begin_rewrite();
    let written = disk.run(move || rewrite.write().map_err(ledger_refused)).await;
    let written = written.inspect_err(|_| cache.ledger.borrow_mut().give_up_rewrite())?;
    let replacement = cache.ledger.borrow_mut().end_rewrite(written).map_err(ledger_refused)?;
    match replacement {
        Some(log) => disk.run(move || log.settle().map_err(ledger_refused)).await,
        None => Ok(()),
    }
}
