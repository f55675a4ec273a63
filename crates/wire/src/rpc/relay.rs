//! The way through a relay, for two servers that both reach a third and not each other.
//!
//! The caller opens a connection to the relay ([`Lane::Relay`]), names the server that it
//! looks for, and then shakes hands with that one over the same connection. The relay hands on frames as
//! they come. It looks into none: their keys are those of the two ends.
//!
//! Fault: a cut between two nodes, or one that lets packets through one way only, while both reach the
//! coordinator (fault model, 2). Neither is lost, and nobody else can answer for what they have.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::ServerId;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

use super::LinkError;
use crate::codec;
use crate::handshake::{HandshakeError, Session};
use crate::header::{FrameKind, HEADER_BYTES, Header};
use crate::limits::{RELAY_CONNECTS_MAX, RELAYS_MAX};
use crate::session::SessionError;
use crate::times::{CONNECT_WAIT, HANDSHAKE_WAIT, RELAY_PAUSE, SILENCE_MAX, STALL_MAX};
use crate::transport::{Connection, FrameReceiver, FrameSender};

/// For an answer of a relay: it has [`HANDSHAKE_WAIT`] to reach the other server.
const REACH_WAIT: Duration = CONNECT_WAIT.saturating_add(HANDSHAKE_WAIT);

/// What is asked of a relay.
#[derive(Serialize, Deserialize)]
struct Reach {
    server: ServerId,
}

/// Why a server was not reached.
#[derive(Serialize, Deserialize)]
struct NotReached {
    /// It was looked for. Otherwise the relay does not know it, or has no room.
    was_tried: bool,
    why: String,
}

impl NotReached {
    fn refused(why: String) -> Self {
        Self { was_tried: false, why }
    }

    fn by(error: &LinkError) -> Self {
        Self { was_tried: !matches!(error, LinkError::NoAddress), why: error.to_string() }
    }

    fn of(self, relay: ServerId) -> LinkError {
        LinkError::NotRelayed { relay, was_tried: self.was_tried, why: self.why }
    }
}

/// Whether it was reached, or why not.
type Reached = Result<(), NotReached>;

/// The relay itself was not reached.
pub(super) fn not_asked(relay: ServerId, error: &LinkError) -> LinkError {
    NotReached::refused(error.to_string()).of(relay)
}

/// The connection to `server` that the relay at the other end of `session` makes.
pub(super) async fn through(session: Session, server: ServerId) -> Result<Connection, LinkError> {
    let reaching = reach(session, server);
    timeout(REACH_WAIT, reaching).await.map_err(|_| LinkError::Handshake(HandshakeError::Slow))?
}

async fn reach(session: Session, server: ServerId) -> Result<Connection, LinkError> {
    let Session { mut sender, mut receiver, peer: relay, .. } = session;
    let asked = codec::encode(&Reach { server }).map_err(HandshakeError::from)?;
    sender.send(FrameKind::Request, 0, &asked, &[]).await.map_err(LinkError::Lost)?;
    let answer = match receiver.next().await.map_err(LinkError::Lost)? {
        Some(frame) if frame.kind == FrameKind::Reply && frame.payload_len == 0 => frame.body,
        Some(_) => {
            let what = "a relay that does not say whether it reached the other server";
            return Err(LinkError::Lost(SessionError::Protocol { what }));
        }
        None => return Err(LinkError::Closed),
    };
    let reached: Reached = codec::decode(&answer).map_err(HandshakeError::from)?;
    reached.map_err(|why| why.of(relay.server))?;
    let ((sender, _), (receiver, _)) = (sender.into_parts(), receiver.into_parts());
    let peer = format!("server {server} through server {}", relay.server);
    Ok(Connection { sender, receiver, peer, upgrade: None })
}

/// What a link remembers of a relay that did not reach the server either: it is not asked again at once.
#[derive(Default)]
pub(super) struct Refusal(RefCell<Option<(Instant, ServerId, String)>>);

