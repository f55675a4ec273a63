//! Watching a transfer: a bar on a terminal, events as JSON, and the summary at the end.
//!
//! Events are one JSON object a line: `would`, `failed`, `progress` (each second) and, last, `end`.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use hayase_layout::ByteCount;
use hayase_stage::compare::Step;
use hayase_stage::pack::PackError;
use hayase_stage::source::Source;
use hayase_stage::{
    Item, Kind, Observer, Options, PartSize, Place, Progress, Streams, Summary, transfer,
};
use ring::rand::SystemRandom;
use serde::{Deserialize, Serialize};

use super::Remembered;
use crate::count::counted;
use crate::exit::Status;
use crate::output::{Human, Output, Page, Stand};

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(200);

/// How often an event tells the progress.
const EVENT: Duration = Duration::from_secs(1);

/// What a shorter transfer found out is not worth remembering.
const WORTH: Duration = Duration::from_secs(1);

/// Failures that a person gets to see; `--json` has more.
const SHOWN_MAX: usize = 50;

/// Up to this many items with the same reason are listed one by one.
const ALIKE_MAX: usize = 3;

/// Different things to try about them.
const HINTS_MAX: usize = 4;

/// Runs a transfer and shows it; exit code 3 when something did not arrive.
pub(crate) fn run(
    source: &Source,
    target: &Place,
    options: &Options,
    remembered: &Remembered,
    output: &Output,
) -> anyhow::Result<Status> {
    show_end(run_to_end(source, target, options, remembered, output)?, output)
}

/// The same without its summary.
pub(crate) fn run_to_end(
    source: &Source,
    target: &Place,
    options: &Options,
    remembered: &Remembered,
    output: &Output,
) -> anyhow::Result<End> {
    let begin = Instant::now();
    let summary = watched(source, target, options, output)?;
    if begin.elapsed() > WORTH && summary.is_complete() && !options.is_dry_run {
        let streams = matches!(options.streams, Streams::Auto { .. });
        let parts = matches!(options.part_size, PartSize::Auto { .. });
        remembered.keep(&summary, (streams, parts));
    }
    Ok(End::of(summary, options.is_dry_run, begin.elapsed()))
}

/// The same for a worker, which remembers nothing.
pub(crate) fn run_quietly(
    source: &Source,
    target: &Place,
    options: &Options,
    output: &Output,
) -> anyhow::Result<Status> {
    let begin = Instant::now();
    let summary = watched(source, target, options, output)?;
    show_end(End::of(summary, options.is_dry_run, begin.elapsed()), output)
}

fn watched(
    source: &Source,
    target: &Place,
    options: &Options,
    output: &Output,
) -> anyhow::Result<Summary> {
    let progress = Progress::default();
    let (random, observer) = (SystemRandom::new(), Telling { output });
    Ok(while_watched(("Copying", &progress), output, || {
        transfer(source, target, options, &progress, &observer, &random)
    })?)
}

/// Shows a summary; what it means for the shell.
pub(crate) fn show_end(end: End, output: &Output) -> anyhow::Result<Status> {
    let status = if end.is_complete { Status::Done } else { Status::Partly };
    if output.is_json() {
        output.line(&Event::End(end))?;
    } else {
        output.show(&end)?;
    }
    Ok(status)
}

/// Shows what a worker would do, as if it was done here.
pub(crate) fn tell_would(action: &str, name: &str, bytes: u64, output: &Output) {
    let _ = if output.is_json() {
        let (action, name) = (action.to_owned(), name.to_owned());
        output.line(&Event::Would { action, name, bytes })
    } else {
        output.raw(format!("would {action} {name}\n").as_bytes())
    };
}

/// Does `work` while a thread shows how far `progress` is.
pub(crate) fn while_watched<T>(
    (phase, progress): (&'static str, &Progress),
    output: &Output,
    work: impl FnOnce() -> T,
) -> T {
    let (done, ended) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (bar, begin) = (output.progress(phase), Instant::now());
            let mut next_event = EVENT;
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let now = Now::of(progress, begin.elapsed());
                bar.show(now.stand());
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
        let slash = if item.kind == Kind::Directory && !self.output.is_json() { "/" } else { "" };
        tell_would(action, &format!("{}{slash}", item.name), item.bytes(), self.output);
    }
}

