//! The caller's half: a link to one server.
//!
//! A link has two lanes, each a connection of its own: calls without payload never wait behind
//! bulk, neither on the wire nor for a credit nor for the peer's slots. A lane connects when it is
//! first needed, in the background, so that a caller who gives up costs the others nothing.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::{Rc, Weak};
use std::time::Duration;

use hayase_layout::ServerId;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::call::{Call, Outcome};
use super::credit::{Credit, Credits, RequestId};
use super::line::Line;
use super::relay::Refusal;
use super::ways::{self, Ways};
use super::{Answer, CallError, LinkError, Returned, relay};
use crate::buffer::BoxBuffer;
use crate::deadline::{RECONNECT_WAIT_MAX, RECONNECT_WAIT_MIN, RELAY_LOOK, STARTING_LOOK};
use crate::handshake::{self, Credentials, Lane as LaneKind, LinkId, PeerIdentity};
use crate::limits::{ADDRESSES_MAX, BODY_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::message::{Carrier, PeerState, PeerStatus};
use crate::times::CONNECT_WAIT;
use crate::transport::{Address, Connection, Transport};

/// What all links of a server share: how to connect, as whom, and the numbers of requests.
pub struct Connector {
    transport: Rc<dyn Transport>,
    credentials: Credentials,
    number_next: Cell<u64>,
    relay: RefCell<Weak<PeerLink>>,
}

impl Connector {
    /// One for a whole server, with at most one link to each other server: request ids are unique only
    /// within it, and credits within a link.
    pub fn new(transport: Rc<dyn Transport>, credentials: Credentials) -> Rc<Self> {
        let (number_next, relay) = (Cell::new(1), RefCell::default());
        Rc::new(Self { transport, credentials, number_next, relay })
    }

    /// From now on others are reached through the server of `link` where there is no way to them.
    pub fn relay_through(&self, link: &Rc<PeerLink>) {
        *self.relay.borrow_mut() = Rc::downgrade(link);
    }

    fn next_number(&self) -> u64 {
        let number = self.number_next.get();
        self.number_next.set(number + 1);
        number
    }

    /// A session with a server at the first of its addresses where there is one to be had.
    async fn session(
        &self,
        to: ServerId,
        addresses: &[Address],
        id: LinkId,
    ) -> Result<handshake::Session, LinkError> {
        let mut ways = Ways::new(&self.transport, addresses);
        while let Some(connection) = ways.next().await {
            let upgrade = connection.upgrade.filter(|_| id.lane != LaneKind::Relay);
            let connection = Connection { upgrade, ..connection };
            match handshake::connect(connection, &self.credentials, to, id).await {
                Ok(session) => return Ok(session),
                Err(error) if error.is_starting() => return Err(error.into()),
                Err(error) => ways.failed(error.into()),
            }
        }
        Err(ways.into_error())
    }

    /// Shakes hands with a server, on a connection of its own that takes no other one's place.
    async fn finds(&self, to: ServerId, address: &Address) -> Result<(), LinkError> {
        let connection = ways::connection(&*self.transport, address).await?;
        let connection = Connection { upgrade: None, ..connection };
        let id = LinkId { link: self.next_number(), lane: LaneKind::Bulk };
        handshake::connect(connection, &self.credentials, to, id).await?;
        Ok(())
    }

    /// Of a server, at any of its addresses.
    async fn presence(self: &Rc<Self>, to: ServerId, addresses: Vec<Address>) -> Presence {
        let mut asked = JoinSet::new();
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            let connector = Rc::clone(self);
            asked.spawn_local(async move { Presence::from(&connector.finds(to, &address).await) });
        }
        let answers = async {
            while let Some(answer) = asked.join_next().await {
                match answer {
                    Ok(Presence::Unknown) | Err(_) => {}
                    Ok(found) => return found,
                }
            }
            Presence::Unknown
        };
        tokio::time::timeout(CONNECT_WAIT, answers).await.unwrap_or(Presence::Unknown)
    }

    /// Of the next request that holds `credit`: drawn when it has it, so that ids of a credit grow.
    fn next_request_id(&self, credit: &Credit) -> RequestId {
        RequestId::new(self.next_number(), credit.number())
    }
}

/// A link to one server; to be used inside a `LocalSet`.
pub struct PeerLink {
    connector: Rc<Connector>,
    to: ServerId,
    link: u64,
    addresses: RefCell<Vec<Address>>,
    peer: Cell<Option<PeerIdentity>>,
    small: Lane,
    bulk: Lane,
    /// Of the relay.
    refusal: Rc<Refusal>,
    me: Weak<Self>,
}

