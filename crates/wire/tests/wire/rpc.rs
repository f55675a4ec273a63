//! Calls between servers: links against services, over real and faulty transports.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hayase_layout::ServerId;
use hayase_wire::header::{FrameKind, Header};
use hayase_wire::limits::CREDITS_PER_PEER;
use hayase_wire::message::PeerState;
use hayase_wire::transport::memory::Direction;
use hayase_wire::transport::{MemoryTransport, TcpTransport, Transport, UnixTransport};
use hayase_wire::{
    Address, BoxBuffer, CallError, Connector, Credentials, PeerIdentity, PeerLink, Response,
    Secret, Service, serve_listener,
};
use proptest::prelude::*;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, LocalSet};

use crate::job;

const SERVER: ServerId = ServerId(1);
const WAIT: Duration = Duration::from_secs(5);

fn run(test: impl Future<Output = ()>) {
    runtime(false, test);
}

/// With a clock that jumps whenever everyone waits.
fn run_paused(test: impl Future<Output = ()>) {
    runtime(true, test);
}

fn runtime(paused: bool, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(paused)
        .build()
        .unwrap();
    runtime.block_on(LocalSet::new().run_until(test));
}

fn credentials(server: u16, secret: u8) -> Credentials {
    Credentials {
        secret: Secret::from_bytes([secret; 32]),
        me: PeerIdentity { server: ServerId(server), start_id: 70 + u64::from(server) },
        ..job::credentials(ServerId(server))
    }
}

/// Echoes: the body reversed, the payload plus one. `slow` waits for `gate`.
#[derive(Default)]
struct Echo {
    gate: Notify,
    gated: Cell<bool>,
    buffers: Cell<Option<usize>>,
    buffer_back: Notify,
    seen: RefCell<BTreeMap<u64, u32>>,
    running: Cell<usize>,
    running_max: Cell<usize>,
    from: Cell<Option<PeerIdentity>>,
}

impl Service for Echo {
    async fn buffer(&self, len: usize) -> BoxBuffer {
        loop {
            match self.buffers.get() {
                None => return Box::new(vec![0; len]),
                Some(0) => self.buffer_back.notified().await,
                Some(left) => {
                    self.buffers.set(Some(left - 1));
                    return Box::new(vec![0; len]);
                }
            }
        }
    }

    async fn serve(
        self: Rc<Self>,
        from: PeerIdentity,
        request_id: u64,
        mut body: Vec<u8>,
        payload: Option<(BoxBuffer, usize)>,
    ) -> Response {
        *self.seen.borrow_mut().entry(request_id).or_default() += 1;
        self.from.set(Some(from));
        self.running.set(self.running.get() + 1);
        self.running_max.set(self.running_max.get().max(self.running.get()));
        if body.starts_with(b"slow") || self.gated.get() {
            self.gate.notified().await;
        }
        self.running.set(self.running.get() - 1);
        body.reverse();
        let payload = payload.map(|(mut buffer, len)| {
            for byte in &mut buffer.as_mut().as_mut()[..len] {
                *byte = byte.wrapping_add(1);
            }
            (buffer, len)
        });
        Response { body, payload }
    }
}

