//! `hayase man`.

use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;

use crate::exit::Status;

/// Write the manual pages of all commands into DIR
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Made when it is missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Writes `hayase.1`, `hayase-up.1` and so on.
pub(crate) fn run(args: &ManArgs) -> anyhow::Result<Status> {
    let failed = || format!("write manual pages into {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(failed)?;
    clap_mangen::generate_to(crate::cli::Cli::command(), &args.dir).with_context(failed)?;
    Ok(Status::Done)
}