/// What is known of a server that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It proved that it runs, and that its storage is open.
    Serving,
    /// It proved that it runs, and opens its storage.
    Starting,
    /// Nothing.
    Unknown,
}

impl From<&Result<(), LinkError>> for Presence {
    fn from(found: &Result<(), LinkError>) -> Self {
        match found {
            Ok(()) => Self::Serving,
            Err(error) if error.is_starting() => Self::Starting,
            Err(error) if error.is_refusal() => Self::Serving,
            Err(_) => Self::Unknown,
        }
    }
}

/// To whom a call may be sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Any,
    SameIncarnation,
}

struct Lane {
    kind: LaneKind,
    credits: Credits,
    state: RefCell<LaneState>,
    changed: Notify,
    /// Why there is no connection; `None` before the first try.
    error: RefCell<Option<Rc<LinkError>>>,
}

enum LaneState {
    /// May be tried from then on.
    Down {
        retry_at: Instant,
        wait: Duration,
    },
    Connecting {
        wait: Duration,
    },
    Up {
        line: Rc<Line>,
        wait: Duration,
    },
}

impl Lane {
    fn new(kind: LaneKind) -> Self {
        Self {
            kind,
            credits: Credits::of(kind),
            state: RefCell::new(LaneState::Down {
                retry_at: Instant::now(),
                wait: RECONNECT_WAIT_MIN,
            }),
            changed: Notify::new(),
            error: RefCell::new(None),
        }
    }

    /// No connection: the next try is due in `wait`.
    fn set_down(&self, error: LinkError, wait: Duration) {
        *self.error.borrow_mut() = Some(Rc::new(error));
        *self.state.borrow_mut() =
            LaneState::Down { retry_at: Instant::now() + wait, wait: longer(wait) };
        self.changed.notify_waiters();
    }

    /// What it travels on while it is up.
    fn over(&self) -> Option<Carrier> {
        match &*self.state.borrow() {
            LaneState::Up { line, .. } if line.is_alive() => Some(line.over),
            _ => None,
        }
    }

    /// What `waits` gives by `until`, which is put off by `deadline` for as long as the peer says that it is starting.
    async fn in_time<T>(
        &self,
        waits: impl Future<Output = T>,
        deadline: Duration,
        until: &mut Instant,
    ) -> Option<T> {
        let mut waits = std::pin::pin!(waits);
        loop {
            match timeout_at(*until, &mut waits).await {
                Ok(given) => return Some(given),
                Err(_) if self.is_starting() => {
                    *until = Instant::now() + deadline.max(STARTING_LOOK);
                }
                Err(_) => return None,
            }
        }
    }

    /// Whether the peer said at the last try that it is starting.
    fn is_starting(&self) -> bool {
        let is_down = self.over().is_none();
        is_down && self.error.borrow().as_ref().is_some_and(|error| error.is_starting())
    }

    fn refusal(&self) -> Option<Rc<LinkError>> {
        self.error.borrow().clone().filter(|error| error.is_final())
    }
}

fn longer(wait: Duration) -> Duration {
    (wait * 2).min(RECONNECT_WAIT_MAX)
}

impl PeerLink {
    /// A link to server `to`, unconnected. The first of its addresses that answers is taken.
    pub fn new(connector: Rc<Connector>, to: ServerId, addresses: Vec<Address>) -> Rc<Self> {
        let mut link = [0; 8];
        // Without randomness the number still differs between links of one process.
        let _ = SystemRandom::new().fill(&mut link);
        let link = u64::from_le_bytes(link) ^ connector.next_number();
        Rc::new_cyclic(|me| Self {
            connector,
            to,
            link,
            addresses: RefCell::new(addresses),
            peer: Cell::new(None),
            small: Lane::new(LaneKind::Small),
            bulk: Lane::new(LaneKind::Bulk),
            refusal: Rc::default(),
            me: me.clone(),
        })
    }

    /// The server at the other end.
    pub fn to(&self) -> ServerId {
        self.to
    }

    /// Its incarnation, as the last handshake told it.
    pub fn peer(&self) -> Option<PeerIdentity> {
        self.peer.get()
    }

