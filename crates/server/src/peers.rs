//! The other servers: calls to them, and their requests to this one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hayase_layout::{NodeId, ServerId};
use hayase_store::SlotPool;
use hayase_wire::BoxBuffer;
use hayase_wire::message::{MemberRequest, PeerReply, PeerRequest, PeerState, PeerStatus, Refused};
use hayase_wire::transport::Connection;
use hayase_wire::{COORDINATOR, LinkError, PeerIdentity, PeerLink, RequestId, Response, Service};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limits::{LOOK, UNREACHABLE};
use crate::node::Node;
use crate::refusals::libc_errno;
use crate::request::{Asker, Properties, Repeat, Start};

/// A reply and the bytes that came with it.
pub(crate) struct Served {
    pub(crate) reply: PeerReply,
    pub(crate) payload: Option<(BoxBuffer, usize)>,
}

/// An answer of another server, with what was sent to it.
pub(crate) struct Called {
    pub(crate) served: Served,
    pub(crate) sent: Option<BoxBuffer>,
}

impl From<PeerReply> for Served {
    fn from(reply: PeerReply) -> Self {
        Self { reply, payload: None }
    }
}

impl From<Result<PeerReply, Refused>> for Served {
    fn from(result: Result<PeerReply, Refused>) -> Self {
        result.unwrap_or_else(PeerReply::Refused).into()
    }
}

/// Links to the other servers, made when first needed.
pub(crate) struct Peers {
    make: Box<dyn Fn(ServerId) -> Rc<PeerLink>>,
    links: RefCell<HashMap<ServerId, Rc<PeerLink>>>,
    pub(crate) slots: SlotPool,
    slot_returned: Arc<Notify>,
}

impl Peers {
    pub(crate) fn new(slots: SlotPool, make: Box<dyn Fn(ServerId) -> Rc<PeerLink>>) -> Self {
        let slot_returned = Arc::new(Notify::new());
        let notify = Arc::clone(&slot_returned);
        slots.on_return(Box::new(move || notify.notify_one()));
        Self { make, links: RefCell::default(), slots, slot_returned }
    }

    /// A transfer buffer; waits while all are in use.
    pub(crate) async fn slot(&self) -> BoxBuffer {
        loop {
            if let Some(slot) = self.slots.try_take() {
                // Another waiter may have been woken for this one's sake.
                self.slot_returned.notify_one();
                return Box::new(slot);
            }
            self.slot_returned.notified().await;
        }
    }

    pub(crate) fn link(&self, to: ServerId) -> Rc<PeerLink> {
        let mut links = self.links.borrow_mut();
        Rc::clone(links.entry(to).or_insert_with(|| (self.make)(to)))
    }

    /// Returns when a server could not be connected to for [`UNREACHABLE`], and does not say that it is starting.
    pub(crate) async fn until_unreachable(&self, to: ServerId) {
        let mut since: Option<Instant> = None;
        loop {
            tokio::time::sleep(LOOK).await;
            match self.link(to).state() {
                PeerState::Connected => since = None,
                _ if self.link(to).is_starting() => since = None,
                _ if since.get_or_insert_with(Instant::now).elapsed() >= UNREACHABLE => return,
                _ => {}
            }
        }
    }

    /// Sends a request and waits for its answer, at most until `deadline`.
    pub(crate) async fn call(
        &self,
        to: ServerId,
        request: &PeerRequest,
        send: Option<(BoxBuffer, usize)>,
        into: Option<BoxBuffer>,
        deadline: Duration,
    ) -> Result<Called, Refused> {
        let body = hayase_wire::encode(request)
            .map_err(|error| Refused::because(libc_errno::EINVAL, error.to_string()))?;
        let is = Properties::of(request);
        let link = self.link(to);
        let calling = async {
            match is.repeat {
                Repeat::Freely | Repeat::Once => link.call(body, send, into, deadline).await,
                Repeat::ByNoOther => link.call_incarnation(body, send, into, deadline).await,
            }
        };
        let answer = match is.start {
            Start::Waits => calling.await,
            Start::Fails => tokio::time::timeout(deadline, calling).await.map_err(|_| {
                Refused::because(libc_errno::EIO, format!("no answer of server {to} in time"))
            })?,
        };
        match answer {
            Ok(answer) => match hayase_wire::decode(&answer.body) {
                Ok(reply) => {
                    let served = Served { reply, payload: answer.received };
                    Ok(Called { served, sent: answer.sent })
                }
                Err(error) => Err(Refused::because(libc_errno::EPROTO, error.to_string())),
            },
            Err(error) => Err(Refused::because(libc_errno::EIO, error.to_string())),
        }
    }

