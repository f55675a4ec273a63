//! Locks of this node's processes, on their way to the homes and back.

use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_wire::message::{Lock, LockHeld, LockRequest, NodeReply, PeerReply};

use super::Served;
use crate::clients::Process;
use crate::node::Node;
use crate::refusals::unexpected;

impl Node {
    pub(super) async fn lock(
        self: &Rc<Self>,
        process: &Process,
        ino: InodeId,
        lock: Lock,
        ticket: Option<u64>,
    ) -> Served {
        process.lock_homes.borrow_mut().insert(ino.home());
        self.at_home(ino, LockRequest::Lock { ino, process: process.id, lock, ticket }).await
    }

    pub(super) async fn test_lock(
        self: &Rc<Self>,
        process: &Process,
        ino: InodeId,
        lock: Lock,
    ) -> Served {
        let request = LockRequest::Test { ino, process: process.id, lock };
        match self.rpc.ask(ino.home(), request).await? {
            PeerReply::LockHeld(held) => {
                // A pid of another node means nothing here.
                let pid = |held: &LockHeld| if held.node == self.node { held.pid } else { 0 };
                Ok(NodeReply::LockHeld(held.map(|held| LockHeld { pid: pid(&held), ..held })))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// A process is gone, and with it its locks.
    pub(crate) async fn release_locks(self: &Rc<Self>, process: &Process) {
        let homes = process.lock_homes.take();
        for home in homes {
            let request = LockRequest::Release { process: process.id };
            if let Err(error) = self.rpc.ask(home, request).await {
                tracing::warn!(%home, %error, "failed to tell a home that a process has ended");
            }
        }
    }
}
