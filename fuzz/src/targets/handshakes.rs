//! Handshakes of servers: with frames that are changed on the way, and with a member that introduces itself with any bytes.

use std::cell::Cell;
use std::sync::Arc;

use hayase_layout::ServerId;
use hayase_wire::handshake::{self, Lane, LinkId, PATTERN, PROLOGUE, Session};
use hayase_wire::header::{FrameKind, HEADER_BYTES, Header, TAG_BYTES};
use hayase_wire::limits::HELLO_BYTES_MAX;
use hayase_wire::message::PROTOCOL_VERSION;
use hayase_wire::transport::memory::MemoryFrame;
use hayase_wire::transport::{Connection, MemoryTransport};
use hayase_wire::{
    Credentials, HandshakeError, KnownServer, PeerIdentity, Secret, ServerKey, encode,
};
use snow::{Builder, HandshakeState};

use super::{way, way_of};

const SECRET: [u8; 32] = [9; 32];
const LINK: LinkId = LinkId { link: 1, lane: Lane::Small };
/// Which frame, which byte of it, and what is added to that by exclusive or.
const CHANGE_BYTES: usize = 4;
/// What the engine adds to what it carries: two keys and two codes.
const NOISE_BYTES_MAX: usize = 96;

const fn private(server: u16) -> [u8; 32] {
    [60 + server as u8; 32]
}

fn key(server: u16) -> ServerKey {
    ServerKey::of(Secret::from_bytes(private(server)))
}

fn identity(server: u16) -> PeerIdentity {
    PeerIdentity { server: ServerId(server), start_id: 40 }
}

fn credentials(server: u16) -> Credentials {
    let known = |server| KnownServer { host: format!("n{server}"), key: key(server).public() };
    Credentials {
        secret: Secret::from_bytes(SECRET),
        me: identity(server),
        key: key(server),
        known: Arc::new((0..2).map(known).collect()),
        encrypt: false,
    }
}

/// Runs on this thread alone. Nobody waits for a peer that is gone, so no input takes long.
fn run<T>(steps: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(steps)
}

fn way_of_handshake(result: &Result<Session, HandshakeError>) -> u64 {
    way_of(result.as_ref().map(|session| session.peer), |peer| u64::from(peer.server.0))
}

pub(super) fn changes() -> Vec<Vec<u8>> {
    // Of the kind of a frame, of the bytes of each, and none.
    let of_frame = |frame: u8| vec![frame, 0, HEADER_BYTES as u8 + 3, 1];
    [vec![0, 0, 4, 1], vec![]].into_iter().chain((0..4).map(of_frame)).collect()
}

/// A handshake of server 0 with server 1. A connector that has a session has received what was sent.
pub(super) fn changed_on_the_way(input: &[u8]) -> u64 {
    let changes = input.as_chunks::<CHANGE_BYTES>().0.to_vec();
    let transport = MemoryTransport::new();
    let (number, is_body_changed) = (Cell::new(0_u8), std::rc::Rc::new(Cell::new(false)));
    let noted = std::rc::Rc::clone(&is_body_changed);
    transport.set_tap(move |_, mut frame| {
        let this = number.replace(number.get().wrapping_add(1));
        let sent = frame.body.clone();
        for [_, high, low, by] in changes.iter().filter(|change| change[0] == this) {
            change(&mut frame, usize::from(u16::from_be_bytes([*high, *low])), *by);
        }
        noted.set(noted.get() || frame.body != sent);
        Some(vec![frame])
    });
    let (near, far) = transport.pair();
    let (ours, theirs) = (credentials(0), credentials(1));
    let (near, far) = run(async {
        let connected = handshake::connect(near, &ours, ServerId(1), LINK);
        tokio::join!(connected, handshake::accept(far, &theirs))
    });
    assert!(near.is_err() || !is_body_changed.get(), "it took a changed frame for a genuine one");
    way((way_of_handshake(&near), way_of_handshake(&far)))
}

fn change(frame: &mut MemoryFrame, at: usize, by: u8) {
    let byte = match at.checked_sub(HEADER_BYTES) {
        None => frame.header.get_mut(at),
        Some(at) => frame.body.get_mut(at),
    };
    if let Some(byte) = byte {
        *byte ^= by;
    }
}

