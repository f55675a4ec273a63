//! `hayase doctor`.

use serde::Serialize;

use crate::config::Environment;
use crate::doctor::{Check, Health, Listening, examine};
use crate::exit::Status;
use crate::output::{Human, Output, Page};

/// Check what this machine can do for a job, and say what to do where it can not
///
/// Ends with 1 when jobs can not start here; warnings are no failure.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Tell where servers would listen in a job on these hosts [default: those of the batch job, else any]
    #[arg(long, value_name = "LIST")]
    hosts: Option<String>,
}

#[derive(Debug, Serialize)]
struct Examined {
    /// The worst of all.
    health: Health,
    checks: Vec<Check>,
    /// Addresses on which servers of a job on several hosts would listen here.
    listening: Vec<Listening>,
}

/// Looks at everything and tells.
pub(crate) fn run(
    args: &DoctorArgs,
    environment: &Environment,
    output: &Output,
) -> anyhow::Result<Status> {
    let (checks, listening) = examine(args.hosts.as_deref(), environment);
    let health = checks.iter().map(|check| check.health).max().unwrap_or(Health::Ok);
    output.show(&Examined { health, checks, listening })?;
    Ok(if health == Health::Fail { Status::Failed } else { Status::Done })
}

impl Human for Examined {
    fn write(&self, page: &mut Page) {
        for check in &self.checks {
            let (word, colour) = match check.health {
                Health::Ok => ("ok  ", "32"),
                Health::Warn => ("warn", "33"),
                Health::Fail => ("fail", "31"),
            };
            let word = page.paint(word, colour);
            page.line(&format!("{word}  {}: {}", check.name, check.found));
            for (mark, text) in [("", &check.means), ("do: ", &check.todo)] {
                if !text.is_empty() && check.health != Health::Ok {
                    page.line(&format!("        {mark}{text}"));
                }
            }
        }
        page.blank();
        page.line(match self.health {
            Health::Ok => "all is well",
            Health::Warn => "jobs can start here; see the warnings for what would make them better",
            Health::Fail => "jobs can not start here until the failures are mended",
        });
    }
}
