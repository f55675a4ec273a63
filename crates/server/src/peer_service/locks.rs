//! Locks at their home: carries out what [`crate::locks`] decides.

use std::rc::Rc;

use hayase_layout::{InodeId, NodeId, ServerId};
use hayase_wire::message::{
    Lock, LockAnswer, LockHeld, LockRange, PeerReply, PeerRequest, Refused,
};

use super::Answer;
use crate::locks::{LockOwner, Outcome, Ticket, Wish};
use crate::node::{Node, libc_errno};

impl Node {
    pub(super) fn lock_here(
        self: &Rc<Self>,
        ino: InodeId,
        wish: Wish,
        ticket: Option<u64>,
    ) -> Answer {
        self.inode(ino)?;
        let LockOwner { node, process, .. } = wish.owner;
        let ticket = ticket.map(|number| Ticket { node, process, number });
        let (outcome, granted) = self.locks.borrow_mut().lock(ino, wish, ticket);
        self.call_tickets(granted);
        let refused = |errno| Err(Refused::new(errno));
        match outcome {
            Outcome::Granted => Ok(PeerReply::Locked(LockAnswer::Granted)),
            Outcome::Waits => Ok(PeerReply::Locked(LockAnswer::Waits)),
            Outcome::Held => refused(libc_errno::EAGAIN),
            Outcome::Deadlock => refused(libc_errno::EDEADLK),
            Outcome::TooMany => refused(libc_errno::ENOLCK),
        }
    }

    pub(super) fn unlock_here(
        self: &Rc<Self>,
        ino: InodeId,
        owner: LockOwner,
        range: LockRange,
    ) -> PeerReply {
        let granted = self.locks.borrow_mut().unlock(ino, owner, range);
        self.call_tickets(granted);
        PeerReply::Done
    }

    pub(super) fn test_lock_here(&self, ino: InodeId, wish: &Wish) -> PeerReply {
        let held = self.locks.borrow().test(ino, wish);
        PeerReply::LockHeld(held.map(|(owner, held)| LockHeld {
            node: owner.node,
            kind: held.kind,
            range: held.range,
            pid: held.pid,
        }))
    }

    pub(super) fn cancel_lock_here(self: &Rc<Self>, ino: InodeId, ticket: Ticket) -> PeerReply {
        let (waited, granted) = self.locks.borrow_mut().cancel(ino, ticket);
        self.call_tickets(granted);
        PeerReply::Cancelled(waited)
    }

    pub(super) fn release_locks_here(self: &Rc<Self>, node: NodeId, process: u64) -> PeerReply {
        self.release_locks_of(|owner| owner.node == node && owner.process == process);
        PeerReply::Done
    }

    fn release_locks_of(self: &Rc<Self>, is_gone: impl Fn(&LockOwner) -> bool) {
        let granted = self.locks.borrow_mut().release(is_gone);
        self.call_tickets(granted);
    }

    /// Tells those who waited. A node that can not be told is lost, and so are its locks.
    fn call_tickets(self: &Rc<Self>, tickets: Vec<Ticket>) {
        for Ticket { node, process, number } in tickets {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                let told = PeerRequest::LockGranted { process, ticket: number };
                if let Err(error) = this.ask(ServerId(node.0), told).await {
                    tracing::warn!(%node, %error, "a lock was granted to a node that is lost");
                    this.release_locks_of(|owner| owner.node == node);
                }
            });
        }
    }
}

/// A lock as its home sees it: of a process of the asking node.
pub(super) fn wish_of(node: NodeId, process: u64, lock: Lock) -> Wish {
    let Lock { owner: id, kind, range, pid } = lock;
    Wish { owner: LockOwner { node, process, id }, kind, range, pid }
}
