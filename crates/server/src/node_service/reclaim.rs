//! Processes of this node that were here before: what they still have open and locked.

use std::rc::Rc;

use hayase_wire::message::{
    HeldLock, HeldOpen, Holding, InodeRequest, LockAnswer, LockRequest, NodeReply, PeerReply,
};

use super::Served;
use crate::clients::Process;
use crate::node::Node;

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
                false if !self.rpc.grace.is_own_known() => true,
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
                self.rpc.grace.own_told(process.id);
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
            match this.rpc.ask(ino.home(), wait).await {
                Ok(PeerReply::Locked(LockAnswer::Granted)) => {
                    this.clients.lock_granted(process, number).await;
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
            false if !self.rpc.grace.is_own_known() => true,
            false => {
                let open = by_node.open;
                let request = InodeRequest::Open { ino, open, truncate: false };
                self.rpc.ask(ino.home(), request).await.is_ok()
            }
        };
        if agreed {
            on_its_way.booked(process);
        }
        agreed
    }
}
