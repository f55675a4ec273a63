//! `hayase evict`.

use std::path::PathBuf;
use std::time::Instant;

use hayase_layout::ByteCount;
use rustix::io::Errno;
use serde::Serialize;

use super::cached_files::{CLOSE_MAX, CachedFiles, QUESTION_PAUSE};
use crate::config::Environment;
use crate::count::counted;
use crate::exit::Status;
use crate::output::{Human, Output, Page};

/// Evict local copies of files that the tier already has
///
/// The files stay visible and are fetched again when they are read. Open files and dirty files are not evicted, but
/// listed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EvictArgs {
    /// File or directory of the cache area
    path: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  hayase evict /tmp/areas/cache/checkpoint-0001
  hayase flush /tmp/areas/cache/in && hayase evict /tmp/areas/cache/in

Exit codes:
  0 all files are evicted; 3 some files were not evicted.

See also:
  hayase flush, hayase explain";

#[derive(Debug, Serialize)]
struct EvictTold {
    /// That have given back room now.
    files: u64,
    /// How much.
    bytes: u64,
    /// Files that had none here before.
    only_in_tier: u64,
    stayed: Vec<Stayed>,
}

#[derive(Debug, Serialize)]
struct Stayed {
    path: PathBuf,
    why: &'static str,
}

/// Asks the homes of all files below a path.
pub(crate) fn run(
    args: &EvictArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let mut files = CachedFiles::below(&args.path, environment)?;
    let mut told = EvictTold { files: 0, bytes: 0, only_in_tier: 0, stayed: Vec::new() };
    let found = std::mem::take(&mut files.found);
    let progress = output.steps("Evicting", found.len() as u64, "file");
    let (begin, mut pending) = (Instant::now(), found);
    while !pending.is_empty() {
        let mut open = Vec::new();
        for file in pending {
            match files.server.evict(file.ino)? {
                Ok(()) => {
                    told.files += 1;
                    told.bytes += file.bytes;
                }
                Err(libc::EALREADY) => told.only_in_tier += 1,
                Err(libc::EBUSY) if begin.elapsed() < CLOSE_MAX => {
                    open.push(file);
                    continue;
                }
                Err(errno) => told.stayed.push(Stayed { path: file.path, why: why_not(errno) }),
            }
            progress.step();
        }
        pending = open;
        if !pending.is_empty() {
            std::thread::sleep(QUESTION_PAUSE);
        }
    }
    drop(progress);
    let status = if told.stayed.is_empty() { Status::Done } else { Status::Partly };
    output.show(&told)?;
    Ok(status)
}

/// Why a file stays.
fn why_not(errno: i32) -> &'static str {
    match Errno::from_raw_os_error(errno) {
        Errno::BUSY => "it is open",
        Errno::AGAIN => "the tier does not have it yet",
        _ => "its home refused; see the log of its server",
    }
}

impl Human for EvictTold {
    fn write(&self, page: &mut Page) {
        page.line(&format!("evicted: {}, {}", counted(self.files, "file"), ByteCount(self.bytes)));
        if self.only_in_tier > 0 {
            page.line(&format!("already evicted: {}", counted(self.only_in_tier, "file")));
        }
        for stayed in &self.stayed {
            page.line(&format!("not evicted: {}: {}", stayed.path.display(), stayed.why));
        }
    }
}
