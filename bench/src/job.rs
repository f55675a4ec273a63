//! A job of the product, driven by its command line alone: `up`, `exec`, `status`, `down`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::bench::Bench;
use crate::command::run;
use crate::guard::remove_tree;
use crate::journal::Thing;
use crate::worker::Worker;

/// More than any command should take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at daemons that are being started.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What `up` is asked for.
#[derive(Clone, Debug)]
pub(crate) struct JobOptions {
    /// Simulated nodes.
    pub(crate) nodes: u16,
    /// Each node's share of `shared`.
    pub(crate) shared: &'static str,
    /// Masks features of newer kernels.
    pub(crate) kernel_profile: Option<&'static str>,
    /// Mounts gather small writes, which they do only when told to.
    pub(crate) gather: bool,
    /// What each node has.
    pub(crate) node: NodeKind,
    /// With the cache area in front of this directory.
    pub(crate) tier: Option<PathBuf>,
    /// The daemons stay on this processor, to which interrupts are moved, and neither they nor workload programs go before other programs: what is
    /// asked is how they disturb those.
    pub(crate) system_core: Option<usize>,
}

/// What a node of a job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// Namespaces, images, a server and its mounts.
    Mounted,
    /// Namespaces, images and a server, reached by the client library.
    Served,
    /// A server that is a plain process and counts its sizes, reached by the client library.
    Plain,
}

impl NodeKind {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Mounted => &["--local", "300MiB"],
            Self::Served => &["--local", "300MiB", "--no-mounts"],
            Self::Plain => &["--local", "16MiB", "--no-mounts", "--no-image", "--no-namespaces"],
        }
    }
}

impl JobOptions {
    /// So many servers, without mounts and images.
    pub(crate) fn servers(nodes: u16) -> Self {
        Self { shared: "64MiB", node: NodeKind::Plain, ..Self::nodes(nodes) }
    }

    /// So many servers with an image each, without mounts.
    pub(crate) fn servers_with_images(nodes: u16) -> Self {
        Self { shared: "300MiB", node: NodeKind::Served, ..Self::nodes(nodes) }
    }

    /// So many nodes, with enough room for any bench.
    pub(crate) fn nodes(nodes: u16) -> Self {
        Self {
            nodes,
            shared: "1200MiB",
            kernel_profile: None,
            gather: false,
            node: NodeKind::Mounted,
            tier: None,
            system_core: None,
        }
    }
}

/// A running job; down when dropped.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    bench: &'a Bench,
    tree: PathBuf,
    nodes: Vec<NodeProcesses>,
    kind: NodeKind,
    /// From the start of `hayase up` to a file made through the mount of each node.
    pub(crate) up_time: Duration,
    is_up: bool,
    /// Its processes may go before other programs.
    may_precede: bool,
    /// Something of it was killed on purpose.
    is_damaged: bool,
}

/// The daemons of one node.
#[derive(Clone, Debug)]
pub(crate) struct NodeProcesses {
    /// `hayase serve`.
    pub(crate) server: u32,
    /// `hayase node`, which keeps the others.
    pub(crate) supervisor: u32,
    /// `hayase serve-mount`, unless there are servers only.
    pub(crate) mount: Option<u32>,
    /// IP address.
    pub(crate) address: String,
}

