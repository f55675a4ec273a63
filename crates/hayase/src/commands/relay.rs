//! `hayase relay`: started on other hosts by `up` and other commands, never typed.

use crate::config::Environment;
use crate::exit::Status;
use crate::output::Output;

/// Start and reach nodes from this host (started by `up`)
#[derive(Debug, clap::Args)]
pub(crate) struct RelayArgs {}

/// Does what standard input says, until it ends.
pub(crate) fn run(
    _args: &RelayArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    crate::launch::tree::relay::run(environment, output)
}
