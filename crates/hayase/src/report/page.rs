//! The page itself: HTML with its style and pictures inside. Rooms: [`how_fast`] (its section of rates).

mod how_fast;

use std::fmt::{Display, Write};

use hayase_layout::ByteCount;

use super::JobReport;
use super::escape::escaped;
use super::plot::{self, Line};
use super::series::{self, Points};
use crate::count::counted;
use crate::moment;
use crate::status::NodeStatus;
use crate::supervisor::control::DaemonState;
use crate::wiring::status::{AreaMoved, CacheServed, Sample, Served};

const STYLE: &str = include_str!("style.css");

/// Nodes that have a line of their own.
const LINES_MAX: usize = 8;

/// Files and names that are listed; there may be more.
const LISTED_MAX: usize = 1000;

/// The whole page.
pub(super) fn html(report: &JobReport) -> String {
    let mut page = Html(String::new());
    let job = escaped(report.settings.job.as_str());
    let _ = write!(
        page.0,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>hayase: job {job}</title>\n<style>\n{STYLE}</style></head>\n<body>\n"
    );
    head(&mut page, report);
    if report.settings.tier.is_some() {
        drain(&mut page, report);
        missing(&mut page, report);
    }
    bytes(&mut page, report);
    how_fast::section(&mut page, report);
    nodes(&mut page, report);
    losses(&mut page, report);
    configuration(&mut page, report);
    unknown(&mut page, report);
    page.0 += "</body></html>\n";
    page.0
}

/// Pieces of the page.
struct Html(String);

impl Html {
    fn title(&mut self, text: &str) {
        let _ = writeln!(self.0, "<h2>{}</h2>", escaped(text));
    }

    fn line(&mut self, class: &str, text: &str) {
        let _ = writeln!(self.0, "<p class=\"{class}\">{}</p>", escaped(text));
    }

    fn tile(&mut self, class: &str, value: &dyn Display, what: &str) {
        let value = escaped(&value.to_string());
        let what = escaped(what);
        let _ = writeln!(
            self.0,
            "<div class=\"tile\"><b class=\"{class}\">{value}</b><span>{what}</span></div>"
        );
    }

    /// A name that begins with `#` is one of numbers, with `/` one of paths.
    fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        let class = |name: &str| match name.as_bytes().first() {
            Some(b'#') => "n",
            Some(b'/') => "path",
            _ => "",
        };
        self.0 += "<div class=\"scroll\"><table><tr>";
        for name in head {
            let (class, name) = (class(name), name.trim_start_matches(['#', '/']));
            let _ = write!(self.0, "<th class=\"{class}\">{}</th>", escaped(name));
        }
        self.0 += "</tr>\n";
        for row in rows {
            self.0 += "<tr>";
            for (name, cell) in head.iter().zip(row) {
                let _ = write!(self.0, "<td class=\"{}\">{}</td>", class(name), escaped(cell));
            }
            self.0 += "</tr>\n";
        }
        self.0 += "</table></div>\n";
    }

    fn plot(&mut self, what: &str, begin_ms: u64, lines: &[Line]) {
        match plot::svg(what, begin_ms, lines) {
            Some(svg) => self.0 += &format!("<figure>{svg}</figure>\n"),
            None => self.line("soft", "There are too few looks at the counters for a picture."),
        }
    }
}

