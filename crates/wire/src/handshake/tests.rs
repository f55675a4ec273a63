//! Handshakes of a member with a member, and with everybody else.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::*;
use crate::header::HEADER_BYTES;
use crate::secret::Secret;
use crate::transport::memory::{Direction, MemoryFrame};
use crate::transport::{LocalFuture, MemoryTransport};

const LINK: LinkId = LinkId { link: 1, lane: Lane::Bulk };

fn credentials(server: u16, secret: u8, encrypt: bool) -> Credentials {
    let me = PeerIdentity { server: ServerId(server), start_id: 40 };
    let known = |server| KnownServer { host: format!("n{server}"), key: key(server).public() };
    let known = Arc::new((0..4).map(known).collect());
    Credentials { secret: Secret::from_bytes([secret; 32]), me, key: key(server), known, encrypt }
}

fn key(server: u16) -> ServerKey {
    ServerKey::of(Secret::from_bytes([60 + server as u8; 32]))
}

/// Of server 2, which says that it is another one.
fn posing_as(server: u16) -> Credentials {
    Credentials { key: key(2), ..credentials(server, 9, false) }
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
        let (near, far) = shake(credentials(0, 9, ours), credentials(1, 9, theirs), through).await;
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

/// The connector's side by hand, of a processor without AES instructions: payloads have checksums, both ways.
#[tokio::test]
async fn with_a_peer_that_authenticates_no_payloads_they_have_checksums() {
    for authenticates in [false, true] {
        let protection = match authenticates && authenticates_payloads() {
            true => Protection::Authenticated,
            false => Protection::Checked,
        };
        let (near, far) = MemoryTransport::new().pair();
        let (ours, theirs) = (credentials(0, 9, false), credentials(1, 9, false));
        let Connection { mut sender, mut receiver, .. } = near;
        let by_hand = async {
            let mut state = noise(&ours).unwrap().build_initiator().unwrap();
            let mine = Introduction { authenticates, ..introduced(&ours, Some(LINK), None) };
            send_hello(&mut *sender, &mut state, &codec::encode(&mine).unwrap()).await.unwrap();
            let theirs =
                open_hello(&mut state, &receive_hello(&mut *receiver).await.unwrap()).unwrap();
            send_hello(&mut *sender, &mut state, &[]).await.unwrap();
            let (ours, peers) = state.dangerously_get_raw_split();
            let mut session =
                session(sender, receiver, (&ours, &peers), protection, theirs.who, LINK);
            expect_taken(ServerId(1), &mut session.receiver).await.unwrap();
            session
        };
        let (mut near, far) = tokio::join!(by_hand, accept(far, &theirs));
        let mut far = far.unwrap();
        for (from, to) in
            [(&mut near.sender, &mut far.receiver), (&mut far.sender, &mut near.receiver)]
        {
            from.send(FrameKind::Request, 3, b"body", b"payload").await.unwrap();
            to.next().await.unwrap().unwrap();
            to.payload(&mut [0; 7]).await.unwrap();
        }
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
        assert_eq!((by_near.get(), by_far.get()), (expected, expected), "{one} {other} {lane:?}");
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
    // New keys and what is behind them, in each message.
    for (direction, nth, at) in [
        (Direction::Out, 0, 0),
        (Direction::Out, 0, 40),
        (Direction::Back, 0, 0),
        (Direction::Back, 0, 40),
        (Direction::Back, 0, 90),
        (Direction::Out, 1, 0),
        (Direction::Out, 1, 50),
    ] {
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
        assert!(near.is_err() && far.is_err(), "{direction:?} {nth} {at}");
    }
}

#[tokio::test]
async fn who_knows_the_secret_is_no_other_server() {
    let honest = || credentials(0, 9, false);
    let through = |_, frame| Some(vec![frame]);
    for (said, of) in [(1, 1), (3, 3)] {
        let (near, far) = shake(honest(), posing_as(said), through).await;
        let error = near.map(|_| ()).unwrap_err();
        let text = format!("the peer does not have the key of server {of} on host n{of}");
        assert_eq!(error.to_string(), text);
        assert!(!error.is_final() && error.help().is_some());
        assert!(matches!(far, Err(HandshakeError::Closed)), "nothing of the connector is shown");
    }
    let refused = |near: Result<Session, HandshakeError>, why: &str| {
        let error = near.map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), format!("server 1 refused the connection: {why}"));
        assert!(!error.is_final() && error.help().is_some());
    };
    let (near, far) = shake(posing_as(0), credentials(1, 9, false), through).await;
    assert!(matches!(far, Err(HandshakeError::WrongKey { server: ServerId(0), .. })));
    refused(near, "it knows server 0 by another key");
    let (near, far) = shake(posing_as(9), credentials(1, 9, false), through).await;
    assert!(matches!(far, Err(HandshakeError::UnknownServer { server: ServerId(9) })));
    refused(near, "its job has no server 9");
    // With another version, too: that would be final.
    for starting in [true, false] {
        let (near, mut far) = MemoryTransport::new().pair();
        let (ours, theirs) = (honest(), posing_as(1));
        let by_hand = async {
            let mut state = noise(&theirs).unwrap().build_responder().unwrap();
            let body = receive_hello(&mut *far.receiver).await.unwrap();
            open_hello(&mut state, &body).unwrap();
            let said = Introduction { is_starting: starting, ..introduced(&theirs, None, None) };
            let mut said = codec::encode(&said).unwrap();
            said[0] += u8::from(!starting);
            send_hello(&mut *far.sender, &mut state, &said).await.unwrap();
        };
        let (near, ()) = tokio::join!(connect(near, &ours, ServerId(1), LINK), by_hand);
        assert!(matches!(near, Err(HandshakeError::WrongKey { .. })), "starting: {starting}");
    }
}

