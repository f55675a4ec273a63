//! The way in for other servers: who may ask what, and requests that arrive twice.

use std::rc::Rc;
use std::time::Duration;

use hayase_layout::{NodeId, ServerId};
use hayase_wire::BoxBuffer;
use hayase_wire::message::{MemberRequest, PeerReply, PeerRequest, Refused};
use hayase_wire::transport::Connection;
use hayase_wire::{COORDINATOR, LinkError, PeerIdentity, RequestId, Response, Service};

use crate::node::Node;
use crate::refusals::libc_errno;
use crate::request::{Asker, Properties, Repeat};
use crate::rpc::peers::Served;

/// What other servers reach.
pub(crate) struct PeerService(pub(crate) Rc<Node>);

impl Service for PeerService {
    async fn reach(&self, server: ServerId) -> Result<Connection, LinkError> {
        let node = &self.0;
        // A server without a connection to the coordinator is dead, or is declared lost soon.
        match server != node.me && node.rpc.membership.hears(server) {
            true => node.rpc.peers.link(server).reach().await,
            false => Err(LinkError::NoAddress),
        }
    }

    fn ended(&self, peer: PeerIdentity, silent: Duration) {
        self.0.members.beats_no_more(peer, silent);
    }

    async fn buffer(&self, _len: usize) -> BoxBuffer {
        self.0.rpc.peers.slot().await
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
            node.cache.stir_flusher();
        }
        let asking = NodeId(from.server.0);
        if node.rpc.membership.refuses(from) {
            return PeerReply::Dead.into();
        }
        let is = Properties::of(&request);
        match is.asker {
            Asker::Met if !node.rpc.sessions.has(from) => {
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
            MemberRequest::Beat { took } => node.members.beaten(from, took).await,
            MemberRequest::Members(members) => {
                node.members.take(*members);
                PeerReply::Done
            }
            MemberRequest::Returned { addresses } => node.returned(from, addresses),
        }
    }
}
