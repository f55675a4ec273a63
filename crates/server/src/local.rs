//! A process of the node that is this very process: requests without a socket.
//!
//! For what runs beside the server in one program, and for simulations, which own time and must not
//! wait for a kernel. Nothing differs from the socket but the way.

use std::future::Future;
use std::rc::Rc;

use hayase_wire::arena::Arena;
use hayase_wire::message::{NodeReply, NodeRequest};
use tokio::sync::{mpsc, oneshot};

use crate::clients::{AnswerCallback, Callee, Process};
use crate::limits::LOCAL_REQUESTS_MAX;
use crate::node::Node;

/// The server is gone: nobody knows whether it did what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is gone")]
pub struct ServerGone;

/// The way into a server of this process. Clones lead to the same one.
#[derive(Clone)]
pub struct LocalServer {
    inbox: mpsc::Sender<Message>,
}

/// Callbacks of one process that are under way at once, as many as a mount's connections.
const CALLBACKS: usize = 4;

enum Message {
    Join {
        id: u64,
        arena: Arena,
        mount: Option<Rc<AnswerCallback>>,
        returning: bool,
        joined: oneshot::Sender<Rc<Process>>,
    },
    Ask {
        process: Rc<Process>,
        request: Box<NodeRequest>,
        answer: oneshot::Sender<NodeReply>,
    },
    Leave(Rc<Process>),
}

impl LocalServer {
    /// A way in, and what must run for it.
    pub(crate) fn of(node: &Rc<Node>) -> (Self, impl Future<Output = ()> + use<>) {
        let (inbox, messages) = mpsc::channel(LOCAL_REQUESTS_MAX);
        (Self { inbox }, serve(Rc::clone(node), messages))
    }

    /// A process of this node; with `mount` it holds grants. `arena` is the server's own mapping of
    /// the process's slots ([`Arena::open`]). A `returning` one was here before, or at a server before
    /// this one: it is served nothing that depends on what it holds before it has told that
    /// ([`NodeRequest::Reclaim`]).
    ///
    /// # Errors
    /// When the server is gone, as for every request.
    pub async fn join(
        &self,
        id: u64,
        arena: Arena,
        mount: Option<Rc<AnswerCallback>>,
        returning: bool,
    ) -> Result<LocalProcess, ServerGone> {
        let (joined, process) = oneshot::channel();
        let message = Message::Join { id, arena, mount, returning, joined };
        self.inbox.send(message).await.map_err(|_| ServerGone)?;
        let process = process.await.map_err(|_| ServerGone)?;
        Ok(LocalProcess { server: self.clone(), process })
    }
}

/// One process; its opens and locks end when it [leaves](Self::leave).
#[derive(Clone)]
pub struct LocalProcess {
    server: LocalServer,
    process: Rc<Process>,
}

impl LocalProcess {
    /// One request; any number may be under way. A refusal is a reply.
    pub async fn ask(&self, request: NodeRequest) -> Result<NodeReply, ServerGone> {
        let (answer, answered) = oneshot::channel();
        let message =
            Message::Ask { process: Rc::clone(&self.process), request: Box::new(request), answer };
        self.server.inbox.send(message).await.map_err(|_| ServerGone)?;
        answered.await.map_err(|_| ServerGone)
    }

    /// Ends what it holds, soon.
    pub async fn leave(self) -> Result<(), ServerGone> {
        self.server.inbox.send(Message::Leave(self.process)).await.map_err(|_| ServerGone)
    }
}

async fn serve(node: Rc<Node>, mut messages: mpsc::Receiver<Message>) {
    while let Some(message) = messages.recv().await {
        match message {
            Message::Join { id, arena, mount, returning, joined } => {
                let process = node.clients.process(id, mount.is_some(), returning);
                process.take_arena(arena, &node.network);
                process.connect();
                for answer in mount.iter().flat_map(|answer| [answer; CALLBACKS]) {
                    process.add_callback(Callee::Here(Rc::clone(answer)));
                }
                let _gone_meanwhile = joined.send(process);
            }
            Message::Ask { process, request, answer } => {
                let node = Rc::clone(&node);
                // As on a connection: what it holds ends when it has left and this is done.
                process.connect();
                tokio::task::spawn_local(async move {
                    let served = node.serve_process(&process, *request).await;
                    let _gone_meanwhile = answer.send(served.reply);
                    if let Some(rest) = served.rest {
                        rest();
                    }
                    node.disconnected(&process).await;
                });
            }
            Message::Leave(process) => {
                let node = Rc::clone(&node);
                tokio::task::spawn_local(async move { node.disconnected(&process).await });
            }
        }
    }
}
