//! Two servers that do not reach each other, and a third that both reach. The clock stands still while
//! nothing can happen.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::ServerId;
use hayase_wire::deadline::{CONNECT_STEP, RELAY_LOOK};
use hayase_wire::header::HEADER_BYTES;
use hayase_wire::limits::{PAYLOAD_BYTES_MAX, RELAY_CONNECTS_MAX, RELAYS_MAX};
use hayase_wire::message::Carrier;
use hayase_wire::times::{CONNECT_WAIT, HANDSHAKE_WAIT, RELAY_PAUSE, SILENCE_MAX};
use hayase_wire::transport::{
    Connection, FrameSender, Listener, LocalFuture, MemoryTransport, Transport, TransportError,
};
use hayase_wire::{
    Address, BoxBuffer, CallError, Connector, LinkError, PeerIdentity, PeerLink, Response, Service,
    serve_listener,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::job::{credentials, run};

const RELAY: ServerId = ServerId(0);
const NEAR: ServerId = ServerId(1);
const FAR: ServerId = ServerId(2);
const WAIT: Duration = Duration::from_secs(8);

fn address(server: ServerId) -> Address {
    Address::Memory(server.to_string())
}

/// The network as one server sees it: what it sends to the servers in `cut` is dropped silently.
struct Port {
    inner: MemoryTransport,
    cut: Rc<RefCell<HashSet<Address>>>,
}

struct Cut {
    inner: Box<dyn FrameSender>,
    to: Address,
    cut: Rc<RefCell<HashSet<Address>>>,
}

impl Transport for Port {
    fn listen<'a>(
        &'a self,
        at: &'a Address,
    ) -> LocalFuture<'a, Result<Box<dyn Listener>, TransportError>> {
        self.inner.listen(at)
    }

    fn connect<'a>(
        &'a self,
        to: &'a Address,
    ) -> LocalFuture<'a, Result<Connection, TransportError>> {
        Box::pin(async move {
            if self.cut.borrow().contains(to) {
                std::future::pending::<()>().await;
            }
            let connection = self.inner.connect(to).await?;
            let (inner, to, cut) = (connection.sender, to.clone(), Rc::clone(&self.cut));
            Ok(Connection { sender: Box::new(Cut { inner, to, cut }), ..connection })
        })
    }
}

impl FrameSender for Cut {
    fn send<'a>(
        &'a mut self,
        header: &'a [u8; HEADER_BYTES],
        body: &'a [u8],
        payload: &'a [u8],
    ) -> LocalFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            if self.cut.borrow().contains(&self.to) {
                return Ok(());
            }
            self.inner.send(header, body, payload).await
        })
    }
}

/// Echoes, as a server or through a relay; notes who asked, and how often it was asked for a way.
struct Echo {
    asked_by: Cell<Option<PeerIdentity>>,
    reached: Cell<usize>,
    reaching: Cell<usize>,
    reaching_most: Cell<usize>,
    onward: Rc<PeerLink>,
    /// Whom it looks for has told it nothing yet.
    knows_nobody: Cell<bool>,
    /// Answers nothing until the test lets it.
    holds: Cell<bool>,
    release: Notify,
}

/// One fewer at its end, also when nobody waits any more.
struct Reaching<'a>(&'a Cell<usize>);

impl Drop for Reaching<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Service for Echo {
    async fn buffer(&self, len: usize) -> BoxBuffer {
        Box::new(vec![0; len])
    }

    async fn serve(
        self: Rc<Self>,
        from: PeerIdentity,
        _request_id: u64,
        body: Vec<u8>,
        payload: Option<(BoxBuffer, usize)>,
    ) -> Response {
        self.asked_by.set(Some(from));
        let released = self.release.notified();
        if self.holds.get() {
            released.await;
        }
        Response { body, payload }
    }

    async fn reach(&self, server: ServerId) -> Result<Connection, LinkError> {
        self.reached.set(self.reached.get() + 1);
        assert_eq!(server, FAR);
        self.reaching.set(self.reaching.get() + 1);
        self.reaching_most.set(self.reaching_most.get().max(self.reaching.get()));
        let _reaching = Reaching(&self.reaching);
        if self.knows_nobody.get() {
            return Err(LinkError::NoAddress);
        }
        self.onward.reach().await
    }
}

