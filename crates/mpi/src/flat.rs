//! A container that becomes a flat file when nobody has it open any more.
//!
//! Here: which processes have it open (a shared lock on its mark), the change itself.
//! Not here: whether it is wanted (`crate::selection`).
//!
//! The flat file is written beside it, then the two change names, so that the name is never free.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use hayase_container::{Container, MARK, Replace, export};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::{abi::ErrorClass, error::Error, stderr};

/// What is left when the file is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flatten {
    /// The container: in the areas of a job, and in directories that are marked.
    Keep,
    /// One flat file: of a container that was made elsewhere, where nobody asked for one to stay.
    Close,
}

/// This process has the container open, until it leaves. Where locks are not possible nobody is seen,
/// and nothing becomes flat.
#[derive(Debug)]
pub(crate) struct Presence {
    /// Holds the lock; nothing else is done with it.
    mark: Mutex<Option<File>>,
}

impl Presence {
    pub(crate) fn in_container(container: &Path) -> Self {
        let mark = File::open(container.join(MARK)).ok();
        Self { mark: Mutex::new(mark.filter(|mark| mark.lock_shared().is_ok())) }
    }

    /// It has the container open no more.
    pub(crate) fn leave(&self) {
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Flat,
    /// Others have it open, or it can not be told whether they have.
    Kept,
}

/// Makes the container at `path` a flat file. On one process, when the whole group has closed it.
pub(crate) fn flatten(path: &Path) -> Result<Outcome, Error> {
    let container = Container::open(path, hayase_container::Creation::Never)?;
    if container.is_in_area() {
        return match hayase_container::area::flatten(path)? {
            true => Ok(Outcome::Flat),
            false => {
                stderr::say(&format!("{} stays a container: others have it open", path.display()));
                Ok(Outcome::Kept)
            }
        };
    }
    let io = |source: std::io::Error| {
        let what = format!("make {} a flat file: {source}", path.display());
        Error::unusual(ErrorClass::Io, what)
    };
    let mark = File::open(path.join(MARK)).map_err(io)?;
    match mark.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {
            stderr::say(&format!("{} stays a container: others have it open", path.display()));
            return Ok(Outcome::Kept);
        }
    }
    let beside = beside(path);
    container.read_published(|reader, _| export(reader, &beside, Replace::Never, &mut |_| {}))?;
    let exchanged = renameat_with(CWD, &beside, CWD, path, RenameFlags::EXCHANGE);
    if exchanged.is_ok() {
        Container::delete(&beside)?;
    } else {
        // This file system can not exchange. A kill from here on leaves the flat file under its hidden name.
        Container::delete(path)?;
        std::fs::rename(&beside, path).map_err(io)?;
    }
    Ok(Outcome::Flat)
}

/// A hidden name that no other container uses at this time.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let short: String = name.chars().take(60).collect();
    path.with_file_name(format!(".{short}.hayase-flat-{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use hayase_container::{Access, ContainerFile, Creation, Durability, Identity};
    use hayase_layout::{GlobalOffset, NodeId, Rank};

    use super::*;

    #[test]
    fn a_container_becomes_flat_when_nobody_has_it_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let identity = Identity { node: NodeId(0), process: 1, opening: 0, rank: Rank(0) };
        let container = Container::open(&path, Creation::Exclusive).unwrap();
        let file = ContainerFile::open(container, Access::Write, identity, None).unwrap();
        file.write_at(GlobalOffset(3), b"bytes").unwrap();
        let presence = Presence::in_container(&path);
        assert_eq!(flatten(&path).unwrap(), Outcome::Kept);
        file.close(Durability::Written).unwrap();
        presence.leave();
        assert_eq!(flatten(&path).unwrap(), Outcome::Flat);
        assert_eq!(std::fs::read(&path).unwrap(), b"\0\0\0bytes");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(flatten(&path).is_err());
    }
}
