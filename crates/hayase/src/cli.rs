//! What can be typed: options of every command, and one of the verbs ([`Command`]).

#[cfg(test)]
mod documents;
#[cfg(test)]
mod reference;

use clap::{ArgAction, Parser};

use crate::commands::Command;
use crate::config::variables;
use crate::exit;
use crate::output::OutputArgs;
use crate::output::headings::GLOBAL;

/// Turn the storage in the nodes of one batch job into one fast file system
#[derive(Debug, Parser)]
#[command(name = "hayase", version, max_term_width = 100, arg_required_else_help = true, after_help = more(),
          disable_help_flag = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Print help; -h prints a summary, --help all
    #[arg(short, long, global = true, action = ArgAction::Help, help_heading = GLOBAL)]
    help: Option<bool>,

    /// What MPICH's `-launcher ssh` puts before our own words; means nothing
    #[arg(short = 'x', hide = true)]
    _without_x11: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What follows the options.
fn more() -> String {
    let (codes, variables) = (exit::meanings(), variables::help());
    format!(
        "{EXAMPLES}\n\nExit codes:\n  {codes}: what is left is listed.\n{OF_PROGRAMS}\n\n\
         Environment:\n{variables}{STORES}\n\n{SEE_ALSO}"
    )
}

const EXAMPLES: &str = "\
Examples:
  hayase doctor                                              # check this machine
  hayase up --nodes 3 --storage /scratch --mount /tmp/areas  # start a job on simulated nodes
  hayase exec -- sh -c 'echo hello >$HAYASE_SHARED/f'        # run a program on its first node
  hayase status                                              # show the job
  hayase down                                                # end the job";

const OF_PROGRAMS: &str =
    "  `exec` and `run` end with the exit status of the program that they ran.";

const STORES: &str = "\
\x20 AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION ...
                      S3 server and credentials, as for other clients";

const SEE_ALSO: &str = "\
See also:
  `hayase help COMMAND`, `hayase man DIR` (manual pages), `hayase completions SHELL`";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_says_what_it_does() {
        for verb in Cli::command().get_subcommands() {
            assert!(verb.get_about().is_some(), "{} has no description", verb.get_name());
        }
    }
}
