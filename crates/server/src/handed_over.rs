//! Removals that a mount hands over: this server tells the mount's kernel of their success itself.
//!
//! Who waits is woken from here, and the mount, whose thread would be woken only to pass the answer on,
//! hears of many at once. Everything else that comes of them goes to the mount as an answer.
//! Source: `docs/design/001-coherence.md`, "Which process answers an unlink".

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_wire::limits::IDLE_WORKERS_MAX;
use hayase_wire::message::{HandedBack, HandedOver, NodeReply, NodeRequest};
use hayase_wire::{Given, KernelDevice, NodeChannel, NodeSender, Workers};
use tokio::sync::Mutex;

use crate::clients::Process;
use crate::limits::{HANDED_BACK_AT_ONCE, HANDED_BACK_WAIT, HANDED_OVER_MAX};
use crate::node::Node;

/// One mount's connection.
struct Connection {
    process: Rc<Process>,
    /// None once the mount has left: its kernel must find that out.
    device: RefCell<Option<KernelDevice>>,
    workers: Workers<HandedOver>,
    back: RefCell<HandedBack>,
    /// Somebody sends what is in `back` soon.
    is_due: Cell<bool>,
    sender: Mutex<NodeSender>,
}

/// Lets go of the kernel's device, and of idle workers, when it is dropped.
struct Left<'a>(&'a Connection);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.device.take();
        self.0.workers.end();
    }
}

impl Node {
    /// Serves one mount until its connection ends, and what came on it is done.
    pub(crate) async fn serve_handed_over(
        self: &Rc<Self>,
        process: &Rc<Process>,
        channel: NodeChannel,
        device: KernelDevice,
    ) {
        let (mut channel, sender) = match channel.pipelined() {
            Ok(halves) => halves,
            Err(error) => return tracing::warn!(%error, "a mount answers its kernel itself"),
        };
        let connection = Rc::new(Connection {
            process: Rc::clone(process),
            device: RefCell::new(Some(device)),
            workers: Workers::new(HANDED_OVER_MAX, IDLE_WORKERS_MAX),
            back: RefCell::default(),
            is_due: Cell::new(false),
            sender: Mutex::new(sender),
        });
        self.receive_handed_over(&connection, &mut channel).await;
        connection.workers.ended().await;
    }

    async fn receive_handed_over(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        channel: &mut NodeChannel,
    ) {
        // What is under way may take long, and must not keep the kernel's connection alive.
        let _left = Left(connection);
        while let Ok((body, _)) = channel.recv().await {
            let Ok(handed) = hayase_wire::decode::<HandedOver>(&body) else {
                return tracing::warn!("a mount handed over a request that cannot be decoded");
            };
            match connection.workers.give(handed) {
                Given::Waits => {}
                Given::NeedsOne => {
                    let (this, connection) = (Rc::clone(self), Rc::clone(connection));
                    tokio::task::spawn_local(async move { connection.work(&this).await });
                }
                Given::TooMany => return tracing::warn!("a mount hands over more than it may"),
            }
        }
    }
}

impl Connection {
    async fn work(self: &Rc<Self>, node: &Rc<Node>) {
        while let Some(HandedOver { unique, request }) = self.workers.next().await {
            self.serve(node, unique, request).await;
        }
    }

    async fn serve(self: &Rc<Self>, node: &Rc<Node>, unique: u64, request: NodeRequest) {
        let dir = directory_of(&request);
        if let Some(dir) = dir {
            self.process.removing.begin(dir);
        }
        let answer = node.serve_process(&self.process, request).await;
        let removed = match answer.reply {
            NodeReply::Removed { ino } if self.tell_kernel(unique) => Some(ino),
            _ => None,
        };
        if let Some(dir) = dir {
            self.process.removing.end(dir);
        }
        match removed {
            Some(ino) => {
                self.back.borrow_mut().told.push((unique, ino));
                if let Some(rest) = answer.rest {
                    rest();
                }
                self.send_later().await;
            }
            None => {
                self.back.borrow_mut().answers.push((unique, answer.completed()));
                self.send().await;
            }
        }
    }

    fn tell_kernel(&self, unique: u64) -> bool {
        let device = self.device.borrow();
        let Some(told) = device.as_ref().map(|device| device.succeed(unique)) else { return false };
        if let Err(error) = &told {
            tracing::debug!(unique, %error, "a mount's kernel was not told");
        }
        told.is_ok()
    }

    async fn send_later(self: &Rc<Self>) {
        if self.back.borrow().told.len() >= HANDED_BACK_AT_ONCE {
            return self.send().await;
        }
        if !self.is_due.replace(true) {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                tokio::time::sleep(HANDED_BACK_WAIT).await;
                this.is_due.set(false);
                this.send().await;
            });
        }
    }

    async fn send(&self) {
        let mut sender = self.sender.lock().await;
        let back = self.back.take();
        if back == HandedBack::default() {
            return;
        }
        let sent = match hayase_wire::encode(&back) {
            Ok(body) => sender.send(&body).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = sent {
            tracing::debug!(error, "a mount left before it heard what was removed");
        }
    }
}

/// Of a removal of a file's name.
fn directory_of(request: &NodeRequest) -> Option<InodeId> {
    match request {
        NodeRequest::Once { request, .. } => directory_of(request),
        NodeRequest::Remove { parent, directory: false, .. } => Some(*parent),
        _ => None,
    }
}
