//! What can go wrong with a container, and what to try.

use std::io;
use std::path::{Path, PathBuf};

use hayase_layout::{ByteCount, IndexError};

/// Why something could not be done with a container.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// Nothing is there.
    #[error("there is no container {}", .path.display())]
    NotFound {
        /// What was asked for.
        path: PathBuf,
    },
    /// Something else is there: a plain file, or a directory without the mark.
    #[error("{} is not a container", .path.display())]
    NotContainer {
        /// What was asked for.
        path: PathBuf,
    },
    /// It was to be created exclusively, or it would replace something.
    #[error("{} exists", .path.display())]
    Exists {
        /// The name that is taken.
        path: PathBuf,
    },
    /// Written by a later version.
    #[error("{} has format version {found}; this program knows versions up to {known}", .path.display())]
    NewerFormat {
        /// The file that says so.
        path: PathBuf,
        /// The version that it asks for.
        found: u16,
        /// The last one known here.
        known: u16,
    },
    /// Bytes that no version of this program wrote there.
    #[error("{} is damaged at byte {at}: {what}", .path.display())]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// Where in it.
        at: u64,
        /// What is wrong.
        what: String,
    },
    /// Each index can be read, but together they make no file.
    #[error("the indexes in {} contradict each other", .path.display())]
    Contradiction {
        /// The container.
        path: PathBuf,
        /// What they say.
        source: IndexError,
    },
    /// A record says that bytes lie in a part that is not there.
    #[error("the part {} is missing", .path.display())]
    MissingPart {
        /// The part.
        path: PathBuf,
    },
    /// A record says that bytes lie behind the end of a part.
    #[error("the part {} has {found} bytes where {needed} were published", .path.display())]
    ShortPart {
        /// The part.
        path: PathBuf,
        /// Bytes that it must have.
        needed: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// Disk or quota is full.
    #[error("no room to {action} {}", .path.display())]
    NoRoom {
        /// What was being done.
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It holds a file that is not of a container, so it is not removed.
    #[error("{} holds `{name}`, which is not part of a container", .path.display())]
    Foreign {
        /// The container.
        path: PathBuf,
        /// The first such file.
        name: String,
    },
    /// The open does not allow it.
    #[error("{} is not open for {wanted}", .path.display())]
    Access {
        /// The container.
        path: PathBuf,
        /// `reading` or `writing`.
        wanted: &'static str,
    },
    /// Opening it for writing would make more writers than a container may have.
    #[error("{}: {count} processes have written it and {group} want to: a container has at most {most} writers", .path.display())]
    Writers {
        /// The container.
        path: PathBuf,
        /// Writers that it has.
        count: usize,
        /// Processes that open it together.
        group: usize,
        /// How many it may have.
        most: usize,
    },
    /// A named limit was reached.
    #[error("{}: {what}", .path.display())]
    Limit {
        /// The container.
        path: PathBuf,
        /// Which one.
        what: String,
    },
    /// What the caller asked for makes no sense.
    #[error("{what}")]
    Invalid {
        /// Why.
        what: String,
    },
    /// The system refused.
    #[error("{action} {}", .path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ContainerError {
    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { .. } => Some(
                "check the name; `hayase container show DIR` lists the containers of a directory",
            ),
            Self::NotContainer { .. } => {
                Some("`hayase container show DIR` lists the containers of a directory")
            }
            Self::NewerFormat { .. } => {
                Some("use the version of hayase that wrote it, or a newer one")
            }
            Self::Corrupt { .. }
            | Self::Contradiction { .. }
            | Self::MissingPart { .. }
            | Self::ShortPart { .. } => {
                Some("`hayase container check` lists everything that is wrong and where")
            }
            Self::Writers { .. } => Some(
                "`hayase container compact --flatten` makes one writer of all that have closed",
            ),
            Self::NoRoom { .. } => Some("free space there; what was published before is untouched"),
            Self::Foreign { .. } => Some("move that file away, then try again"),
            Self::Exists { .. }
            | Self::Access { .. }
            | Self::Limit { .. }
            | Self::Invalid { .. }
            | Self::Io { .. } => None,
        }
    }

    /// From what the system said: [`ContainerError::NoRoom`] where it is that.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoRoom { action, path, source }
            }
            _ => Self::Io { action, path, source },
        }
    }
}

/// A write that ended early: the bytes before are written and noted, as after a short write(2).
#[derive(Debug, thiserror::Error)]
#[error("{written} were written")]
pub struct WriteError {
    /// The first so many bytes are in the file.
    pub written: ByteCount,
    /// Why not more.
    #[source]
    pub source: ContainerError,
}
