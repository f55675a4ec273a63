//! What happens later to files that were open: closes that travel together, mappings that are refreshed.

use std::sync::atomic::Ordering;
use std::time::Instant;

use hayase_layout::InodeId;
use hayase_wire::message::{Close, NodeRequest};

use super::Opens;
use crate::limits::WRITE_LINGER;
use crate::open_file::{Class, Linger};
use crate::volume::Drops;

impl Opens {
    /// Body of the closing thread.
    pub(in crate::volume::area) fn close_lingering(&self) {
        while let Some(ripe) = self.closer.next_due() {
            let now = Instant::now();
            let closes: Vec<Close> =
                ripe.into_iter().filter_map(|(due, ino)| self.begin_close(due, ino, now)).collect();
            if closes.is_empty() {
                continue;
            }
            let inos: Vec<InodeId> = closes.iter().map(|close| close.ino).collect();
            if let Err(error) = self.requests.link().call(&NodeRequest::Close(closes)) {
                tracing::warn!(%error, "closes were not delivered");
            }
            for ino in inos {
                self.end_close(ino);
            }
        }
    }

    fn begin_close(&self, due: Instant, ino: InodeId, now: Instant) -> Option<Close> {
        let mut shard = self.known.table().lock(ino);
        let node = shard.nodes.get_mut(&ino)?;
        if node.queued != Some(due) {
            return None; // An entry further on, or an earlier one, stands for it.
        }
        node.queued = None;
        let linger = if self.closer.is_crowded() { Linger::NONE } else { self.linger };
        let access = node.open.close_due(now, linger);
        if access.is_none()
            && let Some(due) = node.open.due(self.linger)
        {
            // Not yet, or an open is on its way.
            let due = if due <= now { now + WRITE_LINGER } else { due };
            node.queued = Some(self.closer.push(due, ino));
        }
        self.release_if_unheld(&mut shard, ino);
        // Under the inode's lock: what it is asked for from now on has a higher number.
        let as_of = self.opens_asked.load(Ordering::SeqCst);
        access.map(|access| Close { ino, access, as_of })
    }

    fn end_close(&self, ino: InodeId) {
        let mut shard = self.known.table().lock(ino);
        if let Some(node) = shard.nodes.get_mut(&ino) {
            node.open.closed();
            if node.open.is_unused() {
                shard.nodes.remove(&ino);
            } else {
                self.queue(&mut shard, ino);
            }
        }
        self.known.table().answered(ino, shard);
    }

    /// Body of the refreshing thread: pages of mappings live a second at most, also where no read(2) validates them.
    pub(in crate::volume::area) fn refresh_mappings(&self) {
        let has_remote = || self.remote_handles.load(Ordering::Relaxed) > 0;
        while self.closer.next_refresh(has_remote) {
            let (now, mut stale) = (Instant::now(), Vec::new());
            self.known.table().for_each(|shard| {
                let open = shard.nodes.iter_mut().filter(|(_, node)| {
                    node.open.is_open()
                        && node.open.class() == Some(Class::Remote)
                        && !node.cache
                        && node.validated.is_due(now)
                });
                stale.extend(open.map(|(ino, node)| {
                    node.validated.drop_pages(now);
                    *ino
                }));
            });
            for ino in stale {
                self.known.invalidate(ino, Drops::Pages);
            }
        }
    }
}
