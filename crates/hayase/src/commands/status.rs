//! `hayase status`.

use std::time::{Duration, Instant};

use hayase_layout::ByteCount;
use serde::Serialize;

use super::job_arg::JobArg;
use crate::config::Environment;
use crate::exit::Status;
use crate::job::{Job, JobId, Registry, Settings};
use crate::output::{Human, Output, Page};
use crate::supervisor::control::{Call, DaemonState, NodeState, Reply, Request};
use crate::wiring::status::{Served, server_status};

/// How long one node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Show jobs, their nodes, areas and servers
///
/// Without --job and $HAYASE_JOB all of your jobs on this machine are shown.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    job: JobArg,
}

/// Everything that is told: always a list, however many jobs were meant.
#[derive(Debug, Serialize)]
struct AllJobs {
    jobs: Vec<JobStatus>,
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
    limiter: Option<String>,
    nodes: Vec<NodeStatus>,
}

#[derive(Debug, Serialize)]
struct NodeStatus {
    node: u16,
    host: String,
    address: String,
    shared: std::path::PathBuf,
    local: std::path::PathBuf,
    /// Absent when its supervisor has ended.
    supervisor: Option<NodeState>,
    /// Absent when its server does not answer; then `trouble` says why.
    server: Option<Served>,
    trouble: Option<String>,
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
    output.show(&AllJobs { jobs: jobs.iter().map(look_at).collect() })?;
    Ok(Status::Done)
}

fn look_at(job: &Job) -> JobStatus {
    let settings = &job.settings;
    // All nodes at once: one that hangs does not make the others late.
    let nodes: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> =
            (0..settings.nodes).map(|node| scope.spawn(move || look_at_node(job, node))).collect();
        asked.into_iter().map(|node| node.join().expect("asking does not panic")).collect()
    });
    let limiter = nodes.iter().find_map(|node: &NodeStatus| {
        Some(node.supervisor.as_ref()?.ready.as_ref()?.limiter.clone())
    });
    JobStatus {
        job: settings.job.clone(),
        job_dir: job.dir.path().to_owned(),
        storage: settings.job_storage(),
        kind: settings.kind.word(),
        state: state_of(&nodes),
        shared_bytes: settings.shared.get(),
        local_bytes: settings.local.get(),
        limiter,
        nodes,
    }
}

fn look_at_node(job: &Job, node: u16) -> NodeStatus {
    let settings: &Settings = &job.settings;
    let mut status = NodeStatus {
        node,
        host: settings.host(node),
        address: settings.address(node).to_string(),
        shared: settings.shared_mount(node),
        local: settings.local_mount(node),
        supervisor: None,
        server: None,
        trouble: None,
    };
    if job.supervisor(node).is_none() {
        status.trouble = Some("its supervisor has ended".to_owned());
        return status;
    }
    let dir = job.dir.node(node);
    let deadline = Instant::now() + PATIENCE;
    match Call::send(&dir, &Request::Status).and_then(|call| call.reply(deadline)) {
        Ok(Reply::Status(state)) => status.supervisor = Some(*state),
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

fn state_of(nodes: &[NodeStatus]) -> &'static str {
    let runs = |state: &DaemonState| matches!(state, DaemonState::Runs(_));
    let is_up = |node: &NodeStatus| {
        let daemons = node.supervisor.as_ref().is_some_and(|s| runs(&s.server) && runs(&s.mount));
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
        }
    }
}

impl Human for JobStatus {
    fn write(&self, page: &mut Page) {
        page.title(&format!("job {}: {}", self.job, self.state));
        page.pair("job directory", &self.job_dir.display());
        page.pair("storage", &self.storage.display());
        page.pair("nodes", &format!("{} ({})", self.nodes.len(), self.kind));
        let limiter = self.limiter.as_deref().unwrap_or("unknown");
        page.pair("shared", &format!("{} on each node, {limiter}", ByteCount(self.shared_bytes)));
        match limiter {
            "image" => page
                .pair("local", &format!("{} on each node, {limiter}", ByteCount(self.local_bytes))),
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
    let used = server.map_or_else(dash, |s| used_of(s.shared_total, s.shared_free));
    let room = node.supervisor.as_ref().and_then(|state| state.local);
    let local = room.map_or_else(dash, |room| used_of(room.total, room.free));
    let open = server.map_or_else(dash, |server| server.files_open.to_string());
    let peers = server.map_or_else(dash, |server| {
        let up = server.peers.iter().filter(|peer| peer.state != "unreachable").count();
        format!("{up} of {}", server.peers.len())
    });
    let address = node.address.clone();
    vec![node.node.to_string(), node.host.clone(), address, used, local, open, path, peers]
}
