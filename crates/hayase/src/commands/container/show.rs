//! `hayase container show`.

use std::path::{Path, PathBuf};

use hayase_container::{
    Container, ContainerError, Creation, PublishedLog, Snapshot, containers_below,
};
use hayase_layout::ByteCount;
use serde::Serialize;

use crate::exit::Status;
use crate::output::{Human, Output, Page};

/// Show containers: size, writers, records, indexes and parts
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// A container, or a directory to process all containers below it
    #[arg(value_name = "DIR|FILE")]
    path: PathBuf,
    /// Show each writer
    #[arg(long)]
    writers: bool,
}

const EXAMPLES: &str = "\
Examples:
  hayase container show /lustre/me/run7
  hayase container show --writers /lustre/me/run7/checkpoint

Exit codes:
  0 done; 3 some containers cannot be read.";

#[derive(Debug, Serialize)]
struct Shown {
    path: PathBuf,
    /// The directory above whose mark makes new files here containers.
    enabled_by: Option<PathBuf>,
    containers: Vec<ContainerShown>,
    unreadable: Vec<Unreadable>,
}

#[derive(Debug, Serialize)]
struct ContainerShown {
    path: PathBuf,
    id: String,
    size: u64,
    writers: usize,
    /// Writers that have not closed: at work, or killed.
    open_writers: usize,
    records: usize,
    index_bytes: u64,
    part_bytes: u64,
    latest_epoch: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    each: Option<Vec<WriterShown>>,
}

#[derive(Debug, Serialize)]
struct WriterShown {
    node: u16,
    process: u32,
    opening: u64,
    rank: u32,
    records: usize,
    views: usize,
    bytes: u64,
    closed: bool,
}

#[derive(Debug, Serialize)]
struct Unreadable {
    path: PathBuf,
    why: String,
}

pub(super) fn run(args: &ShowArgs, output: &Output) -> anyhow::Result<Status> {
    let inside = args.path.join("file");
    let mut shown = Shown {
        path: args.path.clone(),
        enabled_by: hayase_container::enabled_above(&inside)?,
        containers: Vec::new(),
        unreadable: Vec::new(),
    };
    for path in containers_below(&args.path)? {
        match look_at(&path, args.writers) {
            Ok(found) => shown.containers.push(found),
            Err(error) => {
                let why = format!("{:#}", anyhow::Error::from(error));
                shown.unreadable.push(Unreadable { path, why });
            }
        }
    }
    output.show(&shown)?;
    Ok(if shown.unreadable.is_empty() { Status::Done } else { Status::Partly })
}

fn look_at(path: &Path, with_writers: bool) -> Result<ContainerShown, ContainerError> {
    let container = Container::open(path, Creation::Never)?;
    let snapshot = container.load()?;
    let usage = container.usage()?;
    let logs = snapshot.logs().values();
    Ok(ContainerShown {
        path: path.to_owned(),
        id: container.id().to_string(),
        size: snapshot.size(path)?.get(),
        writers: snapshot.logs().len(),
        open_writers: logs.filter(|published| published.closed.is_none()).count(),
        records: snapshot.record_count(),
        index_bytes: usage.index_bytes.get(),
        part_bytes: usage.part_bytes.get(),
        latest_epoch: snapshot.latest().0,
        each: with_writers.then(|| writers(&snapshot)),
    })
}

fn writers(snapshot: &Snapshot) -> Vec<WriterShown> {
    let shown = |published: &PublishedLog| {
        let (log, id) = (&published.log, published.log.writer.id);
        WriterShown {
            node: id.node.0,
            process: id.process,
            opening: id.opening,
            rank: log.writer.rank.0,
            records: log.records.len(),
            views: log.views.len(),
            bytes: log
                .records
                .iter()
                .filter_map(hayase_layout::Record::end)
                .map(|end| end.0)
                .max()
                .unwrap_or(0),
            closed: published.closed.is_some(),
        }
    };
    snapshot.logs().values().map(shown).collect()
}

impl Human for Shown {
    fn write(&self, page: &mut Page) {
        let rows = self.containers.iter().map(ContainerShown::row).collect::<Vec<_>>();
        let head = ["container", "size", "writers", "open", "records", "indexes", "parts"];
        if rows.is_empty() && self.unreadable.is_empty() {
            page.line(&format!("{}: no containers", self.path.display()));
        } else {
            page.table(&head, rows);
        }
        for container in &self.containers {
            container.write_writers(page);
        }
        for Unreadable { path, why } in &self.unreadable {
            page.line(&format!("  {}: {why}", path.display()));
        }
        if let Some(directory) = &self.enabled_by {
            page.line(&format!(
                "new MPI-IO files become containers: {} is marked",
                directory.display()
            ));
        }
    }
}

impl ContainerShown {
    fn row(&self) -> Vec<String> {
        vec![
            self.path.display().to_string(),
            ByteCount(self.size).to_string(),
            self.writers.to_string(),
            self.open_writers.to_string(),
            self.records.to_string(),
            ByteCount(self.index_bytes).to_string(),
            ByteCount(self.part_bytes).to_string(),
        ]
    }

    fn write_writers(&self, page: &mut Page) {
        let Some(writers) = &self.each else { return };
        page.blank();
        page.title(&self.path.display().to_string());
        let row = |writer: &WriterShown| {
            vec![
                format!("node {} process {}", writer.node, writer.process),
                writer.opening.to_string(),
                writer.rank.to_string(),
                writer.records.to_string(),
                writer.views.to_string(),
                ByteCount(writer.bytes).to_string(),
                if writer.closed { "closed" } else { "not closed" }.to_owned(),
            ]
        };
        let head = ["writer", "opening", "rank", "records", "views", "bytes", "state"];
        page.table(&head, writers.iter().map(row).collect());
    }
}
