//! The processes of this node: their arenas, their opens, and how to call them back.
//!
//! The home of an inode knows nodes, not processes: this table adds a node's processes up.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use hayase_layout::{InodeId, NodeId};
use hayase_wire::NodeChannel;
use hayase_wire::arena::Arena;
use hayase_wire::message::{Access, Callback, CallbackReply, Close, Grants};
use tokio::sync::{Mutex, Semaphore};

use crate::limits::RECALL_DEADLINE;
use crate::node::Node;

/// One process of this node.
pub(crate) struct Process {
    pub(crate) id: u64,
    /// Holds grants; anything else keeps nothing.
    pub(crate) mount: bool,
    pub(crate) arena: RefCell<Option<Rc<Arena>>>,
    connections: Cell<usize>,
    opens: RefCell<HashMap<InodeId, Access>>,
    callbacks: Mutex<Vec<NodeChannel>>,
    idle: Semaphore,
}

/// All processes of this node.
#[derive(Default)]
pub(crate) struct Clients {
    processes: RefCell<HashMap<u64, Rc<Process>>>,
    totals: RefCell<HashMap<InodeId, (u32, u32)>>,
}

impl Clients {
    /// The process with this number, known from now on until its last connection ends.
    pub(crate) fn process(&self, id: u64, mount: bool) -> Rc<Process> {
        let mut processes = self.processes.borrow_mut();
        let process = processes.entry(id).or_insert_with(|| {
            Rc::new(Process {
                id,
                mount,
                arena: RefCell::new(None),
                connections: Cell::new(0),
                opens: RefCell::default(),
                callbacks: Mutex::new(Vec::new()),
                idle: Semaphore::new(0),
            })
        });
        Rc::clone(process)
    }

    pub(crate) fn count(&self) -> usize {
        self.processes.borrow().len()
    }

    /// What this node has open of an inode, all processes together.
    pub(crate) fn open_here(&self, ino: InodeId) -> Access {
        let totals = self.totals.borrow();
        let (readers, writers) = totals.get(&ino).copied().unwrap_or_default();
        Access { read: readers > 0, write: writers > 0 }
    }

    /// Books an open of a process.
    pub(crate) fn opened(&self, process: &Process, ino: InodeId, access: Access) {
        let mut opens = process.opens.borrow_mut();
        let held = opens.entry(ino).or_default();
        let mut totals = self.totals.borrow_mut();
        let total = totals.entry(ino).or_default();
        total.0 += u32::from(access.read && !held.read);
        total.1 += u32::from(access.write && !held.write);
        held.read |= access.read;
        held.write |= access.write;
    }

    /// Books a close; returns what the whole node no longer has open.
    pub(crate) fn closed(&self, process: &Process, close: Close) -> Access {
        let mut opens = process.opens.borrow_mut();
        let Some(held) = opens.get_mut(&close.ino) else { return Access::default() };
        let ended = Access {
            read: held.read && close.access.read,
            write: held.write && close.access.write,
        };
        held.read &= !ended.read;
        held.write &= !ended.write;
        if *held == Access::default() {
            opens.remove(&close.ino);
        }
        let mut totals = self.totals.borrow_mut();
        let Some(total) = totals.get_mut(&close.ino) else { return Access::default() };
        total.0 -= u32::from(ended.read);
        total.1 -= u32::from(ended.write);
        let gone = Access { read: ended.read && total.0 == 0, write: ended.write && total.1 == 0 };
        if *total == (0, 0) {
            totals.remove(&close.ino);
        }
        gone
    }

    fn mounts(&self) -> Vec<Rc<Process>> {
        self.processes.borrow().values().filter(|process| process.mount).cloned().collect()
    }
}

impl Process {
    pub(crate) fn connect(&self) {
        self.connections.set(self.connections.get() + 1);
    }

    /// One more channel on which this process answers.
    pub(crate) async fn add_callback(&self, channel: NodeChannel) {
        self.callbacks.lock().await.push(channel);
        self.idle.add_permits(1);
    }

    /// Asks the process; `None` when it can not be asked (any more).
    async fn call(&self, callback: &Callback) -> Option<CallbackReply> {
        let permit = self.idle.acquire().await.ok()?;
        let mut channel = self.callbacks.lock().await.pop()?;
        let body = hayase_wire::encode(callback).ok()?;
        let answer = async {
            channel.send(&body, None).await.ok()?;
            let (body, _) = channel.recv().await.ok()?;
            hayase_wire::decode::<CallbackReply>(&body).ok()
        }
        .await;
        match answer {
            Some(reply) => {
                self.callbacks.lock().await.push(channel);
                Some(reply)
            }
            None => {
                // The channel is out of step or gone: one permit less.
                permit.forget();
                None
            }
        }
    }
}

impl Node {
    /// A connection of `process` ended; with the last one go its opens.
    pub(crate) async fn disconnected(self: &Rc<Self>, process: &Rc<Process>) {
        process.connections.set(process.connections.get() - 1);
        if process.connections.get() > 0 {
            return;
        }
        self.clients.processes.borrow_mut().remove(&process.id);
        self.sole_makers.left(process.id);
        process.idle.close();
        let opens: Vec<_> =
            process.opens.borrow().iter().map(|(ino, held)| (*ino, *held)).collect();
        let closes = opens.into_iter().map(|(ino, access)| Close { ino, access }).collect();
        self.close_all(process, closes).await;
    }

    /// As the node: gives back what its mounts hold; returns what the node still has open.
    pub(crate) async fn recall_here(self: &Rc<Self>, ino: InodeId, bits: Grants) -> Access {
        for mount in self.clients.mounts() {
            let recall = Callback::Recall { ino, bits };
            match tokio::time::timeout(RECALL_DEADLINE, mount.call(&recall)).await {
                Ok(Some(CallbackReply::Recalled { still_open })) => {
                    let held = mount.opens.borrow().get(&ino).copied().unwrap_or_default();
                    let access = Access {
                        read: held.read && !still_open.read,
                        write: held.write && !still_open.write,
                    };
                    self.clients.closed(&mount, Close { ino, access });
                }
                Ok(None) => tracing::debug!(%ino, "a mount that is gone was not asked"),
                other => tracing::warn!(%ino, ?other, "a mount did not give back in time"),
            }
        }
        self.clients.open_here(ino)
    }

    /// As the node: makes its mounts forget a name.
    pub(crate) async fn forget_name_here(&self, parent: InodeId, name: Vec<u8>) {
        let callback = Callback::InvalName { parent, name };
        for mount in self.clients.mounts() {
            if mount.call(&callback).await.is_none() {
                tracing::debug!("a mount that is gone knows no names");
            }
        }
    }

    pub(crate) fn is_this_node(&self, node: NodeId) -> bool {
        node == self.node
    }
}
