//! Watching a transfer: a bar on a terminal, events as JSON, and the summary at the end.
//!
//! Events are one JSON object a line: `would`, `failed`, `progress` (each second) and, last, `end`.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use hayase_layout::ByteCount;
use hayase_stage::compare::Step;
use hayase_stage::pack::PackError;
use hayase_stage::source::Source;
use hayase_stage::{Item, Kind, Observer, Options, Place, Progress, Streams, Summary, transfer};
use ring::rand::SystemRandom;
use serde::Serialize;

use super::Remembered;
use crate::exit::Status;
use crate::output::{Human, Output, Page};

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(200);

/// How often an event tells the progress.
const EVENT: Duration = Duration::from_secs(1);

/// What a shorter transfer found out is not worth remembering.
const WORTH: Duration = Duration::from_secs(1);

/// Failures that a person gets to see; `--json` has all.
const SHOWN_MAX: usize = 50;

/// Runs a transfer and shows it; exit code 3 when something did not arrive.
pub(crate) fn run(
    source: &Source,
    target: &Place,
    options: &Options,
    remembered: &Remembered,
    output: &Output,
) -> anyhow::Result<Status> {
    let (progress, begin) = (Progress::default(), Instant::now());
    let random = SystemRandom::new();
    let observer = Telling { output };
    let summary = while_watched(&progress, output, || {
        transfer(source, target, options, &progress, &observer, &random)
    })?;
    let was_tuned = matches!(options.streams, Streams::Auto { .. }) && begin.elapsed() > WORTH;
    if was_tuned && summary.is_complete() && !options.is_dry_run {
        remembered.keep(summary.streams);
    }
    let status = if summary.is_complete() { Status::Done } else { Status::Partly };
    let end = End::of(summary, options.is_dry_run, begin.elapsed());
    if output.is_json() {
        output.line(&Event::End(&end))?;
    } else {
        output.show(&end)?;
    }
    Ok(status)
}

/// Does `work` while a thread shows how far `progress` is.
pub(crate) fn while_watched<T>(
    progress: &Progress,
    output: &Output,
    work: impl FnOnce() -> T,
) -> T {
    let (done, ended) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (bar, begin) = (output.transfer(), Instant::now());
            let mut next_event = EVENT;
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let now = Now::of(progress, begin.elapsed());
                bar.set(now.bytes_moved, now.bytes_wanted, now.is_planned);
                if output.is_json() && begin.elapsed() >= next_event {
                    next_event += EVENT;
                    // Who no longer listens loses the events, not the transfer.
                    let _ = output.line(&Event::Progress(now));
                }
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// Prints what happens.
struct Telling<'a> {
    output: &'a Output,
}

impl Telling<'_> {
    fn tell(&self, action: &'static str, item: &Item) {
        let _ = if self.output.is_json() {
            let name = item.name.to_string();
            self.output.line(&Event::Would { action, name, bytes: item.bytes() })
        } else {
            let slash = if item.kind == Kind::Directory { "/" } else { "" };
            self.output.raw(format!("would {action} {}{slash}\n", item.name).as_bytes())
        };
    }
}

