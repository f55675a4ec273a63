//! The verbs, one file each, and the choice between them.

use clap::Subcommand;
use tracing::level_filters::LevelFilter;

use crate::config::Environment;
use crate::exit::Status;
use crate::output::Output;

mod area_path;
mod cached_files;
pub(crate) mod completions;
pub(crate) mod container;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod error_types;
pub(crate) mod evict;
pub(crate) mod exec;
pub(crate) mod explain;
pub(crate) mod flush;
pub(crate) mod gfarm_lane;
pub(crate) mod job_arg;
pub(crate) mod layout;
pub(crate) mod man;
pub(crate) mod mount;
pub(crate) mod node;
pub(crate) mod noise;
pub(crate) mod pack;
pub(crate) mod relay;
pub(crate) mod report;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod serve_mount;
pub(crate) mod spread;
pub(crate) mod stage;
pub(crate) mod status;
pub(crate) mod top;
mod transfer;
pub(crate) mod up;
pub(crate) mod verify;

pub(crate) use area_path::AreaPathError;
pub(crate) use cached_files::NoTier;
pub(crate) use layout::LayoutError;
pub(crate) use mount::MountPathError;
pub(crate) use spread::SpreadError;
pub(crate) use stage::NothingCompared;
pub(crate) use stage::background::BackgroundError;
pub(crate) use transfer::{DeleteOfFile, KeyError};

/// The verbs, each with its arguments in its own file.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Up(Box<up::UpArgs>),
    Down(down::DownArgs),
    Run(Box<run::RunArgs>),
    Exec(exec::ExecArgs),
    Status(status::StatusArgs),
    Top(top::TopArgs),
    Report(report::ReportArgs),
    Flush(flush::FlushArgs),
    Evict(evict::EvictArgs),
    Resume(resume::ResumeArgs),
    Explain(explain::ExplainArgs),
    Layout(layout::LayoutArgs),
    Container(container::ContainerArgs),
    Mount(mount::MountArgs),
    Stage(stage::StageArgs),
    Pack(pack::PackArgs),
    Doctor(doctor::DoctorArgs),
    Noise(noise::NoiseArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    #[command(hide = true)]
    Serve(serve::ServeArgs),
    #[command(hide = true)]
    ServeMount(serve_mount::ServeMountArgs),
    #[command(hide = true)]
    Node(node::NodeArgs),
    #[command(hide = true)]
    Relay(relay::RelayArgs),
    #[command(hide = true)]
    StageWorker(spread::worker::StageWorkerArgs),
    #[command(hide = true)]
    GfarmLane(gfarm_lane::GfarmLaneArgs),
}

/// Does what was typed; `whole` is all that can be typed, for those who write it down.
pub(crate) fn run(
    command: Command,
    whole: fn() -> clap::Command,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    if let Some(level) = log_level(&command, output) {
        crate::logging::start_command(level);
    }
    match command {
        Command::Up(args) => up::run(&args, environment, output),
        Command::Down(args) => down::run(&args, environment, output),
        Command::Run(args) => run::run(&args, environment, output),
        Command::Exec(args) => exec::run(&args, environment, output),
        Command::Status(args) => status::run(&args, environment, output),
        Command::Top(args) => top::run(&args, environment, output),
        Command::Report(args) => report::run(&args, environment, output),
        Command::Flush(args) => flush::run(&args, environment, output),
        Command::Evict(args) => evict::run(&args, environment, output),
        Command::Resume(args) => resume::run(&args, output),
        Command::Explain(args) => explain::run(&args, environment, output),
        Command::Layout(args) => layout::run(&args, environment, output),
        Command::Container(args) => container::run(&args, output),
        Command::Mount(args) => mount::run(&args, environment, output),
        Command::Stage(args) => stage::run(&args, environment, output),
        Command::StageWorker(args) => spread::worker::run(&args, output),
        Command::Pack(args) => pack::run(&args, environment, output),
        Command::Doctor(args) => doctor::run(&args, environment, output),
        Command::Noise(args) => noise::run(&args, output),
        Command::Serve(args) => serve::run(&args, environment, output),
        Command::ServeMount(args) => serve_mount::run(&args, environment, output),
        Command::Node(args) => node::run(&args, environment, output),
        Command::Relay(args) => relay::run(&args, environment, output),
        Command::GfarmLane(args) => gfarm_lane::run(&args),
        Command::Man(args) => man::run(&args, whole()),
        Command::Completions(args) => completions::run(&args, whole(), output),
    }
}

/// Which logs of the libraries are shown; `None` where there are none, or a daemon starts its own.
fn log_level(command: &Command, output: &Output) -> Option<LevelFilter> {
    match command {
        Command::Serve(_) | Command::ServeMount(_) | Command::Node(_) => None,
        Command::Mount(args) if args.is_daemon() => None,
        // A caller that asks for JSON parses standard error as JSON too.
        Command::Up(_) | Command::Down(_) | Command::Run(_) | Command::Resume(_) => {
            output.log().or((!output.is_json()).then_some(LevelFilter::WARN))
        }
        _ => output.log(),
    }
}
