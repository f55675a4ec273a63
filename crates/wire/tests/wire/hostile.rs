//! Servers against peers that are broken, slow or malicious: they lose their connection, everyone
//! else notices nothing.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::ServerId;
use hayase_wire::handshake::{self, Lane, LinkId, Session};
use hayase_wire::header::{FrameKind, HEADER_BYTES, Header};
use hayase_wire::session::SessionError;
use hayase_wire::times::STALL_MAX;
use hayase_wire::transport::memory::{Direction, MemoryFrame};
use hayase_wire::transport::{
    Connection, FrameSender, LocalFuture, MemoryTransport, TcpTransport, Transport, UnixTransport,
};
use hayase_wire::{
    Address, BoxBuffer, CallError, Connector, Credentials, PeerIdentity, PeerLink, Response,
    Service, TransportError, serve_connection, serve_listener,
};
use tokio::task::LocalSet;

use crate::job;

const SERVER: ServerId = ServerId(1);
const WAIT: Duration = Duration::from_secs(8);

fn run(paused: bool, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(paused)
        .build()
        .unwrap();
    runtime.block_on(LocalSet::new().run_until(test));
}

fn credentials(server: u16) -> Credentials {
    job::credentials(ServerId(server))
}

/// Request id, body, payload.
type Seen = Vec<(u64, Vec<u8>, Vec<u8>)>;

/// Keeps what it was asked, answers the same.
#[derive(Default)]
struct Keep {
    seen: RefCell<Seen>,
}

impl Service for Keep {
    async fn buffer(&self, len: usize) -> BoxBuffer {
        Box::new(vec![0; len])
    }

    async fn serve(
        self: Rc<Self>,
        _from: PeerIdentity,
        request_id: u64,
        body: Vec<u8>,
        payload: Option<(BoxBuffer, usize)>,
    ) -> Response {
        let bytes = payload.map_or(vec![], |(buffer, len)| (*buffer).as_ref()[..len].to_vec());
        self.seen.borrow_mut().push((request_id, body.clone(), bytes));
        Response::new(body)
    }
}

async fn start(transport: Rc<dyn Transport>, at: Address) -> (Rc<Keep>, Address) {
    let listener = transport.listen(&at).await.unwrap();
    let address = listener.address();
    let service = Rc::new(Keep::default());
    tokio::task::spawn_local(serve_listener(listener, credentials(SERVER.0), service.clone()));
    (service, address)
}

fn link(transport: Rc<dyn Transport>, to: &Address) -> Rc<PeerLink> {
    PeerLink::new(Connector::new(transport, credentials(0)), SERVER, vec![to.clone()])
}

fn memory() -> Address {
    Address::Memory("server".into())
}

fn payload() -> Option<(BoxBuffer, usize)> {
    Some((Box::new(vec![4; 1000]), 1000))
}

#[test]
fn garbage_on_the_port_is_closed_without_a_word() {
    run(false, async {
        let transport = Rc::new(TcpTransport::new());
        let (service, address) = start(transport.clone(), "tcp:127.0.0.1:0".parse().unwrap()).await;
        let Address::Tcp(port) = address.clone() else { unreachable!("of TCP") };
        let mut inputs: Vec<Vec<u8>> = vec![
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(10),
            vec![0; 100_000],
            b"HYWF".to_vec(),
            [&b"HYWF\x01\0\0\0\x40\0\0\0"[..], &[0; 52], &[9; 64]].concat(),
            vec![],
        ];
        let mut state = 1u64;
        for len in [63, 64, 65, 1000] {
            let noise = (0..len).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u8
            });
            inputs.push(noise.collect());
        }
        let talk = move || {
            for input in inputs {
                let mut stream = std::net::TcpStream::connect(port).unwrap();
                stream.set_read_timeout(Some(WAIT)).unwrap();
                // The server may close while we still send.
                let _ = stream.write_all(&input);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                assert!(answer.is_empty(), "an answer to garbage: {answer:?}");
            }
        };
        tokio::task::spawn_blocking(talk).await.unwrap();
        link(transport, &address).call(b"honest".to_vec(), None, None, WAIT).await.unwrap();
        assert_eq!(service.seen.borrow().len(), 1);
    });
}

