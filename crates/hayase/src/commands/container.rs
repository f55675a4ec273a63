//! `hayase container`: the N-1 files that MPI-IO keeps as N parts, in plain directories.
//!
//! One verb, one file in `container/`.

mod check;
mod compact;
mod enable;
mod export;
mod replicate;
mod show;

use crate::exit::Status;
use crate::output::Output;

/// Manage containers: shared files of MPI-IO programs with one part per process
///
/// A container is a directory with parts and indexes. `hayase mount DIR MNT` shows the containers of DIR as plain
/// files.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ContainerArgs {
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  hayase container enable /lustre/me/run7
  hayase container show /lustre/me/run7/checkpoint
  hayase container export /lustre/me/run7/checkpoint /lustre/me/checkpoint.dat

See also:
  hayase mount, hayase exec --mpiio";

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Enable(enable::EnableArgs),
    Show(show::ShowArgs),
    Check(check::CheckArgs),
    Export(export::ExportArgs),
    Compact(compact::CompactArgs),
    Replicate(replicate::ReplicateArgs),
}

/// Does one of them.
pub(crate) fn run(args: &ContainerArgs, output: &Output) -> anyhow::Result<Status> {
    match &args.verb {
        Verb::Enable(args) => enable::run(args, output),
        Verb::Show(args) => show::run(args, output),
        Verb::Check(args) => check::run(args, output),
        Verb::Export(args) => export::run(args, output),
        Verb::Compact(args) => compact::run(args, output),
        Verb::Replicate(args) => replicate::run(args, output),
    }
}
