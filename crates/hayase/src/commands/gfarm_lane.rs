//! `hayase gfarm-lane`: started by a mount of Gfarm, never typed.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use anyhow::Context;

use crate::exit::Status;

/// Call Gfarm's library for a mount (started by `mount`)
#[derive(Debug, clap::Args)]
pub(crate) struct GfarmLaneArgs {}

/// Answers on standard input, which is a socket, until it ends.
pub(crate) fn run(_args: &GfarmLaneArgs) -> anyhow::Result<Status> {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().context("take standard input")?;
    hayase_tier::gfarm_lane::serve(&UnixStream::from(stdin)).context("answer a mount of Gfarm")?;
    Ok(Status::Done)
}