/// Calls once with a payload, through a tap that does `harm` to the first frame of `kind` that
/// goes `direction`; the call must succeed nevertheless, by another connection.
fn survives(
    direction: Direction,
    kind: FrameKind,
    harm: impl Fn(MemoryFrame) -> Vec<MemoryFrame> + 'static,
) -> Seen {
    let harmed = Rc::new(Cell::new(false));
    let seen = Rc::new(RefCell::new(Vec::new()));
    run(true, {
        let (seen, harmed) = (seen.clone(), harmed.clone());
        async move {
            let transport = MemoryTransport::new();
            transport.set_tap({
                let harmed = harmed.clone();
                move |way, frame| {
                    let header = Header::parse(&frame.header).unwrap();
                    if way == direction && header.kind == kind && !harmed.replace(true) {
                        return Some(harm(frame));
                    }
                    Some(vec![frame])
                }
            });
            let transport = Rc::new(transport);
            let (service, address) = start(transport.clone(), memory()).await;
            let link = link(transport, &address);
            let answer = link.call(b"body".to_vec(), payload(), None, WAIT).await.unwrap();
            assert_eq!(answer.body, b"body");
            assert!((*answer.sent.unwrap()).as_ref() == [4; 1000]);
            seen.replace(service.seen.take());
        }
    });
    assert!(harmed.get(), "the frame came by");
    seen.take()
}

/// Whatever was served, was served as it was sent.
fn only_genuine(seen: &[(u64, Vec<u8>, Vec<u8>)], times: usize) {
    assert_eq!(seen.len(), times);
    assert!(seen.iter().all(|(_, body, payload)| body == b"body" && *payload == [4; 1000]));
    assert!(seen.iter().all(|(id, ..)| *id == seen[0].0));
}

#[test]
fn changed_frames_are_not_served() {
    let flip_body = |mut frame: MemoryFrame| {
        frame.body[0] ^= 1;
        vec![frame]
    };
    let flip_payload = |mut frame: MemoryFrame| {
        frame.payload[999] ^= 0x80;
        vec![frame]
    };
    // Of the header: the length of the payload, the id, the code.
    let flip_header = |at: usize| {
        move |mut frame: MemoryFrame| {
            frame.header[at] ^= 1;
            vec![frame]
        }
    };
    only_genuine(&survives(Direction::Out, FrameKind::Request, flip_body), 1);
    only_genuine(&survives(Direction::Out, FrameKind::Request, flip_payload), 1);
    for at in [12, 16, 24, 32, 63] {
        only_genuine(&survives(Direction::Out, FrameKind::Request, flip_header(at)), 1);
        only_genuine(&survives(Direction::Back, FrameKind::Reply, flip_header(at)), 2);
    }
    only_genuine(&survives(Direction::Back, FrameKind::Reply, flip_body), 2);
}

#[test]
fn lengths_beyond_all_bounds_are_not_believed() {
    for at in [8, 12] {
        let huge = move |mut frame: MemoryFrame| {
            frame.header[at..at + 4].fill(0xff);
            vec![frame]
        };
        only_genuine(&survives(Direction::Out, FrameKind::Request, huge), 1);
        only_genuine(&survives(Direction::Back, FrameKind::Reply, huge), 2);
    }
}

#[test]
fn frames_that_were_cut_or_lost_are_sent_again() {
    let cut = |mut frame: MemoryFrame| {
        frame.payload.truncate(300);
        vec![frame]
    };
    only_genuine(&survives(Direction::Out, FrameKind::Request, cut), 1);
    only_genuine(&survives(Direction::Out, FrameKind::Request, |_| vec![]), 1);
    only_genuine(&survives(Direction::Back, FrameKind::Reply, |_| vec![]), 2);
}

#[test]
fn repeated_frames_end_the_connection() {
    let twice = |frame: MemoryFrame| vec![frame.clone(), frame];
    let seen = survives(Direction::Out, FrameKind::Request, twice);
    // Served once on the first connection; whether its answer came before the end is chance.
    only_genuine(&seen, seen.len());
    assert!(seen.len() <= 2);
    only_genuine(&survives(Direction::Back, FrameKind::Reply, twice), 1);
}

/// Two ends with somebody between, who decides about every frame: which way it goes, and what of
/// it.
fn man_in_the_middle(
    mut decide: impl FnMut(Direction, FrameKind, MemoryFrame) -> Vec<(Direction, MemoryFrame)> + 'static,
) -> (Connection, Connection) {
    let transport = MemoryTransport::new();
    let (near, mut to_near) = transport.pair();
    let (mut to_far, far) = transport.pair();
    tokio::task::spawn_local(async move {
        loop {
            let (direction, header, receiver) = tokio::select! {
                header = to_near.receiver.header() => (Direction::Out, header, &mut to_near.receiver),
                header = to_far.receiver.header() => (Direction::Back, header, &mut to_far.receiver),
            };
            // When one end goes, so does the other.
            let Ok(Some(header)) = header else { return };
            let parsed = Header::parse(&header).unwrap();
            let mut body = vec![0; parsed.body_len as usize];
            receiver.body(&mut body).await.unwrap();
            assert_eq!(parsed.payload_len, 0, "these tests send none");
            let frame = MemoryFrame { header, body, payload: vec![] };
            for (direction, frame) in decide(direction, parsed.kind, frame) {
                let sender = match direction {
                    Direction::Out => &mut to_far.sender,
                    Direction::Back => &mut to_near.sender,
                };
                if sender.send(&frame.header, &frame.body, &frame.payload).await.is_err() {
                    return;
                }
            }
        }
    });
    (near, far)
}

