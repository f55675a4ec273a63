//! A job of a few servers in this process, on loopback and plain directories, and a process to ask them.

mod frame_faults;
mod gate;
mod kinds;
mod memory;
pub(crate) mod recorded_file;
mod refused;
mod slow_disk;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hayase_layout::{ByteCount, InodeId, NodeId, ServerId};
use hayase_server::{
    CacheSettings, DurableAt, Ground, KeptUntil, ServeError, Settings, TransportChoice,
};
use hayase_store::area::CountedArea;
use hayase_store::{Area, CrashDevice, MemoryStore, Parts};
use hayase_tier::Tier;
use hayase_wire::message::{
    Access, Attr, Callback, CallbackReply, ClientRole, Close, Created, Entry, FileKind, Holding,
    NewNode, NodeReply, NodeRequest, OpenKind, Opened, Opening, PROTOCOL_VERSION, ParentPolicy,
    Refused, SlotRange, StillOpen,
};
use hayase_wire::{Arena, BlockingChannel, Secret};
use tempfile::TempDir;
use tokio::sync::oneshot;

pub(crate) use frame_faults::FrameFaults;
pub(crate) use gate::Gate;
use gate::Gated;
pub(crate) use slow_disk::SlowDisk;
use slow_disk::SlowNames;

pub(crate) const RW: Access = Access { read: true, write: true };
pub(crate) const R: Access = Access { read: true, write: false };
pub(crate) const W: Access = Access { read: false, write: true };

/// Servers that stop when this is dropped.
pub(crate) struct Cluster {
    directory: TempDir,
    secret: Secret,
    names: Option<Vec<Arc<MemoryStore>>>,
    devices: Option<Vec<Arc<CrashDevice>>>,
    slow: Option<Vec<Arc<SlowDisk>>>,
    faults: Option<Arc<FrameFaults>>,
    /// Through which every server comes that opens its storage.
    pub(crate) gate: Arc<Gate>,
    tier: Option<Arc<dyn Tier>>,
    /// After how long files that stay open are flushed as they stand.
    flush_open: Option<Duration>,
    /// What fsync promises of files of the cache area.
    durable_at: DurableAt,
    /// When names of a directory leave its home.
    kept_until: KeptUntil,
    /// Of each server.
    room: ByteCount,
    /// For how long servers wait for each other.
    wait: Duration,
    servers: Vec<Running>,
}

type Running = (oneshot::Sender<()>, JoinHandle<()>);

/// Short: tests wait for it.
const INTENT_AGE: Duration = Duration::from_millis(100);

/// Smaller from start to start: nothing may depend on it.
static NEXT_NONCE: AtomicU32 = AtomicU32::new(u32::MAX);

impl Cluster {
    pub(crate) fn up(servers: u16) -> Self {
        Self::empty().started(servers)
    }

    pub(crate) fn disk(&self, server: u16) -> &Arc<SlowDisk> {
        &self.slow.as_ref().expect("disks are slow")[usize::from(server)]
    }

    /// The storage of a server's parts.
    pub(crate) fn device(&self, server: u16) -> &Arc<CrashDevice> {
        &self.devices.as_ref().expect("parts are on such storage")[usize::from(server)]
    }

