//! What goes down a tree of starts, and what comes up.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{JobId, Settings, Way};
use crate::supervisor::control::Request;
use crate::supervisor::said::{Failure, Said};

/// A node and the host that it is.
pub(crate) type NodeHost = (u16, String);

/// From the one who started us.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Down {
    /// First of all: who you are, and whom to start in turn.
    Join(Box<Join>),
    /// Make your node and bring it up.
    Start(Box<Start>),
    /// A file that the servers of the job share, for nodes that do not see the job directory of the one who
    /// typed `up`.
    File(BoardFile),
    /// The nodes may live on their own.
    Keep,
    /// A question to every node.
    Ask(Request),
}

/// Where in the tree a relay is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Join {
    /// Which job.
    pub(crate) job: JobId,
    /// Its mark.
    pub(crate) mark: String,
    /// Its directory, the same path on each node, whether the same directory or not.
    pub(crate) job_dir: PathBuf,
    /// The owner, who must be the same user on each node.
    pub(crate) uid: u32,
    /// The nodes of this subtree; the first one is the relay itself, unless `you` leaves that open.
    pub(crate) nodes: Vec<NodeHost>,
    /// Which node the relay is; absent where all get the same words and find themselves by name.
    pub(crate) you: Option<u16>,
    /// How to start the others.
    pub(crate) way: Way,
    /// How many of them directly.
    pub(crate) fanout: u16,
    /// Where the program lies on each host.
    pub(crate) binary: PathBuf,
    /// How long a host may take to say that it is there.
    pub(crate) patience_ms: u64,
}

/// What a node needs to come up.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The job's settings.
    pub(crate) settings: Settings,
    /// The job's secret in hex digits: goes through pipes only.
    pub(crate) secret: String,
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// `members.json`, or one of `members.d`: signed with the job's secret, so whoever carries it can not change it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BoardFile {
    /// The only node that needs it; absent when all do.
    pub(crate) to: Option<u16>,
    /// Name in the job directory.
    pub(crate) name: String,
    /// Content.
    pub(crate) text: String,
}

/// From a node, or about it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Up {
    /// Its relay is there.
    Joined,
    /// Its directories are made.
    Ground {
        /// Its job directory is its own, not the one of who typed `up`.
        is_private: bool,
    },
    /// Its supervisor said something.
    Said(Said),
    /// Its server put up a file for the others.
    File(BoardFile),
    /// It lives on its own now.
    Kept,
    /// It answers a question.
    Told(Answer),
    /// It can not be reached, or not any more.
    Lost(Failure),
}

/// The answer to a question.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// To `Status`: what `hayase status --json` shows of a node.
    Status(Value),
    /// To the others: done, and what somebody should know.
    Done {
        /// Sentences.
        notes: Vec<String>,
        /// The node's supervisor had ended before.
        was_dead: bool,
        /// Why its storage was not removed although that was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<String>,
    },
    /// Not done.
    Failed {
        /// Why.
        why: String,
    },
}
