//! `hayase top`: a job as it changes.

use std::time::{Duration, Instant};

use hayase_layout::ByteCount;
use serde::Serialize;

use super::job_arg::JobArg;
use crate::config::Environment;
use crate::exit::Status;
use crate::moment;
use crate::number::{seconds, within};
use crate::output::{Human, Output, Page};
use crate::status::{JobStatus, NodeStatus, look_at};
use crate::wiring::status::{AreaMoved, Served};

/// Between two looks.
const INTERVAL_SECONDS_DEFAULT: u32 = 2;

/// Watch a job: throughput of its nodes, and progress of the flush to the tier
///
/// On a terminal the page is updated until the job ends or you press Ctrl-C. Otherwise each update is one line; with
/// --json it is one JSON object per line.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    job: JobArg,
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = INTERVAL_SECONDS_DEFAULT,
          value_parser = seconds(1))]
    interval: u32,
    /// Number of updates [default: until the job ends]
    #[arg(long, value_name = "N", value_parser = within::<u32>(1..=u32::MAX.into()))]
    count: Option<u32>,
}

const EXAMPLES: &str = "\
Examples:
  hayase top
  hayase top --interval 10 --json >run7.jsonl

See also:
  hayase status, hayase report";

/// One look, and what happened since the one before.
#[derive(Debug, Serialize)]
struct Look {
    at_ms: u64,
    #[serde(flatten)]
    job: JobStatus,
    /// By node; absent in the first look.
    speeds: Vec<Option<Speed>>,
}

/// Bytes and requests per second since the look before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Speed {
    requests: u64,
    /// Through the server.
    read: u64,
    written: u64,
    /// From and to the area, by kernels and servers; absent where that is not counted.
    area: Option<AreaMoved>,
    to_tier: u64,
    from_tier: u64,
}

impl Speed {
    /// Between two looks at a server; `None` when it was started anew in between.
    fn between(before: &Served, now: &Served) -> Option<Self> {
        if before.start_id != now.start_id {
            return None;
        }
        // By the server's own clock: what happened between its two answers.
        let ms = now.up_ms.saturating_sub(before.up_ms).max(1);
        let per_second = |before: u64, now: u64| {
            (u128::from(now.saturating_sub(before)) * 1000 / u128::from(ms)) as u64
        };
        let tier = |served: &Served| {
            served.cache.as_ref().map_or((0, 0), |cache| (cache.flushed_bytes, cache.fetched_bytes))
        };
        let (tier_before, tier_now) = (tier(before), tier(now));
        Some(Self {
            requests: per_second(before.requests, now.requests),
            read: per_second(before.bytes_read, now.bytes_read),
            written: per_second(before.bytes_written, now.bytes_written),
            area: before.area.zip(now.area).map(|(before, now)| AreaMoved {
                read: per_second(before.read, now.read),
                written: per_second(before.written, now.written),
            }),
            to_tier: per_second(tier_before.0, tier_now.0),
            from_tier: per_second(tier_before.1, tier_now.1),
        })
    }

    /// Read and written by anybody, as far as it is counted.
    fn moved(&self) -> AreaMoved {
        self.area.unwrap_or(AreaMoved { read: self.read, written: self.written })
    }

    fn add(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            read: self.read + other.read,
            written: self.written + other.written,
            // Of all nodes or of none: their sum would be taken for that of all.
            area: self.area.zip(other.area).map(|(one, other)| AreaMoved {
                read: one.read + other.read,
                written: one.written + other.written,
            }),
            to_tier: self.to_tier + other.to_tier,
            from_tier: self.from_tier + other.from_tier,
        }
    }
}

/// Looks until the job has ended.
pub(crate) fn run(
    args: &TopArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let job = args.job.find(environment)?;
    let pause = Duration::from_secs(args.interval.into());
    let mut before: Option<JobStatus> = None;
    for number in 1.. {
        let begin = Instant::now();
        let status = look_at(&job);
        let is_over = !job.dir.path().exists() || status.state == "dead";
        let speeds = status.nodes.iter().map(|node| speed_of(before.as_ref(), node)).collect();
        let look = Look { at_ms: moment::now_ms(), job: status, speeds };
        output.live(&look, &look.line())?;
        before = Some(look.job);
        if is_over || args.count.is_some_and(|count| number >= count) {
            break;
        }
        std::thread::sleep(pause.saturating_sub(begin.elapsed()));
    }
    Ok(Status::Done)
}

fn speed_of(before: Option<&JobStatus>, node: &NodeStatus) -> Option<Speed> {
    let before = before?.nodes.iter().find(|other| other.node == node.node)?;
    Speed::between(before.server.as_ref()?, node.server.as_ref()?)
}

impl Look {
    /// Of the nodes together of which it is known; `None` in the first look, and where none answers.
    fn all(&self) -> Option<Speed> {
        self.speeds.iter().flatten().copied().reduce(Speed::add)
    }

