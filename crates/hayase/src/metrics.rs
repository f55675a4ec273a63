//! Counters of servers as Prometheus reads them: for `hayase status --prometheus`, and for the port that
//! a server opens when it was asked to.
//!
//! Here: names, meanings and text. Rooms: [`listener`] (the port).
//! Source: the text format of Prometheus, version 0.0.4; its rules for names: base units, `_total` for counters.

pub(crate) mod listener;

use std::fmt::Write;

use crate::wiring::status::Served;

/// One server, and where it is.
pub(crate) struct Measured<'a> {
    /// Its job.
    pub(crate) job: &'a str,
    /// The node that it serves.
    pub(crate) node: u16,
    /// For people.
    pub(crate) host: &'a str,
    /// Absent when it does not answer.
    pub(crate) served: Option<&'a Served>,
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// The only one of a server that does not answer.
const UP: (&str, Kind, &str) = ("up", Kind::Gauge, "Whether the server answers");

/// Name without prefix, kind, meaning, and where it comes from; `None` where the server has none.
type Metric = (&'static str, Kind, &'static str, fn(&Served) -> Option<f64>);

/// Counters begin again with each start of a server: that is how Prometheus wants them.
#[rustfmt::skip]
const METRICS: &[Metric] = &[
    ("server_uptime_seconds", Kind::Gauge, "Since this start of the server", |s| Some(s.up_ms as f64 / 1000.0)),
    ("server_starts_total", Kind::Counter, "Starts of the server, the present one included", |s| Some(s.incarnation as f64)),
    ("server_requests_total", Kind::Counter, "Requests of processes of its node and of other servers", |s| Some(s.requests as f64)),
    ("server_read_bytes_total", Kind::Counter, "Bytes that passed the server on their way to readers; what a kernel read itself is not among them", |s| Some(s.bytes_read as f64)),
    ("server_written_bytes_total", Kind::Counter, "Bytes that passed the server on their way to parts; what a kernel wrote itself is not among them", |s| Some(s.bytes_written as f64)),
    ("area_read_bytes_total", Kind::Counter, "Bytes that the file system of the area gave, to kernels for programs, to the server for other nodes and the tier; not what is mapped", |s| Some(s.area?.read as f64)),
    ("area_written_bytes_total", Kind::Counter, "Bytes that it took", |s| Some(s.area?.written as f64)),
    ("server_direct_bytes_total", Kind::Counter, "Of what servers read and wrote, bytes that went past the page cache of the parts", |s| Some(s.bytes_direct as f64)),
    ("server_gathered_bytes_total", Kind::Counter, "Of what was written, bytes of small writes that mounts had gathered", |s| Some(s.bytes_gathered as f64)),
    ("server_cpu_seconds_total", Kind::Counter, "CPU time of the server", |s| Some(s.cpu_ms as f64 / 1000.0)),
    ("server_wake_ups_total", Kind::Counter, "Times that a thread of the server was woken", |s| Some(s.wake_ups as f64)),
    ("server_resident_bytes", Kind::Gauge, "Memory of the server", |s| Some(s.resident_bytes as f64)),
    ("server_clients", Kind::Gauge, "Processes that are connected", |s| Some(f64::from(s.clients))),
    ("server_open_files", Kind::Gauge, "Files of this home that somebody has open", |s| Some(s.files_open as f64)),
    ("server_lost_nodes", Kind::Gauge, "Nodes that were declared lost", |s| Some(s.lost.len() as f64)),
    ("area_size_bytes", Kind::Gauge, "Room of this node's share of shared and cache", |s| Some(s.shared_total as f64)),
    ("area_free_bytes", Kind::Gauge, "Room left of it", |s| Some(s.shared_free as f64)),
    ("cache_dirty_files", Kind::Gauge, "Files that the tier does not have as the job wrote them", |s| Some(s.cache.as_ref()?.dirty_files as f64)),
    ("cache_dirty_bytes", Kind::Gauge, "Their bytes", |s| Some(s.cache.as_ref()?.dirty_bytes as f64)),
    ("cache_open_files", Kind::Gauge, "Of those files, how many are open for writing", |s| Some(s.cache.as_ref()?.open_files as f64)),
    ("cache_failed_files", Kind::Gauge, "Of those files, how many the tier refused at the last try", |s| Some(s.cache.as_ref()?.failed_files as f64)),
    ("cache_clean_bytes", Kind::Gauge, "Bytes of copies of what the tier has", |s| Some(s.cache.as_ref()?.clean_bytes as f64)),
    ("cache_flushed_files_total", Kind::Counter, "Files that reached the tier", |s| Some(s.cache.as_ref()?.flushed_files as f64)),
    ("cache_flushed_bytes_total", Kind::Counter, "Bytes that were sent to the tier", |s| Some(s.cache.as_ref()?.flushed_bytes as f64)),
    ("cache_fetched_bytes_total", Kind::Counter, "Bytes that were fetched from the tier", |s| Some(s.cache.as_ref()?.fetched_bytes as f64)),
    ("cache_conflicts", Kind::Gauge, "Files of which two versions were kept", |s| Some(s.cache.as_ref()?.conflicts.len() as f64)),
    ("cache_flush_bytes_per_second", Kind::Gauge, "To the tier, as it was when some was sent last; 0 while the tier takes nothing", |s| Some(s.cache.as_ref()?.rate as f64)),
    ("cache_deadline_seconds", Kind::Gauge, "Until the end of the job", |s| Some(s.cache.as_ref()?.deadline_s? as f64)),
    ("cache_missed_bytes", Kind::Gauge, "Bytes that will not be in the tier by then", |s| s.cache.as_ref()?.deadline_s.map(|_| s.cache.as_ref().map_or(0.0, |c| c.misses_bytes as f64))),
];