fn head(page: &mut Html, report: &JobReport) {
    let (settings, status) = (&report.settings, &report.status);
    let _ = writeln!(page.0, "<h1>Job {}</h1>", escaped(settings.job.as_str()));
    let ran = moment::span(report.made_ms.saturating_sub(settings.created_ms) / 1000);
    let nodes = if settings.nodes == 1 { "node" } else { "nodes" };
    page.line(
        "soft",
        &format!(
            "{} {nodes} ({}), {}; begun {}, this page was made {ran} later, at {}",
            settings.nodes,
            settings.kind.word(),
            status.state,
            moment::utc(settings.created_ms),
            moment::utc(report.made_ms),
        ),
    );
    page.0 += "<div class=\"tiles\">\n";
    let of = |value: fn(&Sample) -> u64| report.told(report.last().map(|last| value(&last)).sum());
    page.tile("", &of(|s| s.used_bytes), "stored in shared and cache now");
    if report.counts_areas() {
        let moved = |value: fn(AreaMoved) -> u64| {
            report.told(report.last().filter_map(|sample| sample.area).map(value).sum())
        };
        page.tile("", &moved(|area| area.written), "written to the areas");
        page.tile("", &moved(|area| area.read), "read from the areas");
    }
    page.tile("", &of(|s| s.bytes_written), "written through servers");
    page.tile("", &of(|s| s.bytes_read), "read through servers");
    if settings.tier.is_some() {
        page.tile("", &of(|s| s.flushed_bytes), "sent to the tier");
        page.tile("", &of(|s| s.fetched_bytes), "fetched from the tier");
        let class = if report.left.is_nothing() { "good" } else { "bad" };
        let is_part = report.left.at_least || !report.left.unknown.is_empty();
        let left = match report.left.unknown.len() < usize::from(settings.nodes) {
            true if is_part => format!("at least {}", ByteCount(report.left.bytes)),
            true => ByteCount(report.left.bytes).to_string(),
            false => "not known".to_owned(),
        };
        let mut what = format!("not in the tier, in {}", counted(report.left.files, "file"));
        match report.left.unknown.len() {
            0 => {}
            1 => what += "; 1 node is not known",
            nodes => what += &format!("; {nodes} nodes are not known"),
        }
        page.tile(class, &left, &what);
    }
    page.0 += "</div>\n";
}

fn drain(page: &mut Html, report: &JobReport) {
    page.title("On its way to the tier");
    if let Some(drain) = &report.status.drain {
        if drain.unknown_nodes == 0 {
            let percent = drain.percent();
            let bar = format!("<div class=\"bar\"><i style=\"width:{percent}%\"></i></div>");
            let _ = writeln!(page.0, "{bar}");
        }
        page.line("", &drain.without_bar(report.made_ms));
        if let Some(left) = drain.deadline_s {
            let (left, (what, is_bad)) = (moment::span(left), drain.at_the_deadline());
            let class = if is_bad { "bad" } else { "" };
            page.line(class, &format!("The job ends in {left}: {what}."));
        }
    }
    let lines = [
        line("not in the tier", report.sum(|s| s.dirty_bytes), true),
        line("sent to the tier", report.sum(|s| s.flushed_bytes), false),
        line("fetched from the tier", report.sum(|s| s.fetched_bytes), false),
    ];
    page.plot("bytes on their way to the tier", report.settings.created_ms, &lines);
}

fn missing(page: &mut Html, report: &JobReport) {
    page.title("Files that are not in the tier");
    let left = &report.left;
    for node in &left.unknown {
        page.line("bad", &format!("Node {node}: it is unknown which of its files the tier has."));
    }
    for path in left.conflicts.iter().take(LISTED_MAX) {
        page.line("bad", &format!("Two versions: ours is kept as {path}"));
    }
    if left.files == 0 {
        match left.unknown.is_empty() {
            true => page.line("good", "None: the tier has everything."),
            false => page.line("", "Of the other nodes: none."),
        }
        return;
    }
    let row = |line: &crate::job::ledgers::NotDurable| {
        let why = match line.errno {
            0 => String::new(),
            errno => {
                format!("{} times: {}", line.attempts, std::io::Error::from_raw_os_error(errno))
            }
        };
        let bytes = line.size();
        vec![line.path.clone(), line.node.to_string(), line.state.clone(), bytes, why]
    };
    let rows: Vec<_> = left.lines.iter().take(LISTED_MAX).map(row).collect();
    page.table(&["/path in the tier", "#node", "state", "#bytes", "failed"], &rows);
    let more = left.files.saturating_sub(rows.len() as u64);
    if more > 0 {
        page.line("soft", &format!("And {more} more."));
    }
}

