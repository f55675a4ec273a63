//! What is known of a job: of each node what its supervisor and its server say.
//!
//! Here: all nodes of a job, also those that are other hosts. Rooms: [`node`] (one node of this machine), [`drain`]
//! (the way to the tier, over all nodes), [`payload`] (what protects the bytes of files between nodes).

mod drain;
mod node;
mod payload;

use std::time::Duration;

use serde::Serialize;

use self::node::{PATIENCE, unknown};
use crate::cpu_budget::CpuBudget;
use crate::job::{Job, JobId};
use crate::launch::tree::{Answer, JOIN_PATIENCE, Session};
use crate::processors::Processors;
use crate::supervisor::control::{DaemonState, Request};
use crate::wiring::status::{Sample, lost_files};

pub(crate) use drain::Drain;
pub(crate) use node::{
    CHECKSUMS_PATIENCE, NodeStatus, checksums_of_node, history_of_node, look_at_node,
};
pub(crate) use payload::Payload;

/// Lost files of one server that are told by path.
const LOST_FILES_MAX: u32 = 1000;

/// How long one server may take to look through its names.
const LOST_PATIENCE: Duration = Duration::from_secs(20);

/// What is known of a job.
#[derive(Debug, Serialize)]
pub(crate) struct JobStatus {
    pub(crate) job: JobId,
    pub(crate) job_dir: std::path::PathBuf,
    pub(crate) storage: std::path::PathBuf,
    pub(crate) kind: &'static str,
    /// `up`, `damaged` (a node or a daemon is missing), `dead` (no process is left).
    pub(crate) state: &'static str,
    /// What protects the bytes of files between nodes; `None` with one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<Payload>,
    pub(crate) shared_bytes: u64,
    pub(crate) local_bytes: u64,
    /// Nodes that carry the storage of all.
    pub(crate) storage_nodes: Vec<u16>,
    pub(crate) limiter: Option<String>,
    /// Processors of each node on which its daemons stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) system_cores: Option<Processors>,
    /// What its daemons may take of the processors of a node, together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_budget: Option<CpuBudget>,
    pub(crate) nodes: Vec<NodeStatus>,
    /// The way to the tier, of a job that has one.
    pub(crate) drain: Option<Drain>,
    /// Nodes that were declared lost.
    pub(crate) lost_nodes: Vec<u16>,
    /// Files that can not be reached because of that, by path below `shared`: some of them.
    pub(crate) lost_files: Vec<String>,
    /// How many there are; those whose names were on lost nodes are not known.
    pub(crate) lost_files_total: u64,
    /// Nodes whose servers have not heard of server 0 lately: nobody is declared lost.
    pub(crate) without_coordinator: Vec<u16>,
}

/// Asks every node of a job.
pub(crate) fn look_at(job: &Job) -> JobStatus {
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
    // A node that is lost itself may say anything.
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
        state: state_of(&nodes, job),
        storage_nodes: settings.groups().servers().iter().map(|server| server.0).collect(),
        payload: Payload::of(settings, &nodes),
        shared_bytes: settings.shared.get(),
        local_bytes: settings.local.get(),
        limiter,
        system_cores: settings.system_cores.clone(),
        cpu_budget: settings.cpu_budget,
        drain: settings.tier.as_ref().map(|_| {
            let unknown = nodes.iter().filter(|node| node.server.is_none()).count();
            Drain::of(nodes.iter().filter_map(NodeStatus::cache), unknown)
        }),
        nodes,
    }
}

/// What the servers of all nodes of a job had done by which moment, oldest first; why, where it is not known.
pub(crate) fn histories(job: &Job) -> Vec<(u16, Result<Vec<Sample>, String>)> {
    let elsewhere = job.nodes_elsewhere();
    let here = (0..job.settings.nodes).filter(|node| !elsewhere.contains(node));
    let mut all: Vec<_> = here
        .map(|node| (node, history_of_node(job, node).map_err(|error| format!("{error:#}"))))
        .collect();
    if !elsewhere.is_empty() {
        let answers =
            Session::open(job, &elsewhere).ask(&Request::History, JOIN_PATIENCE + 2 * PATIENCE);
        all.extend(answers.into_iter().map(|(node, answer)| (node, history_from(answer))));
    }
    all.sort_by_key(|(node, _)| *node);
    all
}

fn history_from(answer: Result<Answer, String>) -> Result<Vec<Sample>, String> {
    match answer? {
        Answer::Status(value) => serde_json::from_value(value).map_err(|error| error.to_string()),
        Answer::Failed { why } => Err(why),
        other => Err(format!("unexpected answer {other:?}")),
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

fn state_of(nodes: &[NodeStatus], job: &Job) -> &'static str {
    let runs = |state: &DaemonState| matches!(state, DaemonState::Runs(_));
    let is_up = |node: &NodeStatus| {
        let daemons = node
            .supervisor
            .as_ref()
            .is_some_and(|s| runs(&s.server) && (job.settings.no_mounts || runs(&s.mount)));
        daemons && node.server.is_some()
    };
    if nodes.iter().all(is_up) {
        "up"
    } else if nodes.iter().any(|node| node.supervisor.is_some()) {
        "damaged"
    } else if job.unknowable(job.all_nodes()).is_empty() {
        "dead"
    } else {
        "unknown"
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::job::Settings;

    /// Of a job whose nodes do not answer.
    pub(crate) fn status_of(settings: &Settings) -> JobStatus {
        JobStatus {
            job: settings.job.clone(),
            job_dir: "/job".into(),
            storage: settings.job_storage(),
            kind: settings.kind.word(),
            state: "up",
            payload: Payload::of(settings, &[]),
            shared_bytes: settings.shared.get(),
            local_bytes: settings.local.get(),
            storage_nodes: Vec::new(),
            limiter: None,
            system_cores: None,
            cpu_budget: None,
            nodes: (0..settings.nodes).map(|node| unknown(settings, node)).collect(),
            drain: None,
            lost_nodes: Vec::new(),
            lost_files: Vec::new(),
            lost_files_total: 0,
            without_coordinator: Vec::new(),
        }
    }
}
