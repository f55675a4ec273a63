//! The servers of one job, their storage, and their lives.
//!
//! Each node has a supervisor, which starts its server again when it ended, as that of `hayase up`
//! does. What a life leaves behind: all of its storage when it was killed, what had been synced and
//! some of the rest when the node lost power.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hayase_layout::{ByteCount, Groups, InodeId, NodeId, ServerId};
use hayase_server::{
    CacheSettings, DurableAt, Ground, KeptUntil, LeftNode, LocalServer, ServeError, Settings,
    TransportChoice, serve_on,
};
use hayase_store::part::PartError;
use hayase_store::{Area, AreaError, AreaUsage, CrashDevice, Device, Ledger, MemoryStore};
use hayase_tier::Memory;
use hayase_wire::Secret;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::before_tier::BeforeTier;
use crate::counted::Counted;
use crate::crash_point::{MortalNames, Pulse};
use crate::mount::Mount;
use crate::network::Network;
use crate::random::Random;

/// How long servers may need to meet.
const MEETING: Duration = Duration::from_secs(60);

/// Before a server that ended by itself is started again.
const PAUSE: Duration = Duration::from_millis(200);

/// Names of a directory leave its home so soon that the programs of a run see it.
const KEPT_UNTIL: KeptUntil = KeptUntil { names: 40, changes: 6, lookups: 12 };

/// Room of each node; nothing here is about full disks.
const AREA: u64 = ByteCount::gib(1).0;

/// The servers of one job.
pub(crate) struct Job {
    pub(crate) network: Rc<Network>,
    /// With the cache area in front of it.
    tier: Option<Memory>,
    nodes: Vec<Node>,
    directory: tempfile::TempDir,
    secret: Secret,
    began: Instant,
    /// The directory in which programs work.
    top: Cell<InodeId>,
    /// Whether mounts gather small writes, and which.
    gathers: RefCell<Option<Random>>,
    /// Windows that they began.
    windows: Cell<u64>,
    /// What servers said that must not be.
    complaints: RefCell<Vec<String>>,
}

/// What a power cut leaves of what was not synced.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Unsynced {
    /// Any of it.
    #[default]
    Chance,
    /// Of each kind of storage all or nothing.
    Kept { names: bool, parts: bool, ledger: bool },
}

/// How a server ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Death {
    /// Before it is started again; `None`: never.
    pub(crate) pause: Option<Duration>,
    /// The node loses power: nobody is told, and what was not synced may be gone.
    pub(crate) power: bool,
}

struct Node {
    storage: RefCell<Storage>,
    /// Lives begun.
    lives: Cell<u64>,
    pulse: RefCell<Arc<Pulse>>,
    /// Of the life that goes on, once it serves processes.
    way_in: RefCell<Option<(u64, LocalServer)>>,
    /// The life that has been ready.
    ready: Cell<u64>,
    /// Any of the above.
    changed: Notify,
    /// What comes of the next end.
    death: Cell<Option<Death>>,
    /// It is never started again.
    gone: Cell<bool>,
    /// And nothing of it runs.
    is_over: Cell<bool>,
    /// How often it lost power.
    power_cuts: Cell<u64>,
    /// What the next time leaves.
    unsynced: Cell<Unsynced>,
    /// How often its server was woken.
    wakes: Rc<Cell<u64>>,
    /// What happens to its calls to the tier.
    before_tier: Arc<BeforeTier>,
}

/// What a node keeps when its server dies.
struct Storage {
    names: Arc<MemoryStore>,
    parts: Arc<CrashDevice>,
    ledger: Arc<CrashDevice>,
}

impl Node {
    fn new() -> Self {
        let device = || Arc::new(CrashDevice::new());
        let storage =
            Storage { names: Arc::new(MemoryStore::new()), parts: device(), ledger: device() };
        Self {
            storage: RefCell::new(storage),
            lives: Cell::new(0),
            pulse: RefCell::default(),
            way_in: RefCell::default(),
            ready: Cell::new(0),
            changed: Notify::new(),
            death: Cell::new(None),
            gone: Cell::new(false),
            is_over: Cell::new(false),
            power_cuts: Cell::new(0),
            unsynced: Cell::default(),
            wakes: Rc::default(),
            before_tier: Arc::default(),
        }
    }

