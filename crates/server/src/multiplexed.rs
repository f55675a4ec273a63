//! A connection that many threads of a process share.
//!
//! Their requests are served at the same time, and the answers that are ready leave together: to wake the
//! process for each would cost this server's processor as much as a small call. The process wakes its
//! threads itself.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hayase_wire::limits::MULTIPLEXED_MAX;
use hayase_wire::message::{NodeReply, NodeRequest, Numbered, Refused};
use hayase_wire::{Given, NodeChannel, NodeError, NodeSender, Outgoing, Workers};
use tokio::sync::Notify;

use crate::clients::Process;
use crate::limits::MULTIPLEXED_IDLE;
use crate::node::Node;
use crate::node_service::{NodeAnswer, Rest};
use crate::refusals::libc_errno;

struct Connection {
    process: Rc<Process>,
    workers: Workers<Numbered<NodeRequest>>,
    /// Requests without an answer on its way.
    unanswered: Cell<usize>,
    ready: RefCell<Vec<Numbered<NodeAnswer>>>,
    is_ready: Notify,
    /// Answers are on their way to a process that is slow to take them.
    is_sending: Cell<bool>,
    /// Nothing will be ready any more.
    is_over: Cell<bool>,
}

impl Node {
    /// Serves the connection to its end, until all that came on it is done. Before that the process is
    /// not welcomed on another one.
    pub(crate) async fn serve_multiplexed(
        self: &Rc<Self>,
        process: &Rc<Process>,
        channel: NodeChannel,
    ) {
        let (mut channel, sender) = match channel.pipelined() {
            Ok(halves) => halves,
            Err(error) => return tracing::warn!(%error, "threads of a process do not share"),
        };
        let connection = Rc::new(Connection {
            process: Rc::clone(process),
            workers: Workers::new(MULTIPLEXED_MAX, MULTIPLEXED_IDLE),
            unanswered: Cell::default(),
            ready: RefCell::default(),
            is_ready: Notify::new(),
            is_sending: Cell::default(),
            is_over: Cell::default(),
        });
        let serve = async {
            connection.receive(self, &mut channel).await;
            connection.workers.end();
            connection.workers.ended().await;
            connection.is_over.set(true);
            connection.is_ready.notify_one();
        };
        tokio::join!(serve, connection.send(sender));
    }
}

impl Connection {
    async fn receive(self: &Rc<Self>, node: &Rc<Node>, channel: &mut NodeChannel) {
        while let Ok((body, _)) = channel.recv().await {
            let Ok(request) = hayase_wire::decode::<Numbered<NodeRequest>>(&body) else {
                return tracing::warn!("a process sent a request that cannot be decoded");
            };
            let unanswered = self.unanswered.get() + 1;
            if unanswered > MULTIPLEXED_MAX {
                return tracing::warn!("a process asks more at once than it may");
            }
            self.unanswered.set(unanswered);
            if self.workers.give(request) == Given::NeedsOne {
                let (this, node) = (Rc::clone(self), Rc::clone(node));
                tokio::task::spawn_local(async move { this.work(&node).await });
            }
        }
    }

    async fn work(&self, node: &Rc<Node>) {
        while let Some(Numbered { number, message }) = self.workers.next().await {
            let mut answer = node.serve_process(&self.process, message).await;
            if self.is_sending.get()
                && let Some(rest) = answer.rest.take()
            {
                // Others wait for what it does: not until that process reads.
                rest();
            }
            self.ready.borrow_mut().push(Numbered { number, message: answer });
            self.is_ready.notify_one();
        }
    }

    /// Sends what is ready, all at once, until the connection is over. Where it can not, the process
    /// finds the connection ended.
    async fn send(&self, mut sender: NodeSender) {
        let mut outgoing = Outgoing::default();
        loop {
            let ready = self.ready.take();
            if ready.is_empty() {
                if self.is_over.get() {
                    return;
                }
                self.is_ready.notified().await;
                continue;
            }
            self.unanswered.set(self.unanswered.get() - ready.len());
            let rests = pack(ready, &mut outgoing);
            self.is_sending.set(true);
            let sent = send_and_finish(&mut sender, &outgoing, rests).await;
            self.is_sending.set(false);
            if let Err(error) = sent {
                tracing::debug!(%error, "a process left before its answers");
                sender.close();
            }
            outgoing.clear();
        }
    }
}

/// Does what is left to do as soon as the first of the answers may be with the process, also when it is
/// slow to take the others.
async fn send_and_finish(
    sender: &mut NodeSender,
    outgoing: &Outgoing,
    rests: Vec<Rest>,
) -> Result<(), NodeError> {
    let mut sending = std::pin::pin!(sender.send_all(outgoing));
    let sent = tokio::select! {
        biased;
        sent = &mut sending => Some(sent),
        () = std::future::ready(()) => None,
    };
    rests.into_iter().for_each(|rest| rest());
    match sent {
        Some(sent) => sent,
        None => sending.await,
    }
}

/// Puts answers together; returns what is left to do when they are on their way.
fn pack(ready: Vec<Numbered<NodeAnswer>>, outgoing: &mut Outgoing) -> Vec<Rest> {
    let mut rests = Vec::new();
    for Numbered { number, message } in ready {
        let NodeAnswer { reply, descriptor, rest } = message;
        rests.extend(rest);
        let packed = hayase_wire::encode(&Numbered { number, message: &reply })
            .map_err(|error| error.to_string())
            .and_then(|body| outgoing.add(&body, descriptor).map_err(|error| error.to_string()));
        if let Err(why) = packed {
            // Too long. Who asked must hear of that all the same.
            let message = NodeReply::Refused(Refused::because(libc_errno::EIO, why));
            let body = hayase_wire::encode(&Numbered { number, message });
            let body = body.expect("a few words are a message");
            outgoing.add(&body, None).expect("a few words are a message");
        }
    }
    rests
}
