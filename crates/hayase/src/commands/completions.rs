//! `hayase completions`.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::exit::Status;
use crate::output::Output;

/// Print a completion script for SHELL
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs, output: &Output) -> anyhow::Result<Status> {
    let mut script = Vec::new();
    generate(args.shell, &mut crate::cli::Cli::command(), "hayase", &mut script);
    output.raw(&script)?;
    Ok(Status::Done)
}
