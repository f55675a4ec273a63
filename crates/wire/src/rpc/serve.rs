//! The answering half: connections, requests, back-pressure.
//!
//! A connection is read by one task; others serve its requests, one each at a time, so answers
//! overtake each other. Bounded: requests per peer, connections; handshakes at the [`Door`]. While a
//! connection's reader waits for a slot or a place it says so once a second, so that its peer does not
//! take it for dead. A request that was begun is carried out also when its connection is lost.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hayase_layout::ServerId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use super::LinkError;
use super::door::Door;
use super::error::Chain;
use super::relay::{Relays, relay};
use crate::buffer::{BoxBuffer, Loan};
use crate::deadline::ACCEPT_PAUSE;
use crate::handshake::{Credentials, Lane, LinkId, PeerIdentity, Session};
use crate::header::FrameKind;
use crate::limits::{BODY_BYTES_MAX, CONNECTIONS_MAX, IDLE_WORKERS_MAX, REQUESTS_PER_PEER_MAX};
use crate::session::{Frame, SessionError, SessionReceiver, SessionSender};
use crate::times::{HEARTBEAT, PEER_LOSS_WAIT};
use crate::transport::{Connection, Listener, TransportError};
use crate::workers::{Given, Workers};

/// What a server does with requests. Runs inside a `LocalSet`.
pub trait Service: 'static {
    /// A buffer of at least `len` bytes for a payload that is about to come. Waits while there is
    /// none, which holds up the connection it is for, and no other.
    fn buffer(&self, len: usize) -> impl Future<Output = BoxBuffer>;

    /// Carries out one request. `payload` is a buffer from [`Service::buffer`] and how many bytes
    /// at its start came. The same `request_id` of the same incarnation may come again, also while
    /// the first is still being served, until a later one with the same credit has come
    /// ([`RequestId`](super::RequestId)).
    fn serve(
        self: Rc<Self>,
        from: PeerIdentity,
        request_id: u64,
        body: Vec<u8>,
        payload: Option<(BoxBuffer, usize)>,
    ) -> impl Future<Output = Response>;

    /// A connection to `server`, for a peer that does not reach it itself.
    fn reach(&self, server: ServerId) -> impl Future<Output = Result<Connection, LinkError>> {
        let _ = server;
        async { Err(LinkError::NoAddress) }
    }

    /// A peer's connection for calls without payload has ended, and no other has taken its place.
    /// `silent`: nothing had come from the peer's machine for so long by then.
    fn ended(&self, peer: PeerIdentity, silent: Duration) {
        let _ = (peer, silent);
    }
}

/// What a service answers.
pub struct Response {
    /// The encoded reply.
    pub body: Vec<u8>,
    /// A buffer and how many bytes at its start go with it; dropped when they are sent.
    pub payload: Option<(BoxBuffer, usize)>,
}

impl Response {
    /// A reply without payload.
    pub fn new(body: Vec<u8>) -> Self {
        Self { body, payload: None }
    }
}

/// Answers the requests of one connection until it ends; says why it did.
pub async fn serve_connection<S: Service>(
    session: Session,
    service: Rc<S>,
) -> Result<(), SessionError> {
    serve_bounded(session, service, Arc::new(Semaphore::new(REQUESTS_PER_PEER_MAX))).await
}

/// Takes connections and serves them, for ever; dropping the future closes them all.
pub async fn serve_listener<S: Service>(
    mut listener: Box<dyn Listener>,
    credentials: Credentials,
    service: Rc<S>,
) {
    let door = Rc::new(Door::new(credentials));
    let peers = Rc::new(Peers::default());
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let connection = match accepted {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (door, service, peers) = (Rc::clone(&door), service.clone(), peers.clone());
        connections.spawn_local(async move {
            if let Some(session) = door.admit(connection, || peers.refuses()).await {
                drop(door);
                serve_peer(session, service, &peers).await;
            }
        });
    }
}