    /// From now on it is to be found there; connections that live stay.
    pub fn set_addresses(&self, addresses: Vec<Address>) {
        *self.addresses.borrow_mut() = addresses;
        self.refusal.forget();
    }

    /// What is known without asking.
    pub fn status(&self) -> PeerStatus {
        let lanes = [&self.small, &self.bulk].into_iter();
        let over = lanes.filter_map(Lane::over).max();
        PeerStatus { server: self.to, state: self.state(), over }
    }

    /// Of it, whether there is a connection.
    pub fn state(&self) -> PeerState {
        let lanes = [&self.small, &self.bulk];
        if lanes.iter().any(|lane| lane.over().is_some()) {
            PeerState::Connected
        } else if lanes.iter().any(|lane| lane.error.borrow().is_some()) {
            PeerState::Unreachable
        } else {
            PeerState::Unconnected
        }
    }

    /// Returns when there is no connection for calls without payload. While there is one, its machine
    /// lives, or did [`crate::times::PEER_LOSS_WAIT`] ago.
    pub async fn until_down(&self) {
        loop {
            let changed = self.small.changed.notified();
            match &*self.small.state.borrow() {
                LaneState::Up { line, .. } if line.is_alive() => {}
                _ => return,
            }
            changed.await;
        }
    }

    /// Whether it said at the last try that it is starting.
    pub fn is_starting(&self) -> bool {
        self.state() == PeerState::Unreachable
            && (self.small.is_starting() || self.bulk.is_starting())
    }

    /// Whether the server proves within [`CONNECT_WAIT`], at one of its addresses, that it runs. That
    /// something accepts connections there proves nothing: anybody may listen at a port that is free.
    pub async fn presence(&self) -> Presence {
        let addresses = self.addresses.borrow().clone();
        self.connector.presence(self.to, addresses).await
    }

    /// Asks the server, and waits for its answer until `deadline` from now, or from when it last said that it is starting.
    ///
    /// `send` is a buffer and how many bytes at its start are the payload; `into` takes the payload
    /// of the answer, which must fit. Both come back with the answer or the error. Sent again with
    /// the same id when the connection is lost. Dropping the future gives the call up: the request
    /// may still be carried out, buffers are dropped as soon as the transport lets go of them.
    pub async fn call(
        &self,
        body: Vec<u8>,
        send: Option<(BoxBuffer, usize)>,
        into: Option<BoxBuffer>,
        deadline: Duration,
    ) -> Result<Answer, CallError> {
        self.call_some(body, send, into, deadline, Repeat::Any).await
    }

    async fn call_some(
        &self,
        body: Vec<u8>,
        send: Option<(BoxBuffer, usize)>,
        into: Option<BoxBuffer>,
        deadline: Duration,
        repeat: Repeat,
    ) -> Result<Answer, CallError> {
        let lane = if send.is_some() || into.is_some() { &self.bulk } else { &self.small };
        let sent_len = send.as_ref().map_or(0, |(_, len)| *len);
        let sent_room = send.as_ref().map_or(0, |(buffer, _)| buffer.as_ref().as_ref().len());
        let too_long = body.len() > BODY_BYTES_MAX || sent_len > PAYLOAD_BYTES_MAX.min(sent_room);
        let had_into = into.is_some();
        if too_long {
            let what = "the request is longer than allowed";
            let buffers = Returned { sent: send.map(|(buffer, _)| buffer), into };
            return Err(CallError::Protocol { to: self.to, what, buffers });
        }
        let mut until = Instant::now() + deadline;
        let Some(credit) = lane.in_time(lane.credits.take(), deadline, &mut until).await else {
            let buffers = Returned { sent: send.map(|(buffer, _)| buffer), into };
            return Err(CallError::Deadline { to: self.to, waited: deadline, buffers });
        };
        let id = self.connector.next_request_id(&credit);
        let call = Rc::new(Call::new(id, credit, body, send, into));
        let given_up = GiveUp { call: &call };
        let result = self.complete(lane, &call, (deadline, until), repeat).await;
        match result {
            Ok((body, received)) => {
                std::mem::forget(given_up);
                let Returned { sent, into } = call.take_buffers();
                debug_assert_eq!(into.is_some(), had_into, "an outcome waits for the buffers");
                Ok(Answer { body, sent, received: into.map(|into| (into, received)) })
            }
            Err(error) => Err(error),
        }
    }

