//! Exit codes: the border between errors and the shell.
//!
//! 0 done, 1 failed, 2 wrong usage or settings, 3 partly done. `exec` and `run` pass on the status
//! of the program they ran.

use std::process::ExitCode;

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

/// Ends the process, whatever its threads do and whatever is registered to run at its end (_exit(2)).
#[expect(unsafe_code, reason = "there is no safe wrapper")]
pub(crate) fn at_once(status: u8) -> ! {
    // SAFETY: it does not return, and takes no pointer.
    unsafe { libc::_exit(status.into()) }
}
