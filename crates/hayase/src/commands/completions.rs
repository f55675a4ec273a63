//! `hayase completions`.

use clap::Command;
use clap_complete::{Shell, generate};

use crate::exit::Status;
use crate::output::Output;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// Shell
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  source <(hayase completions bash)
  hayase completions zsh >~/.zfunc/_hayase
  hayase completions fish >~/.config/fish/completions/hayase.fish";

/// Prints the script for `whole`, all that can be typed.
pub(crate) fn run(
    args: &CompletionsArgs,
    mut whole: Command,
    output: &Output,
) -> anyhow::Result<Status> {
    let mut script = Vec::new();
    generate(args.shell, &mut whole, "hayase", &mut script);
    output.raw(&script)?;
    Ok(Status::Done)
}
