//! `hayase container compact`.

use std::path::PathBuf;

use hayase_container::{Compacted, Container, Creation, Finished, containers_below};
use hayase_layout::ByteCount;
use serde::Serialize;

use crate::count::counted;
use crate::exit::Status;
use crate::output::{Human, Output, Page};

/// Merge indexes of containers, join small parts, remove parts without data
///
/// Afterwards an open reads one index instead of one per writer. Writers that have the container open are not
/// touched. In an area of a job parts are not joined.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompactArgs {
    /// A container, or a directory to process all containers below it
    #[arg(value_name = "DIR|FILE")]
    path: PathBuf,
    /// Include writers that did not close the container: use only after those writers were killed
    ///
    /// Also removes leftovers of killed compactions. A compaction that is running may fail, but loses no data.
    #[arg(long)]
    all: bool,
    /// Rewrite the data of all writers as one part, in file order; implies --all
    ///
    /// Needs free space for a second copy of the data.
    #[arg(long)]
    flatten: bool,
}

const EXAMPLES: &str = "\
Examples:
  hayase container compact /lustre/me/run7
  hayase container compact --flatten /lustre/me/run7/checkpoint";

#[derive(Debug, Serialize)]
struct Told {
    containers: Vec<ContainerTold>,
}

#[derive(Debug, Serialize)]
struct ContainerTold {
    path: PathBuf,
    writers: usize,
    open_writers: usize,
    records_before: usize,
    records_after: usize,
    indexes_removed: usize,
    parts_joined: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_joined: Option<String>,
    parts_removed: usize,
    bytes_removed: u64,
}

pub(super) fn run(args: &CompactArgs, output: &Output) -> anyhow::Result<Status> {
    let finished = if args.all { Finished::All } else { Finished::Closed };
    let paths = containers_below(&args.path)?;
    let progress = output.steps("Compacting", paths.len() as u64, "container");
    let mut told = Told { containers: Vec::new() };
    for path in paths {
        let container = Container::open(&path, Creation::Never)?;
        let done = match args.flatten {
            true => container.flatten(&mut |_| {})?,
            false => container.compact(finished)?,
        };
        told.containers.push(ContainerTold::new(path, done));
        progress.step();
    }
    drop(progress);
    output.show(&told)?;
    Ok(Status::Done)
}

impl ContainerTold {
    fn new(path: PathBuf, done: Compacted) -> Self {
        let Compacted { writers, open_writers, records_before, records_after, .. } = done;
        Self {
            path,
            writers,
            open_writers,
            records_before,
            records_after,
            indexes_removed: done.indexes_removed,
            parts_joined: done.parts_joined,
            not_joined: done.not_joined,
            parts_removed: done.parts_removed,
            bytes_removed: done.bytes_removed.get(),
        }
    }
}

impl Human for Told {
    fn write(&self, page: &mut Page) {
        for told in &self.containers {
            let mut words = match told.indexes_removed {
                0 => "nothing to merge".to_owned(),
                count => format!(
                    "{} merged, {} became {}",
                    counted(count, "index"),
                    counted(told.records_before, "record"),
                    told.records_after
                ),
            };
            if told.parts_joined > 0 {
                words += &format!(", {} joined", counted(told.parts_joined, "part"));
            }
            if let Some(why) = &told.not_joined {
                words += &format!(", small parts are not joined ({why})");
            }
            if told.parts_removed > 0 {
                let bytes = ByteCount(told.bytes_removed);
                words += &format!(", {} removed ({bytes})", counted(told.parts_removed, "part"));
            }
            if told.open_writers > 0 {
                words += &format!(", {} not closed", counted(told.open_writers, "writer"));
            }
            page.line(&format!("{}: {words}", told.path.display()));
        }
        if self.containers.is_empty() {
            page.line("no containers");
        }
    }
}
