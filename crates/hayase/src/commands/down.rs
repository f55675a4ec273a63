//! `hayase down`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hayase_layout::ByteCount;
use serde::Serialize;

use super::job_arg::JobArg;
use crate::config::Environment;
use crate::count::counted;
use crate::exit::Status;
use crate::job::ledgers::{self, NotDurable};
use crate::job::{JobId, Kind};
use crate::launch::drain::Left;
use crate::launch::stop::{How, Stopped, stop, stop_here};
use crate::number::seconds;
use crate::output::{Human, Output, Page};

/// End a job: flush its cache area, stop its programs and servers, remove its areas
///
/// Waits until the tier has all files of the cache area. Stops programs that `hayase exec` or `hayase run` started.
/// Other processes that use an area continue: the area is detached, and removed when they close it. What the tier
/// does not have is listed and kept for `hayase resume`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    job: JobArg,
    /// Keep the data of the areas in the storage
    #[arg(long)]
    keep: bool,
    /// Do not flush: remove files that the tier does not have
    #[arg(long, conflicts_with = "keep")]
    discard: bool,
    /// Stop flushing after SECONDS [default: flush while it makes progress]
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0), conflicts_with = "discard")]
    drain: Option<u32>,
    /// End only the part of the job on this host, contacting no other host (for epilog scripts)
    #[arg(long)]
    here: bool,
    /// Write the report of `hayase report` to FILE before the servers end
    #[arg(long, value_name = "FILE", conflicts_with = "here")]
    report: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  hayase down
  hayase down --job run7 --report run7.html
  hayase down --drain 300    # flush for at most five minutes

Exit codes:
  0 the job is down; 1 failed; 3 the tier does not have all files, or only part of the job
  was stopped.

See also:
  hayase resume, hayase flush";

#[derive(Debug, Serialize)]
struct Down<'a> {
    job: &'a JobId,
    took_ms: u64,
    /// Of a job that drains: with `--discard` nobody looked whether all is there.
    #[serde(skip)]
    tier: Option<&'a str>,
    #[serde(flatten)]
    stopped: Stopped,
}

/// Takes a job down, in whatever state it is.
pub(crate) fn run(
    args: &DownArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let begin = Instant::now();
    let job = args.job.find_any(environment)?;
    let drain = args.drain.map(|seconds| Duration::from_secs(seconds.into()));
    let report = args.report.as_deref();
    let how = How { keep: args.keep, discard: args.discard, drain, report };
    let stopped = if args.here && job.settings.kind == Kind::Hosts {
        stop_here(&job, how, output)
    } else {
        stop(&job, how, output)
    };
    let took_ms = begin.elapsed().as_millis() as u64;
    let status = match stopped.is_all() {
        _ if !stopped.refused.is_empty() => Status::Failed,
        true => Status::Done,
        false => Status::Partly,
    };
    // What other hosts have sent, this one does not know.
    let tier = job.settings.tier.as_ref().filter(|_| !args.discard && !args.here);
    let tier = tier.map(|tier| tier.place.as_str());
    output.show(&Down { job: &job.settings.job, took_ms, tier, stopped })?;
    Ok(status)
}

impl Human for Down<'_> {
    fn write(&self, page: &mut Page) {
        let seconds = self.took_ms as f64 / 1000.0;
        let is_whole = self.stopped.refused.is_empty() && !self.stopped.lives_on;
        let what = if is_whole { "is down" } else { "is down in part" };
        page.title(&format!("job {} {what} ({seconds:.2} s)", self.job));
        for note in &self.stopped.notes {
            page.line(note);
        }
        for why in &self.stopped.refused {
            page.line(why);
        }
        write_left(page, &self.stopped.left);
        if self.stopped.keeps_for_others {
            page.line("kept: parts of files of other hosts that the tier may not have");
        }
        match &self.stopped.kept {
            Some(place) if !self.stopped.left.is_nothing() || self.stopped.keeps_for_others => {
                page.pair("kept", &place.display());
                page.line(&match self.stopped.is_orphaned {
                    true => "fix this, then run `hayase down` again".to_owned(),
                    false => format!("hayase resume {}", place.display()),
                });
            }
            Some(place) => page.pair("kept", &place.display()),
            None => {
                if let Some(tier) = self.tier.filter(|_| self.stopped.left.is_nothing()) {
                    let flushed = flushed(&self.stopped.left);
                    page.line(&format!("everything of `cache` is in {tier}{flushed}"));
                }
                page.line("the areas `shared` and `local` were removed");
            }
        }
    }
}

