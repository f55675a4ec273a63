//! The handshake: both sides prove that they know the job's secret, and which server they are.
//!
//! Noise XXpsk0 (25519, ChaCha20-Poly1305, BLAKE2s) with the secret as pre-shared key, in three
//! `Hello` frames. The second and the third prove the key of the acceptor and of the connector, which must be those
//! that the job knows of the servers that they say they are ([`crate::keys`]): the secret alone makes no peer another
//! server. A peer that does not know the secret gets no byte in answer, and costs no key exchange.
//! The first frame of the session is the acceptor's, and says whether it takes the connection.
//! Source: Noise protocol framework, revision 34, sections 7.5 and 9.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use snow::{Builder, HandshakeState};
use tokio::time::{Instant, timeout_at};

use hayase_layout::ServerId;

use crate::codec::{self, CodecError};
use crate::header::{FrameKind, Header, TAG_BYTES};
use crate::keys::{KnownServer, KnownServers, ServerKey};
use crate::limits::HELLO_BYTES_MAX;
use crate::members::COORDINATOR;
use crate::message::{Carrier, PROTOCOL_VERSION};
use crate::secret::Secret;
use crate::session::{
    DirectionKeys, NO_CODE, Opener, Protection, Sealer, SessionError, SessionReceiver,
    SessionSender, authenticates_payloads, receive_body,
};
use crate::times::{HANDSHAKE_WAIT, PEER_LOSS_WAIT};
use crate::transport::{Connection, FrameReceiver, FrameSender, TransportError, Upgrade};

mod own_key;

use own_key::OwnKeyResolver;

/// Of Noise.
pub const PATTERN: &str = "Noise_XXpsk0_25519_ChaChaPoly_BLAKE2s";
/// Both sides begin with it: a peer of another protocol fails at once.
pub const PROLOGUE: &[u8] = b"hayase wire handshake 2";

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
    /// Proves it.
    pub key: ServerKey,
    /// The servers of the job: no peer is anybody else. Not needed by a server that only says that it is starting.
    pub known: Arc<KnownServers>,
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
    /// None: the peer wants to be passed on to another server.
    Relay,
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
    /// Not soon enough, while many others connected.
    #[error("the peer had not completed the handshake when many others had begun one")]
    Displaced,
    /// Another version of the messages.
    #[error("the peer speaks protocol version {theirs}, this server {PROTOCOL_VERSION}")]
    Version {
        /// The peer's.
        theirs: u16,
    },
    /// Somebody else who knows the secret.
    #[error("the peer does not have the key of server {server} on host {host}")]
    WrongKey {
        /// As which it was called, or which it says it is.
        server: ServerId,
        /// Of that server.
        host: String,
    },
    /// The job has fewer servers.
    #[error("the peer says that it is server {server}, which this job does not have")]
    UnknownServer {
        /// Which.
        server: ServerId,
    },
    /// A first message that somebody else has made.
    #[error("the peer did not prove that it began the handshake")]
    Replayed,
    /// Another server of the same job.
    #[error("server {found} answered where server {expected} was called")]
    WrongServer {
        /// Called.
        expected: ServerId,
        /// Answering.
        found: ServerId,
    },
    /// It proved which server it is, and takes no connection of ours.
    #[error("server {server} refused the connection: {why}")]
    Refused {
        /// Who.
        server: ServerId,
        /// In its words.
        why: String,
    },
    /// Of ours: a server of the job was told so.
    #[error("the connection of server {server} was not taken: {why}")]
    NotTaken {
        /// Whose.
        server: ServerId,
        /// Why.
        why: String,
    },
    /// It runs, and answers nothing yet.
    #[error("server {server} is starting")]
    Starting {
        /// Who.
        server: ServerId,
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
            Self::WrongServer { .. } => Some(
                "something at the address of this server forwards connections to another one: see what listens there \
                 (`ss -ltnp`), and the entry of this server in `members.d` of the job directory",
            ),
            Self::WrongKey { .. } => Some(
                "a process that knows the secret of the job is in the place of this server: look for servers left \
                 over on that host (`ss -ltnp`); a server that has lost its storage cannot return to the job, end it \
                 with `hayase down`",
            ),
            Self::UnknownServer { .. } => Some(
                "look for servers of another start of this job (`hayase status`), and end them with `hayase down`",
            ),
            Self::Refused { .. } => {
                Some("see the log of that server, `node-<i>/serve.log` in the job directory")
            }
            Self::Slow | Self::Displaced | Self::Starting { .. } => {
                Some("see `hayase status` and the log of that server")
            }
            Self::Replayed
            | Self::NotTaken { .. }
            | Self::Transport(_)
            | Self::Frame(_)
            | Self::Introduction(_)
            | Self::Noise(_) => None,
        }
    }

    /// Trying again can not help: the called server proved itself, and does not fit. A wrong secret, key or server
    /// proves nothing: anyone on the path can send a bad answer, or forward the connection to another server.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Version { .. })
    }

    /// Whether the peer said that it is starting.
    pub(crate) fn is_starting(&self) -> bool {
        matches!(self, Self::Starting { .. })
    }
}