    fn empty() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
            secret: Secret::generate().expect("randomness"),
            names: None,
            devices: None,
            slow: None,
            faults: None,
            gate: Arc::default(),
            tier: None,
            flush_open: None,
            durable_at: DurableAt::default(),
            kept_until: KeptUntil::default(),
            room: ByteCount::mib(256),
            wait: Duration::from_secs(20),
            servers: Vec::new(),
        }
    }

    fn started(mut self, servers: u16) -> Self {
        self.start(servers);
        self
    }

    /// The parts that a server keeps, opened beside it.
    pub(crate) fn parts(&self, server: u16) -> Parts {
        Parts::open(self.area(server).parts().expect("its parts"), 1)
    }

    /// Where a server stores.
    pub(crate) fn area(&self, server: u16) -> CountedArea {
        let area = self.directory.path().join(format!("{server}/area"));
        CountedArea::open(&area, ByteCount::mib(256)).expect("an area")
    }

    /// Ends all servers; what they stored stays.
    pub(crate) fn end(&mut self) {
        self.gate.open();
        self.slow.iter().flatten().for_each(|disk| disk.gate.open());
        for (stop, thread) in self.servers.drain(..) {
            let _already_over = stop.send(());
            let _panicked = thread.join();
        }
    }

    fn start(&mut self, servers: u16) {
        let ready: Vec<_> = (0..servers)
            .map(|server| {
                let (running, told) = self.begin(server, servers);
                self.servers.push(running);
                told
            })
            .collect();
        for told in ready {
            told.recv_timeout(Duration::from_secs(20)).expect("the server is ready");
        }
    }

    fn begin(&self, server: u16, servers: u16) -> (Running, Receiver<()>) {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let life = self.life(server, servers, stopped, move || {
            // Somebody may not wait any more.
            let _ = tell.send(());
        });
        ((stop, std::thread::spawn(|| life().expect("the server runs"))), told)
    }

    fn life<F: FnOnce() + Send + 'static>(
        &self,
        server: u16,
        servers: u16,
        stopped: oneshot::Receiver<()>,
        ready: F,
    ) -> impl FnOnce() -> Result<(), ServeError> + Send + use<F> {
        let root = self.directory.path().to_owned();
        let secret = self.secret.clone();
        let names = self.names.as_ref().map(|names| Arc::clone(&names[usize::from(server)]));
        let (faults, cache, room) = (self.faults.clone(), self.cache(), self.room);
        let (gate, times) = (Arc::clone(&self.gate), (self.kept_until, self.wait));
        let parts = self.devices.as_ref().map(|all| Arc::clone(&all[usize::from(server)]));
        let slow = self.slow.as_ref().map(|all| Arc::clone(&all[usize::from(server)]));
        move || {
            let given = (names, faults, cache, (room, gate, parts, slow, times));
            run_server(&root, server, servers, secret, given, stopped, ready)
        }
    }

    fn cache(&self) -> Option<CacheSettings> {
        let tier = self.tier.clone()?;
        let (durable_at, flush_open) = (self.durable_at, self.flush_open);
        Some(CacheSettings { tier, durable_at, deadline: None, flush_open })
    }

    pub(crate) fn store(&self, server: u16) -> &Arc<MemoryStore> {
        &self.names.as_ref().expect("names are in memory")[usize::from(server)]
    }

    /// Ends a server and starts it again with what it had committed before its store stopped. What
    /// its mount holds is told at once: nothing.
    pub(crate) fn restart(&mut self, server: u16) {
        self.restart_with(server, None);
    }

    /// The same with what it had synced of its names. Parts and the ledger keep all: a disk may have written them.
    pub(crate) fn lose_names(&mut self, server: u16) {
        // Before it ends: then it syncs.
        let left = self.store(server).after_power_cut(0);
        self.restart_with(server, Some(left));
    }

    fn restart_with(&mut self, server: u16, left: Option<MemoryStore>) {
        let told = self.begin_again(server, left);
        self.tell_nothing(server);
        told.recv_timeout(Duration::from_secs(20)).expect("the server is ready again");
    }

    /// Ends a server for good.
    pub(crate) fn kill(&mut self, server: u16) {
        let (stop, stopped) = oneshot::channel();
        drop(stopped);
        let at = usize::from(server);
        let gone = (stop, std::thread::spawn(|| ()));
        let (stop, thread) = std::mem::replace(&mut self.servers[at], gone);
        let _already_over = stop.send(());
        thread.join().expect("the server ends");
    }

    /// Ends a server and begins to start it again; tells when it is ready, which it is not before
    /// [`Cluster::tell_nothing`].
    pub(crate) fn begin_restart(&mut self, server: u16) -> Receiver<()> {
        self.begin_again(server, None)
    }

    fn begin_again(&mut self, server: u16, left: Option<MemoryStore>) -> Receiver<()> {
        self.kill(server);
        let at = usize::from(server);
        let servers = self.servers.len() as u16;
        let names = self.names.as_mut().expect("names are in memory");
        names[at] = Arc::new(left.unwrap_or_else(|| names[at].after_kill()));
        let (running, told) = self.begin(server, servers);
        self.servers[at] = running;
        told
    }

    /// A server that was started again hears of its mount what that holds: nothing.
    pub(crate) fn tell_nothing(&self, server: u16) {
        let mut mount = Process::connect_as(
            &self.socket(server),
            Some(Box::new(|| StillOpen { access: RW, as_of: u64::MAX })),
            NEXT_PROCESS.fetch_add(1, Ordering::Relaxed),
            true,
        );
        let nothing = Holding { last: true, ..Holding::default() };
        mount.ask(&NodeRequest::Reclaim(Box::new(nothing))).expect("told");
    }

    /// A process on the node of server `node`.
    pub(crate) fn process(&self, node: u16) -> Process {
        Process::connect(&self.socket(node), None)
    }

    /// A process that holds grants and answers recalls, counting them: what it has open it keeps.
    pub(crate) fn mount(&self, node: u16) -> Process {
        self.mount_answering(node, || StillOpen { access: RW, as_of: u64::MAX })
    }

    /// The same, with answers of the caller's.
    pub(crate) fn mount_answering(
        &self,
        node: u16,
        recalled: impl FnMut() -> StillOpen + Send + 'static,
    ) -> Process {
        Process::connect(&self.socket(node), Some(Box::new(recalled)))
    }

    pub(crate) fn socket(&self, node: u16) -> PathBuf {
        self.directory.path().join(format!("{node}/server.sock"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end();
    }
}

/// Names, the network's faults, the cache area, room for parts, the way to them and where they are, and when names leave
/// their home and servers wait no longer for each other.
type Given = (
    Option<Arc<MemoryStore>>,
    Option<Arc<FrameFaults>>,
    Option<CacheSettings>,
    (ByteCount, Arc<Gate>, Option<Arc<CrashDevice>>, Option<Arc<SlowDisk>>, (KeptUntil, Duration)),
);

fn run_server(
    root: &Path,
    server: u16,
    servers: u16,
    secret: Secret,
    (names, faults, cache, (room, gate, parts, slow, (kept_until, wait))): Given,
    stopped: oneshot::Receiver<()>,
    ready: impl FnOnce(),
) -> Result<(), ServeError> {
    let home = root.join(server.to_string());
    let area = home.join("area");
    std::fs::create_dir_all(&area).expect("directories");
    let area = CountedArea::open(&area, room).expect("an area");
    let settings = Settings {
        server: ServerId(server),
        node: NodeId(server),
        servers,
        groups: hayase_layout::Groups::all(servers),
        host: format!("n{server}"),
        secret,
        nonce: NEXT_NONCE.fetch_sub(1, Ordering::Relaxed),
        socket: home.join("server.sock"),
        listen: vec!["127.0.0.1".parse().expect("an address")],
        port: 0,
        job_dir: root.to_owned(),
        area: Box::new(Gated { area, gate, parts, slow: slow.clone() }),
        mounts: 1,
        cache,
        direct_io: true,
        transport: TransportChoice::default(),
        encrypt: false,
        intent_age: INTENT_AGE,
        kept_until,
        wait,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let stop = async {
        let _dropped_is_stop_too = stopped.await;
    };
    let ground = Ground::of(&settings).expect("TCP is always there");
    let ground = match (names, slow) {
        (Some(names), Some(disk)) => ground.with_names(Arc::new(SlowNames { names, disk })),
        (Some(names), None) => ground.with_names(names),
        (None, _) => ground,
    };
    let ground = match faults {
        Some(faults) => ground.with_transport(|transport| faults.over(transport)),
        None => ground,
    };
    runtime.expect("a runtime").block_on(hayase_server::serve_on(
        ground,
        settings,
        |_| (),
        ready,
        stop,
    ))
}

/// One process of a node, with a connection and an arena.
pub(crate) struct Process {
    process: u64,
    channel: BlockingChannel,
    arena: Arena,
    pub(crate) opens_asked: u64,
    pub(crate) recalls: std::sync::Arc<AtomicU64>,
}

/// What a mount answers to a recall.
type Recalled = Box<dyn FnMut() -> StillOpen + Send>;

static NEXT_PROCESS: AtomicU64 = AtomicU64::new(1);

/// Waits for it, 30 s at most.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// To be made, if the name is free, with mode 644; not open.
pub(crate) fn new_node(parent: InodeId, name: &str, kind: FileKind) -> NewNode {
    NewNode {
        parent,
        name: name.as_bytes().to_vec(),
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: None,
        policy: ParentPolicy::Known(None),
        acls: None,
        exclusive: true,
        open: None,
    }
}

/// A new file with these bytes.
pub(crate) fn write_new(process: &mut Process, dir: InodeId, name: &str, bytes: &[u8]) -> InodeId {
    let ino = process.create(dir, name, FileKind::Regular).expect("made").ino;
    write_again(process, ino, bytes);
    ino
}

/// Opens it, writes its beginning and closes it.
pub(crate) fn write_again(process: &mut Process, ino: InodeId, bytes: &[u8]) {
    process.open(ino, W).expect("opened");
    process.write(ino, 0, bytes).expect("written");
    process.close(ino, W).expect("closed");
}

impl Process {
    fn connect(socket: &Path, recalled: Option<Recalled>) -> Self {
        Self::connect_as(socket, recalled, NEXT_PROCESS.fetch_add(1, Ordering::Relaxed), false)
    }

    /// The same process on a new connection, after its server was started anew.
    pub(crate) fn reconnect(self, cluster: &Cluster, node: u16) -> Self {
        let mut again = Self::connect_as(&cluster.socket(node), None, self.process, true);
        let nothing = Holding { last: true, ..Holding::default() };
        again.ask(&NodeRequest::Reclaim(Box::new(nothing))).expect("told");
        again
    }

    /// A request that happens once, however often it is sent with this number.
    pub(crate) fn ask_once(
        &mut self,
        number: u64,
        request: &NodeRequest,
    ) -> Result<NodeReply, Refused> {
        let request = Box::new(request.clone());
        self.ask(&NodeRequest::Once { slot: 0, number, request })
    }

    fn connect_as(
        socket: &Path,
        recalled: Option<Recalled>,
        process: u64,
        returning: bool,
    ) -> Self {
        let arena = Arena::create(4).expect("an arena");
        let mount = recalled.is_some();
        let hello = |role| NodeRequest::Hello {
            version: PROTOCOL_VERSION,
            role,
            process,
            arena_slots: 4,
            mount,
            returning,
        };
        let wait = Duration::from_secs(10);
        let until = std::time::Instant::now() + wait;
        let mut channel = loop {
            match BlockingChannel::connect(socket, wait) {
                Ok(channel) => break channel,
                // A server that is started anew is not there yet.
                Err(_) if returning && std::time::Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("a connection: {error:?}"),
            }
        };
        let body = hayase_wire::encode(&hello(ClientRole::Requests)).expect("encodes");
        let (reply, _) = channel.call(&body, Some(memory::of(&arena))).expect("a welcome");
        let reply: NodeReply = hayase_wire::decode(&reply).expect("decodes");
        assert!(matches!(reply, NodeReply::Welcome { .. }), "{reply:?}");
        let recalls = std::sync::Arc::new(AtomicU64::new(0));
        if let Some(recalled) = recalled {
            let recalled = std::sync::Arc::new(std::sync::Mutex::new(recalled));
            // One of them is never for recalls.
            for _ in 0..2 {
                let mut callback = BlockingChannel::connect(socket, wait).expect("a connection");
                let body = hayase_wire::encode(&hello(ClientRole::Callback)).expect("encodes");
                callback.call(&body, None).expect("a welcome");
                callback.set_wait(None).expect("waits for ever");
                let counted = std::sync::Arc::clone(&recalls);
                let recalled = std::sync::Arc::clone(&recalled);
                std::thread::spawn(move || answer_callbacks(&mut callback, &recalled, &counted));
            }
        }
        Self { process, channel, arena, opens_asked: 0, recalls }
    }

    pub(crate) fn ask(&mut self, request: &NodeRequest) -> Result<NodeReply, Refused> {
        let body = hayase_wire::encode(request).expect("encodes");
        let (reply, _) = self.channel.call(&body, None).expect("an answer");
        match hayase_wire::decode(&reply).expect("decodes") {
            NodeReply::Refused(refused) => Err(refused),
            other => Ok(other),
        }
    }

    pub(crate) fn create(
        &mut self,
        parent: InodeId,
        name: &str,
        kind: FileKind,
    ) -> Result<Attr, Refused> {
        self.create_with(parent, name, kind, None)
    }

    pub(crate) fn create_with(
        &mut self,
        parent: InodeId,
        name: &str,
        kind: FileKind,
        policy: Option<hayase_layout::StripePolicy>,
    ) -> Result<Attr, Refused> {
        self.create_in(parent, name, kind, ParentPolicy::Known(policy))
    }

    pub(crate) fn create_in(
        &mut self,
        parent: InodeId,
        name: &str,
        kind: FileKind,
        policy: ParentPolicy,
    ) -> Result<Attr, Refused> {
        let node = NewNode { policy, ..new_node(parent, name, kind) };
        match self.ask(&NodeRequest::Create(node))? {
            NodeReply::Created(created) => {
                let Created { entry, .. } = *created;
                Ok(entry.attr)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn lookup(&mut self, parent: InodeId, name: &str) -> Result<Entry, Refused> {
        let name = name.as_bytes().to_vec();
        match self.ask(&NodeRequest::Lookup { parent, name })? {
            NodeReply::Entry(entry) => Ok(entry),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn remove(
        &mut self,
        parent: InodeId,
        name: &str,
        directory: bool,
    ) -> Result<(), Refused> {
        let name = name.as_bytes().to_vec();
        self.ask(&NodeRequest::Remove { parent, name, directory }).map(drop)
    }

    pub(crate) fn rename(
        &mut self,
        from: (InodeId, &str),
        to: (InodeId, &str),
    ) -> Result<(), Refused> {
        let from = (from.0, from.1.as_bytes().to_vec());
        let to = (to.0, to.1.as_bytes().to_vec());
        let request = NodeRequest::Rename { from, to, no_replace: false, exchange: false };
        self.ask(&request).map(drop)
    }

    pub(crate) fn open(&mut self, ino: InodeId, access: Access) -> Result<Opened, Refused> {
        self.opens_asked += 1;
        let open = Opening { access, kind: OpenKind::Remote, number: self.opens_asked };
        match self.ask(&NodeRequest::Open { ino, open, truncate: false })? {
            NodeReply::Opened(opened) => Ok(*opened),
            other => panic!("{other:?}"),
        }
    }

    /// Everything that this process has open of a file.
    pub(crate) fn close(&mut self, ino: InodeId, access: Access) -> Result<(), Refused> {
        let close = Close { ino, access, as_of: self.opens_asked };
        self.ask(&NodeRequest::Close(vec![close])).map(drop)
    }

    pub(crate) fn write(&mut self, ino: InodeId, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let mut slot = self.arena.take();
        slot.as_mut()[..bytes.len()].copy_from_slice(bytes);
        let from = SlotRange { slot: slot.index(), len: bytes.len() as u32 };
        self.ask(&NodeRequest::Write { ino, offset, from }).map(drop)
    }

    pub(crate) fn fsync(&mut self, ino: InodeId) -> Result<(), Refused> {
        self.ask(&NodeRequest::Fsync { ino, data_only: false }).map(drop)
    }

    pub(crate) fn append(&mut self, ino: InodeId, bytes: &[u8]) -> Result<u64, Refused> {
        let mut slot = self.arena.take();
        slot.as_mut()[..bytes.len()].copy_from_slice(bytes);
        let from = SlotRange { slot: slot.index(), len: bytes.len() as u32 };
        match self.ask(&NodeRequest::Append { ino, from })? {
            NodeReply::Offset(offset) => Ok(offset),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn read(&mut self, ino: InodeId, offset: u64, len: u32) -> Result<Vec<u8>, Refused> {
        let slot = self.arena.take();
        let into = SlotRange { slot: slot.index(), len };
        match self.ask(&NodeRequest::Read { ino, offset, into })? {
            NodeReply::Count(count) => Ok(slot.as_ref()[..count as usize].to_vec()),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn attr(&mut self, ino: InodeId) -> Result<Attr, Refused> {
        match self.ask(&NodeRequest::GetAttr { ino })? {
            NodeReply::Attr { attr, .. } => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn names(&mut self, dir: InodeId) -> Vec<String> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let request = NodeRequest::ReadDir { dir, cookie, bytes: 512, plus: false };
            let NodeReply::Entries(entries) = self.ask(&request).expect("a listing") else {
                panic!("not a listing");
            };
            let Some(last) = entries.last() else { return names };
            cookie = last.cookie;
            names.extend(entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()));
        }
    }
}

fn answer_callbacks(
    channel: &mut BlockingChannel,
    recalled: &std::sync::Mutex<Recalled>,
    recalls: &AtomicU64,
) {
    while let Ok((body, _)) = channel.receive() {
        let reply = match hayase_wire::decode(&body).expect("decodes") {
            Callback::Recall { .. } => {
                recalls.fetch_add(1, Ordering::Relaxed);
                let mut recalled = recalled.lock().expect("no answer panics");
                CallbackReply::Recalled { still_open: recalled(), gave_back: true }
            }
            Callback::InvalName { .. } => CallbackReply::Forgotten,
            Callback::LockGranted { .. } | Callback::Lost { .. } | Callback::HomeDead { .. } => {
                CallbackReply::Told
            }
            Callback::HomeLost { .. } => CallbackReply::Told,
            Callback::LocksAt { .. } => CallbackReply::Holds { locks: Vec::new() },
            Callback::Ping => CallbackReply::Pong,
        };
        let body = hayase_wire::encode(&reply).expect("encodes");
        if channel.reply(&body).is_err() {
            return;
        }
    }
}
