//! Kinds of runs: what happens to a job, and what its programs may then see.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::random::Random;

/// What happens to the job of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Connections break, links fall silent for less than servers bear.
    #[default]
    Links,
    /// Servers and mounts are killed, some at a commit, and started again; connections break.
    Restarts,
    /// Nodes are cut off, and links are silent, for as long as it takes to be declared lost and
    /// longer; they come back.
    Cuts,
    /// A node dies and never comes back, and before and after it servers are killed.
    Losses,
    /// All nodes lose power at once, and come back with what was durable and some of the rest.
    PowerCut,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Links, Self::Restarts, Self::Cuts, Self::Losses, Self::PowerCut];

    /// The kind of a seed that is run without saying which.
    pub fn of(seed: u64) -> Self {
        match Random::new(!seed).below(10) {
            0 | 1 => Self::Links,
            2..=4 => Self::Restarts,
            5 | 6 => Self::Cuts,
            7 | 8 => Self::Losses,
            _ => Self::PowerCut,
        }
    }

    /// Longest pause between two calls of a program: the runs last as long as their troubles need.
    pub(crate) fn pause(self) -> Duration {
        Duration::from_millis(match self {
            Self::Links => 60,
            Self::Restarts | Self::PowerCut => 300,
            Self::Cuts | Self::Losses => 700,
        })
    }

    /// Whether a call of this name may end with EIO although its mount lives.
    pub(crate) fn may_fail(self, call: &str, harsh: bool) -> bool {
        match self {
            Self::Links => harsh,
            // An append can not be known again by a server that was started anew.
            Self::Restarts => call == "append",
            Self::Cuts | Self::Losses | Self::PowerCut => true,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Links => "links",
            Self::Restarts => "restarts",
            Self::Cuts => "cuts",
            Self::Losses => "losses",
            Self::PowerCut => "power-cut",
        })
    }
}

/// No kind of runs has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no kind of runs is called `{0}`: links, restarts, cuts, losses or power-cut")]
pub struct UnknownKind(String);

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let found = Self::ALL.into_iter().find(|kind| kind.to_string() == text);
        found.ok_or_else(|| UnknownKind(text.to_owned()))
    }
}
