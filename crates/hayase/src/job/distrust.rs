//! Why a directory is not used: another user could have written what it says.

use std::path::PathBuf;

/// Why a directory is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Distrust {
    /// It is another user's.
    #[error("it belongs to user {0}")]
    Owner(u32),
    /// Other users may have written to it.
    #[error("others can write to it")]
    OthersWrite,
    /// A directory above it belongs to another user, who can replace it.
    #[error("{} on the way to it belongs to user {user}", .at.display())]
    Above { at: PathBuf, user: u32 },
    /// The same of a link, which leads to `target`.
    #[error("the link {} on the way to it belongs to user {user}", .at.display())]
    LinkAbove { at: PathBuf, user: u32, target: PathBuf },
    /// Others can write to a directory above it.
    #[error("others can replace what is in {}", .0.display())]
    Replaceable(PathBuf),
    /// Its owner and its mode are made up.
    #[error("it is in a file system that user {user} has mounted at {}", .at.display())]
    Mounted { at: PathBuf, user: u32 },
    /// It may be in a file system that is not in the list of mounts any more.
    #[error("what was mounted at {} changed meanwhile", .0.display())]
    MountsChanged(PathBuf),
    /// The way to it does not end.
    #[error("too many links lead to it")]
    Links,
}

impl Distrust {
    /// Whether that is nothing which a job of this user could have on its way: a link that leads there leads to no such job.
    pub(crate) fn is_of_others(&self) -> bool {
        match self {
            Self::Owner(_)
            | Self::Above { .. }
            | Self::LinkAbove { .. }
            | Self::Mounted { .. }
            | Self::Links => true,
            Self::OthersWrite | Self::Replaceable(_) | Self::MountsChanged(_) => false,
        }
    }

    /// What the user can try next.
    pub(crate) fn help(&self) -> String {
        let help = match self {
            Self::LinkAbove { target, .. } => {
                return format!(
                    "give the path without that link, if you mean where it leads: {target:?}"
                );
            }
            Self::Owner(_) => {
                "run this as the user whose job it is (as root: `runuser -u USER -- hayase ...`)"
            }
            Self::OthersWrite => "if nobody else has written there: `chmod go-w` that directory",
            Self::MountsChanged(_) => "look who mounts something there, then try again",
            Self::Above { .. } | Self::Replaceable(_) | Self::Mounted { .. } | Self::Links => {
                "where it is another user's job, run this as that user (as root: `runuser -u USER -- hayase ...`); your own \
                 jobs need places that nobody else can replace: those of root below directories of root only, others not \
                 below what somebody else has made in /tmp"
            }
        };
        help.to_owned()
    }
}
