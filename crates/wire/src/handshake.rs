//! The handshake: both sides prove that they know the job's secret and say who they are.
//!
//! Noise NNpsk0 (25519, ChaCha20-Poly1305, BLAKE2s) with the secret as pre-shared key, in two
//! `Hello` frames, then one sealed `Ping` of the connector as proof that it holds the new keys (so
//! a replayed first message gets nothing). Who does not know the secret gets no byte in answer.
//! Source: Noise protocol framework, revision 34, sections 7.5 and 9.

use serde::{Deserialize, Serialize};
use snow::{Builder, HandshakeState};

use hayase_layout::ServerId;

use crate::codec::{self, CodecError};
use crate::deadline::{HANDSHAKE_WAIT, PEER_LOSS_WAIT};
use crate::header::{FrameKind, Header, TAG_BYTES};
use crate::limits::HELLO_BYTES_MAX;
use crate::members::COORDINATOR;
use crate::message::{Carrier, PROTOCOL_VERSION};
use crate::secret::Secret;
use crate::session::{
    DirectionKeys, Opener, Sealer, SessionError, SessionReceiver, SessionSender, receive_body,
};
use crate::transport::{Connection, FrameReceiver, FrameSender, TransportError, Upgrade};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const PROLOGUE: &[u8] = b"hayase wire handshake 1";

/// One incarnation of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PeerIdentity {
    /// Which server.
    pub server: ServerId,
    /// Differs each time it is started.
    pub start_id: u64,
}

/// What a server brings to every handshake.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The job's.
    pub secret: Secret,
    /// Who we are.
    pub me: PeerIdentity,
    /// Encrypt bodies and payloads; happens when either side wants it.
    pub encrypt: bool,
}

/// What a connection is for. Each kind has its own, so that small calls never wait behind bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Lane {
    /// Calls without payload.
    Small,
    /// Calls with payload, either way.
    Bulk,
}

/// Names a connection among all of a peer: a newer one takes the place of an older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LinkId {
    /// Random, one for each [`crate::PeerLink`].
    pub link: u64,
    /// Which of its connections.
    pub lane: Lane,
}

