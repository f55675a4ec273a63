//! The `hayase` command: everything a person types, and the only place where the parts are wired together.
//!
//! Here: reading arguments, choosing the verb, turning an error into words and an exit code.
//! Rooms, from above: [`commands`] (one verb, one file), [`doctor`] (what this machine can do), [`report`] (the page of a
//! job), [`launch`] (starting and ending the nodes of a job), [`status`] (what is known of a job), [`supervisor`] (the
//! process that keeps one node), [`wiring`] (where the servers, the mounts and the areas of the other crates are plugged
//! in), [`metrics`] (counters for Prometheus), [`job`] (the job directory and how a job is found), [`layout_attribute`] (of
//! directories), [`processors`], [`interrupts`] and [`cpu_budget`] (what keeps daemons away from programs), [`noise`] (how
//! programs are disturbed), [`output`] (the only code that prints), [`system`] (mounts, namespaces and programs of the
//! machine), [`process`], [`kept_file`] (small files with a checksum), [`host`] (names of hosts), [`moment`] (times as
//! people write them), [`count`] (numbers of things), [`advice`] (what an error adds to its message).

mod advice;
mod cli;
mod commands;
mod config;
mod count;
mod cpu_budget;
mod doctor;
mod exit;
mod host;
mod interrupts;
mod job;
mod kept_file;
mod launch;
mod layout_attribute;
mod logging;
mod metrics;
mod moment;
mod noise;
mod number;
mod output;
mod process;
mod processors;
mod report;
mod size;
mod status;
mod supervisor;
mod system;
mod wiring;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

fn main() -> ExitCode {
    let command = || cli::Cli::command().color(output::colour_of_help());
    let typed = command().try_get_matches();
    let arguments = match typed.and_then(|typed| cli::Cli::from_arg_matches(&typed)) {
        Ok(arguments) => arguments,
        Err(error) => return output::wrong_usage(error, command()),
    };
    let environment = config::Environment::read();
    let output =
        output::Output::new(arguments.output, environment.no_color, commands::error_types::advice);
    match commands::run(arguments.command, cli::Cli::command, &environment, &output) {
        Ok(status) => status.into(),
        Err(error) => {
            output.fail(&error);
            output.advice(&error).status().into()
        }
    }
}
