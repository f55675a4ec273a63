//! The network between the servers: frames take time, connections break, links fall silent, nodes are
//! cut off.
//!
//! Frames of one connection keep their order, as on TCP; those of two connections do not. A server
//! that dies closes its connections; where nothing arrives, that does not arrive either, and whoever
//! asked to notice it does ([`FrameSender::notice_loss_within`]), as keep-alive of TCP tells.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hayase_wire::header::HEADER_BYTES;
use hayase_wire::times::CONNECT_WAIT;
use hayase_wire::transport::{
    Address, Connection, FrameReceiver, FrameSender, Listener, LocalFuture, MemoryTransport,
    Transport, TransportError,
};

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::crash_point::Pulse;
use crate::random::Random;

/// Connections that wait at one door.
const CONNECTIONS_MAX: usize = 64;

/// Who was taken for lost is told so within this, once it can be.
const AFTERMATH: Duration = Duration::from_secs(5);

/// Longest that a frame is on its way, most of them far less.
const SLOW: Duration = Duration::from_millis(20);
const QUICK: Duration = Duration::from_micros(300);

/// To a server that listens: as whom it answers, and where connections are handed over.
type Way = (Rc<Port>, mpsc::Sender<Connection>);

/// What all servers share.
pub(crate) struct Network {
    frames: MemoryTransport,
    doors: RefCell<HashMap<Address, Way>>,
    random: Random,
    links: RefCell<Links>,
    /// Links fell silent, or are so no more.
    changed: Notify,
    /// Frames that each server sent.
    sent: RefCell<HashMap<u16, Rc<Cell<u64>>>>,
}

