//! What this server tells of itself.

use hayase_wire::message::{ProcessUse, Sample, ServerStatus};
use hayase_wire::session::authenticates_payloads;

use crate::cache::Cache;
use crate::convert;
use crate::node::Node;

impl Node {
    /// Looks at the counters, while there is something to do anyway. Costs a few reads of memory, and
    /// now and then a question to the file system.
    pub(crate) fn look_at_counters(&self) {
        let now = self.meta.now();
        let at_ms = now.seconds.max(0) as u64 * 1000 + u64::from(now.nanos / 1_000_000);
        self.activity.look(at_ms, |is_due, before| {
            let cache = self.cache.get();
            let usage = is_due.then(|| self.data.usage.here());
            let area = match is_due {
                true => self.data.area.moved().map(convert::area_moved),
                false => before.area,
            };
            let dirty_bytes = match cache {
                Some(cache) if cache.is_durable() => 0,
                Some(cache) if is_due => self.dirty_bytes(cache),
                _ => before.dirty_bytes,
            };
            Sample {
                area,
                flushed_bytes: cache.map_or(0, |cache| cache.traffic.sent()),
                fetched_bytes: cache.map_or(0, |cache| cache.traffic.fetched_bytes.get()),
                dirty_bytes,
                used_bytes: usage
                    .map_or(before.used_bytes, |usage| usage.total.saturating_sub(usage.free)),
                ..Sample::default()
            }
        });
    }

    /// The same from the flusher's loop: only while it moves something, and once when it is done.
    pub(crate) fn look_at_drain(&self, cache: &Cache) {
        let was_dirty = || self.activity.newest().is_some_and(|last| last.dirty_bytes > 0);
        if cache.traffic.running.get() > 0 || (cache.is_durable() && was_dirty()) {
            self.look_at_counters();
        }
    }

    pub(crate) fn status(&self) -> ServerStatus {
        let counts = self.activity.counts();
        ServerStatus {
            server: self.me,
            node: self.node,
            host: self.host.clone(),
            up_ms: self.started.elapsed().as_millis() as u64,
            start_id: self.start_id,
            incarnation: self.incarnation,
            lost: self.rpc.membership.lost(),
            has_coordinator: self.rpc.membership.has_coordinator(self.me),
            shared: self.data.usage.here(),
            limiter: self.data.area.kind().to_owned(),
            clients: self.clients.count() as u32,
            files_open: self.homes.open_count() as u64,
            requests: counts.requests,
            bytes_read: counts.bytes_read,
            bytes_written: counts.bytes_written,
            area: self.data.area.moved().map(convert::area_moved),
            bytes_direct: self.data.direct.bytes(),
            bytes_gathered: counts.bytes_gathered,
            io: self.data.direct.way().to_owned(),
            network: self.network.words(),
            authenticates: authenticates_payloads(),
            resident_bytes: resident_bytes(),
            process: process_use(),
            peers: self.rpc.peers.states(self.me, self.servers),
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

/// From `/proc/self`; 0 where the kernel does not tell.
fn process_use() -> ProcessUse {
    let calls = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    ProcessUse {
        cpu_ms: cpu_ms(),
        read_calls: field(&calls, "syscr:"),
        write_calls: field(&calls, "syscw:"),
        wake_ups: wake_ups(),
    }
}

/// Of all threads that the process has and had.
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name, which may hold anything.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    (ticks(12) + ticks(13)) * 1000 / rustix::param::clock_ticks_per_second()
}

/// Of the threads that the process has now.
fn wake_ups() -> u64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0 };
    threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok())
        .map(|status| field(&status, "voluntary_ctxt_switches:"))
        .sum()
}

/// The number behind a name at the begin of a line.
fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_of_its_work() {
        let before = process_use();
        let began = std::time::Instant::now();
        while process_use().cpu_ms < before.cpu_ms + 20 {
            assert!(began.elapsed().as_secs() < 60, "no CPU time is told");
        }
        // Wake-ups of threads that ended meanwhile, as those of other tests do, are not told any more.
        while process_use().wake_ups <= before.wake_ups {
            std::thread::sleep(std::time::Duration::from_millis(1));
            assert!(began.elapsed().as_secs() < 60, "no wake-ups are told");
        }
        assert!(process_use().read_calls > before.read_calls);
        assert_eq!(field("a: 1\nsyscr: 22\n", "syscr:"), 22);
        assert_eq!(field("", "syscr:"), 0);
    }
}