struct Pair {
    link: Rc<PeerLink>,
    service: Rc<Echo>,
    server: AbortHandle,
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn start(transport: Rc<dyn Transport>, at: Address) -> Pair {
    start_with(transport, at, credentials(0, 9), credentials(SERVER.0, 9)).await
}

async fn start_with(
    transport: Rc<dyn Transport>,
    at: Address,
    ours: Credentials,
    theirs: Credentials,
) -> Pair {
    let listener = transport.listen(&at).await.unwrap();
    let address = listener.address();
    let service = Rc::new(Echo::default());
    let server =
        tokio::task::spawn_local(serve_listener(listener, theirs, service.clone())).abort_handle();
    let link = PeerLink::new(Connector::new(transport, ours), SERVER, vec![address]);
    Pair { link, service, server }
}

fn memory() -> Address {
    Address::Memory("server".into())
}

fn any_port() -> Address {
    "tcp:127.0.0.1:0".parse().unwrap()
}

async fn echo_works(pair: &Pair) {
    assert_eq!(pair.link.state(), PeerState::Unconnected);
    let answer = pair.link.call(b"abc".to_vec(), None, None, WAIT).await.unwrap();
    assert_eq!(answer.body, b"cba");
    assert!(answer.sent.is_none() && answer.received.is_none());
    assert_eq!(pair.link.state(), PeerState::Connected);
    for len in [1, 5000, 1 << 20] {
        let payload: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
        let send: BoxBuffer = Box::new(payload.clone());
        let into: BoxBuffer = Box::new(vec![0; 1 << 20]);
        let answer =
            pair.link.call(b"xy".to_vec(), Some((send, len)), Some(into), WAIT).await.unwrap();
        let (received, received_len) = answer.received.unwrap();
        assert_eq!(received_len, len);
        let expected: Vec<u8> = payload.iter().map(|byte| byte.wrapping_add(1)).collect();
        let received: &dyn AsRef<[u8]> = &*received;
        assert!(received.as_ref()[..len] == expected[..]);
        assert!((*answer.sent.unwrap()).as_ref() == &payload[..]);
    }
    assert_eq!(pair.service.from.get(), Some(credentials(0, 9).me));
    assert_eq!(pair.link.peer(), Some(credentials(SERVER.0, 9).me));
}

#[test]
fn calls_are_answered_over_every_transport() {
    run(async {
        echo_works(&start(Rc::new(TcpTransport::new()), any_port()).await).await;
        echo_works(&start(Rc::new(MemoryTransport::new()), memory()).await).await;
        let dir = tempfile::tempdir().unwrap();
        let path = Address::Unix(dir.path().join("s"));
        echo_works(&start(Rc::new(UnixTransport), path).await).await;
    });
}

#[test]
fn calls_are_answered_encrypted() {
    run(async {
        for (ours, theirs) in [(true, true), (true, false), (false, true)] {
            let with = |server, encrypt| Credentials { encrypt, ..credentials(server, 9) };
            let pair = start_with(
                Rc::new(TcpTransport::new()),
                any_port(),
                with(0, ours),
                with(SERVER.0, theirs),
            )
            .await;
            echo_works(&pair).await;
        }
    });
}

#[test]
fn answers_overtake_each_other_and_lanes_do_not_wait() {
    run(async {
        let pair = start(Rc::new(TcpTransport::new()), any_port()).await;
        // All credits for bulk are taken, and its connection waits for a buffer.
        pair.service.buffers.set(Some(0));
        let bulk = (0..CREDITS_PER_PEER + 4).map(|_| {
            let link = pair.link.clone();
            tokio::task::spawn_local(async move {
                let send: BoxBuffer = Box::new(vec![1; 1 << 20]);
                let into: BoxBuffer = Box::new(vec![0; 1 << 20]);
                link.call(vec![], Some((send, 1 << 20)), Some(into), WAIT).await.map(|_| ())
            })
        });
        let bulk: Vec<_> = bulk.collect();
        let slow = tokio::task::spawn_local({
            let link = pair.link.clone();
            async move { link.call(b"slow".to_vec(), None, None, WAIT).await.map(|_| ()) }
        });
        for _ in 0..50 {
            pair.link.call(b"quick".to_vec(), None, None, WAIT).await.unwrap();
        }
        assert!(!slow.is_finished());
        pair.service.gate.notify_one();
        slow.await.unwrap().unwrap();
        pair.service.buffers.set(None);
        pair.service.buffer_back.notify_one();
        for call in bulk {
            call.await.unwrap().unwrap();
        }
        assert!(pair.service.running_max.get() <= CREDITS_PER_PEER + 1);
    });
}

#[test]
fn credits_bound_what_is_under_way() {
    run(async {
        let pair = start(Rc::new(MemoryTransport::new()), memory()).await;
        pair.service.gated.set(true);
        let calls: Vec<_> = (0..3 * CREDITS_PER_PEER)
            .map(|_| {
                let link = pair.link.clone();
                tokio::task::spawn_local(async move { link.call(vec![], None, None, WAIT).await })
            })
            .collect();
        while pair.service.running.get() < CREDITS_PER_PEER {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pair.service.running.get(), CREDITS_PER_PEER);
        pair.service.gated.set(false);
        pair.service.gate.notify_waiters();
        for call in calls {
            call.await.unwrap().unwrap();
        }
    });
}

fn into() -> Option<BoxBuffer> {
    Some(Box::new(vec![0; 64]))
}

fn send() -> Option<(BoxBuffer, usize)> {
    Some((Box::new(vec![5; 64]), 64))
}

#[test]
fn an_unreachable_server_costs_the_deadline_and_no_buffer() {
    run(async {
        let connector = Connector::new(Rc::new(TcpTransport::new()), credentials(0, 9));
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let link = PeerLink::new(connector, SERVER, vec![Address::Tcp(port)]);
        let begin = Instant::now();
        let wait = Duration::from_millis(150);
        let mut error = link.call(vec![], send(), into(), wait).await.unwrap_err();
        assert!(begin.elapsed() >= wait && begin.elapsed() < wait * 10);
        assert!(matches!(&error, CallError::Unreachable { source: Some(_), .. }), "{error:?}");
        let buffers = error.take_buffers();
        assert!(buffers.sent.is_some() && buffers.into.is_some());
        assert_eq!(link.state(), PeerState::Unreachable);
    });
}

#[test]
fn a_wrong_secret_is_named_and_learns_nothing() {
    run(async {
        let transport = MemoryTransport::new();
        let back = Rc::new(Cell::new(0));
        transport.set_tap({
            let back = back.clone();
            move |direction, frame| {
                if direction == Direction::Back {
                    back.set(back.get() + 1);
                }
                Some(vec![frame])
            }
        });
        let pair =
            start_with(Rc::new(transport), memory(), credentials(0, 8), credentials(1, 9)).await;
        let wait = Duration::from_millis(100);
        let error = pair.link.call(vec![], None, None, wait).await.unwrap_err();
        let CallError::Unreachable { source: Some(source), .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(source.to_string(), "the peer closed the connection during the handshake");
        assert_eq!(back.get(), 0, "not a byte for strangers");
        assert!(pair.service.seen.borrow().is_empty());
    });
}

#[test]
fn buffers_come_back_where_another_server_than_called_answers() {
    run(async {
        let transport = Rc::new(MemoryTransport::new());
        let pair = start_with(transport, memory(), credentials(0, 9), credentials(2, 9)).await;
        let mut error = pair.link.call(vec![], send(), None, WAIT).await.unwrap_err();
        assert!(matches!(&error, CallError::Unreachable { .. }), "{error:?}");
        assert!(error.take_buffers().sent.is_some() && error.help().is_some());
    });
}

#[test]
fn a_lost_connection_repeats_the_request_with_its_id() {
    run(async {
        let transport = MemoryTransport::new();
        // The first two replies never arrive: the connection is cut instead.
        let cuts = Cell::new(2);
        transport.set_tap(move |direction, frame| {
            let kind = Header::parse(&frame.header).unwrap().kind;
            if direction == Direction::Back && kind == FrameKind::Reply && cuts.get() > 0 {
                cuts.set(cuts.get() - 1);
                return None;
            }
            Some(vec![frame])
        });
        let pair = start(Rc::new(transport), memory()).await;
        let answer = pair.link.call(b"ab".to_vec(), send(), into(), WAIT).await.unwrap();
        assert_eq!(answer.body, b"ba");
        assert!(answer.sent.is_some());
        let seen = pair.service.seen.borrow().clone();
        assert_eq!(seen.values().copied().collect::<Vec<_>>(), [3], "one id, three times");
    });
}

#[test]
fn a_restarted_server_is_found_again() {
    run(async {
        let transport = Rc::new(TcpTransport::new());
        let pair = start(transport.clone(), any_port()).await;
        pair.link.call(b"1".to_vec(), None, None, WAIT).await.unwrap();
        pair.server.abort();
        let mut again = credentials(SERVER.0, 9);
        again.me.start_id += 1;
        let listener = transport.listen(&any_port()).await.unwrap();
        pair.link.set_addresses(vec![listener.address()]);
        let server =
            tokio::task::spawn_local(serve_listener(listener, again.clone(), pair.service.clone()));
        pair.link.call(b"2".to_vec(), None, None, WAIT).await.unwrap();
        assert_eq!(pair.link.peer(), Some(again.me));
        server.abort();
    });
}

/// A transport over which nothing comes while the switch is on.
fn may_be_silenced() -> (MemoryTransport, Rc<Cell<bool>>) {
    let (transport, silent) = (MemoryTransport::new(), Rc::new(Cell::new(false)));
    let is_silent = Rc::clone(&silent);
    transport.set_tap(move |_, frame| Some(if is_silent.get() { vec![] } else { vec![frame] }));
    (transport, silent)
}

#[test]
fn a_silent_server_is_unreachable_also_where_an_idle_connection_to_it_is_left() {
    run_paused(async {
        let (transport, silent) = may_be_silenced();
        let pair = start(Rc::new(transport), memory()).await;
        pair.link.call(vec![1], None, None, WAIT).await.unwrap();
        pair.link.call(vec![2], send(), into(), WAIT).await.unwrap();
        assert_eq!(pair.link.state(), PeerState::Connected);
        silent.set(true);
        let waited = Duration::from_secs(5);
        pair.link.call(vec![3], None, None, waited).await.unwrap_err();
        assert_eq!(pair.link.state(), PeerState::Unreachable);
        silent.set(false);
        pair.link.call(vec![4], send(), into(), WAIT).await.unwrap();
    });
}

#[test]
fn a_silent_server_is_dead_after_three_seconds() {
    run_paused(async {
        let (transport, silent) = may_be_silenced();
        let pair = start(Rc::new(transport), memory()).await;
        pair.link.call(vec![], None, None, WAIT).await.unwrap();
        silent.set(true);
        let begin = tokio::time::Instant::now();
        let mut error = pair.link.call(vec![], send(), into(), WAIT).await.unwrap_err();
        assert_eq!(begin.elapsed(), WAIT, "never later");
        assert!(matches!(error, CallError::Unreachable { .. }), "{error:?}");
        assert!(error.take_buffers().into.is_some());
        let begin = tokio::time::Instant::now();
        let healing = async {
            tokio::time::sleep(Duration::from_millis(3500)).await;
            silent.set(false);
        };
        let (answer, ()) =
            tokio::join!(pair.link.call(vec![], None, None, Duration::from_secs(20)), healing);
        answer.unwrap();
        let took = begin.elapsed();
        assert!(took >= Duration::from_secs(3) && took < Duration::from_secs(8), "{took:?}");
    });
}

#[test]
fn long_calls_are_kept_alive_by_pings() {
    run_paused(async {
        let pair = start(Rc::new(MemoryTransport::new()), memory()).await;
        let open = async {
            tokio::time::sleep(Duration::from_secs(50)).await;
            pair.service.gate.notify_one();
        };
        let long = Duration::from_secs(60);
        let (answer, ()) = tokio::join!(pair.link.call(b"slow".to_vec(), None, None, long), open);
        answer.unwrap();
        assert_eq!(pair.service.seen.borrow().values().copied().collect::<Vec<_>>(), [1]);
    });
}

#[test]
fn a_server_without_slots_is_busy_and_not_dead() {
    run_paused(async {
        let pair = start(Rc::new(MemoryTransport::new()), memory()).await;
        pair.service.buffers.set(Some(0));
        let free = async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            pair.service.buffers.set(None);
            pair.service.buffer_back.notify_one();
        };
        let (answer, ()) =
            tokio::join!(pair.link.call(vec![], send(), into(), Duration::from_secs(60)), free);
        answer.unwrap();
        assert_eq!(pair.service.seen.borrow().values().copied().collect::<Vec<_>>(), [1]);
    });
}

#[test]
fn deadlines_hold_and_late_answers_harm_nobody() {
    run(async {
        let pair = start(Rc::new(TcpTransport::new()), any_port()).await;
        for _ in 0..3 * CREDITS_PER_PEER {
            let wait = Duration::from_millis(3);
            let mut error =
                pair.link.call(b"slow".to_vec(), send(), into(), wait).await.unwrap_err();
            assert!(matches!(error, CallError::Deadline { .. } | CallError::Unreachable { .. }));
            let buffers = error.take_buffers();
            assert!(buffers.sent.is_some() && buffers.into.is_some());
            // The late answer finds nobody.
            pair.service.gate.notify_waiters();
        }
        pair.service.gate.notify_waiters();
        let answer = pair.link.call(b"ok".to_vec(), send(), into(), WAIT).await.unwrap();
        assert_eq!(answer.body, b"ko");
        let (received, len) = answer.received.unwrap();
        assert_eq!((&(*received).as_ref()[..len], len), (&[6u8; 64][..], 64));
    });
}

#[test]
fn dropped_calls_harm_nobody() {
    run(async {
        let pair = start(Rc::new(TcpTransport::new()), any_port()).await;
        for round in 0..100u32 {
            let big: BoxBuffer = Box::new(vec![1; 1 << 20]);
            let into: BoxBuffer = Box::new(vec![0; 1 << 20]);
            let call = pair.link.call(vec![], Some((big, 1 << 20)), Some(into), WAIT);
            let _ = tokio::time::timeout(Duration::from_micros(u64::from(round) * 40), call).await;
        }
        let answer = pair.link.call(b"ok".to_vec(), send(), into(), WAIT).await.unwrap();
        assert_eq!(answer.body, b"ko");
    });
}

#[test]
fn what_does_not_fit_is_an_error_of_that_call_alone() {
    run(async {
        let pair = start(Rc::new(MemoryTransport::new()), memory()).await;
        let short: BoxBuffer = Box::new(vec![0; 8]);
        let error = pair.link.call(vec![], send(), Some(short), WAIT).await.unwrap_err();
        assert!(matches!(error, CallError::Protocol { .. }), "{error:?}");
        let body = vec![0; (256 << 10) + 1];
        let error = pair.link.call(body, None, None, WAIT).await.unwrap_err();
        assert!(matches!(error, CallError::Protocol { .. }), "{error:?}");
        let error = pair.link.call(vec![], Some((Box::new(vec![0; 4]), 5)), None, WAIT).await;
        assert!(matches!(error, Err(CallError::Protocol { .. })));
        pair.link.call(vec![0; 256 << 10], send(), into(), WAIT).await.unwrap();
        assert_eq!(pair.service.seen.borrow().values().filter(|times| **times > 1).count(), 0);
    });
}

/// What a faulty network does with a frame.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Pass,
    Drop,
    Repeat,
    Cut,
    Flip,
}

