//! `hayase container compact`.

use std::path::PathBuf;

use hayase_container::{Compacted, Container, Creation, Finished, containers_below};
use hayase_layout::ByteCount;
use serde::Serialize;

use crate::exit::Status;
use crate::output::{Human, Output, Page};

/// Merge indexes of containers, join small parts, remove parts of which nothing is left
///
/// Opening a container of many writers reads one index afterwards.
/// Writers that have not closed are left alone.
/// In an area of a job parts are not joined.
#[derive(Debug, clap::Args)]
pub(crate) struct CompactArgs {
    /// One container, or a directory: then all below it
    #[arg(value_name = "DIR|FILE")]
    path: PathBuf,
    /// Writers that have not closed too: nobody writes any more, they were killed
    ///
    /// Removes what killed compactions have left; one that is at work may fail, and loses nothing.
    #[arg(long)]
    all: bool,
    /// Rewrite the bytes of all writers as one part, in the order of the file; implies --all
    ///
    /// Needs room for all bytes once more.
    #[arg(long)]
    flatten: bool,
}

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
    let progress = output.progress(paths.len() as u64, "compacting");
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
                    "{count} indexes merged, {} records became {}",
                    told.records_before, told.records_after
                ),
            };
            if told.parts_joined > 0 {
                words += &format!(", {} parts became one", told.parts_joined);
            }
            if let Some(why) = &told.not_joined {
                words += &format!(", small parts stay apart ({why})");
            }
            if told.parts_removed > 0 {
                let bytes = ByteCount(told.bytes_removed);
                words += &format!(", {} parts removed ({bytes})", told.parts_removed);
            }
            if told.open_writers > 0 {
                words += &format!(", {} writers have not closed", told.open_writers);
            }
            page.line(&format!("{}: {words}", told.path.display()));
        }
        if self.containers.is_empty() {
            page.line("no containers");
        }
    }
}
