//! Areas: a directory with a hard size.
//!
//! Here: the trait, its figures, its errors. Rooms: [`image`] is an XFS image of its own, where we
//! may mount; [`counted`] a plain directory whose bytes the server counts.
//! Not here: what lies in the area ([`crate::device`], [`crate::meta`]).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayase_layout::ByteCount;

use crate::device::{Device, PreadDevice};
use crate::part::PartError;

pub mod counted;
pub mod image;

pub use self::counted::CountedArea;
pub use self::image::{ImageArea, MountedArea};

/// The directory of parts below the root of an area.
pub const PARTS_DIRECTORY: &str = "parts";

/// The directory of names below the root of an area, and the extension of one beside it.
pub const NAMES_DIRECTORY: &str = "meta";

/// The directory of the ledger, beside that of the names.
pub const LEDGER_DIRECTORY: &str = "ledger";

/// A directory with a hard size.
pub trait Area: Send + Sync {
    /// The directory.
    fn root(&self) -> &Path;

    /// How the size is kept, for a person: "image", "counted", or "none" where there is no room for parts.
    fn kind(&self) -> &'static str;

    /// How much there is and how much is left.
    fn usage(&self) -> Result<AreaUsage, AreaError>;

    /// What its file system has moved since it was mounted; `None` where that is not counted.
    fn moved(&self) -> Option<AreaMoved> {
        None
    }

    /// Whether writing bytes that are there already needs no room, for as far as that is known: not where the file
    /// system below puts what is written elsewhere.
    fn overwrites_in_place(&self) -> bool {
        true
    }

    /// The directory for the names of what is in this area ([`crate::meta::FjallStore::open`]).
    ///
    /// Beside an image, not in it: what users write fills an image to the last block, and without
    /// room for a commit no file could be removed from it any more.
    fn names(&self) -> PathBuf {
        self.root().join(NAMES_DIRECTORY)
    }

    /// The directory for the ledger of what is durable where, beside that of the names.
    fn ledger(&self) -> PathBuf {
        self.names().with_file_name(LEDGER_DIRECTORY)
    }

    /// Where the files of the ledger lie.
    fn ledger_device(&self) -> Result<Arc<dyn Device>, PartError> {
        Ok(Arc::new(PreadDevice::open(&self.ledger())?))
    }

    /// The parts in this area. What writes through this device gets `ENOSPC` when the area is full.
    fn parts(&self) -> Result<Arc<dyn Device>, PartError>;
}

/// Bytes that the file system of an area gave and took: to and from kernels for programs (passthrough), and the server for
/// other nodes and for the tier. What programs read and write by mappings is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AreaMoved {
    /// read(2) and its like.
    pub read: u64,
    /// write(2) and its like.
    pub written: u64,
}

/// How much an area has, for statfs(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AreaUsage {
    /// Bytes.
    pub total: u64,
    /// Bytes that can still be written.
    pub free: u64,
    /// Inodes; 0 and 0 when they are not bounded.
    pub inodes: u64,
    /// Inodes that can still be made.
    pub inodes_free: u64,
}

/// Why an area could not be made or asked.
#[derive(Debug, thiserror::Error)]
pub enum AreaError {
    /// A program that we need is not installed.
    #[error("make an area of {}: the program {program} is not installed", .path.display())]
    NoProgram {
        /// The area.
        path: PathBuf,
        /// What is missing.
        program: &'static str,
        /// Debian's package of it.
        package: &'static str,
    },
    /// A program failed.
    #[error("{program} {}: {stderr}", .path.display())]
    Program {
        /// The area.
        path: PathBuf,
        /// What failed.
        program: &'static str,
        /// What it said.
        stderr: String,
    },
    /// The storage directory is not there.
    #[error("make an area in {}: there is no such directory", .path.display())]
    NoStorage {
        /// Where it should be.
        path: PathBuf,
    },
    /// The storage has too little room.
    #[error("make an area of {size} in {}: only {free} are free, {needed} are needed", .path.display())]
    NoRoom {
        /// The storage directory.
        path: PathBuf,
        /// What was asked for.
        size: ByteCount,
        /// What that takes with what the file system itself needs.
        needed: ByteCount,
        /// What there is.
        free: ByteCount,
    },
    /// Smaller than a file system can be.
    #[error("make an area of {size} in {}: {least} is the least", .path.display())]
    TooSmall {
        /// The area.
        path: PathBuf,
        /// What was asked for.
        size: ByteCount,
        /// The bound.
        least: ByteCount,
    },
    /// Something is there already.
    #[error("make the area {}: it exists", .path.display())]
    Exists {
        /// The image file.
        path: PathBuf,
    },
    /// The operating system said no.
    #[error("{action} {}", .path.display())]
    Io {
        /// What was tried, a verb.
        action: &'static str,
        /// The area.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl AreaError {
    /// What the user can try next.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::NoProgram { package, .. } => Some(format!("install the package {package}")),
            Self::NoStorage { .. } => {
                Some("make the directory on a local disk of every node, or name another one with --storage".to_owned())
            }
            Self::NoRoom { .. } => Some("ask for smaller areas, or free some space".to_owned()),
            Self::TooSmall { least, .. } => Some(format!("ask for {least} or more")),
            Self::Exists { .. } => Some(
                "another job may use this storage: `hayase status` lists jobs, `hayase down` ends one"
                    .to_owned(),
            ),
            Self::Program { .. } | Self::Io { .. } => None,
        }
    }
}
