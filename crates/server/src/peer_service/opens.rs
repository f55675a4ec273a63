//! Opens at their home, and what must be true before a part is called quiescent.

use std::rc::Rc;

use hayase_layout::{InodeId, Layout, NodeId};
use hayase_wire::message::{
    Access, CacheLine, Close, Explained, Grants, InodeRequest, OpenKind, Opened, Opening, PartRef,
    PartRequest, PeerReply, Refused,
};

use super::Answer;
use crate::convert::whole_part;
use crate::home::Event;
use crate::limits::CLOSES_AT_ONCE;
use crate::node::Node;
use crate::refusals::libc_errno;

impl Node {
    pub(crate) async fn open_inode(
        self: &Rc<Self>,
        from: NodeId,
        ino: InodeId,
        mut open: Opening,
        truncate: bool,
    ) -> Answer {
        let inode = self.meta.inode(ino)?;
        if !self.is_reachable(&inode, from) {
            return Err(Refused::new(libc_errno::ESTALE));
        }
        let _opening = self.cache.opening(ino);
        self.cache.before_open(ino, open.access, truncate).await?;
        // Bytes that MPI-IO keeps by writer are made whole first, by who asks.
        if matches!(inode.layout, Layout::Recorded { .. }) && (open.access.write || truncate) {
            return Ok(PeerReply::Stale);
        }
        // Only the part's own node can hand the part out.
        let local = open.kind == OpenKind::Local
            && from == self.node
            && inode.layout == Layout::Whole
            && (truncate || self.cache.is_here(ino));
        if open.kind == OpenKind::Local && !local {
            open.kind = OpenKind::Remote;
        }
        let access = open.access;
        let before = self.homes.held_by(ino, from);
        let given = self.home_open(ino, from, open).await;
        // O_RDONLY with O_TRUNC changes bytes without an open for writing.
        let _change = match truncate && !access.write {
            true => Some(self.home_change(ino, from, Grants::ALL).await),
            false => None,
        };
        match self.after_open(ino, access, truncate).await {
            Ok(attr) => Ok(PeerReply::Opened(Box::new(Opened {
                attr,
                grants: given.grants,
                writing: given.writing,
                descriptor: local,
            }))),
            Err(refused) => {
                // Half an open is none; what the node had open before, it still has.
                let access = Access {
                    read: access.read && !before.read,
                    write: access.write && !before.write,
                };
                let as_of = open.number;
                self.home_event(ino, Event::Close { node: from, access, as_of });
                Err(refused)
            }
        }
    }

    /// What an open does to the file. Its set-id bits are the asker's to take: only there it is known whether it may keep
    /// them.
    async fn after_open(
        self: &Rc<Self>,
        ino: InodeId,
        access: Access,
        truncate: bool,
    ) -> Result<hayase_wire::message::Attr, Refused> {
        self.settled(ino).await;
        let mut inode = self.meta.inode(ino)?;
        if matches!(inode.layout, Layout::Recorded { .. }) && (access.write || truncate) {
            // It became one since this open began: the kernel looks the name up again.
            return Err(Refused::new(libc_errno::ESTALE));
        }
        if truncate {
            self.truncate(&inode, 0).await?;
            inode = self.meta.inode(ino)?;
        }
        self.attr_of(&inode)
    }

    /// A few at a time: nobody waits for closes, but somebody may wait for this server.
    pub(super) async fn close_inodes(self: &Rc<Self>, from: NodeId, closes: &[Close]) -> Answer {
        for closes in closes.chunks(CLOSES_AT_ONCE) {
            for close in closes {
                let Close { access, as_of, .. } = *close;
                let event = Event::Close { node: from, access, as_of };
                self.home_event(close.ino, event);
            }
            self.reap_orphans(closes.iter().map(|close| close.ino));
            tokio::task::yield_now().await;
        }
        Ok(PeerReply::Done)
    }

    /// Whether nothing on this node writes the part of a `Whole` file any more, mappings included.
    pub(crate) async fn probe_part(self: &Rc<Self>, ino: InodeId) -> bool {
        let Ok(inode) = self.meta.inode(ino) else { return true };
        if inode.layout != Layout::Whole {
            return true;
        }
        // Descriptors that a mount keeps for the next open stand in the way of the lease.
        let (still_open, _) = self.clients.recall(ino, Grants::NONE).await;
        let (node, bits) = (self.node, Grants::NONE);
        self.home_event(ino, Event::Returned { node, bits, still_open });
        if still_open.access.write {
            return false;
        }
        let part = whole_part(ino, inode.layout_epoch);
        self.data.is_quiescent(part).await
    }

    pub(super) async fn explain(self: &Rc<Self>, ino: InodeId) -> Answer {
        let inode = self.meta.inode(ino)?;
        let attr = self.attr_of(&inode)?;
        let (state, opens) = self.homes.describe(ino);
        let opens = opens
            .into_iter()
            .map(|(node, held)| {
                let class = if held.local { "local" } else { "remote" };
                (node, held.access().read, held.access().write, class.to_owned())
            })
            .collect();
        let mut parts = Vec::new();
        match &inode.layout {
            // Attributes show blocks of a file of which only the tier has bytes, so that nobody takes it for a hole.
            Layout::Whole if self.cache.only_in_tier(ino).is_some() => parts.push((self.me.0, 0)),
            Layout::Whole => parts.push((self.me.0, attr.blocks * 512)),
            Layout::Striped { servers, .. } => {
                for (index, server) in servers.iter().enumerate() {
                    let part =
                        PartRef { ino, layout_epoch: inode.layout_epoch, index: index as u16 };
                    let blocks = match self.rpc.ask(*server, PartRequest::Blocks { part }).await {
                        Ok(PeerReply::Count(blocks)) => blocks,
                        _ => 0,
                    };
                    parts.push((server.0, blocks * 512));
                }
            }
            Layout::Recorded { .. } => {
                for (name, part) in self.files_of_recorded(&inode).await? {
                    let is_part = hayase_container::Gathered::part_of(&name).is_some();
                    let request = InodeRequest::GetAttr { ino: part };
                    if is_part
                        && let Ok(PeerReply::Attr { attr, .. }) =
                            self.rpc.ask(part.home(), request).await
                    {
                        parts.push((part.home().0, attr.blocks * 512));
                    }
                }
            }
            _ => {}
        }
        let record = self.cache.get().and_then(|cache| cache.record(ino));
        let cache = record.map(|record| CacheLine {
            path: record.path,
            state: record.state.word().to_owned(),
            bytes: attr.size,
            errno: record.errno,
            attempts: record.attempts,
        });
        Ok(PeerReply::Explained(Box::new(Explained { attr, state, opens, parts, cache })))
    }
}
