//! The end of parts: after the end of their names is durable, never before.

use std::rc::Rc;
use std::sync::Arc;

use hayase_store::{Namespace, PartId, RemovalError, ops};
use hayase_wire::message::Refused;

use super::Data;
use crate::convert::part_refused;
use crate::limits::REMOVAL_DELAY;
use crate::refusals::libc_errno;

impl Data {
    /// A power cut must not bring a name back without its bytes: names first, then the part.
    pub(crate) fn remove_later(self: &Rc<Self>, part: PartId) {
        if self.removal.push(part) {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                // One sync of the names serves all that are removed meanwhile.
                if this.usage.is_roomy() {
                    tokio::time::sleep(REMOVAL_DELAY).await;
                }
                let removal = Arc::clone(&this.removal);
                let refused =
                    |error: RemovalError| Refused::because(libc_errno::EIO, error.to_string());
                if let Err(error) = this.disk.run(move || removal.run().map_err(refused)).await {
                    tracing::error!(%error, "parts that nobody needs could not be removed");
                }
                this.usage.changed();
            });
        }
    }

    /// Of this home's files. A file may be made while the names are synced, which has its part first: so they are looked
    /// for again after that, and then nothing is waited for.
    pub(crate) async fn remove_own_strays(&self, parts: &[PartId]) -> Result<usize, Refused> {
        let candidates = strays_of(self.meta.store(), parts);
        if candidates.is_empty() {
            return Ok(0);
        }
        self.meta.disk.sync().await?;
        let strays = strays_of(self.meta.store(), &candidates);
        for part in &strays {
            tracing::debug!(%part, "a part without a file");
            self.parts.remove(*part).map_err(part_refused)?;
        }
        Ok(strays.len())
    }
}

/// Those of which there is no record in the names of their home.
fn strays_of(names: &Namespace, parts: &[PartId]) -> Vec<PartId> {
    let txn = names.begin();
    let is_stray = |part: &PartId| matches!(ops::get_inode(&txn, part.ino), Ok(None));
    parts.iter().copied().filter(is_stray).collect()
}
