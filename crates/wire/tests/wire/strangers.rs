//! Strangers who open connections by the thousand, or listen where a server was: nobody who knows the
//! secret waits for them. The clock stands still, so that any wait shows.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::ServerId;
use hayase_wire::header::{FrameKind, Header};
use hayase_wire::limits::{HANDSHAKES_MAX, STRANGERS_MAX};
use hayase_wire::message::PeerState;
use hayase_wire::times::CONNECT_WAIT;
use hayase_wire::transport::memory::{Direction, MemoryFrame};
use hayase_wire::transport::{Connection, MemoryTransport, Transport};
use hayase_wire::{
    Address, BoxBuffer, CallError, Connector, Credentials, PeerIdentity, PeerLink, Presence,
    Response, Secret, Service, put_off_listener, serve_listener,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::job::{credentials, key, run};

const SERVER: ServerId = ServerId(1);
const WAIT: Duration = Duration::from_secs(8);

struct Echo;

impl Service for Echo {
    async fn buffer(&self, len: usize) -> BoxBuffer {
        Box::new(vec![0; len])
    }

    async fn serve(
        self: Rc<Self>,
        _from: PeerIdentity,
        _request_id: u64,
        body: Vec<u8>,
        _payload: Option<(BoxBuffer, usize)>,
    ) -> Response {
        Response::new(body)
    }
}

fn address() -> Address {
    Address::Memory("server".into())
}

async fn start(transport: &MemoryTransport) {
    start_as(transport, credentials(SERVER)).await;
}

async fn start_as(transport: &MemoryTransport, credentials: Credentials) -> JoinHandle<()> {
    let listener = transport.listen(&address()).await.unwrap();
    tokio::task::spawn_local(serve_listener(listener, credentials, Rc::new(Echo)))
}

fn member(transport: &MemoryTransport) -> Rc<PeerLink> {
    let connector = Connector::new(Rc::new(transport.clone()), credentials(ServerId(0)));
    PeerLink::new(connector, SERVER, vec![address()])
}

/// Connections that stay open, one after the other; each says what is given, if anything.
async fn flood(
    transport: &MemoryTransport,
    count: usize,
    say: Option<MemoryFrame>,
) -> Vec<Connection> {
    let mut open = Vec::new();
    for _ in 0..8 * count {
        if open.len() == count {
            break;
        }
        if let Ok(mut connection) = transport.connect(&address()).await {
            if let Some(MemoryFrame { header, body, payload }) = &say {
                connection.sender.send(header, body, payload).await.unwrap();
            }
            open.push(connection);
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(open.len(), count, "all are accepted");
    open
}

/// The first message of a member's handshake, as somebody on its way sees it.
async fn overheard(transport: &MemoryTransport) -> MemoryFrame {
    let first = Rc::new(RefCell::new(None));
    transport.set_tap({
        let first = Rc::clone(&first);
        move |direction, frame| {
            let kind = Header::parse(&frame.header).unwrap().kind;
            if direction == Direction::Out && kind == FrameKind::Hello {
                first.borrow_mut().get_or_insert(frame.clone());
            }
            Some(vec![frame])
        }
    });
    member(transport).call(vec![], None, None, WAIT).await.unwrap();
    transport.clear_tap();
    first.take().unwrap()
}

/// Whether the other side has closed it, or does before the clock moves.
async fn is_closed(connection: &mut Connection) -> bool {
    tokio::select! {
        biased;
        header = connection.receiver.header() => header.unwrap().is_none(),
        () = tokio::time::sleep(Duration::from_nanos(1)) => false,
    }
}

#[test]
fn strangers_who_say_nothing_hold_up_no_member() {
    run(async {
        let transport = MemoryTransport::new();
        start(&transport).await;
        let begin = Instant::now();
        let mut silent = flood(&transport, 4 * STRANGERS_MAX, None).await;
        member(&transport).call(vec![], None, None, WAIT).await.unwrap();
        // While more come, too.
        let link = member(&transport);
        let (more, answer) = tokio::join!(
            flood(&transport, 4 * STRANGERS_MAX, None),
            link.call(vec![], None, None, WAIT)
        );
        answer.unwrap();
        assert_eq!(begin.elapsed(), Duration::ZERO);
        silent.extend(more);
        let (newest, older) = (STRANGERS_MAX, silent.len() - STRANGERS_MAX);
        for connection in &mut silent[..older] {
            assert!(is_closed(connection).await, "its place is a newer one's");
        }
        assert!(!is_closed(&mut silent[older + newest / 2]).await, "there is room for it");
    });
}

#[test]
fn who_repeats_what_a_member_said_holds_up_no_member() {
    run(async {
        let transport = MemoryTransport::new();
        start(&transport).await;
        let first = overheard(&transport).await;
        let begin = Instant::now();
        let repeated = flood(&transport, 2 * HANDSHAKES_MAX, Some(first)).await;
        member(&transport).call(vec![], None, None, WAIT).await.unwrap();
        assert_eq!(begin.elapsed(), Duration::ZERO);
        drop(repeated);
    });
}

#[test]
fn no_stranger_takes_the_place_of_who_has_shown_the_secret() {
    run(async {
        let transport = MemoryTransport::new();
        start(&transport).await;
        // Says no more than that: it is in the middle of its handshake.
        let first = overheard(&transport).await;
        let mut begun = flood(&transport, 1, Some(first)).await.pop().unwrap();
        let answer = begun.receiver.header().await.unwrap().unwrap();
        assert_eq!(Header::parse(&answer).unwrap().kind, FrameKind::Hello);
        let strangers = flood(&transport, 2 * STRANGERS_MAX, None).await;
        assert!(!is_closed(&mut begun).await);
        drop(strangers);
    });
}

#[test]
fn who_is_starting_says_so_and_is_waited_for() {
    run(async {
        let transport = MemoryTransport::new();
        let link = member(&transport);
        let mut listener = transport.listen(&address()).await.unwrap();
        let asking = Rc::clone(&link);
        let asked = tokio::task::spawn_local(async move {
            asking.call(b"abc".to_vec(), None, None, WAIT).await.map(|answer| answer.body)
        });
        tokio::select! {
            biased;
            never = put_off_listener(&mut *listener, credentials(SERVER)) => match never {},
            () = async {
                assert_eq!(link.presence().await, Presence::Starting);
                tokio::time::sleep(WAIT / 2).await;
                assert!(link.is_starting() && link.peer().is_none());
            } => {}
        }
        assert!(!asked.is_finished());
        // A stranger that claims that the server is starting is not believed.
        let stranger = Credentials { secret: Secret::from_bytes([4; 32]), ..credentials(SERVER) };
        tokio::select! {
            biased;
            never = put_off_listener(&mut *listener, stranger) => match never {},
            presence = link.presence() => assert_eq!(presence, Presence::Unknown),
        }
        tokio::task::spawn_local(serve_listener(listener, credentials(SERVER), Rc::new(Echo)));
        assert_eq!(asked.await.unwrap().unwrap(), b"abc");
        assert!(!link.is_starting());
    });
}

/// Another server of the job, or any process that reads its secret, in the place of a server that is gone.
#[test]
fn a_member_at_the_address_of_a_dead_server_is_not_taken_for_it() {
    run(async {
        let transport = MemoryTransport::new();
        let link = member(&transport);
        let begin = Instant::now();
        let posing = Credentials { key: key(ServerId(2)), ..credentials(SERVER) };
        let mut listener = transport.listen(&address()).await.unwrap();
        tokio::select! {
            biased;
            never = put_off_listener(&mut *listener, posing.clone()) => match never {},
            presence = link.presence() => assert_eq!(presence, Presence::Unknown, "it starts"),
        }
        drop(listener);
        let other = start_as(&transport, posing).await;
        assert_eq!(link.presence().await, Presence::Unknown, "it serves");
        assert_eq!(begin.elapsed(), Duration::ZERO, "no longer than if nobody were there");
        let error = link.call(vec![], None, None, WAIT).await.unwrap_err();
        let CallError::Unreachable { source: Some(source), .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(source.to_string(), "the peer does not have the key of server 1 on host n1");
        other.abort();
        other.await.unwrap_err();

        // Nor is it believed when it calls.
        let server = start_as(&transport, credentials(SERVER)).await;
        let posing = Credentials { key: key(ServerId(2)), ..credentials(ServerId(0)) };
        let connector = Connector::new(Rc::new(transport.clone()), posing);
        let link = PeerLink::new(connector, SERVER, vec![address()]);
        let asking = Rc::clone(&link);
        let asked = async move { asking.call(vec![], None, None, WAIT).await.map(drop) };
        let asked = tokio::task::spawn_local(asked);
        while !asked.is_finished() {
            assert_ne!(link.state(), PeerState::Connected, "it is refused, and knows it");
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let error = asked.await.unwrap().unwrap_err();
        let CallError::Unreachable { source: Some(source), .. } = &error else {
            panic!("{error:?}");
        };
        let text = "server 1 refused the connection: it knows server 0 by another key";
        assert_eq!(source.to_string(), text);
        assert!(error.help().is_some());
        assert_eq!(link.presence().await, Presence::Serving, "who refuses runs");
        member(&transport).call(vec![], None, None, WAIT).await.unwrap();
        server.abort();
    });
}

#[test]
fn a_connection_that_a_stranger_forwards_to_another_server_is_tried_again() {
    run(async {
        let transport = MemoryTransport::new();
        let link = member(&transport);
        let other = start_as(&transport, credentials(ServerId(2))).await;
        let begin = Instant::now();
        let error = link.call(vec![], None, None, WAIT).await.unwrap_err();
        assert_eq!(begin.elapsed(), WAIT, "the ordinary limit");
        let CallError::Unreachable { source: Some(source), .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(source.to_string(), "server 2 answered where server 1 was called");
        assert!(error.help().unwrap().contains("forwards connections"));

        let asked = tokio::task::spawn_local(async move {
            link.call(b"abc".to_vec(), None, None, WAIT).await.map(|answer| answer.body)
        });
        tokio::time::sleep(WAIT / 2).await;
        assert!(!asked.is_finished());
        other.abort();
        other.await.unwrap_err();
        start(&transport).await;
        assert_eq!(asked.await.unwrap().unwrap(), b"abc");
    });
}

#[test]
fn a_stranger_at_the_address_of_a_dead_server_is_not_taken_for_it() {
    run(async {
        let transport = MemoryTransport::new();
        let link = member(&transport);
        let begin = Instant::now();
        assert_eq!(link.presence().await, Presence::Unknown, "nobody is");
        assert_eq!(begin.elapsed(), Duration::ZERO);

        // Accepts and says nothing, as a kernel does; it takes no longer than a machine without power.
        let silent = transport.listen(&address()).await.unwrap();
        assert_eq!(link.presence().await, Presence::Unknown);
        assert!(begin.elapsed() <= CONNECT_WAIT + Duration::from_millis(1));
        drop(silent);

        let begin = Instant::now();
        let stranger = Credentials { secret: Secret::from_bytes([4; 32]), ..credentials(SERVER) };
        for other in [stranger, credentials(ServerId(2))] {
            let other = start_as(&transport, other).await;
            assert_eq!(link.presence().await, Presence::Unknown);
            other.abort();
            other.await.unwrap_err();
        }
        let server = start_as(&transport, credentials(SERVER)).await;
        assert_eq!(link.presence().await, Presence::Serving);
        assert_eq!(begin.elapsed(), Duration::ZERO);

        link.call(vec![], None, None, WAIT).await.unwrap();
        assert_eq!(link.presence().await, Presence::Serving);
        assert_eq!(link.state(), PeerState::Connected, "it took no connection's place");
        server.abort();
    });
}
