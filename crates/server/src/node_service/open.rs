//! Opens and closes of this node's processes, added up for the homes.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use hayase_layout::{InodeId, ServerId};
use hayase_wire::message::{
    Access, Close, InodeRequest, NodeReply, Opened, Opening, PeerReply, Refused, ServerRequest,
};

use super::NodeAnswer;
use crate::clients::Process;
use crate::node::Node;
use crate::refusals::{libc_errno, unexpected};

impl Node {
    pub(super) async fn open(
        self: &Rc<Self>,
        process: &Rc<Process>,
        ino: InodeId,
        open: Opening,
        truncate: bool,
    ) -> Result<NodeAnswer, Refused> {
        let (opened, descriptor) = self.open_old(process, ino, open, truncate).await?;
        let reply = NodeReply::Opened(Box::new(opened));
        Ok(NodeAnswer { descriptor, ..reply.into() })
    }

    /// Of a file that was there before, so that a mount of this node may know it.
    pub(super) async fn open_old(
        self: &Rc<Self>,
        process: &Rc<Process>,
        ino: InodeId,
        open: Opening,
        truncate: bool,
    ) -> Result<(Opened, Option<OwnedFd>), Refused> {
        let _beside = match open.access.write || truncate {
            true => self.writes_beside(process, ino).await,
            false => None,
        };
        self.open_for(process, ino, open, truncate).await
    }

    pub(super) async fn open_for(
        self: &Rc<Self>,
        process: &Rc<Process>,
        ino: InodeId,
        open: Opening,
        truncate: bool,
    ) -> Result<(Opened, Option<OwnedFd>), Refused> {
        if let Some(opened) = self.ask_open(process, ino, open, truncate).await? {
            return Ok(opened);
        }
        // Other programs than those that use MPI-IO write whole files.
        self.make_whole_at_home(ino, truncate.then_some(0)).await?;
        let again = || Refused::because(libc_errno::EBUSY, "it is being written by MPI-IO");
        self.ask_open(process, ino, open, truncate).await?.ok_or_else(again)
    }

    /// `None` when the home wants the file made whole first.
    async fn ask_open(
        self: &Rc<Self>,
        process: &Rc<Process>,
        ino: InodeId,
        open: Opening,
        truncate: bool,
    ) -> Result<Option<(Opened, Option<OwnedFd>)>, Refused> {
        // A close of this inode that is on its way to the home must not arrive after this open.
        let _ordered = self.inode_locks_of_opens.lock(ino).await;
        let on_its_way = self.clients.asks(ino, open);
        let mut opened = loop {
            match self.open_at_home(ino, on_its_way.by_node(), truncate).await {
                Ok(PeerReply::Opened(opened)) => break *opened,
                Ok(PeerReply::Stale) => return Ok(None),
                Ok(other) => return Err(unexpected(&other)),
                // To be written, and not here yet.
                Err(refused) if ino.is_cached() && refused.errno == libc_errno::EAGAIN => {
                    self.fetch_for_writing(ino).await?;
                }
                Err(refused) => return Err(refused),
            }
        };
        on_its_way.booked(process);
        self.files.learn(&opened.attr);
        let descriptor = match opened.descriptor {
            true => {
                self.data.direct.until_settled(opened.attr.ino).await;
                self.data.descriptor(&opened.attr, process.mount)
            }
            false => None,
        };
        opened.descriptor = descriptor.is_some();
        Ok(Some((opened, descriptor)))
    }

    /// Asks the home; where that is this server, without the box that any request has room in.
    async fn open_at_home(
        self: &Rc<Self>,
        ino: InodeId,
        open: Opening,
        truncate: bool,
    ) -> Result<PeerReply, Refused> {
        if ino.home() == self.me && self.rpc.grace.is_over() {
            return self.open_inode(self.node, ino, open, truncate).await;
        }
        self.rpc.ask(ino.home(), InodeRequest::Open { ino, open, truncate }).await
    }

    /// Ends opens of a process; the homes hear of what the whole node no longer has open.
    pub(crate) async fn close_all(self: &Rc<Self>, process: &Rc<Process>, closes: Vec<Close>) {
        let mut by_home: BTreeMap<ServerId, Vec<Close>> = BTreeMap::new();
        let mut ordered = Vec::new();
        let mut sorted = closes;
        sorted.sort_by_key(|close| close.ino);
        for close in sorted {
            ordered.push(self.inode_locks_of_opens.lock(close.ino).await);
            let access = self.clients.closed(process, close);
            if access != Access::default() {
                // Under the inode's lock: what the home is asked for from now on has a higher number.
                let close = Close { ino: close.ino, access, as_of: self.clients.asked() };
                by_home.entry(close.ino.home()).or_default().push(close);
            }
        }
        for (home, closes) in by_home {
            if let Err(error) = self.rpc.ask(home, InodeRequest::Close(closes)).await {
                tracing::warn!(%home, %error, "failed to deliver close notifications to a home");
            }
        }
        drop(ordered);
    }

    /// A connection of `process` ended; with the last one go its opens.
    pub(crate) async fn disconnected(self: &Rc<Self>, process: &Rc<Process>) {
        if !self.clients.left(process) {
            return;
        }
        self.names.sole_makers.left(process.id);
        self.release_locks(process).await;
        for server in process.once_at.take() {
            // Nobody waits: what is not forgotten costs a little room.
            let gone = ServerRequest::ProcessGone { process: process.id };
            tokio::task::spawn_local(self.rpc.ask(server, gone));
        }
        self.close_all(process, process.closes()).await;
    }
}
