//! What is known of one node of this machine: its supervisor and its server are asked, or its ledger is read.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::job::ledgers::{self, NotDurable};
use crate::job::{Job, Settings};
use crate::supervisor::control::{Call, NodeState, Reply, Request};
use crate::wiring::status::{
    CacheServed, ChecksumLine, Sample, Served, server_checksums, server_history, server_status,
};

/// How long one node may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// How long a server may take for a page of its ledger.
pub(crate) const CHECKSUMS_PATIENCE: Duration = Duration::from_secs(10);

/// What is known of a node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    pub(crate) node: u16,
    pub(crate) host: String,
    pub(crate) address: String,
    pub(crate) shared: std::path::PathBuf,
    pub(crate) local: std::path::PathBuf,
    /// The node whose storage it uses: itself, or that of its group.
    pub(crate) storage_node: u16,
    /// Absent when its supervisor has ended.
    pub(crate) supervisor: Option<NodeState>,
    /// Absent when its server does not answer; then `trouble` says why.
    pub(crate) server: Option<Served>,
    pub(crate) trouble: Option<String>,
    /// Its supervisor has ended, and with it everything that could bring something to the tier.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) has_ended: bool,
    /// What the tier does not have of a node whose server does not answer, as its ledger says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<Vec<NotDurable>>,
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

/// A node of which nothing is known but its place.
pub(super) fn unknown(settings: &Settings, node: u16) -> NodeStatus {
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
        has_ended: false,
        left: None,
    }
}

/// Asks a node of this machine.
pub(crate) fn look_at_node(job: &Job, node: u16) -> NodeStatus {
    let mut status = unknown(&job.settings, node);
    if let Some((_, error)) = job.unknowable([node]).pop() {
        status.trouble = Some(error.with_help());
        return status;
    }
    if job.supervisor(node).is_none() {
        status.trouble = Some("its supervisor has ended".to_owned());
        status.has_ended = true;
        status.left = ledgers::left_of(&job.settings, node);
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
            status.left = ledgers::left_of(&job.settings, node);
        }
    }
    status
}

/// What the server of a node of this machine had done by which moment, oldest first.
pub(crate) fn history_of_node(job: &Job, node: u16) -> anyhow::Result<Vec<Sample>> {
    server_history(&job.dir.node(node).server_socket(), PATIENCE)
}

/// A page of what the server of a node of this machine has sent.
pub(crate) fn checksums_of_node(
    job: &Job,
    node: u16,
    after: u64,
    most: u16,
) -> anyhow::Result<Vec<ChecksumLine>> {
    server_checksums(&job.dir.node(node).server_socket(), (after, most), CHECKSUMS_PATIENCE)
}
