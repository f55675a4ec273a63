//! Extended attributes of files and directories.
//!
//! They are read by name, through the open directory's place in `/proc`, since a file that nobody may read can
//! still be asked which attributes it has; `l` calls follow no link.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::beneath::Root;
use super::{Posix, again, no_object};
use crate::xattrs::{is_user, require_user};
use crate::{Action, Key, TierError, XattrChanges, Xattrs};

/// The most that Linux has of one value, and of all names of a file (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Whether the file system of `directory` keeps attributes of programs, asked without writing any.
pub(super) fn are_kept_in(directory: impl AsFd) -> bool {
    let answer = again(|| fs::fgetxattr(&directory, "user.hayase.asked", &mut [0_u8; 1][..]));
    matches!(answer, Ok(_) | Err(Errno::NODATA | Errno::RANGE))
}

/// Sets those of a file that is open; those that it has and that are not named stay.
pub(super) fn set_all(file: impl AsFd, xattrs: &Xattrs) -> rustix::io::Result<()> {
    for (name, value) in xattrs {
        again(|| fs::fsetxattr(&file, name.as_slice(), value, XattrFlags::empty()))?;
    }
    Ok(())
}

impl Posix {
    pub(super) fn xattrs_of(&self, key: &Key) -> Result<Xattrs, TierError> {
        let failed = self.failed(Action::Xattrs, key);
        self.require_xattrs(Action::Xattrs, key)?;
        let directory = self.bearer(Action::Xattrs, key)?;
        let place = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let path = PathBuf::from(place).join(OsStr::from_bytes(key.split_last().1));
        let mut list = vec![0_u8; VALUE_BYTES_MAX];
        let len = again(|| fs::llistxattr(&path, &mut list[..])).map_err(&failed)?;
        let mut xattrs = Xattrs::new();
        let mut value = vec![0_u8; VALUE_BYTES_MAX];
        for name in list[..len].split(|&byte| byte == 0).filter(|name| is_user(name)) {
            match again(|| fs::lgetxattr(&path, name, &mut value[..])) {
                Ok(len) => drop(xattrs.insert(name.to_vec(), value[..len].to_vec())),
                Err(Errno::NODATA) => {} // Removed meanwhile.
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(xattrs)
    }

    pub(super) fn change_xattrs_of(
        &self,
        key: &Key,
        changes: &XattrChanges,
    ) -> Result<(), TierError> {
        let failed = self.failed(Action::SetXattrs, key);
        self.require_xattrs(Action::SetXattrs, key)?;
        require_user(changes.keys(), || self.root.shown(key.as_bytes()))?;
        let directory = self.bearer(Action::SetXattrs, key)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = key.split_last().1;
        let file = again(|| fs::openat(&directory, name, flags, Mode::empty())).map_err(&failed)?;
        for (name, value) in changes {
            let name = name.as_slice();
            match value {
                Some(value) => again(|| fs::fsetxattr(&file, name, value, XattrFlags::empty())),
                None => match again(|| fs::fremovexattr(&file, name)) {
                    Err(Errno::NODATA) => Ok(()),
                    answer => answer,
                },
            }
            .map_err(&failed)?;
        }
        self.root.lasts.sync_names(&file).map_err(&failed)
    }

    /// The directory of a name that has attributes: an object's, or a directory's.
    fn bearer(&self, action: Action, key: &Key) -> Result<OwnedFd, TierError> {
        let failed = self.failed(action, key);
        let (parent, name) = key.split_last();
        let directory = self.root.open_directory(parent).map_err(&failed)?;
        let stat = fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(&failed)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        match no_object(kind).filter(|_| kind != FileType::Directory) {
            None => Ok(directory),
            Some(what) => {
                let path = self.root.shown(key.as_bytes());
                Err(TierError::NotObject { action, path, what })
            }
        }
    }

    fn require_xattrs(&self, action: Action, key: &Key) -> Result<(), TierError> {
        require_kept(&self.root, action, key.as_bytes())
    }
}

pub(super) fn require_kept(root: &Root, action: Action, path: &[u8]) -> Result<(), TierError> {
    match root.keeps_xattrs {
        true => Ok(()),
        false => Err(TierError::Unsupported { action, path: root.shown(path) }),
    }
}
