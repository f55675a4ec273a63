//! `hayase container export`.

use std::path::PathBuf;
use std::time::Instant;

use hayase_container::{Container, Creation, PublishedLog, Replace, export};
use hayase_layout::ByteCount;
use serde::Serialize;

use crate::count::counted;
use crate::exit::Status;
use crate::output::{Human, Output, Page};

/// Export a container as a plain file
///
/// Preserves holes; shares blocks if the file system supports reflinks. OUT appears when all its data is on disk. If
/// parts are joined meanwhile, the export starts again.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// The container
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The file to write
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
}

const EXAMPLES: &str = "\
Examples:
  hayase container export /lustre/me/run7/checkpoint /lustre/me/checkpoint.dat
  hayase container export --force /tmp/areas/shared/result.h5 /project/result.h5

See also:
  hayase mount";

#[derive(Debug, Serialize)]
struct Told {
    container: PathBuf,
    out: PathBuf,
    size: u64,
    bytes: u64,
    kernel_bytes: u64,
    seconds: f64,
    /// Writers that have not closed: what they published is exported.
    open_writers: usize,
}

pub(super) fn run(args: &ExportArgs, output: &Output) -> anyhow::Result<Status> {
    let begin = Instant::now();
    let container = Container::open(&args.file, Creation::Never)?;
    let replace = if args.force { Replace::Yes } else { Replace::Never };
    let (done, open_writers) = container.read_published(|reader, snapshot| {
        let (progress, size) = (output.progress("Exporting"), reader.size().get());
        let done = export(reader, &args.out, replace, &mut |at| progress.bytes(at.get(), size))?;
        let is_open = |log: &&PublishedLog| log.closed.is_none();
        Ok((done, snapshot.logs().values().filter(is_open).count()))
    })?;
    output.show(&Told {
        container: args.file.clone(),
        out: args.out.clone(),
        size: done.size.get(),
        bytes: done.bytes.get(),
        kernel_bytes: done.kernel_bytes.get(),
        seconds: begin.elapsed().as_secs_f64(),
        open_writers,
    })?;
    Ok(Status::Done)
}

impl Human for Told {
    fn write(&self, page: &mut Page) {
        let (size, bytes) = (ByteCount(self.size), ByteCount(self.bytes));
        let holes = ByteCount(self.size.saturating_sub(self.bytes));
        let out = self.out.display();
        page.line(&format!("{out}: {size} ({bytes} written, {holes} of holes)"));
        if self.open_writers > 0 {
            page.line(&format!(
                "not closed: {}; the export has what they published",
                counted(self.open_writers, "writer")
            ));
        }
    }
}