/// Tells whoever connects that the server is starting, for ever. Dropped, it leaves the listener as good as new.
pub async fn put_off_listener(listener: &mut dyn Listener, credentials: Credentials) -> Infallible {
    let door = Rc::new(Door::new(credentials));
    let mut put_off = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = put_off.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok(connection) => {
                    let door = Rc::clone(&door);
                    put_off.spawn_local(async move { door.put_off(connection).await });
                }
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "connection not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// Living connections of a listener.
#[derive(Default)]
struct Peers {
    requests: RefCell<HashMap<PeerIdentity, Arc<Semaphore>>>,
    connections: RefCell<HashMap<(PeerIdentity, LinkId), (u64, AbortHandle)>>,
    relays: Rc<Relays>,
    serial_next: std::cell::Cell<u64>,
}

impl Peers {
    /// Why one more connection is not taken, if it is not.
    fn refuses(&self) -> Option<String> {
        let is_full = self.connections.borrow().len() >= CONNECTIONS_MAX;
        is_full.then(|| format!("it has {CONNECTIONS_MAX} connections"))
    }

    /// The requests that all connections of a peer share; of an older incarnation nothing is kept.
    fn requests(&self, peer: PeerIdentity) -> Arc<Semaphore> {
        let mut requests = self.requests.borrow_mut();
        requests.retain(|other, places| {
            other.server != peer.server || *other == peer || Arc::strong_count(places) > 1
        });
        let new = || Arc::new(Semaphore::new(REQUESTS_PER_PEER_MAX));
        requests.entry(peer).or_insert_with(new).clone()
    }
}

async fn serve_peer<S: Service>(session: Session, service: Rc<S>, peers: &Rc<Peers>) {
    let (peer, key) = (session.peer, (session.peer, session.link));
    if peers.refuses().is_some() {
        // Others have taken the last places since it was said that there is one.
        tracing::warn!(server = %peer.server, "connection closed: {CONNECTIONS_MAX} are open");
        return;
    }
    let serial = peers.serial_next.get();
    peers.serial_next.set(serial + 1);
    let (requests, serving) = (peers.requests(peer), Rc::clone(&service));
    let task = match key.1.lane {
        Lane::Relay => {
            let relays = Rc::clone(&peers.relays);
            let relaying = async move { relay(session, &relays, |to| serving.reach(to)).await };
            tokio::task::spawn_local(relaying)
        }
        Lane::Small | Lane::Bulk => {
            tokio::task::spawn_local(serve_bounded(session, serving, requests))
        }
    };
    let abort = task.abort_handle();
    let _end = AbortOnDrop(abort.clone());
    // The peer made a new connection: it has given up the old one, which may be half open.
    if let Some((_, old)) = peers.connections.borrow_mut().insert(key, (serial, abort)) {
        old.abort();
    }
    tracing::debug!(server = %peer.server, lane = ?key.1.lane, "connected");
    let mut silent = Duration::ZERO;
    match task.await {
        Ok(Ok(())) => tracing::debug!(server = %peer.server, "connection closed"),
        Ok(Err(error)) => {
            tracing::warn!(server = %peer.server, error = %Chain(&error), "connection lost");
            if error.is_loss() {
                silent = PEER_LOSS_WAIT;
            }
        }
        Err(error) if error.is_cancelled() => {
            tracing::debug!(server = %peer.server, "connection replaced");
        }
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
    let is_last = {
        let mut connections = peers.connections.borrow_mut();
        let is_last = connections.get(&key).is_some_and(|(other, _)| *other == serial);
        if is_last {
            connections.remove(&key);
        }
        is_last
    };
    if is_last && key.1.lane == Lane::Small {
        service.ended(peer, silent);
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What is to be sent.
enum Order {
    Reply { id: u64, response: Response, _place: OwnedSemaphorePermit },
    Pong,
}

async fn serve_bounded<S: Service>(
    session: Session,
    service: Rc<S>,
    requests: Arc<Semaphore>,
) -> Result<(), SessionError> {
    let Session { mut sender, mut receiver, peer, .. } = session;
    // Bounded by `requests`; pongs by the pings that are read, and one a second.
    let (orders, mut queue) = mpsc::unbounded_channel();
    let workers = Rc::new(Workers::new(usize::MAX, IDLE_WORKERS_MAX)); // bounded by `requests`
    let reading = Reading { peer, service, requests, orders, workers };
    // The answers first: they are bounded, what comes is not.
    tokio::select! {
        biased;
        end = send_orders(&mut sender, &mut queue) => end,
        end = reading.run(&mut receiver) => end,
    }
}

async fn send_orders(
    sender: &mut SessionSender,
    queue: &mut mpsc::UnboundedReceiver<Order>,
) -> Result<(), SessionError> {
    while let Some(order) = queue.recv().await {
        match order {
            Order::Pong => sender.send(FrameKind::Pong, 0, &[], &[]).await?,
            Order::Reply { id, response, _place } => {
                let Response { body, payload } = response;
                match payload.map(|(buffer, len)| Loan::new(buffer, len)) {
                    Some(loan) => sender.send_lent(FrameKind::Reply, id, &body, &loan).await?,
                    None => sender.send(FrameKind::Reply, id, &body, &[]).await?,
                }
            }
        }
    }
    Ok(())
}

struct Reading<S> {
    peer: PeerIdentity,
    service: Rc<S>,
    requests: Arc<Semaphore>,
    orders: mpsc::UnboundedSender<Order>,
    workers: Rc<Workers<Request>>,
}

/// One request, with all that came with it.
struct Request {
    id: u64,
    body: Vec<u8>,
    payload: Option<(BoxBuffer, usize)>,
    place: OwnedSemaphorePermit,
}

impl<S> Drop for Reading<S> {
    fn drop(&mut self) {
        self.workers.end();
    }
}

impl<S: Service> Reading<S> {
    async fn run(&self, receiver: &mut SessionReceiver) -> Result<(), SessionError> {
        while let Some(frame) = receiver.next().await? {
            match frame.kind {
                FrameKind::Ping => self.pong(),
                FrameKind::Request => self.request(receiver, frame).await?,
                FrameKind::Close => return Ok(()),
                _ => {
                    return Err(SessionError::Protocol {
                        what: "an answer where requests are due",
                    });
                }
            }
        }
        Ok(())
    }

    fn pong(&self) {
        // Fails only when the connection is about to end.
        let _ = self.orders.send(Order::Pong);
    }

    async fn request(
        &self,
        receiver: &mut SessionReceiver,
        frame: Frame,
    ) -> Result<(), SessionError> {
        let place = self.patiently(self.requests.clone().acquire_owned()).await;
        let place = place.expect("never closed");
        let mut payload = None;
        if frame.payload_len > 0 {
            let buffer = self.patiently(self.service.buffer(frame.payload_len)).await;
            let mut loan = Loan::new(buffer, frame.payload_len);
            receiver.payload_lent(&mut loan).await?;
            let buffer = loan.end().ok_or_else(TransportError::still_in_use)?;
            payload = Some((buffer, frame.payload_len));
        }
        let Frame { request_id: id, body, .. } = frame;
        if let Given::NeedsOne = self.workers.give(Request { id, body, payload, place }) {
            tokio::task::spawn_local(self.worker());
        }
        Ok(())
    }

    /// Serves requests until the connection has ended, and what it began is done.
    fn worker(&self) -> impl Future<Output = ()> + use<S> {
        let (peer, service) = (self.peer, self.service.clone());
        let (orders, workers) = (self.orders.clone(), Rc::clone(&self.workers));
        async move {
            while let Some(Request { id, body, payload, place }) = workers.next().await {
                let response = service.clone().serve(peer, id, body, payload).await;
                if response.body.len() > BODY_BYTES_MAX {
                    // A fault of ours; it must not cost the peer its connection as well.
                    tracing::error!(server = %peer.server, id, "an answer is too long to be sent");
                    continue;
                }
                // When the connection is gone, so is who asked.
                let _ = orders.send(Order::Reply { id, response, _place: place });
            }
        }
    }

    /// Waits, and tells the peer once a second that we are there.
    async fn patiently<T>(&self, waiting: impl Future<Output = T>) -> T {
        tokio::pin!(waiting);
        loop {
            tokio::select! {
                biased;
                done = &mut waiting => return done,
                () = tokio::time::sleep(HEARTBEAT) => self.pong(),
            }
        }
    }
}
