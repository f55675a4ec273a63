//! `hayase status`.

use std::time::{Duration, Instant};

use hayase_layout::ByteCount;
use serde::{Deserialize, Serialize};

use super::job_arg::JobArg;
use crate::config::Environment;
use crate::exit::Status;
use crate::job::{Job, JobId, Registry, Settings};
use crate::launch::tree::{Answer, JOIN_PATIENCE, Session};
use crate::output::{Human, Output, Page};
use crate::supervisor::control::{Call, DaemonState, NodeState, Reply, Request};
use crate::wiring::status::{CacheServed, Served, lost_files, server_status};

/// How long one node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Show jobs, their nodes, areas and servers
///
/// Without --job and $HAYASE_JOB all of your jobs on this machine are shown.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    job: JobArg,
    /// List the files that the tier does not have yet, and why
    #[arg(long)]
    ledger: bool,
}

/// Lost files of one server that are told by path.
const LOST_FILES_MAX: u32 = 1000;

/// How long one server may take to look through its names.
const LOST_PATIENCE: Duration = Duration::from_secs(20);

/// Everything that is told: always a list, however many jobs were meant.
#[derive(Debug, Serialize)]
struct AllJobs {
    jobs: Vec<JobStatus>,
    #[serde(skip)]
    with_ledger: bool,
}

#[derive(Debug, Serialize)]
struct JobStatus {
    job: JobId,
    job_dir: std::path::PathBuf,
    storage: std::path::PathBuf,
    kind: &'static str,
    /// `up`, `damaged` (a node or a daemon is missing), `dead` (no process is left).
    state: &'static str,
    shared_bytes: u64,
    local_bytes: u64,
    /// Nodes that carry the storage of all.
    storage_nodes: Vec<u16>,
    limiter: Option<String>,
    nodes: Vec<NodeStatus>,
    /// Nodes that were declared lost.
    lost_nodes: Vec<u16>,
    /// Files that can not be reached because of that, by path below `shared`: some of them.
    lost_files: Vec<String>,
    /// How many there are; those whose names were on lost nodes are not known.
    lost_files_total: u64,
    /// Nodes whose servers have not heard of server 0 lately: nobody is declared lost.
    without_coordinator: Vec<u16>,
}

/// What is known of a node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    node: u16,
    host: String,
    address: String,
    shared: std::path::PathBuf,
    local: std::path::PathBuf,
    /// The node whose storage it uses: itself, or that of its group.
    storage_node: u16,
    /// Absent when its supervisor has ended.
    supervisor: Option<NodeState>,
    /// Absent when its server does not answer; then `trouble` says why.
    server: Option<Served>,
    trouble: Option<String>,
}

impl NodeStatus {
    /// Which.
    pub(crate) fn node(&self) -> u16 {
        self.node
    }

    /// Its cache area, when its server answers and the job has a tier.
    pub(crate) fn cache(&self) -> Option<&CacheServed> {
        self.server.as_ref()?.cache.as_ref()
    }
}

/// Asks every node of every job that is meant.
pub(crate) fn run(
    args: &StatusArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let jobs = if args.job.job.is_some() || environment.job.is_some() {
        vec![args.job.find(environment)?]
    } else {
        Registry::new(&environment.runtime).jobs()
    };
    let with_ledger = args.ledger;
    output.show(&AllJobs { jobs: jobs.iter().map(look_at).collect(), with_ledger })?;
    Ok(Status::Done)
}