#[derive(Default)]
struct Links {
    /// Pairs between which nothing arrives, lower server first.
    silent: HashSet<(u16, u16)>,
    /// Servers that hear nobody and that nobody hears.
    cut: HashSet<u16>,
    /// How often each was, or a link of it was silent.
    cuts: HashMap<u16, u64>,
    /// When that ended last.
    healed: HashMap<u16, Instant>,
    /// Ends of connections that were closed while nothing arrived: their peers do not know.
    unheard: Vec<((u16, u16), Box<dyn FrameSender>)>,
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
            changed: Notify::new(),
            sent: RefCell::default(),
        })
    }

    /// The network as one life of a server sees it.
    pub(crate) fn of(self: &Rc<Self>, server: u16, pulse: Arc<Pulse>) -> Rc<dyn Transport> {
        let sent = Rc::clone(self.sent.borrow_mut().entry(server).or_default());
        Rc::new(Port { network: Rc::clone(self), server, pulse, sent })
    }

    /// Frames that a server sent so far.
    pub(crate) fn frames_sent(&self, server: u16) -> u64 {
        self.sent.borrow().get(&server).map_or(0, |sent| sent.get())
    }

    /// Where a server listens in one of its lives: mostly where it was before, at times elsewhere.
    pub(crate) fn address(server: u16, life: u64) -> Address {
        Address::Memory(format!("{server}-{}", life / 3))
    }

    /// Ends all connections between two servers at the next frame.
    pub(crate) fn break_connections(&self, one: u16, other: u16) {
        *self.links.borrow_mut().broken.entry(pair(one, other)).or_default() += 1;
    }

    /// From now on nothing arrives between them, and nobody is told.
    pub(crate) fn silence(&self, one: u16, other: u16) {
        let mut links = self.links.borrow_mut();
        links.silent.insert(pair(one, other));
        for server in [one, other] {
            *links.cuts.entry(server).or_default() += 1;
        }
        self.changed.notify_waiters();
    }

    /// Lets frames through again. What was lost meanwhile stays lost, so connections end.
    pub(crate) fn heal(&self, one: u16, other: u16) {
        {
            let mut links = self.links.borrow_mut();
            if links.silent.remove(&pair(one, other)) {
                links.healed.extend([one, other].map(|server| (server, Instant::now())));
            }
        }
        self.break_connections(one, other);
        self.end_unheard();
    }

    /// From now on a server hears nobody and nobody hears it.
    pub(crate) fn cut_off(&self, server: u16) {
        let mut links = self.links.borrow_mut();
        links.cut.insert(server);
        *links.cuts.entry(server).or_default() += 1;
        self.changed.notify_waiters();
    }

    /// It is connected again; connections from before are not.
    pub(crate) fn is_back(&self, server: u16) {
        {
            let mut links = self.links.borrow_mut();
            if links.cut.remove(&server) {
                links.healed.insert(server, Instant::now());
            }
            let known: Vec<_> = links.broken.keys().copied().collect();
            for pair in known.into_iter().filter(|pair| pair.0 == server || pair.1 == server) {
                *links.broken.entry(pair).or_default() += 1;
            }
        }
        self.end_unheard();
    }

    /// How often a server was cut off, from all others or from one.
    pub(crate) fn cuts(&self, server: u16) -> u64 {
        self.links.borrow().cuts.get(&server).copied().unwrap_or(0)
    }

    /// Whether it is now, or a link of it is silent, or was a moment ago.
    pub(crate) fn is_in_trouble(&self, server: u16) -> bool {
        let links = self.links.borrow();
        links.cut.contains(&server)
            || links.silent.iter().any(|(one, other)| *one == server || *other == server)
            || links.healed.get(&server).is_some_and(|at| at.elapsed() < AFTERMATH)
    }

    /// Returns when nothing arrived between a pair for `wait`.
    async fn until_lost(&self, pair: (u16, u16), wait: Duration) {
        loop {
            let changed = self.changed.notified();
            match self.is_silent(pair) {
                true if tokio::time::timeout(wait, self.until_heard(pair)).await.is_err() => return,
                true => {}
                false => changed.await,
            }
        }
    }

    async fn until_heard(&self, pair: (u16, u16)) {
        loop {
            let changed = self.changed.notified();
            if !self.is_silent(pair) {
                return;
            }
            changed.await;
        }
    }

    /// The end of a connection that was closed, or lost a frame, while nothing arrives: a kernel would send again when
    /// something does, here the connection ends then.
    fn end_when_heard(&self, pair: (u16, u16), end: Option<Box<dyn FrameSender>>) {
        self.links.borrow_mut().unheard.extend(end.map(|end| (pair, end)));
    }

    /// Peers learn of the ends that they did not hear of, where they can.
    fn end_unheard(&self) {
        self.changed.notify_waiters();
        let unheard = std::mem::take(&mut self.links.borrow_mut().unheard);
        let (still, heard): (Vec<_>, Vec<_>) =
            unheard.into_iter().partition(|(pair, _)| self.is_silent(*pair));
        drop(heard);
        self.links.borrow_mut().unheard.extend(still);
    }

    fn breaks(&self, pair: (u16, u16)) -> u64 {
        *self.links.borrow_mut().broken.entry(pair).or_default()
    }

    fn is_silent(&self, pair: (u16, u16)) -> bool {
        self.links.borrow().silent.contains(&pair) || self.is_cut(pair)
    }

    fn is_cut(&self, pair: (u16, u16)) -> bool {
        let links = self.links.borrow();
        links.cut.contains(&pair.0) || links.cut.contains(&pair.1)
    }

    fn delay(&self) -> Duration {
        self.random.time(if self.random.chance(5) { SLOW } else { QUICK })
    }
}

struct Port {
    network: Rc<Network>,
    server: u16,
    pulse: Arc<Pulse>,
    sent: Rc<Cell<u64>>,
}

impl Port {
    /// Its end of a connection whose frames go from one of the pair to the other.
    fn shaped(&self, end: Connection, pair: (u16, u16)) -> Connection {
        let network = Rc::clone(&self.network);
        let (breaks, inner) = (network.breaks(pair), Some(end.sender));
        let (pulse, sent) = (Arc::clone(&self.pulse), Rc::clone(&self.sent));
        let loss = Rc::new(Cell::new(None));
        let watched =
            Watched { network: Rc::clone(&network), pair, inner: end.receiver, loss: loss.clone() };
        let shaped = Shaped { network, pair, breaks, inner, pulse, sent, loss };
        Connection { sender: Box::new(shaped), receiver: Box::new(watched), ..end }
    }
}