    /// For logs: one line with everything of the job together.
    fn line(&self) -> String {
        let (all, at) = (self.all(), moment::utc(self.at_ms));
        let of = |which: fn(Speed) -> u64| all.map_or("-".to_owned(), |all| rate(which(all)));
        let mut line = format!(
            "{at} job {} {}: read {}, written {}",
            self.job.job,
            self.job.state,
            of(|all| all.moved().read),
            of(|all| all.moved().written)
        );
        match all {
            Some(all) if all.area.is_some() => {
                line += &format!(" ({} through servers)", rate(all.read + all.written));
            }
            Some(_) => line += " through servers",
            None => {}
        }
        if let Some(drain) = &self.job.drain {
            let to_tier = of(|all| all.to_tier);
            line += &format!(", to the tier {to_tier}; {}", drain.in_words(self.at_ms));
        }
        line
    }
}

fn rate(bytes: u64) -> String {
    format!("{}/s", ByteCount(bytes))
}

impl Human for Look {
    fn write(&self, page: &mut Page) {
        let at = moment::utc(self.at_ms);
        page.title(&format!("job {}: {}    {at}", self.job.job, self.job.state));
        let mut head =
            vec!["node", "host", "used", "open", "requests/s", "read", "written", "by servers"];
        if self.job.drain.is_some() {
            head.extend(["to tier", "from tier", "not in tier"]);
        }
        let rows = self.job.nodes.iter().zip(&self.speeds);
        page.table(&head, rows.map(|(node, speed)| self.row(node, *speed)).collect());
        if let Some(drain) = &self.job.drain {
            page.blank();
            page.line(&format!("  {}", drain.in_words(self.at_ms)));
            if let Some(left) = drain.deadline_s {
                let (left, (what, _)) = (moment::span(left), drain.at_the_deadline());
                page.line(&format!("  the job ends in {left}: {what}"));
            }
        }
        for node in &self.job.nodes {
            if let Some(trouble) = &node.trouble {
                page.line(&format!("  node {}: {trouble}", node.node));
            }
        }
        if let Some(lost) = self.job.lost_nodes.first() {
            page.line(&format!("  node {lost} is lost; see `hayase status`"));
        }
        let is_counted = self.all().is_none_or(|all| all.area.is_some());
        page.line(match is_counted {
            true => "  read and written: from and to the areas, by kernels for programs (passthrough) and by servers",
            false => "  read and written: by servers only; what a kernel moves itself is not counted without an image",
        });
    }
}

impl Look {
    fn row(&self, node: &NodeStatus, speed: Option<Speed>) -> Vec<String> {
        let dash = || "-".to_owned();
        let of = |value: Option<u64>| value.map_or_else(dash, rate);
        let used = |served: &Served| {
            let used = served.shared_total.saturating_sub(served.shared_free);
            ByteCount(used).to_string()
        };
        let mut row = vec![
            node.node.to_string(),
            node.host.clone(),
            node.server.as_ref().map_or_else(dash, used),
            node.server.as_ref().map_or_else(dash, |served| served.files_open.to_string()),
            speed.map_or_else(dash, |speed| speed.requests.to_string()),
            of(speed.map(|speed| speed.moved().read)),
            of(speed.map(|speed| speed.moved().written)),
            of(speed.map(|speed| speed.read + speed.written)),
        ];
        if self.job.drain.is_some() {
            let dirty = |bytes: u64| ByteCount(bytes).to_string();
            row.push(of(speed.map(|speed| speed.to_tier)));
            row.push(of(speed.map(|speed| speed.from_tier)));
            row.push(node.cache().map_or_else(dash, |cache| dirty(cache.dirty_bytes)));
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_what_happened_between_two_answers() {
        let served = |start_id, up_ms, bytes_written| Served {
            start_id,
            up_ms,
            bytes_written,
            ..Served::default()
        };
        let written =
            |before: &Served, now: &Served| Speed::between(before, now).map(|s| s.written);
        assert_eq!(written(&served(1, 1000, 50), &served(1, 1500, 150)), Some(200));
        assert_eq!(written(&served(1, 1000, 50), &served(1, 1000, 50)), Some(0));
        let area =
            |read, written| Served { area: Some(AreaMoved { read, written }), ..served(1, 0, 5) };
        let now = Served { up_ms: 500, ..area(7, 9) };
        let speed = Speed::between(&area(2, 4), &now).unwrap();
        assert_eq!(speed.moved(), AreaMoved { read: 10, written: 10 });
        let uncounted = Speed { read: 1, written: 2, area: None, ..speed };
        assert_eq!(speed.add(uncounted).area, None);
        assert_eq!(speed.add(speed).moved(), AreaMoved { read: 20, written: 20 });
        // Its counters began anew.
        assert_eq!(written(&served(1, 1000, 50), &served(2, 100, 9)), None);
    }
}
