//! What can be typed: one verb, one struct of arguments, in the verb's own file.

#[cfg(test)]
mod documents;

use clap::{Parser, Subcommand};

use crate::commands;

/// Turns the storage inside the nodes of one batch job into one fast file system.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage or settings, 3 partly done.
/// `exec` and `run` end with the status of the program they ran.
#[derive(Debug, Parser)]
#[command(name = "hayase", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Print results (and errors, on standard error) as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// What MPICH's `-launcher ssh` puts before our own words; means nothing
    #[arg(short = 'x', hide = true)]
    _without_x11: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Up(Box<commands::up::UpArgs>),
    Down(commands::down::DownArgs),
    Run(Box<commands::run::RunArgs>),
    Exec(commands::exec::ExecArgs),
    Status(commands::status::StatusArgs),
    Top(commands::top::TopArgs),
    Report(commands::report::ReportArgs),
    Flush(commands::flush::FlushArgs),
    Evict(commands::evict::EvictArgs),
    Resume(commands::resume::ResumeArgs),
    Explain(commands::explain::ExplainArgs),
    Layout(commands::layout::LayoutArgs),
    Container(commands::container::ContainerArgs),
    Mount(commands::mount::MountArgs),
    Stage(commands::stage::StageArgs),
    Pack(commands::pack::PackArgs),
    Doctor(commands::doctor::DoctorArgs),
    Noise(commands::noise::NoiseArgs),
    Serve(commands::serve::ServeArgs),
    ServeMount(commands::serve_mount::ServeMountArgs),
    #[command(hide = true)]
    Node(commands::node::NodeArgs),
    #[command(hide = true)]
    Relay(commands::relay::RelayArgs),
    #[command(hide = true)]
    StageWorker(commands::spread::worker::StageWorkerArgs),
    #[command(hide = true)]
    GfarmLane(commands::gfarm_lane::GfarmLaneArgs),
    #[command(hide = true)]
    Man(commands::man::ManArgs),
    #[command(hide = true)]
    Completions(commands::completions::CompletionsArgs),
}

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
