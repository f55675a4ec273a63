//! The way through a relay, for two servers that both reach a third and not each other.
//!
//! The caller opens a connection to the relay ([`Lane::Relay`]), names the server that it
//! looks for, and then shakes hands with that one over the same connection. The relay hands on frames as
//! they come. It looks into none: their keys are those of the two ends.
//!
//! Fault: a cut between two nodes, or one that lets packets through one way only, while both reach the
//! coordinator (fault model, 2). Neither is lost, and nobody else can answer for what they have.

use std::time::Duration;

use hayase_layout::ServerId;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::LinkError;
use crate::codec;
use crate::deadline::{CONNECT_WAIT, HANDSHAKE_WAIT, STALL_MAX};
use crate::handshake::{HandshakeError, Session};
use crate::header::{FrameKind, HEADER_BYTES, Header};
use crate::session::SessionError;
use crate::transport::{Connection, FrameReceiver, FrameSender};

/// For a relay to reach the other server, and to say so.
const REACH_WAIT: Duration = CONNECT_WAIT.saturating_add(HANDSHAKE_WAIT);

/// What is asked of a relay.
#[derive(Serialize, Deserialize)]
struct Reach {
    server: ServerId,
}

/// Whether it was reached, or why not.
type Reached = Result<(), String>;

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
    reached.map_err(|why| LinkError::NotRelayed { relay: relay.server, why })?;
    let ((sender, _), (receiver, _)) = (sender.into_parts(), receiver.into_parts());
    let peer = format!("server {server} through server {}", relay.server);
    Ok(Connection { sender, receiver, peer, upgrade: None })
}

/// As the relay: `reach`es the server that the peer of `session` names, and hands frames on between the two
/// until one of them ends. Holds one frame each way, of at most
/// [`PAYLOAD_BYTES_MAX`](crate::limits::PAYLOAD_BYTES_MAX).
pub(super) async fn relay<F: Future<Output = Result<Connection, LinkError>>>(
    session: Session,
    reach: impl FnOnce(ServerId) -> F,
) -> Result<(), SessionError> {
    let Session { mut sender, mut receiver, .. } = session;
    let named = timeout(HANDSHAKE_WAIT, receiver.next()).await;
    let Some(frame) = named.map_err(|_| SessionError::Stalled { after: HANDSHAKE_WAIT })?? else {
        return Ok(());
    };
    let named: Option<Reach> = codec::decode(&frame.body).ok();
    let Some(Reach { server }) = named.filter(|_| frame.payload_len == 0) else {
        return Err(SessionError::Protocol { what: "a relay that is not told whom to reach" });
    };
    let (reached, onward): (Reached, _) = match reach(server).await {
        Ok(onward) => (Ok(()), Some(onward)),
        Err(why) => (Err(why.to_string()), None),
    };
    let answer = codec::encode(&reached);
    let answer =
        answer.map_err(|_| SessionError::Protocol { what: "a reason that is too long" })?;
    sender.send(FrameKind::Reply, 0, &answer, &[]).await?;
    let Some(mut onward) = onward else { return Ok(()) };
    let ((mut back, _), (mut from, _)) = (sender.into_parts(), receiver.into_parts());
    tokio::select! {
        end = hand_on(&mut *from, &mut *onward.sender) => end,
        end = hand_on(&mut *onward.receiver, &mut *back) => end,
    }
}

/// Until the sending side closes between two frames, or either fails.
async fn hand_on(
    from: &mut dyn FrameReceiver,
    to: &mut dyn FrameSender,
) -> Result<(), SessionError> {
    let stalled = |_| SessionError::Stalled { after: STALL_MAX };
    while let Some(bytes) = from.header().await? {
        let (body, payload) = timeout(STALL_MAX, rest(from, &bytes)).await.map_err(stalled)??;
        timeout(STALL_MAX, to.send(&bytes, &body, &payload)).await.map_err(stalled)??;
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