impl LinkId {
    /// Whether both ends must learn soon that the other's machine is gone: of the coordinator's
    /// connections, because it declares who is lost, and because nobody is while it is silent. All
    /// others learn it from there, and probe nobody.
    fn is_watched(self, one: ServerId, other: ServerId) -> bool {
        self.lane == Lane::Small && (one == COORDINATOR || other == COORDINATOR)
    }
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// Closed without an answer: what a server does to those without its secret.
    #[error("the peer closed the connection during the handshake")]
    Closed,
    /// The first message was made with another secret.
    #[error("the peer does not know the secret of this job")]
    WrongSecret,
    /// Not in time.
    #[error("the peer did not complete the handshake within {HANDSHAKE_WAIT:?}")]
    Slow,
    /// Another version of the messages.
    #[error("the peer speaks protocol version {theirs}, this server {PROTOCOL_VERSION}")]
    Version {
        /// The peer's.
        theirs: u16,
    },
    /// Somebody else of the same job.
    #[error("server {found} answered where server {expected} was called")]
    WrongServer {
        /// Called.
        expected: ServerId,
        /// Answering.
        found: ServerId,
    },
    /// The connection broke.
    #[error("handshake")]
    Transport(#[from] TransportError),
    /// Not the frames of a handshake.
    #[error("handshake")]
    Frame(#[source] SessionError),
    /// Genuine, but not an introduction.
    #[error("handshake: what the peer said of itself is not understood")]
    Introduction(#[from] CodecError),
    /// The Noise engine refused.
    #[error("handshake: {0}")]
    Noise(#[from] snow::Error),
}

impl HandshakeError {
    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Closed | Self::WrongSecret => {
                Some("all servers must read the secret of the same job directory")
            }
            Self::Version { .. } => Some("run the same version of hayase on all nodes"),
            Self::WrongServer { .. } => {
                Some("the list of members is of another job: look for servers left over")
            }
            _ => None,
        }
    }

    /// Trying again can not help: the peer proved that it knows the secret, and does not fit. A
    /// wrong secret proves nothing: anyone on the path can send a bad answer.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Version { .. } | Self::WrongServer { .. })
    }
}

/// What each side says of itself, inside the Noise messages. Version first, for ever.
#[derive(Serialize, Deserialize)]
struct Introduction {
    version: u16,
    who: PeerIdentity,
    encrypt: bool,
    /// Of the connector only.
    link: Option<LinkId>,
    /// Of a better way, where there is one.
    offer: Option<Vec<u8>>,
}

/// An authenticated connection.
pub struct Session {
    /// Towards the peer.
    pub sender: SessionSender,
    /// From the peer.
    pub receiver: SessionReceiver,
    /// Who it is.
    pub peer: PeerIdentity,
    /// Which of its connections this is.
    pub link: LinkId,
    /// What it travels on.
    pub over: Carrier,
}

/// The connecting side, towards server `to`.
pub async fn connect(
    connection: Connection,
    credentials: &Credentials,
    to: ServerId,
    link: LinkId,
) -> Result<Session, HandshakeError> {
    let steps = async {
        let Connection { mut sender, mut receiver, upgrade, .. } = connection;
        let mut noise = noise(credentials)?.build_initiator()?;
        let mine = introduction(credentials, Some(link), upgrade.as_deref())?;
        send_hello(&mut *sender, &mut noise, &mine).await?;
        let theirs = receive_hello(&mut *receiver, &mut noise).await?;
        if theirs.who.server != to {
            return Err(HandshakeError::WrongServer { expected: to, found: theirs.who.server });
        }
        let encrypt = credentials.encrypt || theirs.encrypt;
        let (ours, peers) = noise.dangerously_get_raw_split();
        notice_loss(&*sender, credentials.me.server, to, link);
        let mut session = session(sender, receiver, (&ours, &peers), encrypt, theirs.who, link);
        session.sender.send(FrameKind::Ping, 0, &[], &[]).await.map_err(from_session)?;
        upgraded(session, upgrade, theirs.offer)
    };
    tokio::time::timeout(HANDSHAKE_WAIT, steps).await.map_err(|_| HandshakeError::Slow)?
}

/// The accepting side. Anyone may be at the other end.
pub async fn accept(
    connection: Connection,
    credentials: &Credentials,
) -> Result<Session, HandshakeError> {
    let steps = async {
        let Connection { mut sender, mut receiver, upgrade, .. } = connection;
        let mut noise = noise(credentials)?.build_responder()?;
        let theirs = receive_hello(&mut *receiver, &mut noise).await;
        if let Err(HandshakeError::Version { .. }) = theirs {
            // It knows the secret: it may know our version, and closes by itself.
            let mine = introduction(credentials, None, None)?;
            send_hello(&mut *sender, &mut noise, &mine).await?;
        }
        let theirs = theirs?;
        let link = theirs.link.ok_or(HandshakeError::Frame(SessionError::Protocol {
            what: "a connector that does not name its link",
        }))?;
        let mine = introduction(credentials, None, upgrade.as_deref())?;
        send_hello(&mut *sender, &mut noise, &mine).await?;
        let encrypt = credentials.encrypt || theirs.encrypt;
        let (peers, ours) = noise.dangerously_get_raw_split();
        notice_loss(&*sender, credentials.me.server, theirs.who.server, link);
        let mut session = session(sender, receiver, (&ours, &peers), encrypt, theirs.who, link);
        match session.receiver.next().await.map_err(from_session)? {
            Some(frame) if frame.kind == FrameKind::Ping => {
                upgraded(session, upgrade, theirs.offer)
            }
            Some(_) => Err(HandshakeError::Frame(SessionError::Protocol {
                what: "a session that does not start with a ping",
            })),
            None => Err(HandshakeError::Closed),
        }
    };
    tokio::time::timeout(HANDSHAKE_WAIT, steps).await.map_err(|_| HandshakeError::Slow)?
}

fn noise(credentials: &Credentials) -> Result<Builder<'_>, HandshakeError> {
    let pattern = PATTERN.parse()?;
    Ok(Builder::new(pattern).psk(0, credentials.secret.as_bytes())?.prologue(PROLOGUE)?)
}

fn introduction(
    credentials: &Credentials,
    link: Option<LinkId>,
    upgrade: Option<&dyn Upgrade>,
) -> Result<Vec<u8>, HandshakeError> {
    Ok(codec::encode(&Introduction {
        version: PROTOCOL_VERSION,
        who: credentials.me,
        encrypt: credentials.encrypt,
        link,
        offer: upgrade.map(Upgrade::offer),
    })?)
}

/// The same session the better way, where both sides have it. Only now: who is not of the job never gets so
/// far that anything is done with its offer.
fn upgraded(
    session: Session,
    upgrade: Option<Box<dyn Upgrade>>,
    theirs: Option<Vec<u8>>,
) -> Result<Session, HandshakeError> {
    let (Some(upgrade), Some(theirs)) = (upgrade, theirs) else { return Ok(session) };
    let Session { sender, receiver, peer, link, .. } = session;
    let over = upgrade.carrier();
    let ((side, sealer), (news, opener)) = (sender.into_parts(), receiver.into_parts());
    let (sender, receiver) = upgrade.take(&theirs, side, news)?;
    let sender = SessionSender::new(sender, sealer);
    Ok(Session { sender, receiver: SessionReceiver::new(receiver, opener), peer, link, over })
}

