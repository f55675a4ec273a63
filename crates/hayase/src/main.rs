//! The `hayase` command: everything a person types, and the only place where the parts are wired together.
//!
//! Here: reading arguments, choosing the verb, turning an error into words and an exit code.
//! Rooms: [`commands`] (one verb, one file), [`job`] (the job directory and how a job is found), [`kept_file`] (small
//! files with a checksum),
//! [`launch`] (starting and ending the nodes of a job), [`supervisor`] (the process that keeps one
//! node), [`doctor`] (what this machine can do), [`noise`] (how programs are disturbed), [`processors`], [`interrupts`] and [`cpu_budget`] (what keeps daemons away from them), [`report`] (the page of a job), [`metrics`] (counters for Prometheus), [`moment`] (times as people write them), [`count`] (numbers of things), [`output`] (the only code that prints),
//! [`wiring`] (where the servers, the mounts and the areas of the other crates are plugged in).

mod cli;
mod commands;
mod config;
mod count;
mod cpu_budget;
mod doctor;
mod exit;
mod interrupts;
mod job;
mod kept_file;
mod launch;
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
mod supervisor;
mod wiring;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

fn main() -> ExitCode {
    let command = cli::Cli::command().color(output::colour_of_help());
    let typed = command.try_get_matches().and_then(|typed| cli::Cli::from_arg_matches(&typed));
    let arguments = match typed {
        Ok(arguments) => arguments,
        Err(error) => return output::wrong_usage(error),
    };
    let environment = config::Environment::read();
    let output = output::Output::new(arguments.output, environment.no_color);
    match commands::run(arguments.command, &environment, &output) {
        Ok(status) => status.into(),
        Err(error) => {
            output.fail(&error);
            exit::status_of(&error).into()
        }
    }
}
