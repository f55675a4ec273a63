//! Writing the ledger's log anew when it has become long, while it is written.
//!
//! Its fsyncs are those of a thread for disks: what waits for them is this task, and nobody who changes a file. What makes
//! that safe is in [`hayase_store::Rewrite`] and what it leads to.

use std::rc::Rc;

use hayase_wire::message::Refused;

use super::{Cache, ledger_refused};
use crate::limits::LEDGER_PAUSE;
use crate::node::Node;

impl Node {
    /// Keeps the log of the ledger short, until the task is dropped.
    pub(crate) async fn keep_ledger_short(self: Rc<Self>) {
        let Some(cache) = &self.cache else { return };
        loop {
            cache.ledger_is_long.notified().await;
            if !cache.ledger.borrow().is_long() {
                continue;
            }
            if let Err(error) = self.rewrite_ledger(cache).await {
                tracing::warn!(%error, "the log of the ledger stays long for now");
                tokio::time::sleep(LEDGER_PAUSE).await;
            }
        }
    }

    async fn rewrite_ledger(&self, cache: &Cache) -> Result<(), Refused> {
        let rewrite = cache.ledger.borrow_mut().begin_rewrite();
        let written = self.disk.run(move || rewrite.write().map_err(ledger_refused)).await;
        let written = written.inspect_err(|_| cache.ledger.borrow_mut().give_up_rewrite())?;
        let replacement = cache.ledger.borrow_mut().end_rewrite(written).map_err(ledger_refused)?;
        match replacement {
            Some(log) => self.disk.run(move || log.settle().map_err(ledger_refused)).await,
            None => Ok(()),
        }
    }
}
