//! Extended attributes of files and directories.
//!
//! They are read by name, through the open directory's place in `/proc`, since a file that nobody may read can
//! still be asked which attributes it has; `l` calls follow no link.
//!
//! Where a file system is mounted below the root that keeps no access control lists, a mode takes the place of a list.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use hayase_layout::Acl;
use hayase_layout::acl::{ACCESS_NAME, is_acl};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::{Posix, again, no_object};
use crate::xattrs::Kept;
use crate::{Action, Key, TierError, XattrChanges, Xattrs};

/// The most that Linux has of one value, and of all names of a file (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const VALUE_BYTES_MAX: usize = 64 << 10;

/// What the file system of `directory` keeps, asked without writing any.
pub(super) fn kept_in(directory: impl AsFd) -> Kept {
    let keeps = |name: &[u8]| {
        let answer = again(|| fs::fgetxattr(&directory, name, &mut [0_u8; 1][..]));
        matches!(answer, Ok(_) | Err(Errno::NODATA | Errno::RANGE))
    };
    Kept { xattrs: keeps(b"user.hayase.asked"), acls: keeps(ACCESS_NAME) }
}

/// Sets one of a file or directory that is open. The answer is the mode that it is to get instead of a list, where the
/// file system keeps none: it allows nobody more.
pub(super) fn set(
    file: impl AsFd,
    shown: &str,
    name: &[u8],
    value: &[u8],
) -> rustix::io::Result<Option<u32>> {
    match again(|| fs::fsetxattr(&file, name, value, XattrFlags::empty())) {
        Err(Errno::OPNOTSUPP) if is_acl(name) => {
            tracing::warn!(
                path = shown,
                "its file system keeps no access control lists: only the mode is kept"
            );
            let acl = Acl::parse(value).map_err(|_| Errno::INVAL)?;
            Ok(acl.filter(|_| name == ACCESS_NAME).map(|acl| acl.mode_alone()))
        }
        set => set.map(|()| None),
    }
}

impl Posix {
    pub(super) fn xattrs_of(&self, key: &Key) -> Result<Xattrs, TierError> {
        let failed = self.failed(Action::Xattrs, key);
        self.root.keeps.require_any(Action::Xattrs, || self.root.shown(key.as_bytes()))?;
        let directory = self.bearer(Action::Xattrs, key)?;
        self.xattrs_at(directory.as_fd(), Some(key.split_last().1)).map_err(&failed)
    }

    /// Of what has this name in a directory, or of the directory.
    pub(super) fn xattrs_at(
        &self,
        directory: BorrowedFd<'_>,
        name: Option<&[u8]>,
    ) -> rustix::io::Result<Xattrs> {
        let mut path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        // With a name after it, `.` among them, the kernel follows its own link.
        path.push(OsStr::from_bytes(name.unwrap_or(b".")));
        let mut list = vec![0_u8; VALUE_BYTES_MAX];
        let len = again(|| fs::llistxattr(&path, &mut list[..]))?;
        let mut xattrs = Xattrs::new();
        let mut value = vec![0_u8; VALUE_BYTES_MAX];
        for name in list[..len].split(|&byte| byte == 0).filter(|name| self.root.keeps.has(name)) {
            match again(|| fs::lgetxattr(&path, name, &mut value[..])) {
                Ok(len) => drop(xattrs.insert(name.to_vec(), value[..len].to_vec())),
                Err(Errno::NODATA) => {} // Removed meanwhile.
                Err(errno) => return Err(errno),
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
        let shown = || self.root.shown(key.as_bytes());
        self.root.keeps.require_any(Action::SetXattrs, shown)?;
        self.root.keeps.require(changes.keys(), shown)?;
        let directory = self.bearer(Action::SetXattrs, key)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = key.split_last().1;
        let file = again(|| fs::openat(&directory, name, flags, Mode::empty())).map_err(&failed)?;
        for (name, value) in changes {
            let name = name.as_slice();
            match value {
                Some(value) => match set(&file, &shown(), name, value).map_err(&failed)? {
                    Some(mode) => again(|| fs::fchmod(&file, Mode::from_raw_mode(mode))),
                    None => Ok(()),
                },
                None => match again(|| fs::fremovexattr(&file, name)) {
                    Err(Errno::NODATA) => Ok(()),
                    Err(Errno::OPNOTSUPP) if is_acl(name) => Ok(()), // It has none.
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
}
