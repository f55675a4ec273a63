//! The servers of one job, their storage, and their lives.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hayase_layout::{ByteCount, NodeId, ServerId};
use hayase_server::{Ground, LocalServer, Settings, serve_on};
use hayase_store::part::PartError;
use hayase_store::{Area, AreaError, AreaUsage, Device, MemoryDevice, MemoryStore};
use hayase_wire::Secret;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::network::Network;

/// How long servers may need to meet.
const MEETING: Duration = Duration::from_secs(60);

/// Room of each node; nothing here is about full disks.
const AREA: u64 = ByteCount::gib(1).0;

/// The servers of one job.
pub(crate) struct Job {
    pub(crate) network: Rc<Network>,
    nodes: Vec<NodeStorage>,
    ways_in: RefCell<Vec<LocalServer>>,
    directory: tempfile::TempDir,
    secret: Secret,
    began: Instant,
}

/// What a node keeps when its server dies.
struct NodeStorage {
    names: Arc<MemoryStore>,
    parts: Arc<MemoryDevice>,
}

impl Job {
    /// Starts servers that know each other.
    pub(crate) async fn up(servers: u16, network: Rc<Network>) -> Rc<Self> {
        let node = |_| NodeStorage {
            names: Arc::new(MemoryStore::new()),
            parts: Arc::new(MemoryDevice::new()),
        };
        let job = Rc::new(Self {
            network,
            nodes: (0..servers).map(node).collect(),
            ways_in: RefCell::default(),
            directory: tempfile::tempdir().expect("a temporary directory"),
            secret: Secret::generate().expect("randomness"),
            began: Instant::now(),
        });
        let starting: Vec<_> = (0..servers).map(|server| job.start(server)).collect();
        for ready in starting {
            let way_in = ready.await.expect("the server starts");
            job.ways_in.borrow_mut().push(way_in);
        }
        job
    }

    /// The way into the server of a node.
    pub(crate) fn server(&self, node: u16) -> LocalServer {
        self.ways_in.borrow()[usize::from(node)].clone()
    }

    pub(crate) fn servers(&self) -> u16 {
        self.nodes.len() as u16
    }

    fn start(self: &Rc<Self>, server: u16) -> oneshot::Receiver<LocalServer> {
        let (tell, told) = oneshot::channel();
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let storage = &this.nodes[usize::from(server)];
            let names = Arc::clone(&storage.names);
            let address = Network::address(server, 0);
            let transport = this.network.of(server);
            let ground = Ground::simulated(names, transport, address, this.began);
            let ready = |way_in| {
                let _nobody_waits = tell.send(way_in);
            };
            let served = serve_on(ground, this.settings(server), ready, std::future::pending());
            served.await.expect("a server on good ground");
        });
        told
    }

    fn settings(&self, server: u16) -> Settings {
        let home = self.directory.path().join(server.to_string());
        let parts = Arc::clone(&self.nodes[usize::from(server)].parts);
        std::fs::create_dir_all(&home).expect("a directory");
        Settings {
            server: ServerId(server),
            node: NodeId(server),
            servers: self.servers(),
            host: format!("n{server}"),
            secret: self.secret.clone(),
            start_id: u64::from(server) + 1,
            socket: home.join("server.sock"),
            listen: Vec::new(),
            port: 0,
            job_dir: self.directory.path().to_owned(),
            area: Box::new(MemoryArea { root: home, parts }),
            cache: None,
            encrypt: false,
            intent_age: Settings::INTENT_AGE,
            wait: MEETING,
        }
    }
}

/// An area whose parts lie in memory.
struct MemoryArea {
    root: PathBuf,
    parts: Arc<MemoryDevice>,
}

impl Area for MemoryArea {
    fn root(&self) -> &Path {
        &self.root
    }

    fn kind(&self) -> &'static str {
        "memory"
    }

    fn usage(&self) -> Result<AreaUsage, AreaError> {
        Ok(AreaUsage { total: AREA, free: AREA, inodes: 0, inodes_free: 0 })
    }

    fn parts(&self) -> Result<Arc<dyn Device>, PartError> {
        let parts: Arc<MemoryDevice> = Arc::clone(&self.parts);
        Ok(parts)
    }
}