/// What each side says of itself, inside the Noise messages. Version first, for ever.
#[derive(Serialize, Deserialize)]
struct Introduction {
    version: u16,
    who: PeerIdentity,
    encrypt: bool,
    /// Its CPU is fast at it.
    authenticates: bool,
    /// Of the acceptor: it opens its storage, and takes no connection yet.
    is_starting: bool,
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
        let body = receive_hello(&mut *receiver).await?;
        let theirs = expect_server(to, &body, &mut noise, &credentials.known)?;
        if theirs.is_starting {
            return Err(HandshakeError::Starting { server: to });
        }
        send_hello(&mut *sender, &mut noise, &[]).await?;
        let protection = protection(credentials, &theirs);
        let (ours, peers) = noise.dangerously_get_raw_split();
        notice_loss(&*sender, credentials.me.server, to, link);
        let mut session = session(sender, receiver, (&ours, &peers), protection, theirs.who, link);
        expect_taken(to, &mut session.receiver).await?;
        upgraded(session, upgrade, theirs.offer)
    };
    tokio::time::timeout(HANDSHAKE_WAIT, steps).await.map_err(|_| HandshakeError::Slow)?
}

/// A connection whose first message was made with the secret. Perhaps not by who is at its other end.
pub struct Heard {
    connection: Connection,
    noise: HandshakeState,
    /// Or the version that its maker speaks.
    theirs: Result<Introduction, u16>,
    until: Instant,
}

/// The accepting side. Anyone may be at the other end.
pub async fn accept(
    connection: Connection,
    credentials: &Credentials,
) -> Result<Session, HandshakeError> {
    answer(hear(connection, credentials).await?, credentials, || None).await
}

/// The first step of the accepting side: hears what the connector says, and tells it nothing. Costs
/// a few hashes.
pub async fn hear(
    mut connection: Connection,
    credentials: &Credentials,
) -> Result<Heard, HandshakeError> {
    let until = Instant::now() + HANDSHAKE_WAIT;
    let body = within(until, receive_hello(&mut *connection.receiver)).await?;
    let mut noise = noise(credentials)?.build_responder()?;
    let theirs = match open_hello(&mut noise, &body) {
        Ok(theirs) => Ok(theirs),
        Err(HandshakeError::Version { theirs }) => Err(theirs),
        Err(error) => return Err(error),
    };
    Ok(Heard { connection, noise, theirs, until })
}

