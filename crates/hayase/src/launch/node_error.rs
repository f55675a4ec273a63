//! Why the nodes of a job did not come up.

use std::time::Duration;

use rustix::process::Signal;

use crate::advice::{Advice, Advise};

/// Why the nodes did not come up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    /// One of them said so, or ended.
    #[error("node {node} did not come up: {what}{}", quote(.tail))]
    NotUp {
        /// Which.
        node: u16,
        /// In words.
        what: String,
        /// What it knew to do about it.
        help: Option<String>,
        /// The last lines of its log.
        tail: Vec<String>,
    },
    /// Not all were ready in time.
    #[error("no answer from node {} within {} s{}", list(.nodes), .after.as_secs(), quote(.tail))]
    Late {
        /// Which.
        nodes: Vec<u16>,
        /// How long was waited.
        after: Duration,
        /// The last lines of the first one's log.
        tail: Vec<String>,
    },
    /// Its host can not be reached.
    #[error("node {node} did not come up: {host}: {what}{}", quote_stderr(.tail))]
    NotReached {
        /// Which.
        node: u16,
        /// Its host.
        host: String,
        /// In words.
        what: String,
        /// The last lines that ssh or srun printed.
        tail: Vec<String>,
    },
    /// Not all hosts were ready in time.
    #[error("no answer from {} within {} s{}", .hosts.join(", "), .after.as_secs(), unmade(.silent))]
    LateHosts {
        /// Which.
        hosts: Vec<String>,
        /// Those of them that have not even made their directories.
        silent: Vec<String>,
        /// How long was waited.
        after: Duration,
    },
    /// Somebody wanted us to stop.
    #[error("interrupted by {0:?} while the nodes came up; nothing was left behind")]
    Interrupted(Signal),
}

impl NodeError {
    /// What the user can try next.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::NotUp { help, .. } => {
                help.clone().or(Some("`hayase doctor` checks what this machine can do".to_owned()))
            }
            Self::Late { .. } | Self::LateHosts { .. } => {
                Some("allow more time with --timeout SECONDS".to_owned())
            }
            Self::NotReached { host, tail, .. } => Some(unreached_help(host, tail)),
            Self::Interrupted(_) => None,
        }
    }
}

impl Advise for NodeError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice::failure(self.help()))
    }
}

/// A log's end, below the message.
fn quote(tail: &[String]) -> String {
    quote_as("the end of its log", tail)
}

fn quote_stderr(tail: &[String]) -> String {
    quote_as("its last output", tail)
}

fn quote_as(what: &str, tail: &[String]) -> String {
    if tail.is_empty() {
        return String::new();
    }
    let lines: Vec<_> = tail.iter().map(|line| format!("    {line}")).collect();
    format!("\n  {what}:\n{}", lines.join("\n"))
}

fn unmade(silent: &[String]) -> String {
    if silent.is_empty() {
        return String::new();
    }
    format!("; {} did not even make its directories", silent.join(", "))
}

fn unreached_help(host: &str, tail: &[String]) -> String {
    let is_missing = |line: &String| line.contains("not found") || line.contains("No such file");
    if tail.iter().any(is_missing) {
        return "install hayase at the same path on every host, or name its place there with \
                --remote-hayase PATH"
            .to_owned();
    }
    format!(
        "every host must reach the others without a password: try `ssh -o BatchMode=yes {host} true`; \
         with --fanout 4096 only this host starts the others"
    )
}

fn list(nodes: &[u16]) -> String {
    nodes.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}