fn bytes(page: &mut Html, report: &JobReport) {
    page.title("Stored in shared and cache, by node");
    let mut nodes: Vec<_> = report
        .known()
        .map(|(node, history)| (node, series::of_node(history, |s| s.used_bytes)))
        .collect();
    let count = nodes.len();
    let last = |points: &Points| points.last().map_or(0.0, |(_, value)| *value);
    nodes.sort_by(|(_, one), (_, other)| last(other).total_cmp(&last(one)));
    let rest = nodes.split_off(count.min(if count > LINES_MAX { LINES_MAX - 1 } else { count }));
    nodes.sort_by_key(|(node, _)| *node);
    let mut lines: Vec<_> = nodes
        .into_iter()
        .map(|(node, points)| line(&format!("node {node}"), points, false))
        .collect();
    if !rest.is_empty() {
        let (name, rest) = (format!("{} others together", rest.len()), rest.into_iter());
        lines.push(line(
            &name,
            series::sum(&rest.map(|(_, points)| points).collect::<Vec<_>>()),
            false,
        ));
    }
    page.plot("bytes stored by each node", report.settings.created_ms, &lines);
    if report.counts_areas() {
        page.title("Bytes from and to the areas");
        page.line(
            "soft",
            "By kernels for programs (passthrough), and by servers for other nodes and for the tier; not what programs map.",
        );
        let lines = [
            line("written", report.sum(|s| s.area.map_or(0, |area| area.written)), false),
            line("read", report.sum(|s| s.area.map_or(0, |area| area.read)), false),
        ];
        page.plot("bytes from and to the areas", report.settings.created_ms, &lines);
    }
    page.title("Bytes that passed the servers");
    let lines = [
        line("written", report.sum(|s| s.bytes_written), false),
        line("read", report.sum(|s| s.bytes_read), false),
    ];
    page.plot("bytes that passed the servers", report.settings.created_ms, &lines);
}

fn line(name: &str, points: Points, is_filled: bool) -> Line {
    Line { name: name.to_owned(), points, is_filled }
}

fn nodes(page: &mut Html, report: &JobReport) {
    page.title("Nodes");
    let has_tier = report.settings.tier.is_some();
    let mut head = vec![
        "#node",
        "host",
        "way to a file of this node",
        "#shared and cache",
        "#local",
        "#read",
        "#written",
        "#through servers",
    ];
    if has_tier {
        head.extend(["#to tier", "#from tier"]);
    }
    head.extend(["#requests", "restarts"]);
    let rows: Vec<_> = report.status.nodes.iter().map(|node| row(node, has_tier)).collect();
    page.table(&head, &rows);
    for node in &report.status.nodes {
        if let Some(trouble) = &node.trouble {
            page.line("bad", &format!("Node {}: {trouble}", node.node));
        }
        let daemons =
            node.supervisor.iter().flat_map(|s| [("serve", &s.server), ("serve-mount", &s.mount)]);
        for (name, daemon) in daemons {
            if let DaemonState::Ended(how) = daemon {
                page.line("bad", &format!("Node {}: {name} ended: {how}", node.node));
            }
        }
    }
}