fn look_at(job: &Job) -> JobStatus {
    let settings = &job.settings;
    let elsewhere = job.nodes_elsewhere();
    let here: Vec<u16> = (0..settings.nodes).filter(|node| !elsewhere.contains(node)).collect();
    // All nodes at once: one that hangs does not make the others late.
    let mut nodes: Vec<NodeStatus> = std::thread::scope(|scope| {
        let far = scope.spawn(|| look_elsewhere(job, &elsewhere));
        let asked: Vec<_> =
            here.iter().map(|&node| scope.spawn(move || look_at_node(job, node))).collect();
        let here = asked.into_iter().map(|node| node.join().expect("asking does not panic"));
        let here: Vec<_> = here.collect();
        here.into_iter().chain(far.join().expect("asking does not panic")).collect()
    });
    nodes.sort_by_key(|node| node.node);
    let limiter = nodes.iter().find_map(|node: &NodeStatus| {
        let limiter = &node.supervisor.as_ref()?.ready.as_ref()?.limiter;
        (node.storage_node == node.node).then(|| limiter.clone())
    });
    let serving = || nodes.iter().filter_map(|node| Some((node.node, node.server.as_ref()?)));
    // Who is lost itself may say anything.
    let mut lost_nodes: Vec<u16> = serving().flat_map(|(_, served)| served.lost.clone()).collect();
    lost_nodes.sort_unstable();
    lost_nodes.dedup();
    let alone = serving().filter(|(_, served)| !served.has_coordinator).map(|(node, _)| node);
    let without_coordinator = alone.collect();
    let (lost_files, lost_files_total) = match lost_nodes.is_empty() {
        true => (Vec::new(), 0),
        false => lost_files_of(job, serving().map(|(node, _)| node)),
    };
    JobStatus {
        lost_nodes,
        lost_files,
        lost_files_total,
        without_coordinator,
        job: settings.job.clone(),
        job_dir: job.dir.path().to_owned(),
        storage: settings.job_storage(),
        kind: settings.kind.word(),
        state: state_of(&nodes, settings),
        storage_nodes: settings.groups().servers().iter().map(|server| server.0).collect(),
        shared_bytes: settings.shared.get(),
        local_bytes: settings.local.get(),
        limiter,
        nodes,
    }
}

/// As all servers that answer know them.
fn lost_files_of(job: &Job, nodes: impl Iterator<Item = u16>) -> (Vec<String>, u64) {
    let (mut paths, mut total) = (Vec::new(), 0);
    for node in nodes {
        match lost_files(&job.dir.node(node).server_socket(), LOST_FILES_MAX, LOST_PATIENCE) {
            Ok((some, all)) => {
                paths.extend(some);
                total += all;
            }
            Err(error) => tracing::warn!(node, "lost files: {error:#}"),
        }
    }
    paths.sort();
    paths.dedup();
    (paths, total)
}

/// Asks the other hosts.
fn look_elsewhere(job: &Job, nodes: &[u16]) -> Vec<NodeStatus> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let answers = Session::open(job, nodes).ask(&Request::Status, JOIN_PATIENCE + 2 * PATIENCE);
    let told = |(node, answer)| {
        let mut status = unknown(&job.settings, node);
        status.trouble = match answer {
            Ok(Answer::Status(value)) => match serde_json::from_value(value) {
                Ok(told) => return told,
                Err(error) => Some(format!("its answer can not be read: {error}")),
            },
            Ok(Answer::Failed { why }) | Err(why) => Some(why),
            Ok(other) => Some(format!("unexpected answer {other:?}")),
        };
        status
    };
    answers.into_iter().map(told).collect()
}

/// A node of which nothing is known but its place.
fn unknown(settings: &Settings, node: u16) -> NodeStatus {
    NodeStatus {
        node,
        host: settings.host(node),
        address: settings.address(node).map_or("-".to_owned(), |address| address.to_string()),
        shared: settings.shared_mount(node),
        local: settings.local_mount(node),
        storage_node: settings.storage_of(node),
        supervisor: None,
        server: None,
        trouble: None,
    }
}