    /// For `hayase status`.
    pub(crate) fn states(&self, me: ServerId, servers: u16) -> Vec<PeerStatus> {
        let links = self.links.borrow();
        (0..servers)
            .map(ServerId)
            .filter(|server| *server != me)
            .map(|server| {
                let unconnected =
                    || PeerStatus { server, state: PeerState::Unconnected, over: None };
                links.get(&server).map_or_else(unconnected, |link| link.status())
            })
            .collect()
    }
}

/// What other servers reach.
pub(crate) struct PeerService(pub(crate) Rc<Node>);

impl Service for PeerService {
    async fn reach(&self, server: ServerId) -> Result<Connection, LinkError> {
        let node = &self.0;
        // A server without a connection to the coordinator is dead, or is declared lost soon.
        match server != node.me && node.membership.hears(server) {
            true => node.peers.link(server).reach().await,
            false => Err(LinkError::NoAddress),
        }
    }

    fn ended(&self, peer: PeerIdentity, silent: Duration) {
        self.0.beats_no_more(peer, silent);
    }

    async fn buffer(&self, _len: usize) -> BoxBuffer {
        self.0.peers.slot().await
    }

    async fn serve(
        self: Rc<Self>,
        from: PeerIdentity,
        request_id: u64,
        body: Vec<u8>,
        payload: Option<(BoxBuffer, usize)>,
    ) -> Response {
        let served = self.answer(from, request_id, &body, payload).await;
        let body = hayase_wire::encode(&served.reply).unwrap_or_else(|error| {
            tracing::error!(%error, "a reply could not be encoded");
            Vec::new()
        });
        Response { body, payload: served.payload }
    }
}

impl PeerService {
    async fn answer(
        &self,
        from: PeerIdentity,
        request_id: u64,
        body: &[u8],
        payload: Option<(BoxBuffer, usize)>,
    ) -> Served {
        let node = &self.0;
        node.activity.request();
        let request: PeerRequest = match hayase_wire::decode(body) {
            Ok(request) => request,
            Err(error) => {
                let refused = Refused::because(libc_errno::EPROTO, error.to_string());
                return PeerReply::Refused(refused).into();
            }
        };
        // Which says only that somebody lives: nothing has changed, and an idle server is to stay cheap.
        if !matches!(request, PeerRequest::Member(MemberRequest::Beat { .. })) {
            node.look_at_counters();
            node.stir_flusher();
        }
        let asking = NodeId(from.server.0);
        if node.refuses(from) {
            return PeerReply::Dead.into();
        }
        let is = Properties::of(&request);
        match is.asker {
            Asker::Met if !node.sessions.has(from) => {
                return PeerReply::NoSession { start_id: node.start_id }.into();
            }
            Asker::Coordinator if from.server != COORDINATOR => {
                let why = "only server 0 declares nodes lost";
                return PeerReply::Refused(Refused::because(libc_errno::EPROTO, why)).into();
            }
            Asker::Met | Asker::Coordinator | Asker::Anybody => {}
        }
        if let PeerRequest::Member(request) = request {
            return self.answer_member(from, request).await.into();
        }
        if is.repeat == Repeat::Freely {
            return Rc::clone(node).serve_in_place(asking, request, payload).await;
        }
        // The work outlives the connection that asked for it, because this task does: half a rename
        // helps nobody.
        // Pinned here: it is large to be moved.
        let work = std::pin::pin!(async {
            Rc::clone(node).serve_in_place(asking, request, payload).await.reply
        });
        let reply = node.replies.once(from, RequestId(request_id), work).await;
        let given_up = || Refused::because(libc_errno::EIO, "its sender gave this request up");
        reply.unwrap_or_else(|| PeerReply::Refused(given_up())).into()
    }

    async fn answer_member(&self, from: PeerIdentity, request: MemberRequest) -> PeerReply {
        let node = &self.0;
        match request {
            MemberRequest::Reclaim { holding, as_of } => node.reclaim(from, *holding, as_of).await,
            MemberRequest::Beat { took } => node.beaten(from, took).await,
            MemberRequest::Members(members) => {
                node.take(*members);
                PeerReply::Done
            }
            MemberRequest::Returned { addresses } => node.returned(from, addresses),
        }
    }
}
