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

/// Look after shared files that MPI-IO programs wrote as one part per process
///
/// Such a file is a directory F with parts and indexes (a container).
/// `hayase mount DIR MNT` shows the containers of DIR as the plain files that they are.
#[derive(Debug, clap::Args)]
pub(crate) struct ContainerArgs {
    #[command(subcommand)]
    verb: Verb,
}

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