const LINK: LinkId = LinkId { link: 1, lane: Lane::Small };

/// Authenticates both ends; the connector's session, with a service at the other.
async fn served(near: Connection, far: Connection) -> (Session, Rc<Keep>) {
    let (ours, theirs) = (credentials(0), credentials(SERVER.0));
    let (near, far) = tokio::join!(
        handshake::connect(near, &ours, SERVER, LINK),
        handshake::accept(far, &theirs)
    );
    let service = Rc::new(Keep::default());
    tokio::task::spawn_local(serve_connection(far.unwrap(), service.clone()));
    (near.unwrap(), service)
}

/// How the connector's side ends, but for pongs and the replies to `replies`.
async fn end_of(session: &mut Session, replies: usize) -> Option<SessionError> {
    let mut seen = 0;
    loop {
        match session.receiver.next().await {
            Ok(Some(frame)) if frame.kind == FrameKind::Pong => {}
            Ok(Some(frame)) => {
                assert_eq!(frame.kind, FrameKind::Reply);
                seen += 1;
                assert!(seen <= replies, "a reply too many");
            }
            Ok(None) => return None,
            Err(error) => return Some(error),
        }
    }
}

#[test]
fn reflected_frames_are_not_taken_for_answers() {
    run(false, async {
        let (near, far) = man_in_the_middle(|direction, kind, frame| match kind {
            FrameKind::Request => vec![(Direction::Back, frame)],
            _ => vec![(direction, frame)],
        });
        let (mut session, service) = served(near, far).await;
        session.sender.send(FrameKind::Request, 1, b"?", &[]).await.unwrap();
        let error = end_of(&mut session, 0).await;
        assert!(matches!(error, Some(SessionError::Forged { .. })), "{error:?}");
        assert!(service.seen.borrow().is_empty());
    });
}

#[test]
fn reordered_frames_end_the_session() {
    run(false, async {
        let mut held = None;
        let (near, far) = man_in_the_middle(move |direction, kind, frame| match kind {
            FrameKind::Request => match held.take() {
                None => {
                    held = Some(frame);
                    vec![]
                }
                Some(first) => vec![(direction, frame), (direction, first)],
            },
            _ => vec![(direction, frame)],
        });
        let (mut session, service) = served(near, far).await;
        session.sender.send(FrameKind::Request, 1, b"first", &[]).await.unwrap();
        session.sender.send(FrameKind::Request, 2, b"second", &[]).await.unwrap();
        assert!(end_of(&mut session, 0).await.is_none(), "closed by the server");
        assert!(service.seen.borrow().is_empty(), "the later one is not served either");
    });
}

#[test]
fn frames_of_another_session_do_not_pass() {
    run(false, async {
        // The request of the first session comes into the second one.
        let recorded = Rc::new(RefCell::new(None));
        let (near, far) = man_in_the_middle({
            let recorded = recorded.clone();
            move |direction, kind, frame| {
                if kind == FrameKind::Request {
                    recorded.replace(Some(frame.clone()));
                }
                vec![(direction, frame)]
            }
        });
        let (mut session, service) = served(near, far).await;
        session.sender.send(FrameKind::Request, 1, b"pay", &[]).await.unwrap();
        while session.receiver.next().await.unwrap().unwrap().kind != FrameKind::Reply {}
        assert_eq!(service.seen.borrow().len(), 1);

        let frame = recorded.take().unwrap();
        let (near, far) = man_in_the_middle(move |direction, kind, own| match kind {
            FrameKind::Request => vec![(direction, frame.clone())],
            _ => vec![(direction, own)],
        });
        let (mut session, service) = served(near, far).await;
        session.sender.send(FrameKind::Request, 1, b"pay", &[]).await.unwrap();
        assert!(end_of(&mut session, 0).await.is_none());
        assert!(service.seen.borrow().is_empty());
    });
}

