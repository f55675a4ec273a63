//! UCX: bytes by remote memory access where the network has it, through `libucp.so.0`, loaded at run time.
//!
//! Connections begin as those of [`TcpTransport`], so that servers with and without UCX understand each other: the
//! handshake runs there, and says where the worker of each side is. From then on frames go as active messages
//! over UCX, large payloads by rendezvous straight into their place, and the TCP connection stays as the side channel.
//!
//! Here: which devices UCX may use, and the upgrade. Rooms, each of which knows only those before it: [`table`] (the
//! library), [`error`], [`interface`], [`context`] (registered memory), [`completion`] and [`detached`] (what an operation
//! is done with, and what of it is left alone), [`descriptor`] and [`inbox`] (what came), [`worker`], [`endpoint`], [`peers`]
//! (the endpoints of a worker), [`operation`] (what UCX must let go of), [`connection`] (the halves).
//! Facts behind it: `docs/design/002-wire.md`.

use std::cell::{Cell, RefCell};
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;

use ring::rand::{SecureRandom, SystemRandom};

use super::{
    Address, Connection, FrameReceiver, FrameSender, Halves, Listener, LocalFuture, TcpTransport,
    Transport, TransportError, Upgrade,
};
use crate::limits::{OFFER_BYTES_MAX, PAYLOAD_BYTES_MAX, UCX_WORKERS_MAX};
use crate::message::Carrier;
use crate::region::Region;

mod completion;
mod connection;
mod context;
mod descriptor;
mod detached;
mod endpoint;
mod error;
mod inbox;
mod interface;
mod operation;
mod peers;
mod table;
mod worker;

pub use error::UcxError;
pub use table::NotLoaded;

use context::{Context, Memory};
use inbox::Inbox;
use peers::Peers;
use worker::Worker;

/// Where the kernel tells of RDMA devices.
const RDMA_DEVICES: &str = "/sys/class/infiniband";

/// TCP connections that go on over UCX where the other side has it too.
pub struct UcxTransport {
    tcp: TcpTransport,
    ucx: Rc<Ucx>,
}

/// Memory stays registered as long as this lives, and the transfers that were begun before.
pub struct Registration {
    _memory: Rc<Memory>,
}

/// The worker of new connections, and how to make the next one.
struct Ucx {
    context: Rc<Context>,
    peers: RefCell<Rc<Peers>>,
    made: Cell<usize>,
}

impl UcxTransport {
    /// Loads the library and opens the devices, which takes about 10 ms: RDMA devices where there are some that
    /// work, else UCX's own TCP, on the interface that has one of `addresses`. Connections leave from `from`.
    pub fn new(from: Option<IpAddr>, addresses: &[IpAddr]) -> Result<Self, UcxError> {
        Self::by(table::library()?, from, addresses)
    }

    fn by(
        table: &'static table::Table,
        from: Option<IpAddr>,
        addresses: &[IpAddr],
    ) -> Result<Self, UcxError> {
        let devices = rdma_devices();
        let interfaces = interface::names(addresses);
        let transports = transports(&devices);
        let mut settings = vec![
            // Not those for programs of one machine: they notice no death of a peer.
            ("TLS", transports.to_owned()),
            // The side channel tells who is there; nothing wakes up while nothing comes.
            ("KEEPALIVE_INTERVAL", "inf".to_owned()),
        ];
        if devices.is_empty() && !interfaces.is_empty() {
            settings.push(("NET_DEVICES", interfaces.join(",")));
        }
        if !devices.is_empty() {
            // Peers never write: see the invariants of `context`.
            settings.push(("RNDV_SCHEME", "get_zcopy".to_owned()));
        }
        let context = Context::new(table, &settings, transports.contains("dc"))?;
        let peers = RefCell::new(Peers::new(Worker::new(&context)?));
        let tcp = from.map_or_else(TcpTransport::new, TcpTransport::from_address);
        Ok(Self { tcp, ucx: Rc::new(Ucx { context, peers, made: Cell::new(1) }) })
    }

    /// Has `region` registered with the devices, now and once, for all transfers from and to it. Where that is
    /// refused they are as before ([`UcxTransport::refusal`]). RDMA devices keep all of it resident meanwhile.
    pub fn register(&self, region: Region) -> Registration {
        let whole = region.span().len();
        let memory = self.ucx.context.memory(region, whole);
        memory.register_now();
        Registration { _memory: memory }
    }

    /// The same of each slot when it is first used: of a process's arena few may ever be.
    pub fn register_when_used(&self, region: Region) -> Registration {
        Registration { _memory: self.ucx.context.memory(region, PAYLOAD_BYTES_MAX) }
    }

    /// How many bytes are registered at the moment.
    pub fn registered_bytes(&self) -> usize {
        self.ucx.context.registered_bytes()
    }

    /// Why memory is registered anew for each transfer, in UCX's words, where it once was.
    pub fn refusal(&self) -> Option<String> {
        self.ucx.context.refusal()
    }

    /// The version of the library, if it can be loaded.
    pub fn library_version() -> Result<String, NotLoaded> {
        Ok(table::library()?.version())
    }

    /// Whether new connections stay on TCP, since no further worker is made.
    pub fn is_used_up(&self) -> bool {
        self.ucx.is_used_up()
    }

    fn upgradable(&self, mut connection: Connection) -> Connection {
        let offer = self.ucx.fresh_worker().and_then(Offer::new);
        connection.upgrade = offer.map(|offer| Box::new(offer) as Box<dyn Upgrade>);
        connection
    }
}

