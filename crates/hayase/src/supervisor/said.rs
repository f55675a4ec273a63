//! What supervisors and daemons tell whoever started them: one JSON object in a line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::output::Output;

/// A line on standard output of `hayase node`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Said {
    /// Everything is up.
    Ready(Ready),
    /// It will not come up; what was there is being taken down.
    Failed(Failure),
}

/// A node that is up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// Which.
    pub(crate) node: u16,
    /// Host name on it.
    pub(crate) host: String,
    /// Where its server listens.
    pub(crate) address: String,
    /// `$HAYASE_SHARED`.
    pub(crate) shared: PathBuf,
    /// `$HAYASE_LOCAL`.
    pub(crate) local: PathBuf,
    /// `$HAYASE_CACHE`, when the job has a tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cache: Option<PathBuf>,
    /// What keeps the areas to their sizes: `image` or `counted`.
    pub(crate) limiter: String,
    /// How the mount serves files: what it said last.
    pub(crate) mount: MountTold,
    /// What became of interrupts that it was to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interrupts: Option<crate::interrupts::Told>,
    /// What a person should know of the file system that its storage is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) storage_warning: Option<String>,
}

/// A line on standard output of `serve` and `serve-mount`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DaemonSaid {
    /// It serves. Of a server there is nothing more to tell.
    Ready(Option<MountTold>),
    /// It does not.
    Failed(Failure),
    /// The mount serves files in another way than it said before.
    Changed(MountTold),
}

/// How a mount serves files whose bytes are on its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountTold {
    /// `passthrough` or `fuse`.
    pub(crate) path: String,
    /// Why not the faster one; empty when it is.
    pub(crate) why: String,
}

/// Why something did not come up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The chain of errors in one line.
    pub(crate) what: String,
    /// What to try.
    pub(crate) help: Option<String>,
    /// The end of the log that tells more.
    pub(crate) tail: Vec<String>,
}

impl Failure {
    /// From an error, with what `output` knows to try.
    pub(crate) fn new(error: &anyhow::Error, output: &Output) -> Self {
        let help = output.advice(error).help;
        Self { what: format!("{error:#}"), help, tail: Vec::new() }
    }
}
