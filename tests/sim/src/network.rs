//! The network between the servers: frames take time, connections break, links fall silent.
//!
//! Frames of one connection keep their order, as on TCP; those of two connections do not.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use hayase_wire::deadline::CONNECT_WAIT;
use hayase_wire::header::HEADER_BYTES;
use hayase_wire::transport::{
    Address, Connection, FrameSender, Listener, LocalFuture, MemoryTransport, Transport,
    TransportError,
};

use tokio::sync::mpsc;

use crate::random::Random;

/// Connections that wait at one door.
const CONNECTIONS_MAX: usize = 64;

/// Longest that a frame is on its way, most of them far less.
const SLOW: Duration = Duration::from_millis(20);
const QUICK: Duration = Duration::from_micros(300);

/// What all servers share.
pub(crate) struct Network {
    frames: MemoryTransport,
    doors: RefCell<HashMap<Address, (u16, mpsc::Sender<Connection>)>>,
    random: Random,
    links: RefCell<Links>,
}

#[derive(Default)]
struct Links {
    /// Pairs between which nothing arrives, lower server first.
    silent: HashSet<(u16, u16)>,
    /// How often the connections of a pair were broken.
    broken: HashMap<(u16, u16), u64>,
}

fn pair(one: u16, other: u16) -> (u16, u16) {
    (one.min(other), one.max(other))
}

impl Network {
    pub(crate) fn new(random: Random) -> Rc<Self> {
        Rc::new(Self {
            frames: MemoryTransport::new(),
            doors: RefCell::default(),
            random,
            links: RefCell::default(),
        })
    }

    /// The network as one server sees it.
    pub(crate) fn of(self: &Rc<Self>, server: u16) -> Rc<dyn Transport> {
        Rc::new(Port { network: Rc::clone(self), server })
    }

    /// Where a server listens in one of its lives.
    pub(crate) fn address(server: u16, life: u64) -> Address {
        Address::Memory(format!("{server}-{life}"))
    }

    /// Ends all connections between two servers at the next frame.
    pub(crate) fn break_connections(&self, one: u16, other: u16) {
        *self.links.borrow_mut().broken.entry(pair(one, other)).or_default() += 1;
    }

    /// From now on nothing arrives between them, and nobody is told.
    pub(crate) fn silence(&self, one: u16, other: u16) {
        self.links.borrow_mut().silent.insert(pair(one, other));
    }

    /// Lets frames through again. What was lost meanwhile stays lost, so connections end.
    pub(crate) fn heal(&self, one: u16, other: u16) {
        self.links.borrow_mut().silent.remove(&pair(one, other));
        self.break_connections(one, other);
    }

    fn breaks(&self, pair: (u16, u16)) -> u64 {
        self.links.borrow().broken.get(&pair).copied().unwrap_or(0)
    }

    fn is_silent(&self, pair: (u16, u16)) -> bool {
        self.links.borrow().silent.contains(&pair)
    }

    fn delay(&self) -> Duration {
        self.random.time(if self.random.chance(5) { SLOW } else { QUICK })
    }
}

struct Port {
    network: Rc<Network>,
    server: u16,
}

impl Port {
    /// The end of a connection whose frames go from one of the pair to the other.
    fn shaped(&self, end: Connection, pair: (u16, u16)) -> Connection {
        let network = Rc::clone(&self.network);
        let breaks = network.breaks(pair);
        let sender = Box::new(Shaped { network, pair, breaks, inner: Some(end.sender) });
        Connection { sender, ..end }
    }
}

impl Transport for Port {
    fn listen<'a>(
        &'a self,
        at: &'a Address,
    ) -> LocalFuture<'a, Result<Box<dyn Listener>, TransportError>> {
        Box::pin(async move {
            let (door, connections) = mpsc::channel(CONNECTIONS_MAX);
            self.network.doors.borrow_mut().insert(at.clone(), (self.server, door));
            Ok(Box::new(Door { connections, at: at.clone() }) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(
        &'a self,
        to: &'a Address,
    ) -> LocalFuture<'a, Result<Connection, TransportError>> {
        Box::pin(async move {
            tokio::time::sleep(self.network.delay()).await;
            let refused = || TransportError::Connect {
                to: to.clone(),
                source: std::io::ErrorKind::ConnectionRefused.into(),
            };
            let (peer, door) = self.network.doors.borrow().get(to).cloned().ok_or_else(refused)?;
            let pair = pair(self.server, peer);
            if self.network.is_silent(pair) {
                tokio::time::sleep(CONNECT_WAIT).await;
                return Err(refused());
            }
            let (here, there) = self.network.frames.pair();
            door.try_send(self.shaped(there, pair)).map_err(|_| refused())?;
            Ok(self.shaped(here, pair))
        })
    }
}

struct Door {
    connections: mpsc::Receiver<Connection>,
    at: Address,
}

impl Listener for Door {
    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, TransportError>> {
        Box::pin(async move {
            let source = || std::io::ErrorKind::NotConnected.into();
            self.connections.recv().await.ok_or_else(|| TransportError::Accept { source: source() })
        })
    }

    fn address(&self) -> Address {
        self.at.clone()
    }
}

struct Shaped {
    network: Rc<Network>,
    pair: (u16, u16),
    /// Of the pair when this connection was made.
    breaks: u64,
    /// `None` once it was broken.
    inner: Option<Box<dyn FrameSender>>,
}

impl FrameSender for Shaped {
    fn send<'a>(
        &'a mut self,
        header: &'a [u8; HEADER_BYTES],
        body: &'a [u8],
        payload: &'a [u8],
    ) -> LocalFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            tokio::time::sleep(self.network.delay()).await;
            if self.network.breaks(self.pair) != self.breaks {
                self.inner = None;
            }
            let Some(inner) = &mut self.inner else {
                let source = std::io::ErrorKind::BrokenPipe.into();
                return Err(TransportError::Io { action: "send a frame", source });
            };
            if self.network.is_silent(self.pair) {
                return Ok(());
            }
            inner.send(header, body, payload).await
        })
    }
}
