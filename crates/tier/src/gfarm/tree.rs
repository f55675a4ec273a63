//! Directories and symbolic links of a directory of Gfarm.

use std::ffi::CString;

use super::error::{self, code};
use super::library::{Failure, Kind, Stat};
use super::{Gfarm, no_object};
use crate::temporary::with_temporary_name;
use crate::{Action, Attributes, DirectoryMeta, Key, TierError, Tree};

impl Gfarm {
    fn find_directory(&self, action: Action, key: &Key) -> Result<Stat, TierError> {
        self.root.require_directory(self.library, action, key.split_last().0)?;
        let path = self.root.path(key.as_bytes());
        let stat = self.library.lstat(&path).map_err(self.failed(action, key))?;
        match stat.kind {
            Kind::Directory => Ok(stat),
            Kind::Link => Err(self.refused(action, key, error::IS_LINK)),
            Kind::File => Err(self.refused(action, key, "it is not a directory")),
        }
    }

    fn refused(&self, action: Action, key: &Key, what: &'static str) -> TierError {
        no_object(action, self.root.shown(key.as_bytes()), what)
    }

    /// Whether a link stands there; `NotObject` when it is something else.
    fn is_link(&self, action: Action, key: &Key) -> Result<bool, TierError> {
        match self.library.lstat(&self.root.path(key.as_bytes())) {
            Err(failure) if failure.code == code::NO_SUCH_NAME => Ok(false),
            Err(failure) => Err(self.failed(action, key)(failure)),
            Ok(stat) if stat.kind == Kind::Link => Ok(true),
            Ok(_) => Err(self.refused(action, key, error::NO_LINK)),
        }
    }
}

impl Tree for Gfarm {
    fn directory(&self, key: &Key) -> Result<DirectoryMeta, TierError> {
        let stat = self.find_directory(Action::Directory, key)?;
        Ok(DirectoryMeta { mode: stat.mode & 0o777, mtime: stat.mtime })
    }

    fn make_directory(&self, key: &Key) -> Result<(), TierError> {
        let mode = 0o777 & !self.umask;
        self.root.make_directory(self.library, Action::MakeDirectory, key.as_bytes(), mode)
    }

    fn set_directory(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        self.find_directory(Action::Directory, key)?;
        self.apply(Action::Directory, key.as_bytes(), attributes)
    }

    fn remove_directory(&self, key: &Key) -> Result<(), TierError> {
        self.find_directory(Action::Delete, key)?;
        let path = self.root.path(key.as_bytes());
        self.library.rmdir(&path).map_err(self.failed(Action::Delete, key))
    }

    fn link(&self, key: &Key) -> Result<Vec<u8>, TierError> {
        self.root.require_directory(self.library, Action::ReadLink, key.split_last().0)?;
        let path = self.root.path(key.as_bytes());
        let failed = self.failed(Action::ReadLink, key);
        let stat = self.library.lstat(&path).map_err(&failed)?;
        if stat.kind != Kind::Link {
            return Err(self.refused(Action::ReadLink, key, error::NO_LINK));
        }
        self.library.readlink(&path).map_err(failed)
    }

    fn make_link(&self, key: &Key, target: &[u8]) -> Result<(), TierError> {
        let failed = self.failed(Action::MakeLink, key);
        let parent = key.split_last().0;
        let mode = 0o777 & !self.umask;
        self.root.make_directory(self.library, Action::MakeLink, parent, mode)?;
        let target = CString::new(target)
            .map_err(|_| self.refused(Action::MakeLink, key, "a link holds no NUL byte"))?;
        let path = self.root.path(key.as_bytes());
        if !self.is_link(Action::MakeLink, key)? {
            return self.library.symlink(&target, &path).map_err(&failed);
        }
        let below = |name: &[u8]| match parent {
            b"" => self.root.path(name),
            parent => self.root.path(&[parent, b"/", name].concat()),
        };
        let make = |name: &[u8]| self.library.symlink(&target, &below(name));
        let is_taken = |failure: &Failure| failure.code == code::EXISTS;
        let prefix = self.temporary_prefix();
        let (name, ()) = with_temporary_name(prefix, make, is_taken).map_err(&failed)?;
        let temporary = below(&name);
        self.library.rename(&temporary, &path).map_err(|failure| {
            let _ = self.library.unlink(&temporary);
            failed(failure)
        })
    }

    fn remove_link(&self, key: &Key) -> Result<(), TierError> {
        self.link(key)?;
        let path = self.root.path(key.as_bytes());
        self.library.unlink(&path).map_err(self.failed(Action::Delete, key))
    }
}