#[test]
fn frames_out_of_place_end_the_session() {
    run(false, async {
        for kind in [FrameKind::Reply, FrameKind::Pong, FrameKind::Hello] {
            let (near, far) = MemoryTransport::new().pair();
            let (mut session, _) = served(near, far).await;
            session.sender.send(kind, 1, &[], &[]).await.unwrap();
            assert!(end_of(&mut session, 0).await.is_none(), "{kind:?}");
        }
    });
}

/// Sends the first `whole` frames, then half the payload of the next, then nothing.
struct Stopping {
    inner: Box<dyn FrameSender>,
    whole: usize,
}

impl FrameSender for Stopping {
    fn send<'a>(
        &'a mut self,
        header: &'a [u8; HEADER_BYTES],
        body: &'a [u8],
        payload: &'a [u8],
    ) -> LocalFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            if self.whole > 0 {
                self.whole -= 1;
                return self.inner.send(header, body, payload).await;
            }
            self.inner.send(header, body, &payload[..payload.len() / 2]).await
        })
    }
}

#[test]
fn a_peer_that_stops_in_a_frame_does_not_keep_its_slot() {
    run(true, async {
        let dir = tempfile::tempdir().unwrap();
        let at = Address::Unix(dir.path().join("s"));
        let mut listener = UnixTransport.listen(&at).await.unwrap();
        let (near, far) = tokio::join!(UnixTransport.connect(&at), listener.accept());
        let mut near = near.unwrap();
        // The handshake.
        near.sender = Box::new(Stopping { inner: near.sender, whole: 2 });
        let (mut session, service) = served(near, far.unwrap()).await;
        let begin = tokio::time::Instant::now();
        session.sender.send(FrameKind::Request, 1, b"", &[1; 4000]).await.unwrap();
        assert!(end_of(&mut session, 0).await.is_none(), "closed by the server");
        assert!(begin.elapsed() >= STALL_MAX && begin.elapsed() < STALL_MAX * 2);
        assert!(service.seen.borrow().is_empty());
        assert_eq!(Rc::strong_count(&service), 1, "nothing serves it any more");
    });
}

#[test]
fn a_peer_that_takes_no_answers_is_given_up() {
    run(true, async {
        let dir = tempfile::tempdir().unwrap();
        let at = Address::Unix(dir.path().join("s"));
        let mut listener = UnixTransport.listen(&at).await.unwrap();
        let (near, far) = tokio::join!(UnixTransport.connect(&at), listener.accept());
        let (mut session, service) = served(near.unwrap(), far.unwrap()).await;
        // More answers than the socket holds; none is read.
        for id in 0..40 {
            let body = vec![0; 200_000];
            if session.sender.send(FrameKind::Request, id, &body, &[]).await.is_err() {
                break;
            }
        }
        tokio::time::sleep(STALL_MAX * 2).await;
        assert_eq!(Rc::strong_count(&service), 1, "nothing serves it any more");
    });
}

#[test]
fn a_half_open_server_costs_the_deadline() {
    run(false, async {
        // Accepts by its backlog, and never says anything.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = Address::Tcp(listener.local_addr().unwrap());
        let link = link(Rc::new(TcpTransport::new()), &at);
        let begin = std::time::Instant::now();
        let wait = Duration::from_millis(200);
        let mut error = link.call(vec![], payload(), None, wait).await.unwrap_err();
        assert!(matches!(error, CallError::Unreachable { .. }), "{error:?}");
        assert!(begin.elapsed() < Duration::from_secs(2));
        assert!(error.take_buffers().sent.is_some());
    });
}

#[test]
fn a_newer_connection_of_a_link_ends_the_older() {
    run(false, async {
        let transport = Rc::new(MemoryTransport::new());
        let (_, address) = start(transport.clone(), memory()).await;
        let connect = async |link| {
            let connection = transport.connect(&address).await.unwrap();
            let link = LinkId { link, lane: Lane::Small };
            handshake::connect(connection, &credentials(0), SERVER, link).await.unwrap()
        };
        let (mut first, mut other) = (connect(1).await, connect(2).await);
        let mut second = connect(1).await;
        assert!(end_of(&mut first, 0).await.is_none(), "given up for the second");
        for session in [&mut other, &mut second] {
            session.sender.send(FrameKind::Request, 1, b"", &[]).await.unwrap();
            while session.receiver.next().await.unwrap().unwrap().kind != FrameKind::Reply {}
        }
    });
}

#[test]
fn a_port_that_is_taken_is_named() {
    run(false, async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = Address::Tcp(listener.local_addr().unwrap());
        let error = TcpTransport::new().listen(&at).await.map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), format!("listen at {at}: the address is in use"));
        assert!(error.help().is_some());
    });
}