impl Refusal {
    /// Remembers it, if it tells something of the server. A relay that has no room, or has not heard of the server yet, may
    /// do so in a moment.
    pub(super) fn note(&self, error: &LinkError) {
        if let LinkError::NotRelayed { relay, was_tried: true, why } = error {
            *self.0.borrow_mut() = Some((Instant::now(), *relay, why.clone()));
        }
    }

    /// The last one, as long as it counts.
    pub(super) fn lately(&self) -> Option<LinkError> {
        match &*self.0.borrow() {
            Some((at, relay, why)) if at.elapsed() < RELAY_PAUSE => {
                Some(NotReached { was_tried: true, why: why.clone() }.of(*relay))
            }
            _ => None,
        }
    }

    /// There is something new of the server.
    pub(super) fn forget(&self) {
        *self.0.borrow_mut() = None;
    }
}

/// What the relay of one listener has under way.
#[derive(Default)]
pub(super) struct Relays {
    carried: RefCell<BTreeMap<u64, Rc<Carried>>>,
    number_next: Cell<u64>,
    /// Of servers to which connections are being made.
    turns: RefCell<HashMap<ServerId, Rc<Semaphore>>>,
}

/// A connection that is passed on, or may soon be.
struct Carried {
    /// When the last frame was handed on.
    frame_at: Cell<Instant>,
    /// Frames of which some bytes are not handed on yet, one each way.
    under_way: Cell<u8>,
    given_up: Notify,
}

/// One of [`RELAYS_MAX`].
struct Place<'a> {
    of: &'a Relays,
    number: u64,
    carried: Rc<Carried>,
}

impl Relays {
    /// A free place, or else that of the connection which was idle for longest. While calls wait at one its frames come
    /// each second, which an idle one does not have.
    fn place(&self) -> Option<Place<'_>> {
        let mut all = self.carried.borrow_mut();
        if all.len() >= RELAYS_MAX {
            let quiet = all.iter().filter(|(_, carried)| carried.is_idle());
            let (number, _) = quiet.min_by_key(|(_, carried)| carried.frame_at.get())?;
            let number = *number;
            all.remove(&number)?.given_up.notify_one();
        }
        let number = self.number_next.get();
        self.number_next.set(number + 1);
        let carried = Rc::new(Carried {
            frame_at: Cell::new(Instant::now()),
            under_way: Cell::new(0),
            given_up: Notify::new(),
        });
        all.insert(number, Rc::clone(&carried));
        Some(Place { of: self, number, carried })
    }

    /// What `reaching` gives, which begins when fewer than [`RELAY_CONNECTS_MAX`] others reach for the same server.
    async fn in_turn(
        &self,
        server: ServerId,
        reaching: impl Future<Output = Result<Connection, LinkError>>,
    ) -> Result<Connection, NotReached> {
        let turns = self.turns(server);
        let reached = timeout(HANDSHAKE_WAIT, async {
            // Nobody closes it.
            let _turn = turns.acquire().await;
            reaching.await.map_err(|error| NotReached::by(&error))
        });
        let late = |_| {
            let why = format!("others wait for server {server} as well, and none was in time");
            NotReached::refused(why)
        };
        reached.await.map_err(late)?
    }

    fn turns(&self, server: ServerId) -> Rc<Semaphore> {
        let mut turns = self.turns.borrow_mut();
        turns.retain(|_, turns| Rc::strong_count(turns) > 1);
        let new = || Rc::new(Semaphore::new(RELAY_CONNECTS_MAX));
        Rc::clone(turns.entry(server).or_insert_with(new))
    }
}

impl Carried {
    /// One on which a frame stalls ends by itself.
    fn is_idle(&self) -> bool {
        self.under_way.get() == 0 && self.frame_at.get().elapsed() >= SILENCE_MAX
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.of.carried.borrow_mut().remove(&self.number);
    }
}

