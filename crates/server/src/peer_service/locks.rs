//! Locks at their home: carries out what [`crate::locks`] decides.

use std::rc::Rc;

use hayase_layout::{InodeId, NodeId, ServerId};
use hayase_wire::message::{
    HeldLock, Lock, LockAnswer, LockHeld, LockRange, LockRequest, PeerReply, Refused,
};

use super::Answer;
use crate::limits::LOCKS_KNOWN_WAIT;
use crate::locks::{LockOwner, Outcome, Ticket, Wish};
use crate::node::Node;
use crate::refusals::libc_errno;

impl Node {
    /// Waits until it is known who holds locks here.
    pub(super) async fn wait_for_locks(&self) -> Result<(), Refused> {
        let known = tokio::time::timeout(LOCKS_KNOWN_WAIT, self.rpc.grace.locks_known()).await;
        let why = "a node that may hold this lock does not answer";
        known.map_err(|_| Refused::because(libc_errno::EIO, why))
    }

    pub(super) fn lock_here(
        self: &Rc<Self>,
        ino: InodeId,
        wish: Wish,
        ticket: Option<u64>,
    ) -> Answer {
        self.meta.inode(ino)?;
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

    /// Of a node that waited when this home, or its own server, was started anew.
    pub(crate) fn wait_for_lock_again(self: &Rc<Self>, node: NodeId, held: HeldLock) {
        let HeldLock { ino, process, lock, ticket } = held;
        let ticket = ticket.map(|number| Ticket { node, process, number });
        let wish = wish_of(node, process, lock);
        let (outcome, mut granted) = self.locks.borrow_mut().lock(ino, wish, ticket);
        match outcome {
            Outcome::Granted => granted.extend(ticket),
            Outcome::Waits => {}
            other => {
                tracing::warn!(%ino, ?other, "failed to grant a lock that a process waits for");
            }
        }
        self.call_tickets(granted);
    }

    /// Of a node that held it: while nobody else may have been granted it, it may have it again; else
    /// only what it still has.
    pub(crate) fn hold_lock_again(
        self: &Rc<Self>,
        node: NodeId,
        held: HeldLock,
        nobody_else: bool,
    ) -> bool {
        let HeldLock { ino, process, lock, .. } = held;
        let wish = wish_of(node, process, lock);
        let is_held = self.locks.borrow().holds(ino, &wish);
        if is_held || !nobody_else {
            return is_held;
        }
        let (outcome, granted) = self.locks.borrow_mut().lock(ino, wish, None);
        self.call_tickets(granted);
        outcome == Outcome::Granted
    }

    pub(crate) fn release_locks_of(self: &Rc<Self>, is_gone: impl Fn(&LockOwner) -> bool) {
        let granted = self.locks.borrow_mut().release(is_gone);
        self.call_tickets(granted);
    }

    /// Tells those who waited. A node that can not be told is lost, and so are its locks.
    fn call_tickets(self: &Rc<Self>, tickets: Vec<Ticket>) {
        for Ticket { node, process, number } in tickets {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                let told = LockRequest::Granted { process, ticket: number };
                if let Err(error) = this.rpc.ask(ServerId(node.0), told).await {
                    // It asks again when it is back; if it never is, its locks end with it.
                    tracing::warn!(%node, %error, "failed to tell a node that it holds a lock");
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