/// All counters of these servers. A server that does not answer has `hayase_up` 0 and nothing else.
pub(crate) fn text(servers: &[Measured<'_>]) -> String {
    let mut text = String::new();
    let up = |server: &Measured<'_>| Some(f64::from(u8::from(server.served.is_some())));
    family(&mut text, servers, UP, up);
    for (name, kind, help, value) in METRICS {
        let of = |server: &Measured<'_>| server.served.and_then(value);
        family(&mut text, servers, (name, *kind, help), of);
    }
    text
}

/// Name without prefix, kind and meaning of each.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let each = METRICS.iter().map(|(name, kind, meaning, _)| (*name, kind.word(), *meaning));
    std::iter::once((UP.0, UP.1.word(), UP.2)).chain(each)
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

fn family(
    text: &mut String,
    servers: &[Measured<'_>],
    (name, kind, help): (&str, Kind, &str),
    value: impl Fn(&Measured<'_>) -> Option<f64>,
) {
    let values: Vec<_> =
        servers.iter().filter_map(|server| Some((server, value(server)?))).collect();
    if values.is_empty() {
        return;
    }
    let kind = kind.word();
    let _ = writeln!(text, "# HELP hayase_{name} {help}.\n# TYPE hayase_{name} {kind}");
    for (server, value) in values {
        let (job, host) = (escaped(server.job), escaped(server.host));
        let node = server.node;
        let _ = writeln!(
            text,
            "hayase_{name}{{job=\"{job}\",node=\"{node}\",host=\"{host}\"}} {value}"
        );
    }
}

/// Inside of a label's quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wiring::status::CacheServed;

    fn served(requests: u64, cache: Option<CacheServed>) -> Served {
        Served { requests, cache, ..Served::default() }
    }

    #[test]
    fn each_family_is_told_once_with_a_line_for_each_server() {
        let cache = CacheServed { dirty_bytes: 1 << 40, ..CacheServed::default() };
        let (one, other) = (served(7, Some(cache)), served(9, None));
        let of = |node, served| Measured { job: "j\"1", node, host: "h", served };
        let text = text(&[of(0, Some(&one)), of(1, Some(&other)), of(2, None)]);
        let lines = |start: &str| -> Vec<&str> {
            text.lines().filter(|line| line.starts_with(start)).collect()
        };
        assert_eq!(
            lines("hayase_server_requests_total"),
            [
                "hayase_server_requests_total{job=\"j\\\"1\",node=\"0\",host=\"h\"} 7",
                "hayase_server_requests_total{job=\"j\\\"1\",node=\"1\",host=\"h\"} 9",
            ]
        );
        assert_eq!(lines("hayase_up").len(), 3);
        assert!(lines("hayase_up")[2].ends_with("node=\"2\",host=\"h\"} 0"), "{text}");
        // Only whoever has a tier speaks of it, and whole numbers stay whole.
        assert_eq!(lines("hayase_cache_dirty_bytes").len(), 1);
        assert!(lines("hayase_cache_dirty_bytes")[0].ends_with(" 1099511627776"));
        assert!(lines("hayase_cache_deadline_seconds").is_empty());
        let helps = lines("# TYPE");
        let mut once = helps.clone();
        once.dedup();
        assert_eq!(helps, once);
    }

    #[test]
    fn names_follow_the_rules() {
        for (name, kind, help, _) in METRICS {
            assert_eq!(matches!(kind, Kind::Counter), name.ends_with("_total"), "{name}");
            assert!(!help.ends_with('.') && !help.contains('\n'), "{name}");
        }
    }
}
