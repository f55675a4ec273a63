//! What can be wrong with a job that a command means.

use std::io;
use std::path::PathBuf;

use super::Distrust;
use crate::advice::{Advice, Advise};
use crate::kept_file::KeptFileError;

/// Why there is no such job, or none that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// A path without `job.json`.
    #[error("{} is not a job directory: it has no readable job.json", .path.display())]
    NotAJob {
        /// What was named.
        path: PathBuf,
        /// It came from `HAYASE_JOB`.
        from_environment: bool,
    },
    /// No entry of that name.
    #[error("this user has no job named `{name}` here: it never started, or is already down")]
    Unknown {
        /// What was named.
        name: String,
    },
    /// Nothing named and nothing there.
    #[error("no job of this user is running here")]
    NoneRunning,
    /// Nothing named and too much there.
    #[error("this user has several jobs here: {}", .names.join(", "))]
    Several {
        /// Which.
        names: Vec<String>,
    },
    /// A job directory whose settings can not be read.
    #[error("invalid job.json in {}: {why}", .path.display())]
    Corrupt {
        /// The job directory.
        path: PathBuf,
        /// In words.
        why: String,
    },
    /// A file of the job can not be read.
    #[error(transparent)]
    File(#[from] KeptFileError),
    /// Nobody can say whether it runs.
    #[error("cannot tell whether node {node} of job {job} runs: {source}")]
    Unknowable {
        /// Which job.
        job: String,
        /// Which node.
        node: u16,
        /// With the file.
        source: KeptFileError,
    },
    /// All its supervisors are gone.
    #[error("job {job} is not running any more: its processes have ended")]
    Dead {
        /// Which.
        job: String,
    },
    /// The name is taken.
    #[error("job {job} exists already in {}", .path.display())]
    Exists {
        /// Which.
        job: String,
        /// Where.
        path: PathBuf,
    },
    /// A node number past the end.
    #[error("job {job} has no node {node}: it has {nodes}, numbered from 0")]
    NoSuchNode {
        /// Which job.
        job: String,
        /// What was asked for.
        node: u16,
        /// How many there are.
        nodes: u16,
    },
    /// The directory of this user's jobs is not theirs alone.
    #[error("{} belongs to another user, or others can enter it", .path.display())]
    UnsafeRuntime {
        /// Which.
        path: PathBuf,
    },
    /// Somebody else may have written what a command would act on.
    #[error("{} is not used: {why}", .path.display())]
    Foreign {
        /// Which directory.
        path: PathBuf,
        /// What speaks against it.
        why: Distrust,
        /// The link in the directory of jobs that leads there.
        entry: Option<PathBuf>,
    },
    /// The system refused.
    #[error("{action} {}", .path.display())]
    Io {
        /// Verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl JobError {
    /// Turns an I/O error into one that says what was tried.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// In words, with what the user can try next.
    pub(crate) fn with_help(&self) -> String {
        match self.help() {
            Some(help) => format!("{self}; {help}"),
            None => self.to_string(),
        }
    }

    /// What the user can try next.
    pub(crate) fn help(&self) -> Option<String> {
        Some(match self {
            Self::NotAJob { from_environment: true, .. } => {
                "HAYASE_JOB names it; unset it, or name a job with --job".to_owned()
            }
            Self::NotAJob { .. } => {
                "name a job by its id or by its job directory; `hayase up` prints both".to_owned()
            }
            Self::Unknown { .. } => "`hayase status` without --job lists your jobs".to_owned(),
            Self::NoneRunning => "start one with `hayase up` or `hayase run -- CMD`".to_owned(),
            Self::Several { .. } => "choose one with --job, or export HAYASE_JOB".to_owned(),
            Self::Corrupt { .. } => return None,
            Self::File(KeptFileError::Damaged { .. }) => {
                "nothing was changed or removed; the bytes of the job are in its storage".to_owned()
            }
            Self::File(KeptFileError::OtherProcesses { .. })
            | Self::Unknowable { source: KeptFileError::OtherProcesses { .. }, .. } => {
                "run this command where the job was started, or in a container that shares the processes of that place"
                    .to_owned()
            }
            Self::File(KeptFileError::Io { .. }) => return None,
            Self::Unknowable { source: KeptFileError::Damaged { .. }, .. } => {
                "nothing of the node was changed; end its processes, then remove the file and its .copy"
                    .to_owned()
            }
            Self::Unknowable { .. } => return None,
            Self::Dead { job } => format!(
                "`hayase down --job {job}` ends what is left of it, and says how to flush what the tier does not have"
            ),
            Self::Exists { job, .. } => {
                format!("end it with `hayase down --job {job}`, or choose another --job")
            }
            Self::NoSuchNode { .. } => "`hayase status` lists the nodes".to_owned(),
            Self::UnsafeRuntime { .. } => {
                "remove it, or have root remove it, or set HAYASE_RUNTIME_DIR to a directory of your own with mode 0700"
                    .to_owned()
            }
            Self::Foreign { entry: Some(entry), .. } => {
                format!("remove {} to forget it", entry.display())
            }
            Self::Foreign { why, .. } => why.help(),
            Self::Io { .. } => return None,
        })
    }

    /// It is somebody else's job, or a link leads to what is none of this user.
    pub(crate) fn is_theirs(&self) -> bool {
        matches!(self, Self::Foreign { why, entry, .. } if entry.is_some() || matches!(why, Distrust::Owner(_)))
    }

    /// The person named something that is not there, or not theirs.
    pub(crate) fn is_usage(&self) -> bool {
        let is_of_the_system = matches!(
            self,
            Self::Io { .. }
                | Self::Corrupt { .. }
                | Self::Dead { .. }
                | Self::File(_)
                | Self::Unknowable { .. }
        );
        !is_of_the_system
    }
}

impl Advise for JobError {
    fn advice(&self) -> Option<Advice> {
        Some(Advice { help: self.help(), is_usage: self.is_usage() })
    }
}