/// Asks a node of this machine.
pub(crate) fn look_at_node(job: &Job, node: u16) -> NodeStatus {
    let mut status = unknown(&job.settings, node);
    if job.supervisor(node).is_none() {
        status.trouble = Some("its supervisor has ended".to_owned());
        return status;
    }
    let dir = job.dir.node(node);
    let deadline = Instant::now() + PATIENCE;
    match Call::send(&dir, &Request::Status).and_then(|call| call.reply(deadline)) {
        Ok(Reply::Status(state)) => {
            if let Some(ready) = &state.ready {
                status.address.clone_from(&ready.address);
            }
            status.supervisor = Some(*state);
        }
        Ok(other) => status.trouble = Some(format!("unexpected answer {other:?}")),
        Err(error) => status.trouble = Some(format!("{error:#}")),
    }
    match server_status(&dir.server_socket(), PATIENCE) {
        Ok(served) => status.server = Some(served),
        Err(error) => {
            status.trouble.get_or_insert(format!("its server: {error:#}"));
        }
    }
    status
}

fn state_of(nodes: &[NodeStatus], settings: &Settings) -> &'static str {
    let runs = |state: &DaemonState| matches!(state, DaemonState::Runs(_));
    let is_up = |node: &NodeStatus| {
        let daemons = node
            .supervisor
            .as_ref()
            .is_some_and(|s| runs(&s.server) && (settings.no_mounts || runs(&s.mount)));
        daemons && node.server.is_some()
    };
    if nodes.iter().all(is_up) {
        "up"
    } else if nodes.iter().any(|node| node.supervisor.is_some()) {
        "damaged"
    } else {
        "dead"
    }
}

impl Human for AllJobs {
    fn write(&self, page: &mut Page) {
        if self.jobs.is_empty() {
            page.line("no jobs; start one with `hayase up`");
        }
        for (index, job) in self.jobs.iter().enumerate() {
            if index > 0 {
                page.blank();
            }
            job.write(page);
            job.write_cache(page, self.with_ledger);
        }
    }
}

impl Human for JobStatus {
    fn write(&self, page: &mut Page) {
        page.title(&format!("job {}: {}", self.job, self.state));
        page.pair("job directory", &self.job_dir.display());
        page.pair("storage", &self.storage.display());
        page.pair("nodes", &format!("{} ({})", self.nodes.len(), self.kind));
        let each = match self.storage_nodes.len() == self.nodes.len() {
            true => "on each node".to_owned(),
            false => {
                let which: Vec<_> = self.storage_nodes.iter().map(u16::to_string).collect();
                format!("on each of nodes {}", which.join(", "))
            }
        };
        let limiter = self.limiter.as_deref().unwrap_or("unknown");
        page.pair("shared", &format!("{} {each}, {limiter}", ByteCount(self.shared_bytes)));
        match limiter {
            "image" => {
                page.pair("local", &format!("{} {each}, {limiter}", ByteCount(self.local_bytes)));
            }
            _ => page.pair("local", &"a directory of the storage, as large as that"),
        }
        page.blank();
        let head =
            ["node", "host", "address", "shared used", "local used", "open", "path", "peers"];
        page.table(&head, self.nodes.iter().map(row).collect());
        for node in &self.nodes {
            if let Some(trouble) = &node.trouble {
                page.line(&format!("  node {}: {trouble}", node.node));
            }
            for (name, daemon) in node.supervisor.iter().flat_map(daemons) {
                if let DaemonState::Ended(how) = daemon {
                    page.line(&format!("  node {}: {name} ended: {how}", node.node));
                }
            }
            for (name, times) in node.supervisor.iter().flat_map(restarts) {
                page.line(&format!(
                    "  node {}: {name} ended and was started again: {times}",
                    node.node
                ));
            }
        }
        self.write_losses(page);
        let slow = self.nodes.iter().filter_map(|node| {
            let told = &node.supervisor.as_ref()?.ready.as_ref()?.mount;
            (!told.why.is_empty()).then_some(&told.why)
        });
        let mut reasons: Vec<_> = slow.collect();
        reasons.dedup();
        for why in reasons {
            page.line(&format!("  no passthrough: {why}"));
        }
    }
}