/// What went there in the course of the job.
fn flushed(left: &Left) -> String {
    if left.flushed_files == 0 {
        return String::new();
    }
    format!("; flushed: {}, {}", counted(left.flushed_files, "file"), ByteCount(left.flushed))
}

/// What the tier does not have.
pub(crate) fn write_left(page: &mut Page, left: &Left) {
    for path in &left.conflicts {
        page.line(&format!("two versions: ours is kept as {path}"));
    }
    for node in &left.unknown {
        page.line(&format!("node {node}: it is unknown which of its files the tier has"));
    }
    if left.files > 0 {
        let bytes = ledgers::size(left.bytes, left.at_least);
        page.line(&format!("not in the tier: {}, {bytes}", counted(left.files, "file")));
        let rows = rows(&left.lines);
        page.table(&["path", "state", "bytes", "failures", "last failure"], rows);
    }
}

/// Of files in the same state for the same reason more than this many are some of them, and a number: a full tier says
/// the same of each. `--json` has all.
const ALIKE_MAX: usize = 10;
const EXAMPLES_OF_ALIKE: usize = 3;

fn rows(lines: &[NotDurable]) -> Vec<Vec<String>> {
    let mut kinds: Vec<Vec<&NotDurable>> = Vec::new();
    for line in lines {
        let is_alike = |kind: &&mut Vec<&NotDurable>| {
            (kind[0].state.as_str(), kind[0].errno) == (line.state.as_str(), line.errno)
        };
        match kinds.iter_mut().find(is_alike) {
            Some(kind) => kind.push(line),
            None => kinds.push(vec![line]),
        }
    }
    kinds.iter().flat_map(|kind| rows_of_kind(kind)).collect()
}

fn rows_of_kind(kind: &[&NotDurable]) -> Vec<Vec<String>> {
    let row = |line: &&NotDurable| {
        let errno = std::io::Error::from_raw_os_error(line.errno);
        let why = if line.errno == 0 { String::new() } else { errno.to_string() };
        vec![line.path.clone(), line.state.clone(), line.size(), line.attempts.to_string(), why]
    };
    if kind.len() <= ALIKE_MAX {
        return kind.iter().map(row).collect();
    }
    let (some, rest) = kind.split_at(EXAMPLES_OF_ALIKE);
    let mut rows: Vec<_> = some.iter().map(row).collect();
    let bytes = ledgers::size(
        rest.iter().map(|line| line.bytes).sum(),
        rest.iter().any(|line| line.at_least),
    );
    let mut last = row(&rest[0]);
    last[0] = format!("and {} like these", counted(rest.len() as u64, "more file"));
    last[2] = bytes;
    rows.push(last);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(path: &str, errno: i32) -> NotDurable {
        let (state, path) = ("failed".to_owned(), path.to_owned());
        NotDurable { node: 0, path, state, bytes: 1 << 20, at_least: false, errno, attempts: 2 }
    }

    #[test]
    fn many_files_that_fail_alike_are_some_and_a_number() {
        const ENOSPC: i32 = 28;
        let few: Vec<_> = (0..10).map(|n| line(&format!("out/{n}"), ENOSPC)).collect();
        assert_eq!(rows(&few).len(), 10);
        let mut many: Vec<_> = (0..50).map(|n| line(&format!("out/{n}"), ENOSPC)).collect();
        many.insert(1, line("denied", 13));
        let rows = rows(&many);
        let paths: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(paths, ["out/0", "out/1", "out/2", "and 47 more files like these", "denied"]);
        assert_eq!((rows[3][2].as_str(), rows[3][4].as_str()), ("47 MiB", rows[0][4].as_str()));
    }
}
