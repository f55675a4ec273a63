//! Processes of this node that were here before: what they still have open and locked.

use std::rc::Rc;

use hayase_layout::{InodeId, ServerId};
use hayase_wire::message::{
    Callback, CallbackReply, HeldLock, HeldOpen, Holding, InodeRequest, LockAnswer, LockRequest,
    NodeReply, PeerReply, Refused,
};

use super::Served;
use crate::clients::Process;
use crate::limits::RECALL_DEADLINE;
use crate::node::Node;
use crate::refusals::libc_errno;

impl Node {
    /// What a process holds, told to a server that does not know it.
    pub(super) async fn reclaim_process(
        self: &Rc<Self>,
        process: &Rc<Process>,
        holding: Holding,
    ) -> Served {
        let mut lost = Vec::new();
        for held in &holding.opens {
            if !self.reclaim_open_here(process, *held).await {
                lost.push(held.ino);
            }
        }
        for held in holding.locks {
            process.lock_homes.borrow_mut().insert(held.ino.home());
            let held = HeldLock { process: process.id, ..held };
            let kept = match held.ino.home() == self.me {
                true => self.reclaim_lock(self.node, held),
                // Another home has not forgotten it; with the session it is told so.
                false if !self.grace.is_own_known() => true,
                // Told without it, the home has released it.
                false => self.wait_elsewhere_again(held),
            };
            if !kept {
                lost.push(held.ino);
            }
        }
        if holding.last {
            process.has_told();
            if process.mount {
                self.grace.own_told(process.id);
            }
        }
        process.lost.borrow_mut().extend(&lost);
        Ok(NodeReply::Reclaimed { lost })
    }

    /// Who waited waits again; false for what was held.
    fn wait_elsewhere_again(self: &Rc<Self>, held: HeldLock) -> bool {
        let HeldLock { ino, process, lock, ticket } = held;
        let Some(number) = ticket else { return false };
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let wait = LockRequest::Lock { ino, process, lock, ticket };
            match this.ask(ino.home(), wait).await {
                Ok(PeerReply::Locked(LockAnswer::Granted)) => {
                    this.lock_granted(process, number).await;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%ino, %error, "failed to grant a lock that a process waits for");
                }
            }
        });
        true
    }

    async fn reclaim_open_here(self: &Rc<Self>, process: &Rc<Process>, held: HeldOpen) -> bool {
        let HeldOpen { ino, open } = held;
        let _ordered = self.inode_locks_of_opens.lock(ino).await;
        let on_its_way = self.clients.asks(ino, open);
        let by_node = HeldOpen { ino, open: on_its_way.by_node() };
        // With the session that has not begun yet its home is told of all of them at once.
        let agreed = match ino.home() == self.me {
            true => self.reclaim_open(self.node, by_node).await,
            false if !self.grace.is_own_known() => true,
            false => {
                let open = by_node.open;
                let request = InodeRequest::Open { ino, open, truncate: false };
                self.ask(ino.home(), request).await.is_ok()
            }
        };
        if agreed {
            on_its_way.booked(process);
        }
        agreed
    }

    /// A home may have forgotten what it granted: nothing of it is used any more when this returns.
    pub(crate) async fn home_lost(&self, home: ServerId) {
        for mount in self.clients.mounts() {
            let lost = Callback::HomeLost { home };
            match tokio::time::timeout(RECALL_DEADLINE, mount.call(&lost)).await {
                Ok(Some(CallbackReply::Told)) => {}
                other => tracing::warn!(%home, ?other, "a mount did not give back in time"),
            }
        }
    }

    /// What this node has locked at a home. Not asked together with giving back: that may wait for a
    /// write that waits for the home, and locks that are not told are lost.
    ///
    /// # Errors
    /// `EIO` when a mount that is there does not say.
    pub(crate) async fn locks_at(&self, home: ServerId) -> Result<Vec<HeldLock>, Refused> {
        let mut locks = Vec::new();
        for mount in self.clients.mounts() {
            let asked = Callback::LocksAt { home };
            match tokio::time::timeout(RECALL_DEADLINE, mount.call(&asked)).await {
                Ok(Some(CallbackReply::Holds { locks: held })) => {
                    let process = mount.id;
                    locks.extend(held.into_iter().map(|held| HeldLock { process, ..held }));
                }
                // Gone, and its locks with it.
                Ok(None) => {}
                other => {
                    tracing::warn!(%home, ?other, "a mount did not say what it has locked");
                    let why = "a mount of this node did not say what it has locked";
                    return Err(Refused::because(libc_errno::EIO, why));
                }
            }
        }
        Ok(locks)
    }

    /// A home is lost: who waits for a lock there waits in vain.
    pub(crate) async fn tell_home_dead(&self, home: ServerId) {
        for mount in self.clients.mounts() {
            if mount.call(&Callback::HomeDead { home }).await.is_none() {
                tracing::debug!("a mount that is gone waits for nothing");
            }
        }
    }

    /// Something that processes of this node held could not be given back.
    pub(crate) async fn tell_lost(&self, inodes: Vec<InodeId>) {
        if inodes.is_empty() {
            return;
        }
        tracing::warn!(inodes = inodes.len(), "opens or locks were lost");
        for mount in self.clients.mounts() {
            mount.lost.borrow_mut().extend(&inodes);
            for inodes in inodes.chunks(Holding::BATCH) {
                let lost = Callback::Lost { inodes: inodes.to_vec() };
                if mount.call(&lost).await.is_none() {
                    tracing::debug!("a mount that is gone has lost everything");
                }
            }
        }
    }
}