/// A job of three; `near` and the relay are who they are, and send to `FAR`.
struct Job {
    network: MemoryTransport,
    /// Where nothing of `NEAR` arrives, and of the relay.
    near_cut: Rc<RefCell<HashSet<Address>>>,
    relay_cut: Rc<RefCell<HashSet<Address>>>,
    near: Rc<Connector>,
    link: Rc<PeerLink>,
    to_relay: Rc<PeerLink>,
    relay: Rc<Echo>,
}

impl Job {
    async fn start() -> Self {
        let network = MemoryTransport::new();
        let (near_cut, near) = connector(&network, NEAR);
        let (relay_cut, relaying) = connector(&network, RELAY);
        let to_relay = PeerLink::new(Rc::clone(&near), RELAY, vec![address(RELAY)]);
        near.relay_through(&to_relay);
        let link = PeerLink::new(Rc::clone(&near), FAR, vec![address(FAR)]);
        let relay = serve(&network, RELAY, RELAY, relaying).await;
        Self { network, near_cut, relay_cut, near, link, to_relay, relay }
    }

    /// Whoever answers where `FAR` is looked for.
    async fn start_far(&self, as_whom: ServerId) -> Rc<Echo> {
        let (_, connector) = connector(&self.network, FAR);
        serve(&self.network, FAR, as_whom, connector).await
    }

    fn cut(&self) {
        self.near_cut.borrow_mut().insert(address(FAR));
    }

    fn over(&self) -> Option<Carrier> {
        self.link.status().over
    }
}

fn connector(
    network: &MemoryTransport,
    server: ServerId,
) -> (Rc<RefCell<HashSet<Address>>>, Rc<Connector>) {
    let cut = Rc::<RefCell<HashSet<Address>>>::default();
    let port = Port { inner: network.clone(), cut: Rc::clone(&cut) };
    (cut, Connector::new(Rc::new(port), credentials(server)))
}

async fn serve(
    network: &MemoryTransport,
    at: ServerId,
    as_whom: ServerId,
    connector: Rc<Connector>,
) -> Rc<Echo> {
    let onward = PeerLink::new(connector, FAR, vec![address(FAR)]);
    let echo = Rc::new(Echo {
        asked_by: Cell::default(),
        reached: Cell::default(),
        reaching: Cell::default(),
        reaching_most: Cell::default(),
        onward,
        knows_nobody: Cell::default(),
        holds: Cell::default(),
        release: Notify::new(),
    });
    let listener = network.listen(&address(at)).await.unwrap();
    tokio::task::spawn_local(serve_listener(listener, credentials(as_whom), Rc::clone(&echo)));
    echo
}

#[test]
fn servers_that_do_not_reach_each_other_call_through_a_third() {
    run(async {
        let job = Job::start().await;
        let far = job.start_far(FAR).await;
        job.cut();
        let answer = job.link.call(b"abc".to_vec(), None, None, WAIT).await.unwrap();
        assert_eq!(answer.body, b"abc");
        assert_eq!(job.over(), Some(Carrier::Relay));
        assert_eq!(far.asked_by.get(), Some(credentials(NEAR).me), "it is who it says");

        let bytes: Vec<u8> = (0..PAYLOAD_BYTES_MAX).map(|at| (at * 7) as u8).collect();
        let into: BoxBuffer = Box::new(vec![0; PAYLOAD_BYTES_MAX]);
        let sent = Some((Box::new(bytes.clone()) as BoxBuffer, bytes.len()));
        let answer = job.link.call(vec![], sent, Some(into), WAIT).await.unwrap();
        let (received, len) = answer.received.unwrap();
        assert!((*received).as_ref()[..len] == bytes[..]);
        assert_eq!(job.relay.reached.get(), 2, "once for each kind of call");
        assert_eq!(job.relay.asked_by.get(), None, "it only hands on");
    });
}