#[tokio::test]
async fn a_connector_knows_that_it_is_taken_or_why_not() {
    let (near, far) = MemoryTransport::new().pair();
    let (ours, theirs) = (credentials(0, 9, false), credentials(1, 9, false));
    let full = || Some("it is full".to_owned());
    let accepting = async { answer(hear(far, &theirs).await?, &theirs, full).await };
    let (near, far) = tokio::join!(connect(near, &ours, ServerId(1), LINK), accepting);
    let error = near.map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "server 1 refused the connection: it is full");
    assert!(matches!(far, Err(HandshakeError::NotTaken { server: ServerId(0), .. })));

    // What is said comes from the acceptor alone: nobody on the way can say it.
    for at in [0, 20, 50] {
        let mut seen = 0;
        let (near, _) = honest(move |way, frame| {
            seen += usize::from(way == Direction::Back);
            if way == Direction::Back && seen == 2 {
                frame.header[at] ^= 1;
            }
        })
        .await;
        assert!(matches!(near, Err(HandshakeError::Frame(_))), "{at}");
    }
}

#[tokio::test]
async fn another_server_or_version_is_named() {
    let through = |_, frame| Some(vec![frame]);
    let (near, _) = shake(credentials(0, 9, false), credentials(2, 9, false), through).await;
    let error = near.map(|_| ()).unwrap_err();
    assert!(matches!(error, HandshakeError::WrongServer { found: ServerId(2), .. }));
    assert!(!error.is_final() && error.help().is_some(), "anybody can forward a connection");

    // The connector's side by hand, with a version of its own.
    let transport = MemoryTransport::new();
    let (mut near, far) = transport.pair();
    let (ours, theirs) = (credentials(0, 9, false), credentials(1, 9, false));
    let by_hand = async {
        let mut state = noise(&ours).unwrap().build_initiator().unwrap();
        let mut mine = introduction(&ours, Some(LINK), None).unwrap();
        mine[0] = 77;
        send_hello(&mut *near.sender, &mut state, &mine).await.unwrap();
        let body = receive_hello(&mut *near.receiver).await.unwrap();
        open_hello(&mut state, &body).unwrap().version
    };
    let (told, far) = tokio::join!(by_hand, accept(far, &theirs));
    assert!(matches!(far, Err(HandshakeError::Version { theirs: 77 })));
    assert_eq!(told, PROTOCOL_VERSION, "who knows the secret learns our version");
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
    assert!(matches!(far, Err(HandshakeError::Replayed)));
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
        payload_code: [0; 16],
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