fn daemons(state: &NodeState) -> [(&'static str, &DaemonState); 2] {
    [("serve", &state.server), ("serve-mount", &state.mount)]
}

impl JobStatus {
    fn write_losses(&self, page: &mut Page) {
        for node in &self.without_coordinator {
            page.line(&format!(
                "  node {node}: no coordinator (node 0 is silent): finish and `hayase down`"
            ));
        }
        for node in &self.lost_nodes {
            page.line(&format!("  node {node} is lost: its files and names answer EIO"));
        }
        if self.lost_files_total > 0 {
            page.line(&format!("  files out of reach: {}", self.lost_files_total));
            self.lost_files.iter().for_each(|path| page.line(&format!("    {path}")));
        }
    }
}

impl JobStatus {
    /// How far the cache area is behind, node by node.
    fn write_cache(&self, page: &mut Page, with_ledger: bool) {
        let caches = || self.nodes.iter().filter_map(|node| Some((node.node, node.cache()?)));
        let Some((_, first)) = caches().next() else { return };
        page.blank();
        page.pair("tier", &first.tier);
        let row = |(node, cache): (u16, &CacheServed)| {
            let rate = format!("{}/s", ByteCount(cache.rate));
            let left = match cache.dirty_bytes.checked_div(cache.rate) {
                Some(seconds) if cache.dirty_bytes > 0 => format!("{seconds} s"),
                _ => "-".to_owned(),
            };
            let (dirty, failed) = (cache.dirty_files.to_string(), cache.failed_files.to_string());
            let bytes = ByteCount(cache.dirty_bytes).to_string();
            vec![node.to_string(), dirty, bytes, cache.open_files.to_string(), failed, rate, left]
        };
        let head = ["node", "dirty files", "dirty", "open", "failed", "rate", "done in"];
        page.table(&head, caches().map(row).collect());
        for (node, cache) in caches() {
            if cache.misses_bytes > 0 {
                let (bytes, seconds) = (ByteCount(cache.misses_bytes), cache.deadline_s);
                page.line(&format!(
                    "  node {node}: {bytes} will not be in the tier at the deadline in {} s",
                    seconds.unwrap_or(0)
                ));
            }
            for path in &cache.conflicts {
                page.line(&format!("  two versions: ours is kept as {path}"));
            }
            if with_ledger {
                cache.lines.iter().for_each(|line| page.line(&line.in_words()));
            }
        }
    }
}

/// Daemons that were started again, and how often.
fn restarts(state: &NodeState) -> impl Iterator<Item = (&'static str, u32)> {
    let all = [("serve", state.server_restarts), ("serve-mount", state.mount_restarts)];
    all.into_iter().filter(|(_, times)| *times > 0)
}

fn row(node: &NodeStatus) -> Vec<String> {
    let dash = || "-".to_owned();
    let told = node.supervisor.as_ref().and_then(|s| s.ready.as_ref());
    let path = told.map_or_else(dash, |ready| ready.mount.path.clone());
    let server = node.server.as_ref();
    let used_of = |total: u64, free: u64| {
        format!("{} of {}", ByteCount(total.saturating_sub(free)), ByteCount(total))
    };
    let guest = (node.storage_node != node.node).then(|| format!("by node {}", node.storage_node));
    let used = server.map_or_else(dash, |s| used_of(s.shared_total, s.shared_free));
    let room = node.supervisor.as_ref().and_then(|state| state.local);
    let local = room.map_or_else(dash, |room| used_of(room.total, room.free));
    let (used, local) = (guest.clone().unwrap_or(used), guest.unwrap_or(local));
    let open = server.map_or_else(dash, |server| server.files_open.to_string());
    let peers = server.map_or_else(dash, |server| {
        let up = server.peers.iter().filter(|peer| peer.state != "unreachable").count();
        format!("{up} of {}", server.peers.len())
    });
    let address = node.address.clone();
    vec![node.node.to_string(), node.host.clone(), address, used, local, open, path, peers]
}