    fn lose_power(&self, random: &Random) {
        self.power_cuts.set(self.power_cuts.get() + 1);
        let mut storage = self.storage.borrow_mut();
        let by_chance = |device: &CrashDevice| Arc::new(device.restarted(|| random.chance(50)));
        let (kept, parts, ledger) = match self.unsynced.take() {
            Unsynced::Chance => {
                let kept = random.below(storage.names.unsynced() as u64 + 1) as usize;
                (kept, by_chance(&storage.parts), by_chance(&storage.ledger))
            }
            Unsynced::Kept { names, parts, ledger } => (
                if names { usize::MAX } else { 0 },
                Arc::new(storage.parts.restarted(|| parts)),
                Arc::new(storage.ledger.restarted(|| ledger)),
            ),
        };
        *storage = Storage { names: Arc::new(storage.names.after_power_cut(kept)), parts, ledger };
    }
}

impl Job {
    /// Starts servers that know each other.
    pub(crate) async fn up(servers: u16, network: Rc<Network>, random: Random) -> Rc<Self> {
        Self::up_before(None, servers, network, random).await
    }

    /// The same, with the cache area where there is a tier.
    pub(crate) async fn up_before(
        tier: Option<Memory>,
        servers: u16,
        network: Rc<Network>,
        random: Random,
    ) -> Rc<Self> {
        let job = Rc::new(Self {
            tier,
            network,
            nodes: (0..servers).map(|_| Node::new()).collect(),
            directory: tempfile::tempdir().expect("a temporary directory"),
            secret: Secret::generate().expect("randomness"),
            began: Instant::now(),
            top: Cell::new(InodeId::ROOT),
            gathers: RefCell::default(),
            windows: Cell::new(0),
            complaints: RefCell::default(),
        });
        for server in 0..servers {
            let (job, random) = (Rc::clone(&job), random.split());
            tokio::task::spawn_local(job.supervise(server, random));
        }
        job.all_ready().await;
        job
    }

    /// The directory in which programs work: the root, or [`Self::work_in_a_new_directory`].
    pub(crate) fn top(&self) -> InodeId {
        self.top.get()
    }

    /// Programs work in this directory, which the power does not take.
    ///
    /// # Panics
    /// When it can not be made durable.
    pub(crate) async fn work_in_a_new_directory(&self, mount: &Mount) {
        let made = mount.make_directory("work").await.expect("nothing stands against it");
        mount.fsync(made).await.expect("it is durable");
        self.top.set(made);
    }

    /// What stands between a server and the tier.
    pub(crate) fn before_tier(&self, server: u16) -> &BeforeTier {
        &self.node(server).before_tier
    }

    /// Ends a server in the middle of its `calls`th call to the tier from now on.
    pub(crate) fn kill_at_call(&self, server: u16, calls: u64, death: Death) {
        let node = self.node(server);
        node.death.set(Some(death));
        node.before_tier.die_at(calls);
    }

    pub(crate) fn servers(&self) -> u16 {
        self.nodes.len() as u16
    }

    fn node(&self, server: u16) -> &Node {
        &self.nodes[usize::from(server)]
    }

    /// Waits until each server that is not gone for good serves.
    pub(crate) async fn all_ready(&self) {
        for node in &self.nodes {
            wait(node, || node.gone.get() || node.way_in.borrow().is_some() && is_ready(node))
                .await;
        }
    }

    /// The way into the server of a node, and which life it is; waits until there is one.
    pub(crate) async fn way_in(&self, server: u16) -> (u64, LocalServer) {
        let node = self.node(server);
        wait(node, || node.way_in.borrow().is_some()).await;
        node.way_in.borrow().clone().expect("waited for")
    }

    /// Waits until a life of a server is over.
    pub(crate) async fn life_over(&self, server: u16, life: u64) {
        let node = self.node(server);
        wait(node, || !self.is_alive(server, life)).await;
    }

    pub(crate) fn is_alive(&self, server: u16, life: u64) -> bool {
        let node = self.node(server);
        node.lives.get() == life && node.pulse.borrow().is_alive()
    }

    /// Whether a server serves now.
    pub(crate) fn is_up(&self, server: u16) -> bool {
        let node = self.node(server);
        node.way_in.borrow().is_some() && is_ready(node)
    }