#[test]
fn a_connection_that_falls_silent_is_replaced_by_one_through_a_third() {
    run(async {
        let job = Job::start().await;
        let _far = job.start_far(FAR).await;
        job.link.call(vec![], None, None, WAIT).await.unwrap();
        assert_eq!(job.over(), Some(Carrier::Stream));
        job.cut();
        job.link.call(vec![], None, None, WAIT).await.unwrap();
        assert_eq!(job.over(), Some(Carrier::Relay));
    });
}

#[test]
fn the_direct_way_is_taken_again_as_soon_as_there_is_one() {
    run(async {
        let job = Job::start().await;
        let _far = job.start_far(FAR).await;
        job.cut();
        job.link.call(vec![], None, None, WAIT).await.unwrap();
        tokio::time::sleep(3 * RELAY_LOOK).await;
        assert_eq!(job.over(), Some(Carrier::Relay), "there is none");
        job.near_cut.borrow_mut().clear();
        tokio::time::sleep(RELAY_LOOK + CONNECT_WAIT).await;
        job.link.call(vec![], None, None, WAIT).await.unwrap();
        assert_eq!(job.over(), Some(Carrier::Stream));
        assert_eq!(job.relay.reached.get(), 1);
    });
}

#[test]
fn who_is_dead_is_not_looked_for_through_a_third() {
    run(async {
        let job = Job::start().await;
        let error = job.link.call(vec![], None, None, WAIT).await.unwrap_err();
        assert!(matches!(error, CallError::Unreachable { .. }), "{error:?}");
        assert_eq!(job.relay.reached.get(), 0, "its kernel refuses connections");
    });
}

#[test]
fn whom_the_third_does_not_reach_either_is_told_as_such() {
    run(async {
        let job = Job::start().await;
        let _far = job.start_far(FAR).await;
        job.cut();
        job.relay_cut.borrow_mut().insert(address(FAR));
        let error = job.link.call(vec![], None, None, WAIT).await.unwrap_err();
        let CallError::Unreachable { source: Some(source), .. } = &error else {
            panic!("{error:?}")
        };
        assert!(source.to_string().contains("nor through server 0: connect to"), "{source}");
        assert_eq!(job.over(), None);

        job.near_cut.borrow_mut().insert(address(RELAY));
        let error = job.link.call(vec![], None, None, WAIT).await.unwrap_err();
        assert!(matches!(error, CallError::Unreachable { .. }), "{error:?}");
        job.near_cut.borrow_mut().clear();
        job.link.call(vec![], None, None, WAIT).await.unwrap();
        job.to_relay.call(vec![], None, None, WAIT).await.unwrap();
    });
}

/// That another server answered, until the deadline.
fn expect_other(error: &CallError, what: &str) {
    let CallError::Unreachable { source: Some(source), .. } = error else { panic!("{error:?}") };
    assert!(source.to_string().starts_with(what), "{source}");
}

#[test]
fn whom_the_third_reaches_has_to_prove_who_it_is() {
    run(async {
        let job = Job::start().await;
        let other = job.start_far(ServerId(5)).await;
        job.cut();
        let error = job.link.call(vec![], None, None, WAIT).await.unwrap_err();
        expect_other(&error, "server 5 answered where");
        assert_eq!(other.asked_by.get(), None);
    });
}

/// Links of the same server, as if each were another one's.
fn links(job: &Job, count: usize) -> Vec<Rc<PeerLink>> {
    (0..count).map(|_| PeerLink::new(Rc::clone(&job.near), FAR, vec![address(FAR)])).collect()
}

/// How many of them have answers, when all of them ask at once.
async fn answered(links: &[Rc<PeerLink>], wait: Duration) -> usize {
    let mut calls = JoinSet::new();
    for link in links {
        let link = Rc::clone(link);
        calls.spawn_local(async move { link.call(vec![], None, None, wait).await.is_ok() });
    }
    calls.join_all().await.into_iter().filter(|is_answered| *is_answered).count()
}