fn row(node: &NodeStatus, has_tier: bool) -> Vec<String> {
    let dash = || "-".to_owned();
    let of = |value: Option<u64>| value.map_or_else(dash, |bytes| ByteCount(bytes).to_string());
    let told = node.supervisor.as_ref().and_then(|state| state.ready.as_ref());
    let way = told.map_or_else(dash, |ready| match ready.mount.why.is_empty() {
        true => ready.mount.path.clone(),
        false => format!("{}: {}", ready.mount.path, ready.mount.why),
    });
    let (served, cache) = (node.server.as_ref(), node.cache());
    let room = node.supervisor.as_ref().and_then(|state| state.local);
    let restarts = node.supervisor.as_ref().map_or_else(dash, |state| {
        match (state.server_restarts, state.mount_restarts) {
            (0, 0) => "none".to_owned(),
            (server, mount) => format!("server {server}, mount {mount}"),
        }
    });
    let mut row = vec![
        node.node.to_string(),
        node.host.clone(),
        way,
        of(served.map(|s| s.shared_total.saturating_sub(s.shared_free))),
        of(room.map(|room| room.total.saturating_sub(room.free))),
        of(served.and_then(|s| s.area).map(|area| area.read)),
        of(served.and_then(|s| s.area).map(|area| area.written)),
        of(served.map(|s| s.bytes_read + s.bytes_written)),
    ];
    if has_tier {
        row.push(of(cache.map(|cache| cache.flushed_bytes)));
        row.push(of(cache.map(|cache| cache.fetched_bytes)));
    }
    row.push(served.map_or_else(dash, |s| s.requests.to_string()));
    row.push(restarts);
    row
}

fn losses(page: &mut Html, report: &JobReport) {
    let status = &report.status;
    if status.lost_nodes.is_empty() {
        return;
    }
    page.title("Lost nodes");
    let nodes: Vec<_> = status.lost_nodes.iter().map(u16::to_string).collect();
    page.line(
        "bad",
        &format!(
            "Lost: {}. Files of theirs that are known by name: {}.",
            nodes.join(", "),
            status.lost_files_total
        ),
    );
    let rows: Vec<_> =
        status.lost_files.iter().take(LISTED_MAX).map(|path| vec![path.clone()]).collect();
    page.table(&["/path in shared"], &rows);
}

fn configuration(page: &mut Html, report: &JobReport) {
    page.title("Configuration");
    let settings = &report.settings;
    let mut rows = vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("job directory", report.status.job_dir.display().to_string()),
        ("storage", settings.job_storage().display().to_string()),
        ("mount points below", settings.mount.display().to_string()),
        ("shared and cache, each node", settings.shared.to_string()),
        ("local, each node", settings.local.to_string()),
        ("limits kept by", report.status.limiter.clone().unwrap_or_else(|| "-".to_owned())),
    ];
    if let Some(payload) = &report.status.payload {
        rows.push(("bytes of files between nodes", payload.in_words().replace('`', "")));
    }
    if let Some(stripe) = settings.stripe {
        let width = if stripe.width == 0 { "all".to_owned() } else { stripe.width.to_string() };
        rows.push(("new files in shared", format!("{} over {width} nodes", stripe.stripe)));
    }
    if settings.storage_nodes.is_empty() {
        rows.push(("nodes with storage", "all".to_owned()));
    } else {
        let nodes: Vec<_> = settings.storage_nodes.iter().map(u16::to_string).collect();
        rows.push(("nodes with storage", nodes.join(", ")));
    }
    if let Some(tier) = &settings.tier {
        rows.push(("tier", tier.place.clone()));
        rows.push(("fsync in cache promises", format!("{:?}", tier.fsync).to_lowercase()));
        let deadline = tier.deadline_ms.map_or_else(|| "none".to_owned(), moment::utc);
        rows.push(("deadline", deadline));
    }
    let rows: Vec<_> = rows.into_iter().map(|(key, value)| vec![key.to_owned(), value]).collect();
    page.table(&["setting", "value"], &rows);
}

