//! Removals that a mount hands over: this server tells the mount's kernel of their success itself.
//!
//! Who waits is woken from here, and the mount, whose thread would be woken only to pass the answer on,
//! hears of many at once. Everything else that comes of them goes to the mount as an answer.
//! Source: `docs/design/001-coherence.md`, "Who answers an unlink".

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_wire::message::{HandedBack, HandedOver, NodeReply, NodeRequest};
use hayase_wire::{KernelDevice, NodeChannel, NodeSender};
use tokio::sync::{Mutex, Notify};

use crate::clients::Process;
use crate::limits::{HANDED_BACK_AT_ONCE, HANDED_BACK_WAIT, HANDED_OVER_MAX};
use crate::node::Node;

/// In which directories names are being removed, for a kernel that keeps them locked until it is told.
#[derive(Default)]
pub(crate) struct RemovingIn(RefCell<HashMap<InodeId, u32>>);

impl RemovingIn {
    pub(crate) fn has(&self, dir: InodeId) -> bool {
        self.0.borrow().contains_key(&dir)
    }

    fn begin(&self, dir: InodeId) {
        *self.0.borrow_mut().entry(dir).or_default() += 1;
    }

    fn end(&self, dir: InodeId) {
        let mut removing = self.0.borrow_mut();
        if let Some(count) = removing.get_mut(&dir) {
            *count -= 1;
            if *count == 0 {
                removing.remove(&dir);
            }
        }
    }
}

/// One mount's connection.
struct Connection {
    process: Rc<Process>,
    /// None once the mount has left: its kernel must find that out.
    device: RefCell<Option<KernelDevice>>,
    workers: Workers,
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
            workers: Workers::default(),
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
                return tracing::warn!("a mount hands over what can not be read");
            };
            match connection.workers.take(handed) {
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

/// Tasks that serve one request after the other: what serving takes room for is made once.
#[derive(Default)]
struct Workers {
    waiting: RefCell<VecDeque<HandedOver>>,
    more: Notify,
    all: Cell<usize>,
    idle: Cell<usize>,
    is_over: Cell<bool>,
    /// The last one has gone.
    none_left: Notify,
}

enum Given {
    Waits,
    NeedsOne,
    TooMany,
}

impl Workers {
    fn take(&self, handed: HandedOver) -> Given {
        let mut waiting = self.waiting.borrow_mut();
        waiting.push_back(handed);
        if waiting.len() <= self.idle.get() {
            self.more.notify_one();
            return Given::Waits;
        }
        if self.all.get() >= HANDED_OVER_MAX {
            return Given::TooMany;
        }
        self.all.set(self.all.get() + 1);
        Given::NeedsOne
    }

    /// None when there will be no more.
    async fn next(&self) -> Option<HandedOver> {
        loop {
            if let Some(handed) = self.waiting.borrow_mut().pop_front() {
                return Some(handed);
            }
            if self.is_over.get() {
                self.all.set(self.all.get() - 1);
                self.none_left.notify_one();
                return None;
            }
            self.idle.set(self.idle.get() + 1);
            self.more.notified().await;
            self.idle.set(self.idle.get() - 1);
        }
    }

    /// No more requests come: workers go when all are done.
    fn end(&self) {
        self.is_over.set(true);
        self.more.notify_waiters();
    }

    /// Waits for that.
    async fn ended(&self) {
        while self.all.get() > 0 {
            self.none_left.notified().await;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn handed(unique: u64) -> HandedOver {
        HandedOver { unique, request: NodeRequest::Status }
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_workers_as_requests_wait_at_once_and_no_more() {
        let test = async {
            let (workers, go_on) = (Rc::new(Workers::default()), Rc::new(Notify::new()));
            let served = Rc::new(RefCell::new(Vec::new()));
            let give = |unique| {
                let given = workers.take(handed(unique));
                if matches!(given, Given::NeedsOne) {
                    let (workers, served) = (Rc::clone(&workers), Rc::clone(&served));
                    let go_on = Rc::clone(&go_on);
                    tokio::task::spawn_local(async move {
                        while let Some(handed) = workers.next().await {
                            go_on.notified().await;
                            served.borrow_mut().push(handed.unique);
                        }
                    });
                }
                given
            };
            let settle = || tokio::time::sleep(std::time::Duration::from_millis(1));
            for unique in 0..20 {
                give(unique);
                settle().await;
                go_on.notify_one();
                settle().await;
            }
            assert_eq!((served.borrow().len(), workers.all.get()), (20, 1), "one after the other");
            for unique in 0..HANDED_OVER_MAX as u64 {
                assert!(!matches!(give(unique), Given::TooMany));
            }
            settle().await;
            assert!(matches!(give(999), Given::TooMany));
            assert_eq!(workers.all.get(), HANDED_OVER_MAX);
            for _ in 0..=HANDED_OVER_MAX {
                go_on.notify_one();
                settle().await;
            }
            assert_eq!(served.borrow().len(), 20 + HANDED_OVER_MAX + 1);
            give(1000);
            settle().await;
            workers.end();
            settle().await;
            assert_eq!(workers.all.get(), 1, "the idle ones go");
            go_on.notify_one();
            workers.ended().await;
            assert_eq!((workers.all.get(), served.borrow().last()), (0, Some(&1000)));
        };
        tokio::task::LocalSet::new().run_until(test).await;
    }

    #[test]
    fn a_directory_is_locked_until_its_last_removal_was_told() {
        let (removing, dir) = (RemovingIn::default(), InodeId(7));
        removing.begin(dir);
        removing.begin(dir);
        removing.end(dir);
        assert!(removing.has(dir) && !removing.has(InodeId::ROOT));
        removing.end(dir);
        assert!(!removing.has(dir));
    }
}