#[test]
fn a_relay_that_is_full_refuses_and_calls_of_its_own_are_served() {
    run(async {
        let job = Job::start().await;
        let far = job.start_far(FAR).await;
        job.cut();
        far.holds.set(true);
        let (most, more) = (links(&job, RELAYS_MAX), links(&job, 1));
        let waiting = most.clone();
        let waiting = tokio::task::spawn_local(async move { answered(&waiting, 20 * WAIT).await });
        tokio::time::sleep(WAIT + SILENCE_MAX).await;
        let error = more[0].call(vec![], None, None, WAIT).await.unwrap_err();
        let CallError::Unreachable { source: Some(source), .. } = &error else {
            panic!("{error:?}")
        };
        assert!(source.to_string().contains("it carries 256 connections"), "{source}");
        job.to_relay.call(vec![], None, None, WAIT).await.unwrap();
        far.holds.set(false);
        far.release.notify_waiters();
        assert_eq!(waiting.await.unwrap(), RELAYS_MAX, "nobody has lost a place");
    });
}

#[test]
fn an_idle_connection_leaves_its_place_at_a_relay_that_is_full() {
    run(async {
        let job = Job::start().await;
        let _far = job.start_far(FAR).await;
        job.cut();
        let (most, more) = (links(&job, RELAYS_MAX), links(&job, 2));
        assert_eq!(answered(&most, WAIT).await, RELAYS_MAX);
        tokio::time::sleep(SILENCE_MAX).await;
        assert_eq!(answered(&more, WAIT).await, 2);
        // Those that had to leave take the places of others.
        tokio::time::sleep(SILENCE_MAX).await;
        assert_eq!(answered(&most[..2], WAIT).await, 2);
    });
}

#[test]
fn a_relay_makes_few_connections_to_one_server_at_a_time() {
    run(async {
        let job = Job::start().await;
        let _far = job.start_far(FAR).await;
        job.cut();
        job.relay_cut.borrow_mut().insert(address(FAR));
        let all = links(&job, 20);
        assert_eq!(answered(&all, WAIT).await, 0);
        assert_eq!(job.relay.reaching_most.get(), RELAY_CONNECTS_MAX);
        job.relay_cut.borrow_mut().clear();
        tokio::time::sleep(RELAY_PAUSE).await;
        assert_eq!(answered(&all, WAIT).await, 20, "a caller that waits for a turn gets it soon");
        assert_eq!(job.relay.reaching_most.get(), RELAY_CONNECTS_MAX);
    });
}

#[test]
fn a_relay_that_did_not_reach_a_server_is_not_asked_again_at_once() {
    run(async {
        // Nobody listens at its address: the relay answers at once.
        let job = Job::start().await;
        job.cut();
        let small = Rc::clone(&job.link);
        let small = tokio::task::spawn_local(async move {
            small.call(vec![], None, None, 3 * WAIT).await.unwrap_err()
        });
        // The other lane asks at other times.
        tokio::time::sleep(CONNECT_WAIT / 2).await;
        let into: Option<BoxBuffer> = Some(Box::new(vec![0; 1]));
        job.link.call(vec![], None, into, 3 * WAIT).await.unwrap_err();
        let error = small.await.unwrap();
        let CallError::Unreachable { source: Some(source), .. } = &error else {
            panic!("{error:?}")
        };
        assert!(source.to_string().contains("nor through server 0: connect to"), "{source}");
        let asked = job.relay.reached.get() as u64;
        let most = (4 * WAIT).as_secs() / RELAY_PAUSE.as_secs();
        assert!(asked > 10 && asked <= most, "{asked}");
    });
}

/// Of a call that another server makes for a program.
const CALL_WAIT: Duration = Duration::from_secs(5);

#[test]
fn who_was_not_reached_through_a_relay_and_is_back_answers_the_next_call() {
    run(async {
        let job = Job::start().await;
        let _far = job.start_far(FAR).await;
        job.cut();
        job.relay_cut.borrow_mut().insert(address(FAR));
        job.link.call(vec![], None, None, CALL_WAIT).await.unwrap_err();
        assert!(job.relay.reached.get() > 0);
        let calling = job.link.call(vec![], None, None, CALL_WAIT);
        let back = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            job.relay_cut.borrow_mut().clear();
        };
        tokio::join!(calling, back).0.unwrap();
        assert_eq!(job.over(), Some(Carrier::Relay));
    });
}

