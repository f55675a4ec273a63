//! The directory of a container: the files that a new one has, and removing all of them.
//!
//! Not here: under which names a container appears ([`crate::Container`], [`crate::area`]).

use std::io;
use std::path::Path;

use rustix::fs::OFlags;

use crate::directory::{Directory, hidden_name, split};
use crate::names::{self, Kind, MARK, STUB};
use crate::{ContainerError, ContainerId, mark};

/// Listings until a container that is being deleted is empty.
const REMOVE_TRIES_MAX: u32 = 16;

/// Makes a container of an empty directory that nobody uses yet.
pub(crate) fn fill(hidden: &Path) -> Result<ContainerId, ContainerError> {
    let directory = Directory::open(hidden)?;
    let id = ContainerId::random();
    mark::write(&directory, id)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let stub = directory.open_file(STUB, flags);
    stub.map_err(|source| ContainerError::io("create", &directory.shown(STUB), source))?;
    Ok(id)
}

/// Removes the container at `path`, whose directory this is, with all its parts.
///
/// Fails before anything is touched when a file in it is not of a container.
pub(crate) fn remove(path: &Path, directory: &Directory) -> Result<(), ContainerError> {
    require_own_files_only(directory)?;
    let (parent, name) = split(path)?;
    let hidden = parent.join(hidden_name(name));
    std::fs::rename(path, &hidden).map_err(|source| ContainerError::io("delete", path, source))?;
    for _ in 0..REMOVE_TRIES_MAX {
        // The mark last: whatever a kill leaves can be recognized and removed.
        for name in directory.names()?.iter().filter(|name| *name != MARK) {
            directory.remove(name)?;
        }
        directory.remove(MARK)?;
        match std::fs::remove_dir(&hidden) {
            // A writer made another part meanwhile.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            answer => return answer.map_err(|e| ContainerError::io("delete", &hidden, e)),
        }
    }
    let what = "it is being written while it is deleted".to_owned();
    Err(ContainerError::Limit { path: hidden, what })
}

fn require_own_files_only(directory: &Directory) -> Result<(), ContainerError> {
    match directory.names()?.into_iter().find(|name| names::kind(name) == Kind::Foreign) {
        Some(name) => Err(ContainerError::Foreign { path: directory.path().to_owned(), name }),
        None => Ok(()),
    }
}