impl Ucx {
    fn is_used_up(&self) -> bool {
        self.peers.borrow().worker().is_worn() && self.made.get() >= UCX_WORKERS_MAX
    }

    /// A worker with no endpoint that is used up.
    fn fresh_worker(&self) -> Option<Rc<Peers>> {
        if self.peers.borrow().worker().is_worn() {
            if self.is_used_up() {
                tracing::debug!("a connection stays on TCP: {UCX_WORKERS_MAX} workers are used up");
                return None;
            }
            match Worker::new(&self.context) {
                Ok(worker) => {
                    self.made.set(self.made.get() + 1);
                    if self.made.get() == UCX_WORKERS_MAX {
                        tracing::warn!("the last worker of UCX: after it connections stay on TCP");
                    }
                    drop(self.peers.replace(Peers::new(worker)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection stays on TCP");
                    return None;
                }
            }
        }
        let peers = Rc::clone(&self.peers.borrow());
        peers.worker().ensure_driven();
        Some(peers)
    }
}

/// RDMA devices of this machine with a port that works, by name.
pub fn rdma_devices() -> Vec<String> {
    rdma_devices_below(Path::new(RDMA_DEVICES))
}

fn rdma_devices_below(directory: &Path) -> Vec<String> {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    // As `4: ACTIVE`.
    let is_active = |state: String| state.trim_end().ends_with(": ACTIVE");
    let mut devices: Vec<String> = entries(directory)
        .filter(|device| {
            entries(&device.path().join("ports"))
                .any(|port| fs::read_to_string(port.path().join("state")).is_ok_and(is_active))
        })
        .map(|device| device.file_name().to_string_lossy().into_owned())
        .collect();
    devices.sort();
    devices
}

/// What UCX may use: connected ones only, since plain datagrams get lost when it is busy.
fn transports(rdma_devices: &[String]) -> &'static str {
    if rdma_devices.is_empty() {
        "tcp"
    } else if rdma_devices.iter().any(|device| device.starts_with("mlx5")) {
        "rc,dc,tcp"
    } else {
        "rc,tcp"
    }
}

impl Transport for UcxTransport {
    fn listen<'a>(
        &'a self,
        at: &'a Address,
    ) -> LocalFuture<'a, Result<Box<dyn Listener>, TransportError>> {
        Box::pin(async move {
            let listener = self.tcp.listen(at).await?;
            let transport = Self { tcp: self.tcp, ucx: Rc::clone(&self.ucx) };
            Ok(Box::new(UcxListener { listener, transport }) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(
        &'a self,
        to: &'a Address,
    ) -> LocalFuture<'a, Result<Connection, TransportError>> {
        Box::pin(async move { Ok(self.upgradable(self.tcp.connect(to).await?)) })
    }
}

struct UcxListener {
    listener: Box<dyn Listener>,
    transport: UcxTransport,
}

impl Listener for UcxListener {
    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, TransportError>> {
        Box::pin(async move {
            let connection = self.listener.accept().await?;
            Ok(self.transport.upgradable(connection))
        })
    }

    fn address(&self) -> Address {
        self.listener.address()
    }
}

/// An inbox that waits for its peer.
struct Offer {
    peers: Rc<Peers>,
    inbox: Rc<Inbox>,
    id: u64,
    is_taken: bool,
}

impl Offer {
    /// `None` where it is too long for a handshake, or could not be unique.
    fn new(peers: Rc<Peers>) -> Option<Self> {
        let mut id = [0; 8];
        SystemRandom::new().fill(&mut id).ok()?;
        let len = peers.worker().address().len() + id.len();
        if len > OFFER_BYTES_MAX {
            tracing::warn!(len, "the address of UCX is too long: fewer devices would help");
            return None;
        }
        let (inbox, id) = (Rc::default(), u64::from_le_bytes(id));
        peers.worker().open_inbox(id, &inbox);
        Some(Self { peers, inbox, id, is_taken: false })
    }
}

impl Upgrade for Offer {
    fn offer(&self) -> Vec<u8> {
        [&self.id.to_le_bytes()[..], self.peers.worker().address()].concat()
    }

    fn carrier(&self) -> Carrier {
        Carrier::Ucx
    }

    fn take(
        mut self: Box<Self>,
        theirs: &[u8],
        sender: Box<dyn FrameSender>,
        receiver: Box<dyn FrameReceiver>,
    ) -> Result<Halves, TransportError> {
        const ACTION: &str = "go on over UCX";
        let failed =
            |why: String| TransportError::Io { action: ACTION, source: std::io::Error::other(why) };
        let Some((id, address)) =
            theirs.split_first_chunk().filter(|(_, address)| !address.is_empty())
        else {
            return Err(failed("the peer does not say where it is".into()));
        };
        let endpoint = self.peers.endpoint(address);
        let endpoint = endpoint.map_err(|code| failed(self.peers.worker().table.words(code)))?;
        let used_up = || failed("the last connection to this peer has just ended".into());
        let endpoint = endpoint.ok_or_else(used_up)?;
        self.is_taken = true;
        let ids = (self.id, u64::from_le_bytes(*id));
        Ok(connection::halves(endpoint, Rc::clone(&self.inbox), ids, sender, receiver))
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if !self.is_taken {
            self.peers.worker().close_inbox(self.id);
            self.inbox.clear();
        }
    }
}

#[cfg(test)]
mod tests;
