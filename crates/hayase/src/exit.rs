//! Exit codes: the border between errors and the shell.
//!
//! 0 done, 1 failed, 2 wrong usage or settings, 3 partly done. `exec` and `run` pass on the status
//! of the program they ran.

use std::process::ExitCode;

use hayase_container::ContainerError;
use hayase_stage::pack::PackError;

use crate::commands::{
    AreaPathError, BackgroundError, DeleteOfFile, KeyError, LayoutError, MountPathError, NoTier,
    NothingCompared, SpreadError,
};
use crate::cpu_budget::group::BudgetError;
use crate::job::JobError;
use crate::launch::{
    DeadlineError, EnterError, LaunchError, NodeError, PlanError, PreloadError, StorageNodesError,
};
use crate::metrics::listener::ListenError;
use crate::processors::Missing;
use crate::supervisor::daemon::DaemonFailed;
use crate::wiring::places::PlaceError;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Done.
    Done,
    /// Failed.
    Failed,
    /// Wrong usage or settings: nothing was started.
    Usage,
    /// Partly done; what was left is listed.
    Partly,
    /// The status of the program that was run (128 + signal when a signal ended it).
    Program(u8),
}

impl Status {
    /// As the shell sees it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Partly => 3,
            Self::Program(code) => code,
        }
    }
}

/// What a status of our own means, in short and in addition to that: for `--help`, manual pages and the reference.
pub(crate) const MEANINGS: [(Status, &str, &str); 4] = [
    (Status::Done, "done", ""),
    (Status::Failed, "failed", "; also `doctor` and `container check` that found something wrong"),
    (Status::Usage, "wrong usage or settings", ": nothing was started or changed"),
    (
        Status::Partly,
        "partly done",
        ": what was left is listed, for example files that the tier does not have; also `stage verify`, `pack verify` and \
         `flush --verify` that found differences",
    ),
];

/// All of them in one line.
pub(crate) fn meanings() -> String {
    let each = MEANINGS.map(|(status, short, _)| format!("{} {short}", status.code()));
    each.join("; ")
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        ExitCode::from(status.code())
    }
}

/// What one of our errors adds to its message.
pub(crate) struct Advice {
    /// What to try next.
    pub(crate) help: Option<String>,
    /// The person asked for something that can not be: exit code 2.
    pub(crate) is_usage: bool,
}

/// The first advice in the chain of `error`: the one table of error types that carry help.
pub(crate) fn advice(error: &anyhow::Error) -> Advice {
    for cause in error.chain() {
        let found = if let Some(e) = cause.downcast_ref::<JobError>() {
            Some((e.help(), e.is_usage()))
        } else if let Some(e) = cause.downcast_ref::<BackgroundError>() {
            Some((Some(e.help()), true))
        } else if let Some(e) = cause.downcast_ref::<PlanError>() {
            Some((e.help(), true))
        } else if let Some(e) = cause.downcast_ref::<StorageNodesError>() {
            Some((e.help().map(str::to_owned), true))
        } else if let Some(e) = cause.downcast_ref::<LaunchError>() {
            Some((e.help(), true))
        } else if cause.is::<NothingCompared>() {
            Some((Some(NothingCompared::HELP.to_owned()), true))
        } else if cause.is::<DeadlineError>() || cause.is::<Missing>() || cause.is::<DeleteOfFile>()
        {
            Some((None, true))
        } else if let Some(e) = cause.downcast_ref::<NodeError>() {
            Some((e.help(), false))
        } else if let Some(e) = cause.downcast_ref::<EnterError>() {
            Some((e.help(), e.is_usage()))
        } else if let Some(e) = cause.downcast_ref::<PreloadError>() {
            Some((Some(e.help()), true))
        } else if let Some(e) = cause.downcast_ref::<AreaPathError>() {
            Some((e.help(), e.is_usage()))
        } else if let Some(e) = cause.downcast_ref::<LayoutError>() {
            Some((e.help(), true))
        } else if cause.is::<NoTier>() {
            Some((Some(NoTier::HELP.to_owned()), true))
        } else if let Some(e) = cause.downcast_ref::<MountPathError>() {
            Some((e.help(), true))
        } else if let Some(e) = cause.downcast_ref::<SpreadError>() {
            Some((e.help(), e.is_usage()))
        } else if let Some(e) = cause.downcast_ref::<ListenError>() {
            Some((e.help().map(str::to_owned), false))
        } else if cause.is::<BudgetError>() {
            Some((Some(BudgetError::help()), false))
        } else if let Some(e) = cause.downcast_ref::<DaemonFailed>() {
            Some((e.0.help.clone(), false))
        } else if let Some(e) = cause.downcast_ref::<ContainerError>() {
            Some((e.help().map(str::to_owned), names_nothing(e)))
        } else if let Some(e) = cause.downcast_ref::<PlaceError>() {
            Some((e.help(), true))
        } else if let Some(e) = cause.downcast_ref::<KeyError>() {
            Some((e.help(), true))
        } else if let Some(e) = cause.downcast_ref::<PackError>() {
            Some((e.help().map(str::to_owned), is_wrong_key_or_place(e)))
        } else {
            crate::wiring::advice(cause).map(|help| (Some(help), false))
        };
        if let Some((help, is_usage)) = found {
            return Advice { help, is_usage };
        }
    }
    Advice { help: None, is_usage: false }
}

/// The person named a path that can not be meant.
fn names_nothing(error: &ContainerError) -> bool {
    use ContainerError::{Exists, Invalid, NotContainer, NotFound};
    matches!(error, NotFound { .. } | NotContainer { .. } | Exists { .. } | Invalid { .. })
}

/// The person named the wrong key, or a place that can not be meant.
fn is_wrong_key_or_place(error: &PackError) -> bool {
    matches!(
        error,
        PackError::NoPacks { .. }
            | PackError::TargetPacked { .. }
            | PackError::TargetLoose { .. }
            | PackError::SourceSealed { .. }
            | PackError::RemovesAll { .. }
            | PackError::IndexThere { .. }
            | PackError::KeyMissing { .. }
            | PackError::KeyUnexpected { .. }
            | PackError::WrongKey { .. }
            | PackError::KeyFormat(_)
    )
}

/// Ends the process, whatever its threads do and whatever is registered to run at its end (_exit(2)).
#[expect(unsafe_code, reason = "there is no safe wrapper")]
pub(crate) fn at_once(status: u8) -> ! {
    // SAFETY: it does not return, and takes no pointer.
    unsafe { libc::_exit(status.into()) }
}

/// The exit code of a command that ended with `error`.
pub(crate) fn status_of(error: &anyhow::Error) -> Status {
    if advice(error).is_usage { Status::Usage } else { Status::Failed }
}