fn session(
    sender: Box<dyn FrameSender>,
    receiver: Box<dyn FrameReceiver>,
    (ours, peers): (&[u8; 32], &[u8; 32]),
    encrypt: bool,
    peer: PeerIdentity,
    link: LinkId,
) -> Session {
    Session {
        sender: SessionSender::new(sender, Sealer::new(DirectionKeys::derive(ours, encrypt))),
        receiver: SessionReceiver::new(
            receiver,
            Opener::new(DirectionKeys::derive(peers, encrypt)),
        ),
        peer,
        link,
        over: Carrier::Stream,
    }
}

fn notice_loss(sender: &dyn FrameSender, one: ServerId, other: ServerId, link: LinkId) {
    if link.is_watched(one, other) {
        sender.notice_loss_within(PEER_LOSS_WAIT);
    }
}

async fn send_hello(
    sender: &mut dyn FrameSender,
    noise: &mut HandshakeState,
    introduction: &[u8],
) -> Result<(), HandshakeError> {
    let mut body = [0; HELLO_BYTES_MAX];
    let len = noise.write_message(introduction, &mut body)?;
    let header = Header {
        kind: FrameKind::Hello,
        sealed: false,
        body_len: len as u32,
        payload_len: 0,
        request_id: 0,
        counter: 0,
        payload_crc: 0,
        tag: [0; TAG_BYTES],
    };
    Ok(sender.send(&header.to_bytes(), &body[..len], &[]).await?)
}

async fn receive_hello(
    receiver: &mut dyn FrameReceiver,
    noise: &mut HandshakeState,
) -> Result<Introduction, HandshakeError> {
    let bytes = receiver.header().await?.ok_or(HandshakeError::Closed)?;
    let (header, body) = receive_body(receiver, &bytes).await.map_err(from_session)?;
    if header.kind != FrameKind::Hello {
        let what = "a frame before the handshake";
        return Err(HandshakeError::Frame(SessionError::Protocol { what }));
    }
    let mut plain = [0; HELLO_BYTES_MAX];
    let len = noise.read_message(&body, &mut plain).map_err(|error| match error {
        snow::Error::Decrypt => HandshakeError::WrongSecret,
        other => HandshakeError::Noise(other),
    })?;
    let (version, _) = postcard::take_from_bytes::<u16>(&plain[..len])
        .map_err(|source| CodecError::Decode { bytes: len, source })?;
    if version != PROTOCOL_VERSION {
        return Err(HandshakeError::Version { theirs: version });
    }
    Ok(codec::decode(&plain[..len])?)
}

