//! The other servers: calls to them, and their requests to this one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hayase_layout::{PartPiece, ServerId};
use hayase_store::SlotPool;
use hayase_wire::BoxBuffer;
use hayase_wire::PeerLink;
use hayase_wire::message::{PeerReply, PeerRequest, PeerState, PeerStatus, Refused};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limits::{LOOK, UNREACHABLE};
use crate::refusals::libc_errno;
use crate::request::{Properties, Repeat, Start};

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

    pub(crate) async fn gathered(&self, piece: &PartPiece, source: &[u8]) -> (BoxBuffer, usize) {
        let mut slot = self.slot().await;
        let len = piece.local.len().0 as usize;
        piece.gather(source, &mut (*slot).as_mut()[..len]);
        (slot, len)
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
