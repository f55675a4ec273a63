//! What a server does for the processes of its node.
//!
//! Rooms: [`names`], [`create`], [`open`], [`listing`], [`read_write`] with [`striped`] and [`recorded`] files,
//! [`gathering`] of small writes.

mod cache;
mod create;
mod gathering;
mod listing;
mod locks;
mod names;
mod open;
mod read_write;
mod reclaim;
mod recorded;
mod room;
mod striped;

pub(crate) use self::read_write::Attempt;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_wire::message::{
    AreaUse, FileRequest, InodeRequest, LockRequest, NodeReply, NodeRequest, OnceId, PeerReply,
    PeerRequest, Refused, ServerRequest, SlotRange,
};

use crate::beside::Changes;
use crate::clients::Process;
use crate::lent::LentSlot;
use crate::node::Node;
use crate::refusals::{libc_errno, unexpected};

/// A reply, the descriptor of a part where one goes with it, and what is left to do.
pub(crate) struct NodeAnswer {
    pub(crate) reply: NodeReply,
    pub(crate) descriptor: Option<OwnedFd>,
    pub(crate) rest: Option<Rest>,
}

/// Done when the reply is on its way, at the latest, and before anything of who asked is served: nobody
/// who was told can find it undone, and who asked need not wait for it.
pub(crate) type Rest = Box<dyn FnOnce()>;

impl From<NodeReply> for NodeAnswer {
    fn from(reply: NodeReply) -> Self {
        Self { reply, descriptor: None, rest: None }
    }
}

impl NodeAnswer {
    /// The reply alone, with all of it done.
    pub(crate) fn completed(self) -> NodeReply {
        if let Some(rest) = self.rest {
            rest();
        }
        self.reply
    }
}

type Served = Result<NodeReply, Refused>;

impl Node {
    /// One request of a process. Never fails: a refusal is an answer.
    pub(crate) async fn serve_process(
        self: &Rc<Self>,
        process: &Rc<Process>,
        request: NodeRequest,
    ) -> NodeAnswer {
        self.activity.request();
        self.look_at_counters();
        self.cache.stir_flusher();
        let (request, once) = match request {
            NodeRequest::Once { slot, number, request } => {
                (*request, Some(OnceId { process: process.id, slot, number }))
            }
            other => (other, None),
        };
        if !process.may_ask(&request).await {
            let why = "this process has not said what it holds since the server was restarted";
            return NodeReply::Refused(Refused::because(libc_errno::EIO, why)).into();
        }
        self.looks_beside(process, &request).await;
        let changes = Changes::by(process, &self.clients, &request);
        if let Some(changes) = &changes {
            self.before_changes_beside(changes).await;
        }
        let answer = match request {
            NodeRequest::Create(node) => self.create(process, node, once).await,
            NodeRequest::Open { ino, open, truncate } => {
                self.open(process, ino, open, truncate).await
            }
            NodeRequest::Remove { parent, name, directory } => {
                self.remove(Some(process), parent, name, directory, once).await
            }
            other => self.serve_plain(process, other, once).await.map(NodeAnswer::from),
        };
        let mut answer = answer.unwrap_or_else(|refused| NodeReply::Refused(refused).into());
        if let Some(changes) = changes {
            self.changed_beside(changes, &answer.reply).await;
        }
        self.clients.limit_grants(process, &mut answer.reply);
        answer
    }

    async fn serve_plain(
        self: &Rc<Self>,
        process: &Rc<Process>,
        request: NodeRequest,
        once: Option<OnceId>,
    ) -> Served {
        use NodeRequest as R;
        match request {
            R::Lookup { parent, name } => self.lookup(parent, name).await,
            R::GetAttr { ino } => self.get_attributes(ino).await,
            R::SetAttr { ino, change } => self.set_attributes(ino, change).await,
            R::Link { ino, parent, name } => self.link(process, ino, (parent, name), once).await,
            R::Rename { from, to, no_replace, exchange } => {
                self.move_name(process, (from, to), no_replace, exchange, once).await
            }
            R::ReadDir { dir, cookie, bytes, plus } => {
                self.read_dir(dir, cookie, bytes, plus).await
            }
            R::Close(closes) => {
                self.close_all(process, closes).await;
                Ok(NodeReply::Done)
            }
            R::Lock { ino, lock, ticket } => self.lock(process, ino, lock, ticket).await,
            R::Unlock { ino, owner, range } => {
                self.at_home(ino, LockRequest::Unlock { ino, process: process.id, owner, range })
                    .await
            }
            R::TestLock { ino, lock } => self.test_lock(process, ino, lock).await,
            R::CancelLock { ino, ticket } => {
                self.at_home(ino, LockRequest::Cancel { ino, process: process.id, ticket }).await
            }
            R::Read { ino, offset, into } => {
                let read = self.read(process, ino, offset, into).await;
                process.lent.until_returned(into.slot).await;
                read
            }
            R::Write { ino, offset, from } => {
                let written = self.write(process, ino, offset, from).await;
                process.lent.until_returned(from.slot).await;
                written
            }
            R::Gather { ino, at, len } => self.gather_writes(process, ino, at, len).await,
            R::WriteGathered { ino, offset, from, after } => {
                let written = self.write_gathered(process, ino, offset, from, after).await;
                process.lent.until_returned(from.slot).await;
                written
            }
            R::Append { ino, from } => {
                let appended = self.append(process, ino, from).await;
                process.lent.until_returned(from.slot).await;
                appended
            }
            R::Recorded { ino, step } => self.recorded(ino, step).await,
            R::CopyRange { from, to, len } => self.copy_range(from, to, len).await,
            R::Reclaim(holding) => self.reclaim_process(process, *holding).await,
            other => self.serve_home(other, once).await,
        }
    }