fn from_session(error: SessionError) -> HandshakeError {
    match error {
        SessionError::Transport(error) => HandshakeError::Transport(error),
        error => HandshakeError::Frame(error),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    use super::*;
    use crate::header::HEADER_BYTES;
    use crate::transport::memory::{Direction, MemoryFrame};
    use crate::transport::{LocalFuture, MemoryTransport};

    const LINK: LinkId = LinkId { link: 1, lane: Lane::Bulk };

    fn credentials(server: u16, secret: u8, encrypt: bool) -> Credentials {
        let me = PeerIdentity { server: ServerId(server), start_id: 40 };
        Credentials { secret: Secret::from_bytes([secret; 32]), me, encrypt }
    }

    type Both = (Result<Session, HandshakeError>, Result<Session, HandshakeError>);

    /// A handshake of server 0 with server 1, whose frames pass through `tap`.
    async fn shake(
        ours: Credentials,
        theirs: Credentials,
        tap: impl FnMut(Direction, MemoryFrame) -> Option<Vec<MemoryFrame>> + 'static,
    ) -> Both {
        let transport = MemoryTransport::new();
        transport.set_tap(tap);
        let (near, far) = transport.pair();
        tokio::join!(connect(near, &ours, ServerId(1), LINK), accept(far, &theirs))
    }

    async fn honest(tap: impl FnMut(Direction, &mut MemoryFrame) + 'static) -> Both {
        let mut tap = tap;
        let changed = move |direction, mut frame| {
            tap(direction, &mut frame);
            Some(vec![frame])
        };
        shake(credentials(0, 9, false), credentials(1, 9, false), changed).await
    }

    #[tokio::test]
    async fn both_sides_learn_who_is_there() {
        for (ours, theirs) in [(false, false), (true, false), (false, true)] {
            let through = |_, frame| Some(vec![frame]);
            let (near, far) =
                shake(credentials(0, 9, ours), credentials(1, 9, theirs), through).await;
            let (mut near, mut far) = (near.unwrap(), far.unwrap());
            assert_eq!(near.peer, credentials(1, 9, false).me);
            assert_eq!((far.peer, far.link), (credentials(0, 9, false).me, LINK));
            near.sender.send(FrameKind::Request, 3, b"body", b"payload").await.unwrap();
            let frame = far.receiver.next().await.unwrap().unwrap();
            assert_eq!((frame.request_id, &frame.body[..]), (3, &b"body"[..]));
            let mut payload = [0; 7];
            far.receiver.payload(&mut payload).await.unwrap();
            assert_eq!(&payload, b"payload");
        }
    }

    /// Notes what it is asked to notice.
    struct Noting {
        inner: Box<dyn FrameSender>,
        asked: Rc<Cell<Option<Duration>>>,
    }

    impl FrameSender for Noting {
        fn send<'a>(
            &'a mut self,
            header: &'a [u8; HEADER_BYTES],
            body: &'a [u8],
            payload: &'a [u8],
        ) -> LocalFuture<'a, Result<(), TransportError>> {
            self.inner.send(header, body, payload)
        }

        fn notice_loss_within(&self, wait: Duration) {
            self.asked.set(Some(wait));
        }
    }

    #[tokio::test]
    async fn only_the_coordinators_small_connections_are_watched() {
        let noting = |end: Connection| {
            let asked = Rc::new(Cell::new(None));
            let noting = Noting { inner: end.sender, asked: Rc::clone(&asked) };
            (Connection { sender: Box::new(noting), ..end }, asked)
        };
        for (one, other, lane, is_watched) in [
            (0, 1, Lane::Small, true),
            (1, 0, Lane::Small, true),
            (0, 1, Lane::Bulk, false),
            (1, 2, Lane::Small, false),
            (2, 1, Lane::Bulk, false),
        ] {
            let (near, far) = MemoryTransport::new().pair();
            let ((near, by_near), (far, by_far)) = (noting(near), noting(far));
            let (ours, theirs) = (credentials(one, 9, false), credentials(other, 9, false));
            let link = LinkId { link: 1, lane };
            let (near, far) =
                tokio::join!(connect(near, &ours, ServerId(other), link), accept(far, &theirs));
            assert!(near.is_ok() && far.is_ok());
            let expected = is_watched.then_some(PEER_LOSS_WAIT);
            assert_eq!(
                (by_near.get(), by_far.get()),
                (expected, expected),
                "{one} {other} {lane:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_wrong_secret_gets_no_answer() {
        let through = |_, frame| Some(vec![frame]);
        let (near, far) = shake(credentials(0, 8, false), credentials(1, 9, false), through).await;
        assert!(matches!(near, Err(HandshakeError::Closed)));
        assert!(matches!(far, Err(HandshakeError::WrongSecret)));
    }

    #[tokio::test]
    async fn no_byte_of_a_handshake_may_change() {
        // Body bytes of the first message, the second, the closing ping's header.
        for (direction, nth, at) in
            [(Direction::Out, 0, 0), (Direction::Out, 0, 40), (Direction::Back, 0, 0)]
        {
            let mut seen = 0;
            let (near, far) = honest(move |way, frame| {
                if way == direction {
                    if seen == nth {
                        frame.body[at] ^= 1;
                    }
                    seen += 1;
                }
            })
            .await;
            assert!(far.is_err(), "{direction:?} {at}");
            assert!(near.is_err(), "{direction:?} {at}");
        }
        let mut seen = 0;
        let (_, far) = honest(move |way, frame| {
            if way == Direction::Out {
                seen += 1;
                if seen == 2 {
                    frame.header[50] ^= 1;
                }
            }
        })
        .await;
        assert!(matches!(far, Err(HandshakeError::Frame(SessionError::Forged { .. }))));
    }

    #[tokio::test]
    async fn another_server_or_version_is_named() {
        let through = |_, frame| Some(vec![frame]);
        let (near, _) = shake(credentials(0, 9, false), credentials(2, 9, false), through).await;
        let error = near.map(|_| ()).unwrap_err();
        assert!(matches!(error, HandshakeError::WrongServer { found: ServerId(2), .. }));
        assert!(error.is_final());

        // The connector's side by hand, with a version of its own.
        let transport = MemoryTransport::new();
        let (mut near, far) = transport.pair();
        let (ours, theirs) = (credentials(0, 9, false), credentials(1, 9, false));
        let by_hand = async {
            let mut state = noise(&ours).unwrap().build_initiator().unwrap();
            let mut mine = introduction(&ours, Some(LINK), None).unwrap();
            mine[0] = 77;
            send_hello(&mut *near.sender, &mut state, &mine).await.unwrap();
            receive_hello(&mut *near.receiver, &mut state).await.unwrap().version
        };
        let (told, far) = tokio::join!(by_hand, accept(far, &theirs));
        assert!(matches!(far, Err(HandshakeError::Version { theirs: 77 })));
        assert_eq!(told, PROTOCOL_VERSION, "who knows the secret is told our version");
    }

    #[tokio::test(start_paused = true)]
    async fn the_slow_and_the_silent_have_two_seconds() {
        let begin = tokio::time::Instant::now();
        let (near, _open) = MemoryTransport::new().pair();
        let near = connect(near, &credentials(0, 9, false), ServerId(1), LINK).await;
        assert!(matches!(near, Err(HandshakeError::Slow)));
        assert_eq!(begin.elapsed(), HANDSHAKE_WAIT);

        let begin = tokio::time::Instant::now();
        let (_open, far) = MemoryTransport::new().pair();
        let far = accept(far, &credentials(1, 9, false)).await;
        assert!(matches!(far, Err(HandshakeError::Slow)));
        assert_eq!(begin.elapsed(), HANDSHAKE_WAIT);
    }

    #[tokio::test]
    async fn a_replayed_connector_does_not_pass() {
        let recorded = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let (near, far) = honest({
            let recorded = recorded.clone();
            move |way, frame| {
                if way == Direction::Out {
                    recorded.borrow_mut().push(frame.clone());
                }
            }
        })
        .await;
        assert!(near.is_ok() && far.is_ok());
        let (mut near, far) = MemoryTransport::new().pair();
        for frame in recorded.take() {
            near.sender.send(&frame.header, &frame.body, &frame.payload).await.unwrap();
        }
        let far = accept(far, &credentials(1, 9, false)).await;
        assert!(matches!(far, Err(HandshakeError::Frame(SessionError::Forged { .. }))));
    }

    #[tokio::test]
    async fn a_reflected_handshake_does_not_pass() {
        let (near, mut far) = MemoryTransport::new().pair();
        let ours = credentials(0, 9, false);
        let reflect = async {
            let header: [u8; HEADER_BYTES] = far.receiver.header().await.unwrap().unwrap();
            let mut body = vec![0; Header::parse(&header).unwrap().body_len as usize];
            far.receiver.body(&mut body).await.unwrap();
            far.sender.send(&header, &body, &[]).await.unwrap();
        };
        let (near, ()) = tokio::join!(connect(near, &ours, ServerId(1), LINK), reflect);
        assert!(matches!(near, Err(HandshakeError::WrongSecret | HandshakeError::Noise(_))));
    }

    #[tokio::test]
    async fn what_is_no_handshake_is_refused() {
        let refused = async |header: [u8; HEADER_BYTES], body: &[u8]| {
            let (mut near, far) = MemoryTransport::new().pair();
            near.sender.send(&header, body, &[]).await.unwrap();
            let far = accept(far, &credentials(1, 9, false)).await;
            assert!(near.receiver.header().await.unwrap().is_none(), "not a byte in answer");
            far.map(|_| ()).unwrap_err()
        };
        let hello = |body_len| Header {
            kind: FrameKind::Hello,
            sealed: false,
            body_len,
            payload_len: 0,
            request_id: 0,
            counter: 0,
            payload_crc: 0,
            tag: [0; TAG_BYTES],
        };
        let error = refused([b'G'; HEADER_BYTES], b"").await;
        assert!(matches!(error, HandshakeError::Frame(SessionError::Header(_))));
        let over = HELLO_BYTES_MAX + 1;
        let error = refused(hello(over as u32).to_bytes(), &vec![0; over]).await;
        assert!(matches!(error, HandshakeError::Frame(SessionError::Header(_))));
        let error = refused(hello(100).to_bytes(), &[0; 60]).await;
        assert!(matches!(error, HandshakeError::Transport(TransportError::Truncated { .. })));
        let error = refused(hello(10).to_bytes(), &[0; 10]).await;
        assert!(matches!(error, HandshakeError::Noise(_) | HandshakeError::WrongSecret));
        let error = refused(Header { kind: FrameKind::Ping, ..hello(0) }.to_bytes(), b"").await;
        assert!(matches!(error, HandshakeError::Frame(SessionError::Protocol { .. })));
    }
}
