//! What this server tells of itself.

use hayase_wire::message::ServerStatus;

use crate::node::Node;

impl Node {
    pub(crate) fn status(&self) -> ServerStatus {
        ServerStatus {
            server: self.me,
            node: self.node,
            host: self.host.clone(),
            up_ms: self.started.elapsed().as_millis() as u64,
            start_id: self.start_id,
            incarnation: self.incarnation,
            lost: self.membership.lost(),
            has_coordinator: self.membership.has_coordinator(self.me),
            shared: self.usage_here(),
            limiter: self.area.kind().to_owned(),
            clients: self.clients.count() as u32,
            files_open: self.homes.open_count() as u64,
            requests: self.counters.requests.get(),
            bytes_read: self.counters.bytes_read.get(),
            bytes_written: self.counters.bytes_written.get(),
            resident_bytes: resident_bytes(),
            peers: self.peers.states(self.me, self.servers),
            cache: self.cache_status(),
        }
    }
}

/// From `/proc/self/statm`; 0 where there is none.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