    /// As [`PeerLink::call`], for what must not be carried out twice and leaves no trace by which the
    /// server could tell: it is not sent again to another incarnation ([`CallError::Restarted`]).
    pub async fn call_incarnation(
        &self,
        body: Vec<u8>,
        send: Option<(BoxBuffer, usize)>,
        into: Option<BoxBuffer>,
        deadline: Duration,
    ) -> Result<Answer, CallError> {
        self.call_some(body, send, into, deadline, Repeat::SameIncarnation).await
    }

    /// Sends `call` until it has an answer, and gives body and length of payload.
    async fn complete(
        &self,
        lane: &Lane,
        call: &Rc<Call>,
        (deadline, mut until): (Duration, Instant),
        repeat: Repeat,
    ) -> Result<(Vec<u8>, usize), CallError> {
        let to = self.to;
        let late =
            |call: &Call| CallError::Deadline { to, waited: deadline, buffers: call.abandon() };
        let mut sent_to = None;
        loop {
            let line = match lane.in_time(self.line(lane), deadline, &mut until).await {
                Some(Ok(line)) => line,
                Some(Err(source)) => {
                    return Err(CallError::Refused { to, source, buffers: call.abandon() });
                }
                None => {
                    let source = lane.error.borrow().clone();
                    let buffers = call.abandon();
                    return Err(CallError::Unreachable { to, waited: deadline, source, buffers });
                }
            };
            let is_other = sent_to.is_some_and(|incarnation| incarnation != line.peer);
            if is_other && repeat == Repeat::SameIncarnation {
                return Err(CallError::Restarted { to, buffers: call.abandon() });
            }
            sent_to = Some(line.peer);
            line.submit(call);
            match timeout_at(until, call.outcome()).await {
                Ok(Outcome::Answered { body, received }) => return Ok((body, received)),
                Ok(Outcome::Lost) => {}
                Ok(Outcome::Broken { what }) => {
                    return Err(CallError::Protocol { to, what, buffers: call.take_buffers() });
                }
                Err(_) => return Err(late(call)),
            }
        }
    }

    /// A living connection of `lane`; waits for one without limit, unless the peer refuses us.
    async fn line(&self, lane: &Lane) -> Result<Rc<Line>, Rc<LinkError>> {
        let mut tried = false;
        loop {
            let changed = lane.changed.notified();
            let due = match &*lane.state.borrow() {
                LaneState::Up { line, .. } if line.is_alive() => return Ok(line.clone()),
                // Its end has not been handled yet.
                LaneState::Up { .. } | LaneState::Connecting { .. } => None,
                LaneState::Down { retry_at, wait } => Some((*retry_at, *wait)),
            };
            match due {
                None => changed.await,
                Some(_) if tried && lane.refusal().is_some() => {
                    return Err(lane.refusal().expect("just seen"));
                }
                Some((retry_at, _)) if retry_at > Instant::now() => sleep_until(retry_at).await,
                Some((_, wait)) => self.start_connecting(lane, wait),
            }
            tried |= due.is_none();
        }
    }

    /// Connects in the background; the lane tells when it is done.
    fn start_connecting(&self, lane: &Lane, wait: Duration) {
        *lane.state.borrow_mut() = LaneState::Connecting { wait };
        let (me, kind) = (self.me.clone(), lane.kind);
        let attempt = Attempt {
            connector: self.connector.clone(),
            to: self.to,
            id: LinkId { link: self.link, lane: kind },
            addresses: self.addresses.borrow().clone(),
            relay: self.relay(wait),
            refusal: Rc::clone(&self.refusal),
        };
        tokio::task::spawn_local(async move {
            let end = match attempt.connect().await {
                Ok(session) => {
                    let (line, run) = Line::start(session);
                    let Some(link) = me.upgrade() else { return };
                    link.set_up(kind, Rc::clone(&line));
                    drop(link);
                    tokio::select! {
                        end = run => end,
                        never = attempt.look_for_direct_way(&line) => match never {},
                    }
                }
                Err(error) => error,
            };
            if let Some(link) = me.upgrade() {
                link.set_down(kind, end);
            }
        });
    }

    fn lane(&self, kind: LaneKind) -> &Lane {
        match kind {
            LaneKind::Small => &self.small,
            LaneKind::Bulk | LaneKind::Relay => &self.bulk,
        }
    }

    /// The other server to ask for a way, of one that was not reached at the last try either.
    fn relay(&self, wait: Duration) -> Option<Rc<PeerLink>> {
        let relay = self.connector.relay.borrow().upgrade()?;
        (wait > RECONNECT_WAIT_MIN && relay.to != self.to).then_some(relay)
    }

