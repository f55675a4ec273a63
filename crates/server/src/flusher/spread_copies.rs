//! Copies of files that lie on several nodes, striped or recorded, give their room back.
//!
//! Such a file that only the tier has is whole from then on: it is fetched like any other, by its home, and may come
//! into stripes again when it is to be changed ([`crate::cache`]). Order: the
//! ledger says durably that it is in the tier before the first of its parts goes, and goes on saying that it was striped
//! or recorded until the names say durably that it is whole. So whoever is killed or loses power in between goes on at
//! the next start, and nobody reads holes where parts were.

use std::collections::BTreeSet;
use std::rc::Rc;

use hayase_layout::{InodeId, Layout, ServerId};
use hayase_store::FileState;
use hayase_wire::message::{PartRef, PartRequest, Refused};

use crate::cache::Cache;
use crate::node::Node;

impl Node {
    /// Bytes of a file of this home that lies on several servers, and over how many.
    pub(super) fn spread_here(&self, cache: &Cache, ino: InodeId) -> Option<(u64, u64)> {
        let record = cache.record(ino)?;
        let width = match record.layout {
            Layout::Striped { servers, .. } => servers.len(),
            Layout::Recorded { .. } => {
                let homes = self.recorded.with(ino, |found| {
                    found.parts().map(|(_, part)| part.home()).collect::<BTreeSet<_>>().len()
                });
                homes.unwrap_or_default()
            }
            _ => return None,
        };
        let size = self.meta.inode(ino).map_or(record.bytes, |inode| inode.size);
        Some((size, width.max(1) as u64))
    }

    /// Of a file that the tier has and nobody has open; `publishing` is held.
    pub(super) async fn evict_spread(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
    ) -> Result<(), Refused> {
        cache.update(ino, |record| record.state = FileState::InTier)?;
        cache.ledger_durable().await?;
        self.only_in_tier_again(cache, ino).await
    }

    /// Evictions that were cut short, before anybody is served.
    pub(crate) async fn finish_evictions(self: &Rc<Self>) {
        let Some(cache) = self.cache.get() else { return };
        let is_half = |record: &hayase_store::LedgerRecord| {
            record.state == FileState::InTier && record.layout != Layout::Whole
        };
        for record in cache.records_where(is_half) {
            if let Err(error) = self.only_in_tier_again(cache, record.ino).await {
                tracing::error!(ino = %record.ino, %error, "a copy that was given up stays");
            }
        }
    }

    /// Nothing of it is here any more.
    pub(crate) async fn only_in_tier_again(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
    ) -> Result<(), Refused> {
        let before = self.meta.inode(ino)?;
        let is_spread = matches!(before.layout, Layout::Striped { .. } | Layout::Recorded { .. });
        if is_spread {
            // What somebody still knows of the parts is refused.
            self.meta.change_inode(ino, |inode| {
                // Parts of whole files of this area have epoch 0.
                (inode.layout, inode.layout_epoch) = (Layout::Whole, 0);
                inode.trunc_epoch += 1;
            })?;
            self.files.forget(ino);
            self.recorded.forget(ino);
        }
        if let Layout::Striped { servers, .. } = &before.layout {
            self.remove_stripes(ino, before.layout_epoch, servers)?;
        }
        self.meta.durable().await?;
        if let Layout::Recorded { container } = before.layout {
            // Who is killed before it is gone finds it at the next start.
            self.remove_container_later(container);
        }
        cache.update(ino, |record| record.layout = Layout::Whole)
    }

    /// Those of other servers go behind.
    pub(crate) fn remove_stripes(
        self: &Rc<Self>,
        ino: InodeId,
        layout_epoch: u32,
        servers: &[ServerId],
    ) -> Result<(), Refused> {
        for (server, index) in servers.iter().copied().zip(0..) {
            let part = PartRef { ino, layout_epoch, index };
            if server == self.me {
                self.data.remove(part)?;
                continue;
            }
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                if let Err(error) = this.rpc.ask(server, PartRequest::Remove { part }).await {
                    tracing::warn!(%server, %error, "a part could not be removed");
                }
            });
        }
        Ok(())
    }
}
