//! What `hayase status` looks like to a person.

use std::collections::BTreeSet;

use hayase_layout::ByteCount;

use super::AllJobs;
use crate::count::counted;
use crate::job::ledgers;
use crate::moment;
use crate::output::{Human, Page};
use crate::status::{Drain, JobStatus, NodeStatus};
use crate::supervisor::control::{DaemonState, NodeState};
use crate::wiring::status::{CacheServed, Peer};

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
        if let Some(cores) = &self.system_cores {
            page.pair("daemons", &format!("on processors {cores} of each node"));
        }
        if let Some(budget) = &self.cpu_budget {
            page.pair("CPU budget", &format!("{budget} of each node, for its daemons together"));
        }
        if let Some(io) = self.large_requests() {
            page.pair("large requests", &io);
        }
        if let Some(network) = self.networks() {
            page.pair("transport", &network);
        }
        if let Some(payload) = &self.payload {
            page.pair("payload", &payload.in_words());
        }
        page.blank();
        let head =
            ["node", "host", "address", "shared used", "local used", "open", "path", "peers"];
        page.table(&head, self.nodes.iter().map(row).collect());
        for node in &self.nodes {
            if let Some(trouble) = &node.trouble {
                page.line(&format!("  node {}: {trouble}", node.node));
            }
            let ready = node.supervisor.as_ref().and_then(|state| state.ready.as_ref());
            if let Some(told) = ready.and_then(|ready| ready.interrupts.as_ref()) {
                page.line(&format!("  node {}: {} interrupts moved", node.node, told.moved));
                for what in &told.not_moved {
                    page.line(&format!("  node {}: not moved: {what}", node.node));
                }
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
    /// Which way large requests of other nodes take, each way that some node takes.
    fn large_requests(&self) -> Option<String> {
        let ways = self.nodes.iter().filter_map(|node| Some(node.server.as_ref()?.io.as_str()));
        let ways: BTreeSet<_> = ways.filter(|way| !way.is_empty()).collect();
        (!ways.is_empty()).then(|| ways.into_iter().collect::<Vec<_>>().join("; "))
    }

    /// Which transports the servers speak, and why, each once; with UCX, how many of their peers it
    /// reaches; and how many are reached through node 0.
    fn networks(&self) -> Option<String> {
        let servers = || self.nodes.iter().filter_map(|node| node.server.as_ref());
        let words: BTreeSet<_> =
            servers().map(|server| server.network.as_str()).filter(|it| !it.is_empty()).collect();
        let mut words: Vec<_> = words.into_iter().map(ToOwned::to_owned).collect();
        let over: Vec<_> =
            servers().flat_map(|server| &server.peers).filter_map(Peer::over).collect();
        if words.iter().any(|words| words.starts_with("ucx")) && !over.is_empty() {
            let ucx = over.iter().filter(|over| **over == "ucx").count();
            words.push(format!("{ucx} of {} connected peers over UCX", over.len()));
        }
        let relayed = over.iter().filter(|over| **over == "relay").count();
        if relayed > 0 {
            let peers = over.len();
            words.push(format!("{relayed} of {peers} connected peers only through node 0"));
        }
        (!words.is_empty()).then(|| words.join("; "))
    }

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
    /// How far the cache area is behind, node by node and together.
    fn write_cache(&self, page: &mut Page, with_ledger: bool) {
        let caches = || self.nodes.iter().filter_map(|node| Some((node.node, node.cache()?)));
        let Some(drain) = &self.drain else { return };
        page.blank();
        let Some((_, first)) = caches().next() else {
            page.line(&format!("  {}", drain.in_words(moment::now_ms())));
            self.write_left(page, with_ledger);
            if self.state == "dead" {
                let job = self.job_dir.display();
                page.line(&format!(
                    "  `hayase down --job {job}` ends what is left of it and names the command that brings the rest to the tier"
                ));
            }
            return;
        };
        page.pair("tier", &first.tier);
        let row = |(node, cache): (u16, &CacheServed)| {
            let rate = match cache.rate {
                0 => "-".to_owned(),
                rate => format!("{}/s", ByteCount(rate)),
            };
            let left = Drain::of([cache], 0).left_s().map_or_else(|| "-".to_owned(), moment::span);
            let (dirty, failed) = (cache.dirty_files.to_string(), cache.failed_files.to_string());
            let bytes = ByteCount(cache.dirty_bytes).to_string();
            vec![node.to_string(), dirty, bytes, cache.open_files.to_string(), failed, rate, left]
        };
        let head = ["node", "dirty files", "dirty", "open", "failed", "rate", "done in"];
        page.table(&head, caches().map(row).collect());
        page.line(&format!("  {}", drain.in_words(moment::now_ms())));
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
        self.write_left(page, with_ledger);
    }

    /// What the ledgers of nodes say whose servers do not answer.
    fn write_left(&self, page: &mut Page, with_ledger: bool) {
        let nodes = self.nodes.iter().filter_map(|node| Some((node.node, node.left.as_ref()?)));
        for (node, left) in nodes {
            if left.is_empty() {
                page.line(&format!(
                    "  node {node}: its ledger says that the tier has all of its files"
                ));
                continue;
            }
            let bytes = left.iter().map(|line| line.bytes).sum();
            let at_least = left.iter().any(|line| line.at_least);
            let (files, size) =
                (counted(left.len() as u64, "file"), ledgers::size(bytes, at_least));
            page.line(&format!(
                "  node {node}: the tier does not have {files}, {size}, as its ledger says"
            ));
            for line in left.iter().take(if with_ledger { usize::MAX } else { 0 }) {
                page.line(&format!("    {} {} {}", line.state, line.size(), line.path));
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
