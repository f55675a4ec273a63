//! Calls between servers over UCX, where both have it and where one has not.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hayase_layout::ServerId;
use hayase_ucx::{UcxError, UcxTransport};
use hayase_wire::message::{Carrier, PeerState};
use hayase_wire::transport::{TcpTransport, Transport};
use hayase_wire::{
    Address, BoxBuffer, CallError, Connector, Credentials, KnownServer, PeerIdentity, PeerLink,
    Response, Secret, ServerKey, Service, serve_listener,
};
use tokio::task::{AbortHandle, LocalSet};

const SERVER: ServerId = ServerId(1);
const WAIT: Duration = Duration::from_secs(5);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(test));
}

fn key(server: u16) -> ServerKey {
    ServerKey::of(Secret::from_bytes([60 + server as u8; 32]))
}

fn credentials(server: u16, secret: u8) -> Credentials {
    let known = |server| KnownServer { host: format!("n{server}"), key: key(server).public() };
    Credentials {
        secret: Secret::from_bytes([secret; 32]),
        me: PeerIdentity { server: ServerId(server), start_id: 70 + u64::from(server) },
        key: key(server),
        known: Arc::new((0..2).map(known).collect()),
        encrypt: false,
    }
}

/// Answers with the body reversed, and each byte of the payload plus one.
#[derive(Default)]
struct Echo {
    served: Cell<u32>,
    from: Cell<Option<PeerIdentity>>,
}

impl Service for Echo {
    async fn buffer(&self, len: usize) -> BoxBuffer {
        Box::new(vec![0; len])
    }

    async fn serve(
        self: Rc<Self>,
        from: PeerIdentity,
        _request_id: u64,
        mut body: Vec<u8>,
        payload: Option<(BoxBuffer, usize)>,
    ) -> Response {
        self.served.set(self.served.get() + 1);
        self.from.set(Some(from));
        body.reverse();
        let payload = payload.map(|(mut buffer, len)| {
            let bytes = &mut buffer.as_mut().as_mut()[..len];
            bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
            (buffer, len)
        });
        Response { body, payload }
    }
}

struct Pair {
    link: Rc<PeerLink>,
    service: Rc<Echo>,
    server: AbortHandle,
    address: Address,
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A server whose secret is made of nines, called by one whose secret is made of `secret`.
async fn start(transport: Rc<dyn Transport>, secret: u8) -> Pair {
    let listener = transport.listen(&"tcp:127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (address, service) = (listener.address(), Rc::new(Echo::default()));
    let serving = serve_listener(listener, credentials(SERVER.0, 9), service.clone());
    let server = tokio::task::spawn_local(serving).abort_handle();
    let connector = Connector::new(transport, credentials(0, secret));
    let link = PeerLink::new(connector, SERVER, vec![address.clone()]);
    Pair { link, service, server, address }
}

async fn echo_works(Pair { link, service, .. }: &Pair) {
    assert_eq!(link.state(), PeerState::Unconnected);
    let answer = link.call(b"abc".to_vec(), None, None, WAIT).await.unwrap();
    assert_eq!(answer.body, b"cba");
    assert!(answer.sent.is_none() && answer.received.is_none());
    assert_eq!(link.state(), PeerState::Connected);
    for len in [1, 5000, 1 << 20] {
        let payload: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
        let (send, into) = (Box::new(payload.clone()), Box::new(vec![0; 1 << 20]));
        let answer = link.call(b"xy".to_vec(), Some((send, len)), Some(into), WAIT).await.unwrap();
        let (received, count) = answer.received.unwrap();
        let expected: Vec<u8> = payload.iter().map(|byte| byte.wrapping_add(1)).collect();
        assert!(count == len && (*received).as_ref()[..len] == expected[..]);
        assert!((*answer.sent.unwrap()).as_ref() == &payload[..]);
    }
    assert_eq!(service.from.get(), Some(credentials(0, 9).me));
    assert_eq!(link.peer(), Some(credentials(SERVER.0, 9).me));
}

/// `None`, and says so, where the library is missing.
#[expect(clippy::print_stderr, reason = "a skip has to be seen")]
fn ucx(test: &str) -> Option<Rc<UcxTransport>> {
    match UcxTransport::new(None, &["127.0.0.1".parse().unwrap()]) {
        Ok(ucx) => Some(Rc::new(ucx)),
        Err(error @ UcxError::NotLoaded(_)) => {
            eprintln!("SKIP {test}: {error}; {}", error.help());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn calls_are_answered_over_ucx_where_both_have_it() {
    run(async {
        let Some(ucx) = ucx("calls_are_answered_over_ucx_where_both_have_it") else { return };
        let pair = start(ucx.clone(), 9).await;
        echo_works(&pair).await;
        assert_eq!(pair.link.status().over, Some(Carrier::Ucx));

        let tcp = start(Rc::new(TcpTransport::new()), 9).await;
        echo_works(&tcp).await;
        assert_eq!(tcp.link.status().over, Some(Carrier::Stream));
        let connector = Connector::new(ucx, credentials(0, 9));
        let mixed = PeerLink::new(connector, SERVER, vec![tcp.address.clone()]);
        assert_eq!(mixed.call(b"abc".to_vec(), None, None, WAIT).await.unwrap().body, b"cba");
        assert_eq!(mixed.status().over, Some(Carrier::Stream), "the server has none");
    });
}

#[test]
fn a_wrong_secret_is_refused_over_ucx() {
    run(async {
        let Some(ucx) = ucx("a_wrong_secret_is_refused_over_ucx") else { return };
        let pair = start(ucx, 8).await;
        let (began, wait) = (Instant::now(), Duration::from_millis(300));
        let (send, into) = (Box::new(vec![1; 10]), Box::new(vec![0; 10]));
        let called = pair.link.call(vec![], Some((send, 10)), Some(into), wait).await;
        let CallError::Unreachable { source: Some(source), buffers, .. } = called.unwrap_err()
        else {
            panic!("it was reached");
        };
        assert_eq!(source.to_string(), "the peer closed the connection during the handshake");
        assert!(began.elapsed() < WAIT && buffers.sent.is_some() && buffers.into.is_some());
        assert_eq!((pair.service.served.get(), pair.link.status().over), (0, None));
    });
}