    /// Requests that go to the inode's home as they are.
    async fn serve_home(self: &Rc<Self>, request: NodeRequest, once: Option<OnceId>) -> Served {
        use {FileRequest as F, InodeRequest as I, NodeRequest as N};
        match request {
            N::ReadLink { ino } => self.at_home(ino, I::ReadLink { ino }).await,
            N::Allocate { ino, mode, offset, len } => {
                self.at_home(ino, F::Allocate { ino, mode, offset, len }).await
            }
            N::Seek { ino, offset, whence } => {
                self.at_home(ino, F::Seek { ino, offset, whence }).await
            }
            N::Fsync { ino, data_only } => self.fsync_for(ino, data_only).await,
            N::Flush { ino } => Ok(NodeReply::Flushed(self.flush_file(ino).await?)),
            N::Evict { ino } => self.evict_file(ino).await,
            N::GetXattr { ino, name } => self.at_home(ino, I::GetXattr { ino, name }).await,
            N::SetXattr { ino, name, value, mode } => {
                self.at_home(ino, I::SetXattr { ino, name, value, mode, once }).await
            }
            N::ListXattr { ino } => self.at_home(ino, I::ListXattr { ino }).await,
            N::RemoveXattr { ino, name } => {
                self.at_home(ino, I::RemoveXattr { ino, name, once }).await
            }
            N::Explain { ino } => self.at_home(ino, I::Explain { ino }).await,
            N::StatFs => Ok(NodeReply::StatFs(self.total_usage().await)),
            N::StatFsOf { tree } => match self.rpc.ask(tree.home(), ServerRequest::StatFs).await? {
                PeerReply::StatFs(usage) => Ok(NodeReply::StatFs(usage)),
                other => Err(unexpected(&other)),
            },
            N::LostFiles { max } => {
                let (paths, total) = self.lost_files(max as usize).await?;
                Ok(NodeReply::LostFiles { paths, total })
            }
            N::Status => Ok(NodeReply::Status(Box::new(self.status()))),
            N::Checksums { after, most } => self.cache.checksums(after, most),
            N::History => {
                self.look_at_counters();
                Ok(NodeReply::History(self.activity.looks()))
            }
            N::Hello { .. } => Err(Refused::because(libc_errno::EPROTO, "said hello twice")),
            other => {
                tracing::error!(?other, "a request that nobody serves");
                Err(Refused::new(libc_errno::EPROTO))
            }
        }
    }

    async fn at_home(self: &Rc<Self>, ino: InodeId, request: impl Into<PeerRequest>) -> Served {
        Ok(match self.rpc.ask(ino.home(), request).await? {
            PeerReply::Done => NodeReply::Done,
            PeerReply::Target(target) => NodeReply::Target(target),
            PeerReply::Value(value) => NodeReply::Value(value),
            PeerReply::Names(names) => NodeReply::Names(names),
            PeerReply::Offset { offset, .. } => NodeReply::Offset(offset),
            PeerReply::Explained(explained) => NodeReply::Explained(explained),
            PeerReply::Locked(answer) => NodeReply::Locked(answer),
            PeerReply::Cancelled(waited) => NodeReply::Cancelled(waited),
            other => return Err(unexpected(&other)),
        })
    }

    /// `df`: the whole area, over all servers that answer.
    async fn total_usage(self: &Rc<Self>) -> AreaUse {
        let mut total = AreaUse::default();
        for (_, usage) in self.usage_of_all().await {
            total.total += usage.total;
            total.free += usage.free;
            total.inodes += usage.inodes;
            total.inodes_free += usage.inodes_free;
        }
        total
    }

    /// The bytes of an arena slot that a request names, until they are dropped.
    pub(crate) fn slot(process: &Process, range: SlotRange) -> Result<LentSlot, Refused> {
        let arena = process.arena.borrow();
        let arena = arena
            .as_ref()
            .ok_or_else(|| Refused::because(libc_errno::EBADF, "this process brought no arena"))?;
        let slot = arena
            .slot(range.slot, range.len)
            .map_err(|error| Refused::because(libc_errno::EINVAL, error.to_string()))?;
        Ok(process.lent.lend(slot))
    }
}