/// The other steps: answers, has the connector prove which server it is, and says whether the connection is taken, which
/// it is unless `refuses` says why not. Costs two key exchanges, and a third one with a peer that has proved that it made
/// the first message.
pub async fn answer(
    heard: Heard,
    credentials: &Credentials,
    refuses: impl FnOnce() -> Option<String>,
) -> Result<Session, HandshakeError> {
    let Heard { connection, mut noise, theirs, until } = heard;
    let Connection { mut sender, mut receiver, upgrade, .. } = connection;
    let steps = async {
        let theirs = match theirs {
            Ok(theirs) => theirs,
            Err(theirs) => {
                // It knows the secret: it may know our version, and closes by itself.
                let mine = introduction(credentials, None, None)?;
                send_hello(&mut *sender, &mut noise, &mine).await?;
                return Err(HandshakeError::Version { theirs });
            }
        };
        let link = theirs.link.ok_or(HandshakeError::Frame(SessionError::Protocol {
            what: "a connector that does not name its link",
        }))?;
        let mine = introduction(credentials, None, upgrade.as_deref())?;
        send_hello(&mut *sender, &mut noise, &mine).await?;
        let body = receive_hello(&mut *receiver).await?;
        open_proof(&body, &mut noise)?;
        let is_known = expect_key(theirs.who.server, &noise, &credentials.known);
        let protection = protection(credentials, &theirs);
        let (peers, ours) = noise.dangerously_get_raw_split();
        notice_loss(&*sender, credentials.me.server, theirs.who.server, link);
        let mut session = session(sender, receiver, (&ours, &peers), protection, theirs.who, link);
        if let Err(error) = is_known {
            refuse(&mut session, &refusal(&error)).await?;
            return Err(error);
        }
        if let Some(why) = refuses() {
            refuse(&mut session, &why).await?;
            return Err(HandshakeError::NotTaken { server: theirs.who.server, why });
        }
        session.sender.send(FrameKind::Pong, 0, &[], &[]).await.map_err(from_session)?;
        upgraded(session, upgrade, theirs.offer)
    };
    within(until, steps).await
}

/// Says why the connection of `session` is not taken. The other side closes it: closed by us, it might be gone before
/// that is read.
async fn refuse(session: &mut Session, why: &str) -> Result<(), HandshakeError> {
    let sent = session.sender.send(FrameKind::Close, 0, why.as_bytes(), &[]).await;
    sent.map_err(from_session)?;
    let _ = session.receiver.next().await;
    Ok(())
}

/// For a peer whose key is not that of the server that it says it is.
fn refusal(error: &HandshakeError) -> String {
    match error {
        HandshakeError::WrongKey { server, .. } => {
            format!("it knows server {server} by another key")
        }
        HandshakeError::UnknownServer { server } => format!("its job has no server {server}"),
        other => other.to_string(),
    }
}

/// That the acceptor takes the connection, which it says first.
async fn expect_taken(
    server: ServerId,
    receiver: &mut SessionReceiver,
) -> Result<(), HandshakeError> {
    let frame = receiver.next().await.map_err(from_session)?.ok_or(HandshakeError::Closed)?;
    match frame.kind {
        FrameKind::Pong => Ok(()),
        FrameKind::Close => {
            let why = String::from_utf8_lossy(&frame.body).into_owned();
            Err(HandshakeError::Refused { server, why })
        }
        _ => Err(HandshakeError::Frame(SessionError::Protocol {
            what: "a frame before it is known whether the connection is taken",
        })),
    }
}

/// Instead of [`answer`]: who we are, and that we are starting. The other side closes the connection.
pub async fn answer_starting(
    heard: Heard,
    credentials: &Credentials,
) -> Result<(), HandshakeError> {
    let Heard { connection, mut noise, until, .. } = heard;
    let Connection { mut sender, mut receiver, .. } = connection;
    let steps = async {
        let mine = Introduction { is_starting: true, ..introduced(credentials, None, None) };
        send_hello(&mut *sender, &mut noise, &codec::encode(&mine)?).await?;
        // Closed by us, it might be gone before it is read.
        let _ = receiver.header().await;
        Ok(())
    };
    within(until, steps).await
}

async fn within<T>(
    until: Instant,
    steps: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, HandshakeError> {
    timeout_at(until, steps).await.map_err(|_| HandshakeError::Slow)?
}

fn noise(credentials: &Credentials) -> Result<Builder<'_>, HandshakeError> {
    let resolver = Box::new(OwnKeyResolver::new(credentials.key.clone()));
    let builder = Builder::with_resolver(PATTERN.parse()?, resolver);
    let builder = builder.psk(0, credentials.secret.as_bytes())?;
    Ok(builder.local_private_key(credentials.key.private())?.prologue(PROLOGUE)?)
}

fn introduction(
    credentials: &Credentials,
    link: Option<LinkId>,
    upgrade: Option<&dyn Upgrade>,
) -> Result<Vec<u8>, HandshakeError> {
    Ok(codec::encode(&introduced(credentials, link, upgrade))?)
}

