//! One container that is looked at: its size, time and bytes, as its writers publish them.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hayase_container::{
    Access, Container, ContainerError, ContainerFile, ContainerId, Creation, Identity,
};
use hayase_layout::{ByteCount, Epoch, GlobalOffset, NodeId, Rank};
use hayase_wire::message::Refused;

use crate::limits::PUBLICATION_LOOK;

/// See the module.
#[derive(Debug)]
pub(super) struct Shown {
    file: ContainerFile,
    looked: Mutex<Looked>,
}

#[derive(Debug)]
struct Looked {
    at: Instant,
    /// Rises with every publication that was seen.
    modified: SystemTime,
    /// `modified` of what the kernel's pages were read from.
    opened_as: Option<SystemTime>,
}

impl Shown {
    /// Reads the indexes of the container at `path`. It makes no files: it never writes.
    pub(super) fn new(path: &Path) -> Result<Self, ContainerError> {
        let container = Container::open(path, Creation::Never)?;
        let reader =
            Identity { node: NodeId(0), process: std::process::id(), opening: 0, rank: Rank(0) };
        let file = ContainerFile::open(container, Access::Read, reader, Some(Epoch(0)))?;
        file.refresh()?;
        let modified = file.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let looked = Mutex::new(Looked { at: Instant::now(), modified, opened_as: None });
        Ok(Self { file, looked })
    }

    pub(super) fn id(&self) -> ContainerId {
        self.file.container().id()
    }

    /// Looks at what was published since, unless that was done a moment ago, or is being done.
    pub(super) fn follow(&self, is_urgent: bool) -> Result<(), ContainerError> {
        let Ok(mut looked) = self.looked.try_lock() else { return Ok(()) };
        if !is_urgent && looked.at.elapsed() < PUBLICATION_LOOK {
            return Ok(());
        }
        if self.file.refresh()? {
            let modified = self.file.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            // The clock of the file system may stand still between two publications.
            looked.modified = modified.max(looked.modified + Duration::from_nanos(1));
        }
        looked.at = Instant::now();
        Ok(())
    }

    /// Length and time, as last looked at.
    pub(super) fn meta(&self) -> Result<(ByteCount, SystemTime), ContainerError> {
        let modified = self.looked.lock().unwrap_or_else(PoisonError::into_inner).modified;
        Ok((self.file.size()?, modified))
    }

    /// Whether pages of earlier opens are as good as new.
    pub(super) fn open(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let modified = looked.modified;
        looked.opened_as.replace(modified) == Some(modified)
    }

    pub(super) fn read(&self, offset: GlobalOffset, buffer: &mut [u8]) -> Result<usize, Refused> {
        self.file.read_at(offset, buffer).map_err(|error| refused(&error))
    }

    /// `SEEK_DATA` or `SEEK_HOLE`.
    pub(super) fn seek(&self, offset: GlobalOffset, is_data: bool) -> Option<GlobalOffset> {
        let reader = self.file.reader().ok()?;
        if is_data { reader.next_data(offset) } else { reader.next_hole(offset) }
    }
}

/// For the kernel; the words go to the log.
pub(super) fn refused(error: &ContainerError) -> Refused {
    let errno = match error {
        ContainerError::NotFound { .. } => libc::ESTALE,
        ContainerError::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::EIO,
    };
    let source = std::error::Error::source(error);
    let source = source.map_or(String::new(), |source| format!(": {source}"));
    Refused::because(errno, format!("{error}{source}"))
}