    /// A connection to the server, for another one to shake hands on.
    ///
    /// # Errors
    ///
    /// That of an address; [`LinkError::NoAddress`] where there is none.
    pub async fn reach(&self) -> Result<Connection, LinkError> {
        let addresses = self.addresses.borrow().clone();
        let mut ways = Ways::new(&self.connector.transport, &addresses);
        match ways.next().await {
            Some(connection) => Ok(Connection { upgrade: None, ..connection }),
            None => Err(ways.into_error()),
        }
    }

    fn set_up(&self, kind: LaneKind, line: Rc<Line>) {
        let lane = self.lane(kind);
        tracing::debug!(server = %self.to, ?kind, "connected");
        self.peer.set(Some(line.peer));
        self.refusal.forget();
        let mut state = lane.state.borrow_mut();
        let wait = match &*state {
            LaneState::Connecting { wait } => *wait,
            _ => RECONNECT_WAIT_MIN,
        };
        *state = LaneState::Up { line, wait };
        lane.changed.notify_waiters();
    }

    fn set_down(&self, kind: LaneKind, error: LinkError) {
        let lane = self.lane(kind);
        tracing::debug!(server = %self.to, ?kind, %error, "not connected");
        if error.is_silence() {
            // Nobody would find out for long that the other connection, if it is idle, is as dead.
            let other = if kind == LaneKind::Small { LaneKind::Bulk } else { LaneKind::Small };
            if let LaneState::Up { line, .. } = &*self.lane(other).state.borrow() {
                line.close_if_idle();
            }
        }
        let wait = match &*lane.state.borrow() {
            LaneState::Up { line, .. } if line.is_proven() => RECONNECT_WAIT_MIN,
            LaneState::Up { wait, .. }
            | LaneState::Connecting { wait }
            | LaneState::Down { wait, .. } => *wait,
        };
        lane.set_down(error, wait);
    }
}

impl Drop for PeerLink {
    fn drop(&mut self) {
        for lane in [&self.small, &self.bulk] {
            if let LaneState::Up { line, .. } = &*lane.state.borrow() {
                line.close();
            }
        }
    }
}

/// One try of all addresses.
struct Attempt {
    connector: Rc<Connector>,
    to: ServerId,
    id: LinkId,
    addresses: Vec<Address>,
    relay: Option<Rc<PeerLink>>,
    refusal: Rc<Refusal>,
}

impl Attempt {
    async fn connect(&self) -> Result<handshake::Session, LinkError> {
        match (self.connect_directly().await, &self.relay) {
            (Err(error), Some(relay)) if error.is_no_way() => self.connect_through(relay).await,
            (result, _) => result,
        }
    }

    async fn connect_directly(&self) -> Result<handshake::Session, LinkError> {
        self.connector.session(self.to, &self.addresses, self.id).await
    }

    async fn connect_through(&self, relay: &PeerLink) -> Result<handshake::Session, LinkError> {
        if let Some(refused) = self.refusal.lately() {
            return Err(refused);
        }
        let addresses = relay.addresses.borrow().clone();
        let id = LinkId { link: self.connector.next_number(), lane: LaneKind::Relay };
        let session = self.connector.session(relay.to, &addresses, id).await;
        // Not of the server that is looked for.
        let not_reached = |error: LinkError| relay::not_asked(relay.to, &error);
        let connection = relay::through(session.map_err(not_reached)?, self.to).await;
        let connection = connection.inspect_err(|error| self.refusal.note(error))?;
        let credentials = &self.connector.credentials;
        let session = handshake::connect(connection, credentials, self.to, self.id).await?;
        tracing::info!(server = %self.to, relay = %relay.to, "reached through another");
        Ok(handshake::Session { over: Carrier::Relay, ..session })
    }

    /// Ends a line that takes the way through a relay as soon as there is another one.
    async fn look_for_direct_way(&self, line: &Line) -> Infallible {
        if line.over != Carrier::Relay {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(RELAY_LOOK).await;
            let found = self.connector.presence(self.to, self.addresses.clone()).await;
            if found == Presence::Serving {
                line.close();
            }
        }
    }
}

/// Gives the call up when its future is dropped.
struct GiveUp<'a> {
    call: &'a Call,
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        drop(self.call.abandon());
    }
}