/// As the relay: `reach`es the server that the peer of `session` names, and hands frames on between the two
/// until one of them ends, or the place is given to another. Holds one frame each way, of at most
/// [`PAYLOAD_BYTES_MAX`](crate::limits::PAYLOAD_BYTES_MAX).
pub(super) async fn relay<F: Future<Output = Result<Connection, LinkError>>>(
    session: Session,
    relays: &Relays,
    reach: impl FnOnce(ServerId) -> F,
) -> Result<(), SessionError> {
    let Session { mut sender, mut receiver, peer, .. } = session;
    let named = timeout(HANDSHAKE_WAIT, receiver.next()).await;
    let Some(frame) = named.map_err(|_| SessionError::Stalled { after: HANDSHAKE_WAIT })?? else {
        return Ok(());
    };
    let named: Option<Reach> = codec::decode(&frame.body).ok();
    let Some(Reach { server }) = named.filter(|_| frame.payload_len == 0) else {
        return Err(SessionError::Protocol { what: "a relay that is not told whom to reach" });
    };
    let full = || NotReached::refused(format!("it carries {RELAYS_MAX} connections of others"));
    // The place last: an older connection loses its own only to a connection that exists.
    let onward = relays.in_turn(server, reach(server)).await;
    let way = onward.and_then(|onward| Ok((onward, relays.place().ok_or_else(full)?)));
    let (reached, way): (Reached, _) = match way {
        Ok(way) => (Ok(()), Some(way)),
        Err(why) => (Err(why), None),
    };
    if let Err(NotReached { why, .. }) = &reached {
        tracing::debug!(from = %peer.server, to = %server, why, "not passed on");
    }
    let answer = codec::encode(&reached);
    let answer =
        answer.map_err(|_| SessionError::Protocol { what: "a reason that is too long" })?;
    sender.send(FrameKind::Reply, 0, &answer, &[]).await?;
    let Some((mut onward, place)) = way else { return Ok(()) };
    let ((mut back, _), (mut from, _)) = (sender.into_parts(), receiver.into_parts());
    let carried = &*place.carried;
    tokio::select! {
        end = hand_on(carried, &mut *from, &mut *onward.sender) => end,
        end = hand_on(carried, &mut *onward.receiver, &mut *back) => end,
        () = carried.given_up.notified() => Ok(()),
    }
}

/// Until the sending side closes between two frames, or either fails.
async fn hand_on(
    carried: &Carried,
    from: &mut dyn FrameReceiver,
    to: &mut dyn FrameSender,
) -> Result<(), SessionError> {
    let stalled = |_| SessionError::Stalled { after: STALL_MAX };
    while let Some(bytes) = from.header().await? {
        carried.under_way.update(|frames| frames + 1);
        let (body, payload) = timeout(STALL_MAX, rest(from, &bytes)).await.map_err(stalled)??;
        timeout(STALL_MAX, to.send(&bytes, &body, &payload)).await.map_err(stalled)??;
        carried.under_way.update(|frames| frames - 1);
        carried.frame_at.set(Instant::now());
    }
    Ok(())
}

/// Body and payload of the frame whose header came.
async fn rest(
    from: &mut dyn FrameReceiver,
    bytes: &[u8; HEADER_BYTES],
) -> Result<(Vec<u8>, Vec<u8>), SessionError> {
    let header = Header::parse(bytes)?;
    let mut body = vec![0; header.body_len as usize];
    if !body.is_empty() {
        from.body(&mut body).await?;
    }
    let mut payload = vec![0; header.payload_len as usize];
    let mut filled = 0;
    while filled < payload.len() {
        filled += from.payload(&mut payload[filled..]).await?;
    }
    Ok((body, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_on_which_a_frame_is_under_way_keeps_its_place() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let relays = Relays::default();
            let places: Vec<_> = (0..RELAYS_MAX).map(|_| relays.place().unwrap()).collect();
            places.iter().for_each(|place| place.carried.under_way.set(1));
            tokio::time::sleep(2 * SILENCE_MAX).await;
            assert!(relays.place().is_none());
            places[7].carried.under_way.set(0);
            assert!(relays.place().is_some());
            assert!(!relays.carried.borrow().contains_key(&7));
        });
    }
}
