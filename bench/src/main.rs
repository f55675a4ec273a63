//! `./bench.sh NAME`: measures the goals of Hayase and says which hold.
//!
//! A bench is a list of groups of measurements ([`foundation`], [`nodes`], [`mpiio`], [`stage`], [`flush`], [`gfarm`], [`dataplane`]); a group brings up jobs with the
//! product's own command line ([`job`]), lets workload programs run on their nodes ([`worker`],
//! [`workloads`]), takes turns between what is measured and what it is measured against
//! ([`rounds`]), and hands over tables, goals and raw samples ([`report`]).
//! This program is also those workload programs, the yardstick of metadata ([`minimal_daemon`]), and
//! the process that cleans up after a bench that was killed ([`guard`]); the next bench removes what the guard could not
//! ([`leftovers`]). With `--against`, the groups are run by two builds in turn ([`against`]).

mod against;
mod at_once;
mod bench;
mod build;
mod command;
mod dataplane;
mod disk_limit;
mod distant_daemon;
mod flush;
mod foundation;
mod gfarm;
mod guard;
mod huge_pages;
mod job;
mod journal;
mod leftovers;
mod minimal_daemon;
mod mpiio;
mod nodes;
mod precedence;
mod process_times;
mod processors;
mod report;
mod rounds;
mod run;
mod sample;
mod stage;
mod stats;
mod stopwatch;
mod worker;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Measure the goals of Hayase; exit 0 only when all of them hold
#[derive(Debug, clap::Parser)]
#[command(name = "bench.sh")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// A job's file system: local, remote and striped files, names, start and end
    Foundation(run::RunArguments),
    /// Many nodes: start, failures, locks, names through many servers, rest
    Nodes(run::RunArguments),
    /// MPI-IO: one shared file, written at the speed of a file for each process
    Mpiio(run::RunArguments),
    /// MPI-IO on several nodes: reads through mounts, and the figures of the first paper
    MpiioNodes(run::RunArguments),
    /// Staging: trees between a bucket and memory, loose, packed, sealed, mounted; against rclone
    Stage(run::RunArguments),
    /// The cache area: written behind, drained, read again, in front of a disk of known speed
    Flush(run::RunArguments),
    /// Bytes through a server: its disk beside fio, its network beside a bare loop, small writes, its memory
    Dataplane(run::RunArguments),
    /// A real Gfarm: our mount and containers beside gfarm2fs
    Gfarm(run::RunArguments),
    /// Do tasks from standard input
    #[command(hide = true)]
    Worker,
    /// Show a directory with passthrough until standard input ends
    #[command(hide = true)]
    MinimalDaemon {
        /// What is shown
        source: PathBuf,
        /// Where
        mount_point: PathBuf,
    },
    /// Show a directory late until standard input ends
    #[command(hide = true)]
    DistantDaemon {
        /// What is shown
        source: PathBuf,
        /// Where
        mount_point: PathBuf,
        /// How much later each answer comes
        milliseconds: u64,
    },
    /// Clean up when standard input ends
    #[command(hide = true)]
    Guard {
        /// What the bench owns
        tree: PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().verb {
        Verb::Foundation(arguments) => run::run(
            "foundation",
            &foundation::SUMMARY,
            foundation::INTRO,
            foundation::GROUPS,
            &arguments,
        ),
        Verb::Nodes(arguments) => {
            run::run("nodes", &nodes::SUMMARY, nodes::INTRO, nodes::GROUPS, &arguments)
        }
        Verb::Mpiio(arguments) => {
            run::run("mpiio", &mpiio::SUMMARY, mpiio::INTRO, mpiio::GROUPS, &arguments)
        }
        Verb::MpiioNodes(arguments) => run::run(
            "mpiio-nodes",
            &mpiio::NODES_SUMMARY,
            mpiio::NODES_INTRO,
            mpiio::NODES_GROUPS,
            &arguments,
        ),
        Verb::Stage(arguments) => {
            run::run("stage", &stage::SUMMARY, stage::INTRO, stage::GROUPS, &arguments)
        }
        Verb::Flush(arguments) => {
            run::run("flush", &flush::SUMMARY, flush::INTRO, flush::GROUPS, &arguments)
        }
        Verb::Dataplane(arguments) => run::run(
            "dataplane",
            &dataplane::SUMMARY,
            dataplane::INTRO,
            dataplane::GROUPS,
            &arguments,
        ),
        Verb::Gfarm(arguments) => {
            run::run("gfarm", &gfarm::SUMMARY, gfarm::INTRO, gfarm::GROUPS, &arguments)
        }
        Verb::Worker => workloads::serve().map(|()| true),
        Verb::MinimalDaemon { source, mount_point } => {
            minimal_daemon::serve(&source, &mount_point).map(|()| true)
        }
        Verb::DistantDaemon { source, mount_point, milliseconds } => {
            let delay = std::time::Duration::from_millis(milliseconds);
            distant_daemon::serve(&source, &mount_point, delay).map(|()| true)
        }
        Verb::Guard { tree } => guard::stand(&tree).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