fn unknown(page: &mut Html, report: &JobReport) {
    page.title("What this page does not know");
    page.0 += "<ul>\n";
    let mut item = |text: &str| {
        let _ = writeln!(page.0, "<li>{}</li>", escaped(text));
    };
    if !report.counts_areas() {
        item(
            "Bytes that a kernel reads and writes itself (passthrough) pass no server: they are seen only in what is stored.",
        );
    }
    item(
        "Servers look at their counters while they work, a second apart or more; in between lines are straight, and in long jobs they look more rarely.",
    );
    item("How full local was before now, and what programs did there.");
    for (node, history) in &report.histories {
        if let Err(why) = history {
            item(&format!("What node {node} moved: {why}"));
        }
    }
    for node in &report.status.nodes {
        if let Some(served) = node.server.as_ref().filter(|served| served.incarnation > 1) {
            let starts = served.incarnation;
            item(&format!(
                "What node {} moved before its server was restarted (start {starts}).",
                node.node
            ));
        }
    }
    page.0 += "</ul>\n";
}

impl JobReport {
    fn known(&self) -> impl Iterator<Item = (u16, &[Sample])> {
        self.histories.iter().filter_map(|(node, history)| Some((*node, history.as_deref().ok()?)))
    }

    /// Of each node that is known: what its server told for the table of nodes, else its last look at its counters.
    fn last(&self) -> impl Iterator<Item = Sample> {
        let told = |node: u16| {
            let status = self.status.nodes.iter().find(|status| status.node() == node)?;
            Some(sample_of(status.server.as_ref()?, self.made_ms))
        };
        let nodes = self.known();
        nodes.filter_map(move |(node, history)| told(node).or_else(|| history.last().copied()))
    }

    /// A sum over all nodes that are known: what of it is known of the job.
    fn told(&self, sum: u64) -> String {
        let (known, nodes) = (self.last().count(), self.histories.len());
        match known {
            0 => "not known".to_owned(),
            _ if known < nodes => format!("at least {}", ByteCount(sum)),
            _ => ByteCount(sum).to_string(),
        }
    }

    /// Whether what the areas moved is known of every node that is known.
    fn counts_areas(&self) -> bool {
        let mut last = self.last().peekable();
        last.peek().is_some() && last.all(|sample| sample.area.is_some())
    }

    fn sum(&self, value: fn(&Sample) -> u64) -> Points {
        let nodes: Vec<_> =
            self.known().map(|(_, history)| series::of_node(history, value)).collect();
        series::sum(&nodes)
    }
}