pub(super) fn introductions() -> Vec<Vec<u8>> {
    let of = |version: u16, server, is_starting, link: Option<LinkId>| {
        let offer = link.map(|_| vec![1_u8, 2]);
        encode(&(version, identity(server), false, true, is_starting, link, offer))
            .expect("it encodes")
    };
    vec![
        of(PROTOCOL_VERSION, 0, false, Some(LINK)),
        of(PROTOCOL_VERSION, 1, false, None),
        of(PROTOCOL_VERSION, 1, true, None),
        of(PROTOCOL_VERSION + 1, 0, false, Some(LINK)),
        of(PROTOCOL_VERSION, 7, false, Some(LINK)),
    ]
}

/// Server 0 as connector, and server 1 as acceptor, with these bytes as what they say of themselves.
pub(super) fn introduced(input: &[u8]) -> u64 {
    let said = &input[..input.len().min(HELLO_BYTES_MAX - NOISE_BYTES_MAX)];
    let accepted = run(async {
        let (near, far) = MemoryTransport::new().pair();
        let credentials = credentials(1);
        let accepted = handshake::accept(far, &credentials);
        tokio::join!(accepted, connect_by_hand(near, said)).0
    });
    let connected = run(async {
        let (near, far) = MemoryTransport::new().pair();
        let credentials = credentials(0);
        let connected = handshake::connect(near, &credentials, ServerId(1), LINK);
        tokio::join!(connected, accept_by_hand(far, said)).0
    });
    for (session, server) in [(&accepted, 0), (&connected, 1)] {
        let found = session.as_ref().map_or(server, |session| session.peer.server.0);
        assert_eq!(found, server, "a peer is a server whose key it does not have");
    }
    way((way_of_handshake(&accepted), way_of_handshake(&connected)))
}

fn noise(private: &[u8; 32]) -> Builder<'_> {
    let pattern = PATTERN.parse().expect("a pattern of Noise");
    let builder = Builder::new(pattern).psk(0, &SECRET).expect("of this length");
    let builder = builder.local_private_key(private).expect("given once");
    builder.prologue(PROLOGUE).expect("given once")
}

/// `None` where the peer has closed the connection.
async fn connect_by_hand(mut connection: Connection, said: &[u8]) -> Option<()> {
    let private = private(0);
    let mut noise = noise(&private).build_initiator().expect("it has all it needs");
    send(&mut connection, &mut noise, said).await?;
    receive(&mut connection, &mut noise).await?;
    send(&mut connection, &mut noise, &[]).await?;
    // Whether the connection is taken; closed before, the acceptor would not have said it.
    connection.receiver.header().await.ok().flatten().map(|_| ())
}

async fn accept_by_hand(mut connection: Connection, said: &[u8]) -> Option<()> {
    let private = private(1);
    let mut noise = noise(&private).build_responder().expect("it has all it needs");
    receive(&mut connection, &mut noise).await?;
    send(&mut connection, &mut noise, said).await?;
    receive(&mut connection, &mut noise).await
}

async fn send(connection: &mut Connection, noise: &mut HandshakeState, said: &[u8]) -> Option<()> {
    let mut body = [0; HELLO_BYTES_MAX];
    let len = noise.write_message(said, &mut body).expect("it has room");
    let header = Header {
        kind: FrameKind::Hello,
        sealed: false,
        body_len: len as u32,
        payload_len: 0,
        request_id: 0,
        counter: 0,
        payload_code: [0; 16],
        tag: [0; TAG_BYTES],
    };
    connection.sender.send(&header.to_bytes(), &body[..len], &[]).await.ok()
}

async fn receive(connection: &mut Connection, noise: &mut HandshakeState) -> Option<()> {
    let header = connection.receiver.header().await.ok()??;
    let mut body = vec![0; Header::parse(&header).expect("of a server").body_len as usize];
    connection.receiver.body(&mut body).await.ok()?;
    noise.read_message(&body, &mut [0; HELLO_BYTES_MAX]).ok().map(|_| ())
}