fn any_faults() -> impl Strategy<Value = Vec<Fault>> {
    let fault = prop_oneof![
        12 => Just(Fault::Pass),
        1 => Just(Fault::Drop),
        1 => Just(Fault::Repeat),
        1 => Just(Fault::Cut),
        1 => Just(Fault::Flip),
    ];
    prop::collection::vec(fault, 1..80)
}

/// Does each fault once, in turn, then lets all pass.
fn faulty(faults: Vec<Fault>) -> MemoryTransport {
    let transport = MemoryTransport::new();
    let mut faults = faults.into_iter();
    transport.set_tap(move |_, mut frame| match faults.next().unwrap_or(Fault::Pass) {
        Fault::Pass => Some(vec![frame]),
        Fault::Drop => Some(vec![]),
        Fault::Repeat => Some(vec![frame.clone(), frame]),
        Fault::Cut => None,
        Fault::Flip => {
            match (frame.payload.first_mut(), frame.body.first_mut()) {
                (Some(byte), _) | (None, Some(byte)) => *byte ^= 4,
                (None, None) => frame.header[20] ^= 4,
            }
            Some(vec![frame])
        }
    });
    transport
}

/// One call with its number as body and, of every other number, as payload.
async fn numbered_call(link: Rc<PeerLink>, number: u8, deadline: Duration) -> bool {
    let begin = tokio::time::Instant::now();
    let bulk = number.is_multiple_of(2);
    let lent = || -> BoxBuffer { Box::new(vec![number; 500]) };
    let (send, into) = (bulk.then(|| (lent(), 500)), bulk.then(lent));
    let result = link.call(vec![number, 1], send, into, deadline).await;
    assert!(begin.elapsed() <= deadline + Duration::from_millis(2), "{:?}", begin.elapsed());
    match result {
        Ok(answer) => {
            assert_eq!(answer.body, [1, number]);
            assert_eq!(answer.sent.is_some(), bulk);
            if let Some((buffer, len)) = answer.received {
                assert!((*buffer).as_ref()[..len] == [number + 1; 500]);
            }
            true
        }
        Err(CallError::Deadline { .. } | CallError::Unreachable { .. }) => false,
        Err(error) => panic!("{error:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_network_does_calls_end_in_time_and_answers_are_right(
        faults in any_faults(), short_ms in 1..4000u64
    ) {
        run_paused(async {
            let pair = start(Rc::new(faulty(faults)), memory()).await;
            let calls = |numbers: std::ops::Range<u8>, deadline| -> Vec<_> {
                numbers
                    .map(|number| numbered_call(pair.link.clone(), number, deadline))
                    .map(tokio::task::spawn_local)
                    .collect()
            };
            for call in calls(0..40, Duration::from_millis(short_ms)) {
                call.await.unwrap();
            }
            // The faults end: with time enough, everyone is answered.
            for call in calls(100..140, Duration::from_secs(600)) {
                assert!(call.await.unwrap());
            }
        });
    }
}
