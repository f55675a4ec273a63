//! Directories and symbolic links of a mounted directory.

use rustix::fs::{self, AtFlags, FileType};
use rustix::io::Errno;

use super::no_replace::is_taken;
use super::{Posix, again, apply};
use crate::temporary::with_temporary_name;
use crate::timestamp::system_time;
use crate::{Action, Attributes, DirectoryMeta, Key, TierError, Tree};

impl Tree for Posix {
    fn directory(&self, key: &Key) -> Result<DirectoryMeta, TierError> {
        let failed = self.failed(Action::Directory, key);
        let directory = self.root.open_directory(key.as_bytes()).map_err(&failed)?;
        let stat = fs::fstat(&directory).map_err(&failed)?;
        let mtime = system_time(stat.st_mtime, stat.st_mtime_nsec);
        Ok(DirectoryMeta { mode: stat.st_mode & 0o777, mtime })
    }

    fn make_directory(&self, key: &Key) -> Result<(), TierError> {
        let failed = self.failed(Action::MakeDirectory, key);
        self.root.make_directory(key.as_bytes()).map(drop).map_err(failed)
    }

    fn set_directory(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        let failed = self.failed(Action::Directory, key);
        let directory = self.root.open_directory(key.as_bytes()).map_err(&failed)?;
        apply(&directory, attributes).map_err(&failed)?;
        self.root.lasts.sync_names(&directory).map_err(&failed)
    }

    fn remove_directory(&self, key: &Key) -> Result<(), TierError> {
        let failed = self.failed(Action::Delete, key);
        let (parent, name) = key.split_last();
        let parent = self.root.open_directory(parent).map_err(&failed)?;
        fs::unlinkat(&parent, name, AtFlags::REMOVEDIR).map_err(|errno| match errno {
            // Some file systems say so of a directory with names in it.
            Errno::EXIST => failed(Errno::NOTEMPTY),
            other => failed(other),
        })?;
        self.root.lasts.sync_names(&parent).map_err(&failed)
    }

    fn link(&self, key: &Key) -> Result<Vec<u8>, TierError> {
        let failed = self.failed(Action::ReadLink, key);
        let (parent, name) = key.split_last();
        let parent = self.root.open_directory(parent).map_err(&failed)?;
        match fs::readlinkat(&parent, name, Vec::new()) {
            Ok(target) => Ok(target.into_bytes()),
            Err(Errno::INVAL) => Err(self.no_link(Action::ReadLink, key)),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn make_link(&self, key: &Key, target: &[u8]) -> Result<(), TierError> {
        let failed = self.failed(Action::MakeLink, key);
        let (parent, name) = key.split_last();
        let parent = self.root.make_directory(parent).map_err(&failed)?;
        match fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => fs::symlinkat(target, &parent, name).map_err(&failed)?,
            Err(errno) => return Err(failed(errno)),
            Ok(there) if FileType::from_raw_mode(there.st_mode) != FileType::Symlink => {
                return Err(self.no_link(Action::MakeLink, key));
            }
            Ok(_) => {
                let make = |temporary: &[u8]| again(|| fs::symlinkat(target, &parent, temporary));
                let prefix = self.root.temporary_prefix();
                let (temporary, ()) =
                    with_temporary_name(prefix, make, is_taken).map_err(&failed)?;
                fs::renameat(&parent, &*temporary, &parent, name).map_err(|errno| {
                    let _ = fs::unlinkat(&parent, &*temporary, AtFlags::empty());
                    failed(errno)
                })?;
            }
        }
        self.root.lasts.sync_names(&parent).map_err(&failed)
    }

    fn remove_link(&self, key: &Key) -> Result<(), TierError> {
        self.link(key)?;
        let failed = self.failed(Action::Delete, key);
        let (parent, name) = key.split_last();
        let parent = self.root.open_directory(parent).map_err(&failed)?;
        fs::unlinkat(&parent, name, AtFlags::empty()).map_err(&failed)?;
        self.root.lasts.sync_names(&parent).map_err(&failed)
    }
}

impl Posix {
    fn no_link(&self, action: Action, key: &Key) -> TierError {
        let path = self.root.shown(key.as_bytes());
        TierError::NotObject { action, path, what: "it is not a symbolic link" }
    }
}