    /// The life of a server, where that serves now.
    pub(crate) fn life_up(&self, server: u16) -> Option<u64> {
        self.is_up(server).then(|| self.node(server).lives.get())
    }

    /// Whether it is never started again.
    pub(crate) fn is_gone(&self, server: u16) -> bool {
        self.node(server).gone.get()
    }

    /// Times that a server was started.
    pub(crate) fn lives(&self) -> u64 {
        self.nodes.iter().map(|node| node.lives.get()).sum()
    }

    /// How often each server was woken, by node.
    pub(crate) fn wakes(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.wakes.get()).collect()
    }

    /// Mounts that begin from now on gather small writes, which ones by chance.
    pub(crate) fn let_mounts_gather(&self, random: Random) {
        *self.gathers.borrow_mut() = Some(random);
    }

    /// What a new mount chooses by, if it gathers.
    pub(crate) fn gathers(&self) -> Option<Random> {
        self.gathers.borrow().as_ref().map(Random::split)
    }

    /// A mount begins to gather; with a number that no other window has.
    pub(crate) fn begins_window(&self) -> u64 {
        self.windows.set(self.windows.get() + 1);
        self.windows.get()
    }

    /// So many did.
    pub(crate) fn windows(&self) -> u64 {
        self.windows.get()
    }

    pub(crate) fn complain(&self, what: String) {
        self.complaints.borrow_mut().push(what);
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        self.complaints.borrow().clone()
    }

    /// Names and parts of a node as they are now.
    pub(crate) fn storage(&self, server: u16) -> (MemoryStore, Arc<CrashDevice>) {
        let storage = self.node(server).storage.borrow();
        (storage.names.after_kill(), Arc::clone(&storage.parts))
    }

    /// Ends the job: every node loses power and is never started again. Returns when nothing of it runs any more.
    pub(crate) async fn end_by_power_cut(&self, unsynced: impl Fn(u16) -> Unsynced) {
        for server in 0..self.servers() {
            self.node(server).unsynced.set(unsynced(server));
            self.kill(server, Death { pause: None, power: true });
        }
        for node in &self.nodes {
            wait(node, || node.is_over.get()).await;
        }
    }

    /// What a node left on its storage.
    ///
    /// # Panics
    /// When its ledger can not be read.
    pub(crate) fn left(&self, server: u16) -> (LeftNode, Ledger) {
        let node = self.node(server);
        let storage = node.storage.borrow();
        let (parts, names) = (Arc::clone(&storage.parts), Arc::clone(&storage.names));
        let boot = node.power_cuts.get();
        let left = LeftNode::simulated(ServerId(server), parts, names, boot);
        let ledger: Arc<CrashDevice> = Arc::clone(&storage.ledger);
        (left, Ledger::open(ledger).expect("a power cut damages no ledger"))
    }

    /// Ends a server, now. One that is dead already and comes back does so as its first death said.
    pub(crate) fn kill(&self, server: u16, death: Death) {
        let node = self.node(server);
        let is_between_lives = death.pause.is_some() && !node.pulse.borrow().is_alive();
        if node.gone.get() || is_between_lives {
            return;
        }
        node.death.set(Some(death));
        node.gone.set(death.pause.is_none());
        if death.power {
            self.network.cut_off(server);
        }
        node.pulse.borrow().stop();
        node.changed.notify_waiters();
    }

    /// Ends a server when its names are committed to once more after `commits` commits.
    pub(crate) fn kill_at_commit(&self, server: u16, commits: u64, death: Death) {
        let node = self.node(server);
        if node.gone.get() {
            return;
        }
        node.death.set(Some(death));
        node.storage.borrow().names.stop_after(commits);
    }

    /// Its names do not stop any more.
    pub(crate) fn disarm(&self, server: u16) {
        let storage = self.node(server).storage.borrow();
        storage.names.stop_after(u64::MAX);
    }

    /// Keeps a server's lives going until the job is over, or until it is gone for good.
    async fn supervise(self: Rc<Self>, server: u16, random: Random) {
        let node = self.node(server);
        loop {
            self.live(server).await;
            node.pulse.borrow().stop();
            node.way_in.take();
            node.changed.notify_waiters();
            let death = node.death.take().unwrap_or(Death { pause: Some(PAUSE), power: false });
            if death.power {
                node.lose_power(&random);
            } else {
                let mut storage = node.storage.borrow_mut();
                storage.names = Arc::new(storage.names.after_kill());
            }
            let Some(pause) = death.pause else {
                node.is_over.set(true);
                node.changed.notify_waiters();
                return;
            };
            tokio::time::sleep(pause).await;
            // It may have been lost for good between two lives.
            if node.gone.get() {
                if node.death.take().is_some_and(|death| death.power) {
                    node.lose_power(&random);
                }
                node.is_over.set(true);
                node.changed.notify_waiters();
                return;
            }
            if death.power {
                self.network.is_back(server);
            }
        }
    }

    /// One life.
    async fn live(&self, server: u16) {
        let node = self.node(server);
        let (life, pulse) = (node.lives.get() + 1, Arc::new(Pulse::default()));
        node.lives.set(life);
        *node.pulse.borrow_mut() = Arc::clone(&pulse);
        let store = Arc::clone(&node.storage.borrow().names);
        let names = Arc::new(MortalNames { store, pulse: Arc::clone(&pulse) });
        let transport = self.network.of(server, Arc::clone(&pulse));
        let address = Network::address(server, life);
        let ground =
            Ground::simulated(names, transport, address, self.began, node.power_cuts.get());
        let opened = |way_in| {
            *node.way_in.borrow_mut() = Some((life, way_in));
            node.changed.notify_waiters();
        };
        let ready = || {
            node.ready.set(life);
            node.changed.notify_waiters();
        };
        let settings = self.settings(server, life, &pulse);
        let served = serve_on(ground, settings, opened, ready, std::future::pending());
        let served = Counted::new(served, Rc::clone(&node.wakes));
        tokio::select! {
            biased;
            () = pulse.stopped() => {}
            ended = served => match ended {
                Err(ServeError::Lost { .. }) => {}
                ended => {
                    let why = match ended {
                        Ok(()) => "by itself".to_owned(),
                        Err(error) => format!("{error}: {:?}", std::error::Error::source(&error)),
                    };
                    self.complaints.borrow_mut().push(format!("server {server} ended: {why}"));
                }
            }
        }
    }

    fn settings(&self, server: u16, life: u64, pulse: &Arc<Pulse>) -> Settings {
        let home = self.directory.path().join(server.to_string());
        let node = self.node(server);
        let storage = node.storage.borrow();
        let (parts, ledger) = (Arc::clone(&storage.parts), Arc::clone(&storage.ledger));
        let cache = self.tier.as_ref().map(|tier| CacheSettings {
            tier: node.before_tier.of(tier, pulse),
            durable_at: DurableAt::default(),
            deadline: None,
            flush_open: None,
        });
        std::fs::create_dir_all(&home).expect("a directory");
        Settings {
            server: ServerId(server),
            node: NodeId(server),
            servers: self.servers(),
            groups: Groups::all(self.servers()),
            host: format!("n{server}"),
            secret: self.secret.clone(),
            // Smaller from life to life: nothing may depend on it.
            nonce: u32::MAX - life as u32,
            socket: home.join("server.sock"),
            listen: Vec::new(),
            port: 0,
            job_dir: self.directory.path().to_owned(),
            area: Box::new(MemoryArea { root: home, parts, ledger }),
            mounts: 1,
            cache,
            direct_io: true,
            transport: TransportChoice::default(),
            encrypt: false,
            intent_age: Settings::INTENT_AGE,
            kept_until: KEPT_UNTIL,
            wait: MEETING,
        }
    }
}

fn is_ready(node: &Node) -> bool {
    node.ready.get() == node.lives.get() && node.pulse.borrow().is_alive()
}

async fn wait(node: &Node, is_so: impl Fn() -> bool) {
    loop {
        let changed = node.changed.notified();
        if is_so() {
            return;
        }
        changed.await;
    }
}

/// An area whose parts lie in memory.
struct MemoryArea {
    root: PathBuf,
    parts: Arc<CrashDevice>,
    ledger: Arc<CrashDevice>,
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

    fn ledger_device(&self) -> Result<Arc<dyn Device>, PartError> {
        let ledger: Arc<CrashDevice> = Arc::clone(&self.ledger);
        Ok(ledger)
    }

    fn parts(&self) -> Result<Arc<dyn Device>, PartError> {
        let parts: Arc<CrashDevice> = Arc::clone(&self.parts);
        Ok(parts)
    }
}