/// The status of a server in the form of a sample.
fn sample_of(served: &Served, at_ms: u64) -> Sample {
    let cache = |value: fn(&CacheServed) -> u64| served.cache.as_ref().map_or(0, value);
    Sample {
        at_ms,
        requests: served.requests,
        bytes_read: served.bytes_read,
        bytes_written: served.bytes_written,
        area: served.area,
        flushed_bytes: cache(|cache| cache.flushed_bytes),
        fetched_bytes: cache(|cache| cache.fetched_bytes),
        dirty_bytes: cache(|cache| cache.dirty_bytes),
        used_bytes: served.shared_total.saturating_sub(served.shared_free),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::job::Kind;
    use crate::job::ledgers::NotDurable;
    use crate::launch::drain::Left;
    use crate::status::Payload;
    use crate::status::tests::status_of;

    /// Of a job whose nodes hold more and more.
    pub(super) fn report(nodes: u16) -> JobReport {
        let kind = Kind::Namespaces { subnet: Ipv4Addr::new(10, 1, 2, 0) };
        let settings = crate::job::sample_settings(kind, nodes);
        let history = |node: u16| {
            let sample = |second: u64| Sample {
                at_ms: second * 1000,
                used_bytes: second << 20,
                bytes_written: second * u64::from(node),
                ..Sample::default()
            };
            Ok((0..10).map(sample).collect())
        };
        JobReport {
            made_ms: 10_000,
            status: status_of(&settings),
            histories: (0..nodes).map(|node| (node, history(node))).collect(),
            left: Left::default(),
            settings,
        }
    }

    /// The tiles are sums of the table, whose servers were asked after their last look.
    #[test]
    fn what_stands_twice_is_the_same() {
        let mut report = report(2);
        let served = Served {
            shared_total: 100 << 20,
            shared_free: 40 << 20,
            bytes_written: 7,
            ..Served::default()
        };
        report.status.nodes[1].server = Some(served);
        let last: Vec<_> = report.last().map(|s| (s.used_bytes >> 20, s.bytes_written)).collect();
        assert_eq!(last, [(9, 0), (60, 7)]);
    }

    #[test]
    fn a_page_needs_nothing_from_elsewhere() {
        let html = html(&report(2));
        for word in ["http://", "https://", "<script", "src=", "@import", "url("] {
            assert!(!html.contains(word), "{word}");
        }
        assert_eq!(html.matches("<svg").count(), 2);
        assert!(html.contains("node 1") && html.contains("begun 1970-01-01 00:00:00 UTC"));
    }

    #[test]
    fn a_sum_of_which_a_part_is_missing_says_so() {
        let mut report = report(2);
        assert!(html(&report).contains("<b class=\"\">18 MiB</b><span>stored in shared"));
        report.histories[1].1 = Err("no answer".to_owned());
        assert!(html(&report).contains("<b class=\"\">at least 9 MiB</b><span>stored in shared"));
        report.histories[0].1 = Err("no answer".to_owned());
        let html = html(&report);
        assert!(html.contains("<b class=\"\">not known</b><span>stored in shared"), "{html}");
        assert!(!html.contains("<b class=\"\">0 B</b>"), "{html}");
    }

    pub(super) fn tier() -> crate::job::TierSettings {
        crate::job::TierSettings {
            place: "/tier".into(),
            endpoint: None,
            root: None,
            fsync: crate::job::FsyncAt::Node,
            deadline_ms: None,
            flush_open_s: 0,
            faults: None,
        }
    }

    #[test]
    fn of_nodes_that_nobody_knows_of_nothing_good_is_said() {
        let mut report = report(2);
        report.settings.tier = Some(tier());
        assert!(html(&report).contains("None: the tier has everything."));
        report.left.unknown.push(1);
        let html = html(&report);
        assert!(html.contains("Node 1: it is unknown which of its files the tier has."), "{html}");
        assert!(html.contains("not in the tier, in 0 files; 1 node is not known"), "{html}");
        assert!(!html.contains("class=\"good\""), "{html}");
    }

    #[test]
    fn what_protects_the_bytes_between_nodes_is_said() {
        let mut report = report(2);
        for (payload, said) in [
            (None, None),
            (
                Some(Payload::Authenticated),
                Some(">authenticated, not encrypted (hayase up --encrypt"),
            ),
            (
                Some(Payload::NotAuthenticated { slow: vec![1] }),
                Some(">not authenticated to and from"),
            ),
            (Some(Payload::Encrypted), Some(">encrypted<")),
        ] {
            report.status.payload = payload;
            let html = html(&report);
            assert_eq!(html.contains("bytes of files between nodes"), said.is_some(), "{html}");
            assert!(said.is_none_or(|said| html.contains(said)), "{html}");
        }
    }

    #[test]
    fn names_of_files_can_not_change_the_page() {
        let mut report = report(1);
        report.settings.tier = Some(tier());
        report.left.files = 3;
        report.left.lines.push(NotDurable {
            at_least: false,
            node: 0,
            path: "<img src=x onerror=\"alert(1)\">&".into(),
            state: "failed".into(),
            bytes: 5,
            errno: 28,
            attempts: 2,
        });
        let html = html(&report);
        assert!(html.contains("&lt;img src=x onerror=&quot;alert(1)&quot;&gt;&amp;"), "{html}");
        assert!(html.contains("No space left on device") && html.contains("And 2 more."));
    }

    #[test]
    fn of_many_nodes_the_fullest_have_lines() {
        let html = html(&report(20));
        assert!(html.contains("13 others together"));
        assert_eq!(html.matches("class=\"line c7\"").count(), 1);
    }
}
