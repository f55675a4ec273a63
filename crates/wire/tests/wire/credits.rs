//! What a service may rely on to answer repetitions: the last request of each credit is the only one
//! that comes again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::ServerId;
use hayase_wire::header::{FrameKind, Header};
use hayase_wire::limits::{CREDITS_PER_LINK, CREDITS_PER_PEER};
use hayase_wire::transport::memory::Direction;
use hayase_wire::transport::{MemoryTransport, Transport};
use hayase_wire::{
    Address, BoxBuffer, Connector, PeerIdentity, PeerLink, RequestId, Response, Service,
    serve_listener,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::job::{credentials, run};

const SERVER: ServerId = ServerId(1);
const WAIT: Duration = Duration::from_secs(600);

/// Knows the last request of each credit, and how many came after a later one of theirs. Has no
/// buffer for a payload while the gate is shut.
struct LastOfEach {
    last: RefCell<BTreeMap<u8, RequestId>>,
    served: Cell<usize>,
    repeated: Cell<usize>,
    overtaken: Cell<usize>,
    gate: watch::Sender<bool>,
}

impl LastOfEach {
    fn gated(is_open: bool) -> Rc<Self> {
        Rc::new(Self {
            last: RefCell::default(),
            served: Cell::new(0),
            repeated: Cell::new(0),
            overtaken: Cell::new(0),
            gate: watch::Sender::new(is_open),
        })
    }
}

fn count(counter: &Cell<usize>) {
    counter.set(counter.get() + 1);
}

impl Service for LastOfEach {
    async fn buffer(&self, len: usize) -> BoxBuffer {
        self.gate.subscribe().wait_for(|is_open| *is_open).await.unwrap();
        Box::new(vec![0; len])
    }

    async fn serve(
        self: Rc<Self>,
        _from: PeerIdentity,
        request_id: u64,
        body: Vec<u8>,
        _payload: Option<(BoxBuffer, usize)>,
    ) -> Response {
        let id = RequestId(request_id);
        count(&self.served);
        match self.last.borrow_mut().insert(id.credit(), id) {
            Some(before) if before == id => count(&self.repeated),
            Some(before) if before > id => count(&self.overtaken),
            _ => {}
        }
        Response::new(body)
    }
}

async fn start(transport: MemoryTransport, service: &Rc<LastOfEach>) -> Rc<PeerLink> {
    let at = Address::Memory("server".into());
    let listener = transport.listen(&at).await.unwrap();
    tokio::task::spawn_local(serve_listener(listener, credentials(SERVER), Rc::clone(service)));
    PeerLink::new(Connector::new(Rc::new(transport), credentials(ServerId(0))), SERVER, vec![at])
}

fn call(link: &Rc<PeerLink>, has_payload: bool, deadline: Duration) -> JoinHandle<bool> {
    let link = Rc::clone(link);
    tokio::task::spawn_local(async move {
        let payload: Option<(BoxBuffer, usize)> =
            has_payload.then(|| -> (BoxBuffer, usize) { (Box::new(vec![1; 64]), 64) });
        link.call(vec![1], payload, None, deadline).await.is_ok()
    })
}

#[test]
fn a_request_that_waits_is_not_overtaken_on_its_credit() {
    run(async {
        let service = LastOfEach::gated(false);
        let link = start(MemoryTransport::new(), &service).await;
        // As many again as there are credits wait for one, the others for a buffer.
        let bulk: Vec<_> = (0..2 * CREDITS_PER_PEER).map(|_| call(&link, true, WAIT)).collect();
        for _ in 0..5000 {
            assert!(call(&link, false, WAIT).await.unwrap());
        }
        service.gate.send_replace(true);
        for call in bulk {
            assert!(call.await.unwrap());
        }
        assert_eq!(service.served.get(), 5000 + 2 * CREDITS_PER_PEER);
        assert_eq!(service.overtaken.get(), 0);
        assert!(service.last.borrow().len() <= CREDITS_PER_LINK);
    });
}

#[test]
fn what_comes_again_is_the_last_request_of_its_credit() {
    run(async {
        let transport = MemoryTransport::new();
        // Of every seven replies one does not arrive: the connection ends there.
        let replies = Cell::new(0);
        transport.set_tap(move |direction, frame| {
            let kind = Header::parse(&frame.header).unwrap().kind;
            if direction == Direction::Back && kind == FrameKind::Reply {
                replies.set(replies.get() + 1);
                if replies.get() % 7 == 0 {
                    return None;
                }
            }
            Some(vec![frame])
        });
        let service = LastOfEach::gated(true);
        let link = start(transport, &service).await;
        let mut answered = 0;
        for round in 0..100 {
            // Some are given up while they are under way, or wait for a credit or a connection.
            let deadline = if round % 2 == 0 { WAIT } else { Duration::from_millis(15) };
            let calls: Vec<_> =
                (0..3 * CREDITS_PER_PEER).map(|at| call(&link, at % 2 == 0, deadline)).collect();
            for call in calls {
                answered += usize::from(call.await.unwrap());
            }
        }
        assert!(answered < 100 * 3 * CREDITS_PER_PEER, "some were given up");
        assert!(service.repeated.get() > 0, "some came again");
        assert_eq!(service.overtaken.get(), 0);
        assert!(service.last.borrow().len() <= CREDITS_PER_LINK);
    });
}
