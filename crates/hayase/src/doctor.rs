//! What this machine can do for a job, and what to do where it can not.
//!
//! Here: what a check is, and the list of all. Rooms: [`kernel`], [`fuse`], [`storage`],
//! [`network`] (simulated nodes), [`exposure`] (who could reach a server), [`fabric`] (how servers speak), [`launcher`], [`limits`], [`apart`] (from programs), [`mpi`]. A check looks, and tries only what leaves
//! nothing behind.

mod apart;
mod exposure;
mod fabric;
mod fuse;
mod kernel;
mod launcher;
mod limits;
mod mpi;
mod network;
mod storage;

use serde::Serialize;

use crate::config::Environment;

pub(crate) use exposure::Listening;

/// How good it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Health {
    /// As it should be.
    Ok,
    /// It works, but slower or with less.
    Warn,
    /// Jobs can not start here.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// What.
    pub(crate) name: &'static str,
    /// How good.
    pub(crate) health: Health,
    /// What was found.
    pub(crate) found: String,
    /// What follows from it; empty when nothing does.
    pub(crate) means: String,
    /// What can be done about it; empty when nothing needs to be.
    pub(crate) todo: String,
}

impl Check {
    /// All is well.
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        let found = found.into();
        Self { name, health: Health::Ok, found, means: String::new(), todo: String::new() }
    }

    /// It works, but.
    fn warn(name: &'static str, found: impl Into<String>, means: &str, todo: &str) -> Self {
        Self { health: Health::Warn, ..Self::fail(name, found, means, todo) }
    }

    /// It does not work.
    fn fail(name: &'static str, found: impl Into<String>, means: &str, todo: &str) -> Self {
        Self {
            name,
            health: Health::Fail,
            found: found.into(),
            means: means.to_owned(),
            todo: todo.to_owned(),
        }
    }
}

/// Looks at everything; also where servers of a job on `hosts` would listen.
pub(crate) fn examine(
    hosts: Option<&str>,
    environment: &Environment,
) -> (Vec<Check>, Vec<Listening>) {
    let mut checks = vec![kernel::version(), kernel::privilege(environment)];
    checks.extend(fuse::checks(environment));
    checks.extend(storage::checks(environment));
    checks.extend(network::checks(environment));
    checks.extend(launcher::checks(environment));
    let (exposed, listening) = exposure::examine(hosts, environment);
    checks.push(exposed);
    checks.extend(fabric::checks());
    checks.extend(limits::checks());
    checks.extend(apart::checks());
    checks.extend(mpi::checks(environment));
    (checks, listening)
}

/// Content of a small file of the kernel, without its last newline.
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