impl Observer for Telling<'_> {
    fn would(&self, step: Step, item: &Item) {
        let action = match step {
            Step::Replace => "replace",
            Step::Attributes => "set the attributes of",
            Step::Copy | Step::Keep | Step::Spare | Step::Ask(_) => "copy",
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

/// One line of what `--json` prints, and of what a worker on another node tells.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Event {
    Would {
        action: String,
        name: String,
        bytes: u64,
    },
    Failed {
        name: String,
        why: String,
    },
    Progress(Now),
    End(End),
    /// Of a worker only: nothing could be begun.
    Broken {
        what: String,
        help: Option<String>,
        is_usage: bool,
    },
}

/// How far a copy is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Now {
    pub(crate) found: u64,
    pub(crate) items_wanted: u64,
    pub(crate) items_done: u64,
    pub(crate) items_kept: u64,
    pub(crate) bytes_wanted: u64,
    pub(crate) bytes_moved: u64,
    /// Bytes that were there already inside of files that were not finished.
    #[serde(default)]
    pub(crate) bytes_resumed: u64,
    pub(crate) failures: u64,
    pub(crate) is_planned: bool,
    pub(crate) bytes_per_second: u64,
    /// `None` before the source was looked at whole.
    pub(crate) seconds_left: Option<u64>,
}

impl Now {
    fn stand(&self) -> Stand {
        Stand {
            bytes: self.bytes_moved + self.bytes_resumed,
            bytes_total: self.bytes_wanted,
            things: self.items_done,
            things_total: self.items_wanted,
            thing: "item",
            is_open: !self.is_planned,
        }
    }

    fn of(progress: &Progress, elapsed: Duration) -> Self {
        let get = Progress::get;
        let is_planned = progress.is_planned.load(std::sync::atomic::Ordering::Relaxed);
        let (moved, wanted) = (get(&progress.bytes_moved), get(&progress.bytes_wanted));
        let rate = moved as f64 / elapsed.as_secs_f64().max(1e-3);
        let resumed = get(&progress.bytes_resumed);
        let left = wanted.saturating_sub(moved + resumed) as f64 / rate.max(1.0);
        Self {
            found: get(&progress.found),
            items_wanted: get(&progress.items_wanted),
            items_done: get(&progress.items_done),
            items_kept: get(&progress.items_kept),
            bytes_wanted: wanted,
            bytes_moved: moved,
            bytes_resumed: resumed,
            failures: get(&progress.failures),
            is_planned,
            bytes_per_second: rate as u64,
            seconds_left: (is_planned && rate >= 1.0).then_some(left as u64),
        }
    }
}

/// The summary, for people and programs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) is_complete: bool,
    pub(crate) is_dry_run: bool,
    pub(crate) is_stopped: bool,
    pub(crate) found: u64,
    pub(crate) copied: u64,
    pub(crate) kept: u64,
    pub(crate) spared: u64,
    pub(crate) removed: u64,
    pub(crate) packs: u64,
    pub(crate) bytes_moved: u64,
    /// Bytes that were there already inside of files that were not finished.
    #[serde(default)]
    pub(crate) bytes_resumed: u64,
    pub(crate) seconds: f64,
    /// At the end.
    pub(crate) streams: usize,
    /// Bytes of each part of a large file, at the end; 0 when nothing came in parts.
    #[serde(default)]
    pub(crate) part_bytes: u64,
    pub(crate) failures_total: u64,
    /// Names and reasons; of very many the first.
    pub(crate) failures: Vec<(String, String)>,
    /// What can be tried about them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hints: Vec<String>,
    /// Selected files that are large enough to be moved in parts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) large: u64,
    /// The node of a worker has no such source.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_absent: bool,
    /// Of a part of a tree: equal where the same source was seen.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) seen: u32,
    /// Of a part: an index without packs of the files that it put beside packs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) loose: String,
    /// What each of several nodes did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<NodePart>,
}

/// What one of several nodes did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct NodePart {
    pub(crate) node: u16,
    pub(crate) items: u64,
    /// From the source itself.
    pub(crate) bytes: u64,
    /// In files that were not finished, from an earlier run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) bytes_resumed: u64,
    /// From other nodes.
    pub(crate) bytes_from_nodes: u64,
    /// Packs written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) packs: u64,
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

impl End {
    fn of(summary: Summary, is_dry_run: bool, elapsed: Duration) -> Self {
        let is_complete = summary.is_complete();
        let mut hints: Vec<String> = Vec::new();
        for hint in summary.failures.iter().filter_map(|failure| failure.error.help()) {
            if hints.len() < HINTS_MAX && !hints.iter().any(|known| known == hint) {
                hints.push(hint.to_owned());
            }
        }
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
            part_bytes: summary.part_bytes,
            bytes_moved: summary.bytes_moved,
            bytes_resumed: summary.bytes_resumed,
            seconds: elapsed.as_secs_f64(),
            failures_total: summary.failures_total,
            failures: failures.collect(),
            hints,
            large: summary.large,
            is_absent: false,
            seen: summary.seen,
            loose: match summary.loose.rows[..] {
                [] => String::new(),
                _ => String::from_utf8(summary.loose.to_text()).unwrap_or_default(),
            },
            nodes: Vec::new(),
        }
    }
}

