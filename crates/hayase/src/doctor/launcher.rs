//! What would start the nodes of a job that is typed here without further options.

use super::Check;
use crate::config::Environment;
use crate::launch::allocation::{Choice, choose};
use crate::launch::options::JobOptions;
use crate::system::program;

const ALONE: &str = "`hayase up` without --hosts or --launcher fails here";

pub(super) fn checks(environment: &Environment) -> Vec<Check> {
    vec![chosen(environment), ssh(environment)]
}

fn chosen(environment: &Environment) -> Check {
    match choose(&JobOptions::default(), environment) {
        Ok((Choice::Local, why)) => Check::ok("launcher", format!("this machine ({why})")),
        Ok((Choice::Hosts { way, .. }, why)) => {
            Check::ok("launcher", format!("{} ({why})", way.program()))
        }
        Err(error) => {
            let todo = error.help().unwrap_or_default();
            Check::warn("launcher", format!("{:#}", anyhow::Error::from(error)), ALONE, &todo)
        }
    }
}

fn ssh(environment: &Environment) -> Check {
    match program::find("ssh", &environment.path) {
        Some(path) => Check::ok("ssh", path.display().to_string()),
        None => Check::ok("ssh", "not found: nodes on other hosts need srun, or --ssh COMMAND"),
    }
}
