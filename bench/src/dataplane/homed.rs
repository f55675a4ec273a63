//! Files of programs of other nodes whose parts lie on node 0.

use std::path::{Path, PathBuf};

use crate::job::Job;
use crate::worker::Worker;
use crate::workloads::Task;
use crate::workloads::sequential::{Operation, Sequential};

/// A file of so many blocks of 1 MiB for each program, which is the only one that uses it. What a program of node 0
/// writes stays in its memory, and is served from there: of each file one block.
pub(super) fn make(
    job: &Job<'_>,
    programs: &mut [Worker],
    directory: &Path,
    blocks: u64,
) -> anyhow::Result<Vec<PathBuf>> {
    let mut home = job.worker(0)?;
    home.perform(&Task::MakeDirectory { path: directory.to_owned() })?;
    let paths: Vec<PathBuf> = (0..programs.len()).map(|n| directory.join(n.to_string())).collect();
    for path in &paths {
        let first = Sequential::new(Operation::New, path, 1);
        home.measure(&Task::Sequential(Sequential { keep: true, sync: true, ..first }))?;
    }
    home.perform(&Task::Evict { path: job.image(0) })?;
    // The first pass finds out that nobody maps the files any more; the second goes by the page cache.
    for _ in 0..2 {
        for (program, path) in programs.iter_mut().zip(&paths) {
            program.measure(&Task::Sequential(Sequential::new(
                Operation::Overwrite,
                path,
                blocks,
            )))?;
        }
    }
    Ok(paths)
}
