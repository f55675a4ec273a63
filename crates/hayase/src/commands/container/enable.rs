//! `hayase container enable`.

use std::path::PathBuf;

use serde::Serialize;

use crate::exit::Status;
use crate::output::{Human, Output, Page};

/// Mark a directory: files that MPI-IO programs create below it become containers
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EnableArgs {
    /// An existing directory, on any file system
    dir: PathBuf,
    /// Remove the mark; existing containers are unchanged
    #[arg(long)]
    off: bool,
}

const EXAMPLES: &str = "\
Examples:
  hayase container enable /lustre/me/run7
  hayase container enable --off /lustre/me/run7";

#[derive(Debug, Serialize)]
struct Enabled {
    directory: PathBuf,
    enabled: bool,
    /// Whether that was not so before.
    changed: bool,
}

pub(super) fn run(args: &EnableArgs, output: &Output) -> anyhow::Result<Status> {
    let changed = match args.off {
        true => hayase_container::disable(&args.dir)?,
        false => hayase_container::enable(&args.dir)?,
    };
    output.show(&Enabled { directory: args.dir.clone(), enabled: !args.off, changed })?;
    Ok(Status::Done)
}

impl Human for Enabled {
    fn write(&self, page: &mut Page) {
        let words = match (self.enabled, self.changed) {
            (true, true) => "new MPI-IO files in it become containers",
            (true, false) => "was marked already",
            (false, true) => "new MPI-IO files in it are plain files",
            (false, false) => "was not marked",
        };
        page.line(&format!("{}: {words}", self.directory.display()));
    }
}