impl<'a> Job<'a> {
    /// `hayase up`, until the mounts are usable.
    pub(crate) fn up(bench: &'a Bench, options: &JobOptions) -> anyhow::Result<Self> {
        let name = bench.new_name();
        let tree = bench.scratch().join(&name);
        std::fs::create_dir_all(tree.join("storage")).context("make the job's storage")?;
        let (nodes, up_time) = (Vec::new(), Duration::ZERO);
        let kind = options.node;
        let may_precede = options.system_core.is_none();
        let (is_up, is_damaged) = (true, false);
        let mut job = Self { bench, tree, nodes, kind, up_time, is_up, may_precede, is_damaged };
        bench.guard().made(job.thing())?;
        let mut up = Command::new(bench.hayase());
        up.args(["up", "--json", "--job", &name, "--job-dir"]).arg(job.directory());
        up.arg("--storage").arg(job.tree.join("storage"));
        up.arg("--mount").arg(job.tree.join("mnt"));
        up.args(["--nodes", &options.nodes.to_string()]);
        up.args(["--shared", options.shared]).args(options.node.options());
        if let Some(tier) = &options.tier {
            up.arg("--tier").arg(tier);
        }
        if let Some(core) = options.system_core {
            up.args(["--system-cores", &core.to_string(), "--move-interrupts"]);
        }
        if let Some(profile) = options.kernel_profile {
            up.args(["--kernel-profile", profile]);
        }
        if options.gather {
            up.arg("--gather");
        }
        let begin = Instant::now();
        run(&mut up, PATIENCE)?.success("hayase up")?;
        let mounted = if options.node == NodeKind::Mounted { options.nodes } else { 0 };
        for node in 0..mounted {
            let mut touch = job.on_node(node, "touch");
            touch.arg(job.shared().join(format!("ready-{node}")));
            run(&mut touch, PATIENCE)?.success("make a file through a new mount")?;
        }
        job.up_time = begin.elapsed();
        job.nodes = job.find_processes()?;
        for daemon in job.daemons() {
            job.give_precedence(daemon)?;
        }
        Ok(job)
    }

    fn name(&self) -> &str {
        self.tree.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    fn thing(&self) -> Thing {
        Thing::Job { directory: self.directory(), hayase: self.bench.hayase().to_owned() }
    }

    /// The job directory.
    pub(crate) fn directory(&self) -> PathBuf {
        self.tree.join("job")
    }

    /// The shared area, on every node.
    pub(crate) fn shared(&self) -> PathBuf {
        self.tree.join("mnt/shared")
    }

    /// The cache area, on every node.
    pub(crate) fn cache(&self) -> PathBuf {
        self.tree.join("mnt/cache")
    }

    /// Where the server of a node keeps parts and names: the root of an XFS image, seen on the
    /// node only. What lies beside those is measured as native.
    pub(crate) fn image(&self, node: u16) -> PathBuf {
        self.tree.join("storage").join(self.name()).join(format!("node-{node}/shared"))
    }

    /// Where the server of a node listens for programs of its node.
    pub(crate) fn socket(&self, node: u16) -> PathBuf {
        self.directory().join(format!("node-{node}/server.sock"))
    }

    /// `hayase exec --node I -- PROGRAM`.
    pub(crate) fn on_node(&self, node: u16, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(self.bench.hayase());
        command.arg("exec").arg("--job").arg(self.directory());
        command.args(["--node", &node.to_string(), "--"]).arg(program);
        command
    }

    /// A workload program on a node; where nodes are plain processes, on this machine.
    pub(crate) fn worker(&self, node: u16) -> anyhow::Result<Worker> {
        self.start_worker(node, self.bench.program())
    }

    /// One that does what the product does, by the client library or the ring: these are linked into it, so it is the
    /// program of the build that is measured.
    pub(crate) fn linked_worker(&self, node: u16) -> anyhow::Result<Worker> {
        self.start_worker(node, self.bench.build().linked_program()?)
    }

    fn start_worker(&self, node: u16, program: &Path) -> anyhow::Result<Worker> {
        let mut command = match self.kind {
            NodeKind::Plain => Command::new(program),
            NodeKind::Mounted | NodeKind::Served => self.on_node(node, program),
        };
        let worker = Worker::start(command.arg("worker"))?;
        self.give_precedence(worker.process())?;
        Ok(worker)
    }

    fn give_precedence(&self, process: u32) -> anyhow::Result<()> {
        if self.may_precede { self.bench.give_precedence(process) } else { Ok(()) }
    }

    /// The daemons of each node.
    pub(crate) fn nodes(&self) -> &[NodeProcesses] {
        &self.nodes
    }

    /// All daemons of all nodes.
    pub(crate) fn daemons(&self) -> Vec<u32> {
        self.nodes.iter().flat_map(|node| [Some(node.server), node.mount]).flatten().collect()
    }

    /// What the server of each node tells of itself.
    pub(crate) fn server_status(&self) -> anyhow::Result<Vec<Value>> {
        let status = self.status()?;
        let nodes = status["nodes"].as_array().context("status lists no nodes")?;
        ensure!(
            nodes.iter().all(|node| node["server"].is_object()),
            "a server does not answer: {status}"
        );
        Ok(nodes.iter().map(|node| node["server"].clone()).collect())
    }

    /// Requests that the servers have counted, all together.
    pub(crate) fn requests(&self) -> anyhow::Result<u64> {
        self.counter("requests")
    }

    /// A counter of the servers, all together.
    pub(crate) fn counter(&self, name: &str) -> anyhow::Result<u64> {
        let of = |server: &Value| {
            server[name].as_u64().with_context(|| format!("a server tells no `{name}`"))
        };
        self.server_status()?.iter().map(of).sum()
    }

    /// Requests that each server has counted.
    pub(crate) fn requests_of_each(&self) -> anyhow::Result<Vec<u64>> {
        let of =
            |server: &Value| server["requests"].as_u64().context("a server counts no requests");
        self.server_status()?.iter().map(of).collect()
    }

    fn status(&self) -> anyhow::Result<Value> {
        let mut command = Command::new(self.bench.hayase());
        command.args(["status", "--json", "--job"]).arg(self.directory());
        let text = run(&mut command, PATIENCE)?.success("hayase status")?;
        let all: Value = serde_json::from_str(&text).context("read what status says")?;
        Ok(all["jobs"][0].clone())
    }

    fn find_processes(&self) -> anyhow::Result<Vec<NodeProcesses>> {
        let status = self.status()?;
        let nodes = status["nodes"].as_array().context("status lists no nodes")?;
        let process = |node: &Value, daemon: &str| -> anyhow::Result<u32> {
            let number = node["supervisor"][daemon]["runs"].as_u64();
            let number = number.with_context(|| format!("status tells no process: {node}"))?;
            Ok(u32::try_from(number)?)
        };
        let of = |node: &Value| {
            Ok(NodeProcesses {
                server: process(node, "server")?,
                supervisor: job_process(&self.directory(), node)?,
                mount: process(node, "mount").ok(),
                address: node["address"].as_str().context("a node has no address")?.to_owned(),
            })
        };
        nodes.iter().map(of).collect()
    }

    /// The daemons as they are now, when those that were killed have been started again.
    pub(crate) fn look_again(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            match self.find_processes() {
                Err(_) if begin.elapsed() < PATIENCE => std::thread::sleep(LOOK_AGAIN),
                found => return found.map(|nodes| self.nodes = nodes),
            }
        }
    }

