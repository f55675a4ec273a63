//! `hayase flush`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hayase_wire::message::Flushed;
use serde::Serialize;

use super::cached_files::{CLOSE_MAX, CachedFiles, NoTier, QUESTION_PAUSE};
use super::down::write_left;
use super::job_arg::JobArg;
use super::verify::{VerifyTold, verify_job};
use crate::config::Environment;
use crate::exit::Status;
use crate::job::ledgers::NotDurable;
use crate::launch::drain::{Left, drain};
use crate::number::seconds;
use crate::output::{Human, Output, Page, Stand};

/// A file that can not be flushed is left after so many failures in a row.
const FAILURES_MAX: u32 = 3;

/// Flush the cache area: wait until the tier has all files
///
/// With PATH, flushes that file or all files below that directory. Files that are open for writing are listed and
/// not flushed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FlushArgs {
    /// File or directory of the cache area [default: the whole job]
    path: Option<PathBuf>,
    #[command(flatten)]
    job: JobArg,
    /// Give up after SECONDS [default: wait while files arrive]
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0))]
    timeout: Option<u32>,
    /// Read the flushed files back from the tier and compare them with what was sent
    #[arg(long)]
    verify: bool,
}

const EXAMPLES: &str = "\
Examples:
  hayase flush
  hayase flush /tmp/areas/cache/checkpoint-0001
  hayase flush --verify --timeout 600

Exit codes:
  0 the tier has all files; 2 the job has no tier; 3 some files are not in the tier, differ
  there, or cannot be compared.

See also:
  hayase status --ledger, hayase evict, hayase down";

#[derive(Debug, Serialize)]
struct FlushTold {
    took_ms: u64,
    /// Files that were asked about, when a path was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<u64>,
    left: Left,
    /// When that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<VerifyTold>,
}

/// Waits.
pub(crate) fn run(
    args: &FlushArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let begin = Instant::now();
    let patience = args.timeout.map(|seconds| Duration::from_secs(seconds.into()));
    let (job, below, files, left) = match &args.path {
        Some(path) => {
            let mut files = CachedFiles::below(path, environment)?;
            let (count, left) = flush_below(&mut files, patience, output)?;
            (files.job, Some(files.tier_path), Some(count), left)
        }
        None => {
            let job = args.job.find(environment)?;
            if job.settings.tier.is_none() {
                return Err(NoTier(job.settings.job).into());
            }
            let elsewhere = job.nodes_elsewhere();
            let here: Vec<u16> =
                (0..job.settings.nodes).filter(|node| !elsewhere.contains(node)).collect();
            let mut session = (!elsewhere.is_empty())
                .then(|| crate::launch::tree::Session::open(&job, &elsewhere));
            let left = drain(&job, &here, session.as_mut(), patience, output);
            drop(session);
            (job, None, None, left)
        }
    };
    let verified = match args.verify {
        true => Some(verify_job(&job, below.as_deref(), output)?),
        false => None,
    };
    let is_right = verified.as_ref().is_none_or(VerifyTold::is_right);
    let status = if left.is_nothing() && is_right { Status::Done } else { Status::Partly };
    let took_ms = begin.elapsed().as_millis() as u64;
    output.show(&FlushTold { took_ms, files, left, verified })?;
    Ok(status)
}

fn flush_below(
    files: &mut CachedFiles,
    patience: Option<Duration>,
    output: &Output,
) -> anyhow::Result<(u64, Left)> {
    let begin = Instant::now();
    let mut left = Left::default();
    let mut pending = files.found.clone();
    let count = pending.len() as u64;
    let progress = output.progress("Flushing");
    let bytes_total = pending.iter().map(|file| file.bytes).sum();
    while !pending.is_empty() {
        let is_late = patience.is_some_and(|patience| begin.elapsed() > patience);
        let mut later = Vec::new();
        for file in pending {
            let (state, errno, attempts) = match files.server.flush(file.ino)? {
                Flushed::Durable => continue,
                Flushed::Open if begin.elapsed() > CLOSE_MAX || is_late => ("open", 0, 0),
                Flushed::Failed { errno, attempts } if attempts >= FAILURES_MAX || is_late => {
                    ("failed", errno, attempts)
                }
                Flushed::Pending if is_late => ("dirty", 0, 0),
                Flushed::Open | Flushed::Pending | Flushed::Failed { .. } => {
                    later.push(file);
                    continue;
                }
            };
            left.files += 1;
            left.bytes += file.bytes;
            let path = file.path.display().to_string();
            let (node, state, bytes) = (files.node, state.to_owned(), file.bytes);
            let at_least = false;
            left.lines.push(NotDurable { node, path, state, bytes, at_least, errno, attempts });
        }
        pending = later;
        let waiting: u64 = pending.iter().map(|file| file.bytes).sum();
        progress.show(Stand {
            bytes: bytes_total - waiting - left.bytes,
            bytes_total,
            things: count - pending.len() as u64 - left.files,
            things_total: count,
            thing: "file",
            is_open: false,
        });
        if !pending.is_empty() {
            std::thread::sleep(QUESTION_PAUSE);
        }
    }
    Ok((count, left))
}

impl Human for FlushTold {
    fn write(&self, page: &mut Page) {
        if self.left.is_nothing() {
            let seconds = self.took_ms as f64 / 1000.0;
            page.line(&format!("everything is in the tier ({seconds:.2} s)"));
        }
        write_left(page, &self.left);
        if let Some(verified) = &self.verified {
            verified.write(page);
        }
    }
}
