//! Flush and eviction of single files, for a process of this node.

use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_wire::message::{CacheRequest, Flushed, NodeReply, PeerReply, Refused};

use super::Served;
use crate::node::Node;
use crate::refusals::{libc_errno, unexpected};
use crate::settings::DurableAt;

impl Node {
    /// How far the flush of a file is; begins it where nothing stands against it.
    pub(super) async fn flush_file(self: &Rc<Self>, ino: InodeId) -> Result<Flushed, Refused> {
        check_cached(ino)?;
        match self.rpc.ask(ino.home(), CacheRequest::Flush { ino }).await? {
            PeerReply::Flushed(flushed) => Ok(flushed),
            other => Err(unexpected(&other)),
        }
    }

    /// fsync(2) where it promises that the tier has the bytes: waits for that, and tells why it can
    /// not be.
    pub(super) async fn sync_to_tier(self: &Rc<Self>, ino: InodeId) -> Result<(), Refused> {
        let is_asked = self.cache.of(ino).is_some_and(|cache| cache.durable_at == DurableAt::Tier);
        if !is_asked {
            return Ok(());
        }
        let mut wanted = None;
        loop {
            match self.rpc.ask(ino.home(), CacheRequest::Sync { ino, round: wanted }).await? {
                PeerReply::Flushed(Flushed::Durable) => return Ok(()),
                PeerReply::Flushed(Flushed::Failed { errno, .. }) => {
                    return Err(Refused::new(errno));
                }
                PeerReply::Flushing { round } => wanted = Some(round),
                other => return Err(unexpected(&other)),
            }
        }
    }

    pub(super) async fn evict_file(self: &Rc<Self>, ino: InodeId) -> Served {
        check_cached(ino)?;
        match self.rpc.ask(ino.home(), CacheRequest::Evict { ino }).await? {
            PeerReply::Ready(true) => Ok(NodeReply::Done),
            PeerReply::Ready(false) => Err(Refused::because(libc_errno::EBUSY, "it is open")),
            other => Err(unexpected(&other)),
        }
    }
}

fn check_cached(ino: InodeId) -> Result<(), Refused> {
    match ino.is_cached() {
        true => Ok(()),
        false => Err(Refused::because(libc_errno::EOPNOTSUPP, "it is not in the cache area")),
    }
}