impl Observer for Telling<'_> {
    fn would(&self, step: Step, item: &Item) {
        let action = match step {
            Step::Replace => "replace",
            Step::Attributes => "set the attributes of",
            Step::Copy | Step::Keep | Step::Spare => "copy",
        };
        self.tell(action, item);
    }

    fn would_remove(&self, item: &Item) {
        self.tell("remove", item);
    }

    fn failed(&self, name: &str, error: &PackError) {
        if self.output.is_json() {
            let (name, why) = (name.to_owned(), error.to_string());
            let _ = self.output.line(&Event::Failed { name, why });
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    Would { action: &'static str, name: String, bytes: u64 },
    Failed { name: String, why: String },
    Progress(Now),
    End(&'a End),
}

#[derive(Serialize)]
struct Now {
    found: u64,
    items_wanted: u64,
    items_done: u64,
    items_kept: u64,
    bytes_wanted: u64,
    bytes_moved: u64,
    failures: u64,
    is_planned: bool,
    bytes_per_second: u64,
    /// `None` before the source was looked at whole.
    seconds_left: Option<u64>,
}

impl Now {
    fn of(progress: &Progress, elapsed: Duration) -> Self {
        let get = Progress::get;
        let is_planned = progress.is_planned.load(std::sync::atomic::Ordering::Relaxed);
        let (moved, wanted) = (get(&progress.bytes_moved), get(&progress.bytes_wanted));
        let rate = moved as f64 / elapsed.as_secs_f64().max(1e-3);
        let left = wanted.saturating_sub(moved) as f64 / rate.max(1.0);
        Self {
            found: get(&progress.found),
            items_wanted: get(&progress.items_wanted),
            items_done: get(&progress.items_done),
            items_kept: get(&progress.items_kept),
            bytes_wanted: wanted,
            bytes_moved: moved,
            failures: get(&progress.failures),
            is_planned,
            bytes_per_second: rate as u64,
            seconds_left: (is_planned && rate >= 1.0).then_some(left as u64),
        }
    }
}

/// The summary, for people and programs.
#[derive(Serialize)]
struct End {
    is_complete: bool,
    is_dry_run: bool,
    is_stopped: bool,
    found: u64,
    copied: u64,
    kept: u64,
    spared: u64,
    removed: u64,
    packs: u64,
    bytes_moved: u64,
    seconds: f64,
    /// At the end.
    streams: usize,
    failures_total: u64,
    /// Names and reasons.
    failures: Vec<(String, String)>,
}

impl End {
    fn of(summary: Summary, is_dry_run: bool, elapsed: Duration) -> Self {
        let is_complete = summary.is_complete();
        let failures = summary.failures.into_iter();
        let failures = failures.map(|failure| (failure.name, failure.error.to_string()));
        Self {
            is_complete,
            is_dry_run,
            is_stopped: summary.is_stopped,
            found: summary.found,
            copied: summary.copied,
            kept: summary.kept,
            spared: summary.spared,
            removed: summary.removed,
            packs: summary.packs,
            streams: summary.streams,
            bytes_moved: summary.bytes_moved,
            seconds: elapsed.as_secs_f64(),
            failures_total: summary.failures_total,
            failures: failures.collect(),
        }
    }
}

impl Human for End {
    fn write(&self, page: &mut Page) {
        let bytes = ByteCount(self.bytes_moved);
        let rate = ByteCount((self.bytes_moved as f64 / self.seconds.max(1e-3)) as u64);
        let copied = match self.is_dry_run {
            true => format!("{} items would be copied", self.copied),
            false => {
                format!(
                    "{} items copied, {bytes} in {:.1} s ({rate}/s, {} streams)",
                    self.copied, self.seconds, self.streams
                )
            }
        };
        page.line(&copied);
        let mut more = Vec::new();
        let kept = [
            (self.kept, "were there already"),
            (self.spared, "differ and were spared"),
            (self.removed, if self.is_dry_run { "would be removed" } else { "removed" }),
            (self.packs, "packs written"),
        ];
        more.extend(kept.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
        if !more.is_empty() {
            page.line(&more.join(", "));
        }
        if self.is_complete {
            return;
        }
        page.line(&format!("{} did not arrive:", self.failures_total));
        for (name, why) in self.failures.iter().take(SHOWN_MAX) {
            page.line(&format!("  {name}: {why}"));
        }
        let hidden = self.failures_total.saturating_sub(SHOWN_MAX as u64);
        if hidden > 0 {
            page.line(&format!("  and {hidden} more; --json lists them"));
        }
        if self.is_stopped {
            page.line("The copy ended early; run the same command again to continue it.");
        }
    }
}