fn introduced(
    credentials: &Credentials,
    link: Option<LinkId>,
    upgrade: Option<&dyn Upgrade>,
) -> Introduction {
    Introduction {
        version: PROTOCOL_VERSION,
        who: credentials.me,
        encrypt: credentials.encrypt,
        authenticates: authenticates_payloads(),
        is_starting: false,
        link,
        offer: upgrade.map(Upgrade::offer),
    }
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

/// What both sides come to, each by itself.
fn protection(ours: &Credentials, theirs: &Introduction) -> Protection {
    if ours.encrypt || theirs.encrypt {
        Protection::Sealed
    } else if authenticates_payloads() && theirs.authenticates {
        Protection::Authenticated
    } else {
        Protection::Checked
    }
}

fn session(
    sender: Box<dyn FrameSender>,
    receiver: Box<dyn FrameReceiver>,
    (ours, peers): (&[u8; 32], &[u8; 32]),
    protection: Protection,
    peer: PeerIdentity,
    link: LinkId,
) -> Session {
    Session {
        sender: SessionSender::new(sender, Sealer::new(DirectionKeys::derive(ours, protection))),
        receiver: SessionReceiver::new(
            receiver,
            Opener::new(DirectionKeys::derive(peers, protection)),
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
        payload_code: NO_CODE,
        tag: [0; TAG_BYTES],
    };
    Ok(sender.send(&header.to_bytes(), &body[..len], &[]).await?)
}

async fn receive_hello(receiver: &mut dyn FrameReceiver) -> Result<Vec<u8>, HandshakeError> {
    let bytes = receiver.header().await?.ok_or(HandshakeError::Closed)?;
    let (header, body) = receive_body(receiver, &bytes).await.map_err(from_session)?;
    if header.kind != FrameKind::Hello {
        let what = "a frame before the handshake";
        return Err(HandshakeError::Frame(SessionError::Protocol { what }));
    }
    Ok(body)
}

fn open_hello(noise: &mut HandshakeState, body: &[u8]) -> Result<Introduction, HandshakeError> {
    let mut plain = [0; HELLO_BYTES_MAX];
    let len = noise.read_message(body, &mut plain).map_err(|error| match error {
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

/// What the acceptor says of itself. It may be another server than the one that was called, and must have the key of the
/// server that it says it is.
fn expect_server(
    called: ServerId,
    body: &[u8],
    noise: &mut HandshakeState,
    known: &KnownServers,
) -> Result<Introduction, HandshakeError> {
    let theirs = match open_hello(noise, body) {
        Err(error) if !matches!(error, HandshakeError::Version { .. }) => return Err(error),
        theirs => theirs,
    };
    let found = theirs.as_ref().map_or(called, |theirs| theirs.who.server);
    expect_key(found, noise, known)?;
    match theirs {
        Ok(_) if found != called => Err(HandshakeError::WrongServer { expected: called, found }),
        theirs => theirs,
    }
}

/// The connector's proof: its key, made secret with the new keys, which only the maker of the first message has.
fn open_proof(body: &[u8], noise: &mut HandshakeState) -> Result<(), HandshakeError> {
    let mut plain = [0; HELLO_BYTES_MAX];
    match noise.read_message(body, &mut plain) {
        Ok(0) => Ok(()),
        Ok(_) => Err(HandshakeError::Frame(SessionError::Protocol {
            what: "a proof of a key with something behind it",
        })),
        Err(snow::Error::Decrypt) => Err(HandshakeError::Replayed),
        Err(other) => Err(HandshakeError::Noise(other)),
    }
}

/// That the key which the peer has proved is the one of `server`.
fn expect_key(
    server: ServerId,
    noise: &HandshakeState,
    known: &KnownServers,
) -> Result<(), HandshakeError> {
    let Some(KnownServer { host, key }) = known.get(server) else {
        return Err(HandshakeError::UnknownServer { server });
    };
    match noise.get_remote_static() {
        Some(shown) if shown == key.as_bytes() => Ok(()),
        _ => Err(HandshakeError::WrongKey { server, host: host.clone() }),
    }
}

fn from_session(error: SessionError) -> HandshakeError {
    match error {
        SessionError::Transport(error) => HandshakeError::Transport(error),
        error => HandshakeError::Frame(error),
    }
}

#[cfg(test)]
mod tests;
