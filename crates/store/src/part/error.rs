//! Why a part could not be used.
//!
//! Here: one enum for all devices, its errno and help. Not here: errors of an area's size
//! ([`crate::area::AreaError`]), except that an area which is full says [`PartError::NoRoom`].

use std::io;
use std::path::{Path, PathBuf};

use super::PartId;

/// Why a part could not be used.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// There is no such part, though somebody thinks so.
    #[error("part {part} is not in {}", .device.display())]
    Missing {
        /// Which part.
        part: PartId,
        /// The directory of all parts.
        device: PathBuf,
    },
    /// It is there already.
    #[error("create part {part} in {}: it exists", .device.display())]
    Exists {
        /// Which part.
        part: PartId,
        /// The directory of all parts.
        device: PathBuf,
    },
    /// The area is full.
    #[error("{action} part {part} in {}: no room", .device.display())]
    NoRoom {
        /// What was tried, a verb.
        action: &'static str,
        /// Which part.
        part: PartId,
        /// The directory of all parts.
        device: PathBuf,
    },
    /// The operating system said no.
    #[error("{action} part {part} in {}", .device.display())]
    Io {
        /// What was tried, a verb.
        action: &'static str,
        /// Which part.
        part: PartId,
        /// The directory of all parts.
        device: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// The call was to be made without waiting, and would have to.
    #[error("use part {part} without waiting")]
    WouldWait {
        /// Which part.
        part: PartId,
    },
    /// The directory of all parts can not be used.
    #[error("{action} {}", .device.display())]
    Device {
        /// What was tried, a verb.
        action: &'static str,
        /// The directory of all parts.
        device: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl PartError {
    /// From what the system answered to `action`.
    pub(crate) fn from_io(
        action: &'static str,
        part: PartId,
        device: &Path,
        source: io::Error,
    ) -> Self {
        let device = device.to_owned();
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Self::NoRoom { action, part, device },
            _ => Self::Io { action, part, device, source },
        }
    }

    /// The errno that a system call answers; `ENOSPC` stays `ENOSPC`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Missing { .. } => libc::EIO,
            Self::WouldWait { .. } => libc::EAGAIN,
            Self::Exists { .. } => libc::EEXIST,
            Self::NoRoom { .. } => libc::ENOSPC,
            Self::Io { source, .. } | Self::Device { source, .. } => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
        }
    }

    /// What the user can try next.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Missing { .. } => Some(
                "its file was removed behind the server's back: the bytes are lost; remove the name, \
                 and keep other programs out of the storage directory",
            ),
            Self::NoRoom { .. } => Some(
                "remove files, or spread new ones over all nodes with `hayase layout set --stripe`",
            ),
            Self::Exists { .. }
            | Self::WouldWait { .. }
            | Self::Io { .. }
            | Self::Device { .. } => None,
        }
    }
}
