//! `hayase doctor`.

use serde::Serialize;

use crate::config::Environment;
use crate::doctor::{Check, Health, Listening, examine};
use crate::exit::Status;
use crate::output::{Human, Output, Page};

/// Check whether jobs can run on this machine, and how to fix what is missing
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Show the addresses of the servers in a job on these hosts [default: the hosts of the batch job, else any]
    #[arg(long, value_name = "LIST")]
    hosts: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  hayase doctor
  hayase doctor --hosts 'n[01-16]' --json

Exit codes:
  0 jobs can run here, perhaps with warnings; 1 they cannot.";

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
                if !text.is_empty() {
                    page.line(&format!("        {mark}{text}"));
                }
            }
        }
        page.blank();
        page.line(match self.health {
            Health::Ok => "all is well",
            Health::Warn => "jobs can start here; see the warnings for what would make them better",
            Health::Fail => "jobs cannot start here until the failures are fixed",
        });
    }
}