impl End {
    /// What did not arrive: each item with its reason, where many have the same reason once for all of them. Returns
    /// of how many items something was shown.
    fn write_failures(&self, page: &mut Page) -> usize {
        let mut reasons: Vec<(String, Vec<&(String, String)>)> = Vec::new();
        for failure in &self.failures {
            let reason = failure.1.replace(&failure.0, "*");
            match reasons.iter().position(|(known, _)| *known == reason) {
                Some(known) => reasons[known].1.push(failure),
                None if reasons.len() < SHOWN_MAX => reasons.push((reason, vec![failure])),
                None => {}
            }
        }
        let (mut lines, mut shown) = (0, 0);
        for (reason, same) in &reasons {
            if same.len() > ALIKE_MAX {
                page.line(&format!("  {}: {reason}", counted(same.len() as u64, "item")));
                let names: Vec<&str> = same.iter().take(ALIKE_MAX).map(|f| f.0.as_str()).collect();
                page.line(&format!("    for example {}", names.join(", ")));
                shown += same.len();
                continue;
            }
            for (name, why) in same.iter().take(SHOWN_MAX - lines) {
                page.line(&format!("  {name}: {why}"));
                (lines, shown) = (lines + 1, shown + 1);
            }
        }
        shown
    }
}

impl Human for End {
    fn write(&self, page: &mut Page) {
        let bytes = ByteCount(self.bytes_moved);
        let rate = ByteCount((self.bytes_moved as f64 / self.seconds.max(1e-3)) as u64);
        let copied = match self.is_dry_run {
            true => format!("{} would be copied", counted(self.copied, "item")),
            false => {
                let parts = match self.part_bytes {
                    0 => String::new(),
                    part => format!(", parts of {}", ByteCount(part)),
                };
                format!(
                    "{} copied, {bytes} in {:.1} s ({rate}/s, {}{parts})",
                    counted(self.copied, "item"),
                    self.seconds,
                    counted(self.streams, "stream")
                )
            }
        };
        page.line(&copied);
        let mut more = Vec::new();
        let kept = [
            (self.kept, "already there"),
            (self.spared, "not overwritten"),
            (self.removed, if self.is_dry_run { "would be removed" } else { "removed" }),
            (self.packs, if self.packs == 1 { "pack written" } else { "packs written" }),
        ];
        more.extend(kept.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
        if self.bytes_resumed > 0 {
            let bytes = ByteCount(self.bytes_resumed);
            more.push(format!("{bytes} of unfinished files already there"));
        }
        if !more.is_empty() {
            page.line(&more.join(", "));
        }
        for part in &self.nodes {
            let (bytes, from_nodes) = (ByteCount(part.bytes), ByteCount(part.bytes_from_nodes));
            let of_others = match part.bytes_from_nodes {
                0 => String::new(),
                _ => format!(", {from_nodes} from other nodes"),
            };
            let (node, items) = (part.node, part.items);
            page.line(&format!(
                "  node {node}: {}, {bytes} from the source{of_others}",
                counted(items, "item")
            ));
        }
        let looked_at = self.copied + self.kept + self.spared + self.removed;
        if self.is_complete && self.found > 0 && looked_at == 0 {
            page.line(&format!("no name of the source is selected, of {}", self.found));
        }
        if self.is_complete {
            return;
        }
        page.line(&format!("{} did not arrive:", self.failures_total));
        let shown = self.write_failures(page);
        let hidden = self.failures_total.saturating_sub(shown as u64);
        if hidden > 0 {
            page.line(&format!("  and {hidden} more; --json lists them"));
        }
        for hint in &self.hints {
            page.line(&format!("  try: {hint}"));
        }
        if self.is_stopped {
            page.line("The copy ended early; run the same command again to continue it.");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_items_with_the_same_reason_are_one_line() {
        let full = |n: u32| (format!("d/{n}"), format!("write /t/d/{n}: no space left there"));
        let other = ("pipe".to_owned(), "it is a pipe".to_owned());
        let failures: Vec<_> = (0..170).map(full).chain([other]).collect();
        let end = End { failures_total: 175, failures, ..End::default() };
        let mut page = Page::new(false);
        end.write(&mut page);
        let told = page.text();
        let expected = "175 did not arrive:\n  170 items: write /t/*: no space left there\n    \
                        for example d/0, d/1, d/2\n  pipe: it is a pipe\n  and 4 more; --json lists them\n";
        assert!(told.contains(expected), "{told}");
        let few = End { failures_total: 2, failures: vec![full(1), full(2)], ..End::default() };
        let mut page = Page::new(false);
        few.write(&mut page);
        let told = page.text();
        assert!(told.contains("  d/1: write /t/d/1: no space left there\n  d/2: "), "{told}");
    }
}