    /// `hayase down`, and how long it took.
    pub(crate) fn down(mut self) -> anyhow::Result<Duration> {
        self.take_down()
    }

    /// The same of a job of which a node was lost: `down` tells so.
    pub(crate) fn down_after_loss(mut self) -> anyhow::Result<()> {
        self.is_damaged = true;
        self.take_down().map(drop)
    }

    fn take_down(&mut self) -> anyhow::Result<Duration> {
        if !std::mem::take(&mut self.is_up) {
            return Ok(Duration::ZERO);
        }
        let mut took = Duration::ZERO;
        if self.directory().exists() {
            let mut command = Command::new(self.bench.hayase());
            let ended = run(command.arg("down").arg("--job").arg(self.directory()), PATIENCE)?;
            took = ended.took;
            if !self.is_damaged {
                ended.success("hayase down")?;
            }
        }
        let left = self.daemons().into_iter().filter(|&process| is_alive(process)).count();
        ensure!(left == 0, "{left} daemons are left after `hayase down`");
        remove_tree(&self.tree)?;
        self.bench.guard().removed(self.thing())?;
        Ok(took)
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            self.bench.warn(&format!("job {}: {error:#}", self.name()));
        }
    }
}

/// The supervisor that `status` speaks of, from the record that it keeps.
fn job_process(directory: &Path, node: &Value) -> anyhow::Result<u32> {
    let number = node["node"].as_u64().context("a node has no number")?;
    let path = directory.join(format!("node-{number}/supervisor.json"));
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let record: Value = serde_json::from_str(&text)?;
    let process = record["process"]["pid"].as_u64();
    Ok(u32::try_from(process.with_context(|| format!("no process in {text}"))?)?)
}

/// A process that is there and is no zombie.
fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    let stat = stat.unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}