impl Transport for Port {
    fn listen<'a>(
        &'a self,
        at: &'a Address,
    ) -> LocalFuture<'a, Result<Box<dyn Listener>, TransportError>> {
        Box::pin(async move {
            let (door, connections) = mpsc::channel(CONNECTIONS_MAX);
            let port = Rc::new(Port {
                network: Rc::clone(&self.network),
                server: self.server,
                pulse: Arc::clone(&self.pulse),
                sent: Rc::clone(&self.sent),
            });
            self.network.doors.borrow_mut().insert(at.clone(), (port, door));
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
            let pair = pair(self.server, peer.server);
            if self.network.is_silent(pair) {
                tokio::time::sleep(CONNECT_WAIT).await;
                let source = std::io::ErrorKind::TimedOut.into();
                return Err(TransportError::Connect { to: to.clone(), source });
            }
            let (here, there) = self.network.frames.pair();
            door.try_send(peer.shaped(there, pair)).map_err(|_| refused())?;
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
    /// `None` once it was broken, or has lost a frame.
    inner: Option<Box<dyn FrameSender>>,
    pulse: Arc<Pulse>,
    sent: Rc<Cell<u64>>,
    loss: Rc<Cell<Option<Duration>>>,
}

/// The receiving half.
struct Watched {
    network: Rc<Network>,
    pair: (u16, u16),
    inner: Box<dyn FrameReceiver>,
    /// How soon it is to be noticed that nothing arrives.
    loss: Rc<Cell<Option<Duration>>>,
}

impl FrameReceiver for Watched {
    fn header(&mut self) -> LocalFuture<'_, Result<Option<[u8; HEADER_BYTES]>, TransportError>> {
        Box::pin(async move {
            let Some(wait) = self.loss.get() else { return self.inner.header().await };
            tokio::select! {
                biased;
                header = self.inner.header() => header,
                () = self.network.until_lost(self.pair, wait) => {
                    let source = std::io::ErrorKind::TimedOut.into();
                    Err(TransportError::Io { action: "receive a header", source })
                }
            }
        })
    }

    fn body<'a>(&'a mut self, into: &'a mut [u8]) -> LocalFuture<'a, Result<(), TransportError>> {
        self.inner.body(into)
    }

    fn payload<'a>(
        &'a mut self,
        into: &'a mut [u8],
    ) -> LocalFuture<'a, Result<usize, TransportError>> {
        self.inner.payload(into)
    }
}

impl Drop for Shaped {
    fn drop(&mut self) {
        if self.network.is_silent(self.pair) {
            self.network.end_when_heard(self.pair, self.inner.take());
        }
    }
}

impl FrameSender for Shaped {
    fn notice_loss_within(&self, wait: Duration) {
        self.loss.set(Some(wait));
    }

    fn send<'a>(
        &'a mut self,
        header: &'a [u8; HEADER_BYTES],
        body: &'a [u8],
        payload: &'a [u8],
    ) -> LocalFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            tokio::time::sleep(self.network.delay()).await;
            let is_broken = self.network.breaks(self.pair) != self.breaks || !self.pulse.is_alive();
            if self.network.is_silent(self.pair) && (!is_broken || self.network.is_cut(self.pair)) {
                self.network.end_when_heard(self.pair, self.inner.take());
                return Ok(());
            }
            if is_broken {
                self.inner = None;
            }
            let Some(inner) = &mut self.inner else {
                let source = std::io::ErrorKind::BrokenPipe.into();
                return Err(TransportError::Io { action: "send a frame", source });
            };
            self.sent.set(self.sent.get() + 1);
            inner.send(header, body, payload).await
        })
    }
}