#[test]
fn a_relay_that_does_not_know_a_server_yet_is_asked_again() {
    run(async {
        let job = Job::start().await;
        let _far = job.start_far(FAR).await;
        job.cut();
        job.relay.knows_nobody.set(true);
        let error = job.link.call(vec![], None, None, CALL_WAIT).await.unwrap_err();
        let CallError::Unreachable { source: Some(source), .. } = &error else {
            panic!("{error:?}")
        };
        assert!(source.to_string().contains("no address of the server is known"), "{source}");
        let asked = job.relay.reached.get();
        job.relay.knows_nobody.set(false);
        job.link.call(vec![], None, None, CONNECT_WAIT + HANDSHAKE_WAIT / 2).await.unwrap();
        assert_eq!(job.relay.reached.get(), asked + 1);
    });
}

#[test]
fn a_full_relay_throws_nobody_out_for_a_server_that_it_does_not_reach() {
    run(async {
        let job = Job::start().await;
        let _far = job.start_far(FAR).await;
        job.cut();
        let most = links(&job, RELAYS_MAX);
        assert_eq!(answered(&most, WAIT).await, RELAYS_MAX);
        tokio::time::sleep(SILENCE_MAX).await;
        job.relay.knows_nobody.set(true);
        job.link.call(vec![], None, None, WAIT).await.unwrap_err();
        assert!(most.iter().all(|link| link.status().over == Some(Carrier::Relay)));
    });
}

#[test]
fn somebody_else_at_one_address_does_not_end_the_search_at_the_others() {
    run(async {
        let job = Job::start().await;
        let _far = job.start_far(FAR).await;
        // That of a bridge, which is the same on every machine.
        let addresses = vec![address(RELAY), address(FAR)];
        job.link.set_addresses(addresses.clone());
        job.link.call(vec![], None, None, WAIT).await.unwrap();
        assert_eq!(job.over(), Some(Carrier::Stream));

        // Nor is it the answer while nothing comes from the other one, which may be in a moment.
        let link = PeerLink::new(
            Rc::clone(&job.near),
            ServerId(7),
            vec![address(RELAY), address(ServerId(7))],
        );
        let error = link.call(vec![], None, None, WAIT).await.unwrap_err();
        assert!(matches!(error, CallError::Unreachable { .. }), "{error:?}");
        link.set_addresses(vec![address(RELAY), address(FAR)]);
        let error = link.call(vec![], None, None, WAIT).await.unwrap_err();
        expect_other(&error, &format!("server {FAR} answered where"));
    });
}

#[test]
fn an_address_from_which_nothing_comes_costs_a_moment() {
    run(async {
        let job = Job::start().await;
        let _far = job.start_far(FAR).await;
        let nowhere = Address::Memory("nowhere".to_owned());
        for cut in [&job.near_cut, &job.relay_cut] {
            cut.borrow_mut().insert(nowhere.clone());
        }
        job.link.set_addresses(vec![nowhere.clone(), address(FAR)]);
        let begin = Instant::now();
        job.link.call(vec![], None, None, WAIT).await.unwrap();
        assert_eq!((job.over(), begin.elapsed()), (Some(Carrier::Stream), CONNECT_STEP));

        // The same of a relay, and of whom it looks for.
        job.to_relay.set_addresses(vec![nowhere.clone(), address(RELAY)]);
        job.relay.onward.set_addresses(vec![nowhere, address(FAR)]);
        job.cut();
        let link = PeerLink::new(Rc::clone(&job.near), FAR, vec![address(FAR)]);
        let begin = Instant::now();
        link.call(vec![], None, None, WAIT).await.unwrap();
        assert_eq!(link.status().over, Some(Carrier::Relay));
        assert!(begin.elapsed() < 3 * CONNECT_WAIT, "{:?}", begin.elapsed());
    });
}

#[test]
fn who_refuses_at_one_address_is_looked_for_where_another_does_not_answer() {
    run(async {
        let job = Job::start().await;
        let _far = job.start_far(FAR).await;
        job.cut();
        let refuses = Address::Memory("refuses".to_owned());
        job.link.set_addresses(vec![address(FAR), refuses]);
        job.link.call(vec![], None, None, WAIT).await.unwrap();
        assert_eq!(job.over(), Some(Carrier::Relay));
    });
}
