//! A new version of a file: written beside its target, synced, renamed over it, the directory synced.
//!
//! Invariant: until the switch the target is untouched; after it the target is the new version, whole.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::beneath::{Lasts, Root};
use super::no_replace::{is_taken, rename_no_replace};
use super::swap::Swapped;
use super::{again, apply, meta, no_object, swap, xattrs};
use crate::descriptor::write_fully;
use crate::temporary::with_temporary_name;
use crate::xattrs::Kept;
use crate::{Action, Attributes, Key, ObjectMeta, Precondition, TierError, Upload, Xattrs};

pub(super) fn begin(
    root: &Root,
    key: &Key,
    attributes: Attributes,
) -> Result<Box<dyn Upload>, TierError> {
    let failed = |errno| TierError::from_errno(Action::Begin, root.shown(key.as_bytes()), errno);
    let directory = root.make_directory(key.split_last().0).map_err(failed)?;
    let made = create_temporary(root, &directory, attributes, OFlags::WRONLY).map_err(failed)?;
    Ok(Box::new(PosixUpload::new(root, key, attributes, (directory, made))?))
}

/// A new file of a name that nobody has; closed to others when the final mode is still to be set.
pub(super) fn create_temporary(
    root: &Root,
    directory: &OwnedFd,
    attributes: Attributes,
    access: OFlags,
) -> rustix::io::Result<(Vec<u8>, OwnedFd)> {
    let mode = Mode::from_raw_mode(if attributes.mode.is_some() { 0o600 } else { 0o666 });
    let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create = |name: &[u8]| again(|| fs::openat(directory, name, flags, mode));
    with_temporary_name(root.temporary_prefix(), create, is_taken)
}

pub(super) struct PosixUpload {
    pub(super) directory: OwnedFd,
    pub(super) file: OwnedFd,
    name: Box<[u8]>,
    /// `None` once it is the target, and where it is left for others.
    pub(super) temporary: Option<Vec<u8>>,
    /// fsync(2) failed: pages may be lost that count as clean since, and no later one tells.
    pub(super) is_doubtful: bool,
    attributes: Attributes,
    pub(super) path: String,
    lasts: Lasts,
    keeps: Kept,
}

impl Upload for PosixUpload {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), TierError> {
        self.put(offset, data)
    }

    /// On the file itself, before its mode: one that nobody may write has them all the same.
    fn set_user_xattrs(&mut self, given: &Xattrs) -> Result<(), TierError> {
        self.keeps.require(given.keys(), || self.path.clone())?;
        for (name, value) in given {
            let set = xattrs::set(&self.file, &self.path, name, value);
            let alone = set.map_err(|errno| self.failed(Action::SetXattrs, errno))?;
            self.attributes.mode = alone.or(self.attributes.mode);
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        self.switch(precondition)
    }
}

impl PosixUpload {
    /// Writes into `file`, which has the name `temporary` in `directory`, that of the key.
    pub(super) fn new(
        root: &Root,
        key: &Key,
        attributes: Attributes,
        (directory, (temporary, file)): (OwnedFd, (Vec<u8>, OwnedFd)),
    ) -> Result<Self, TierError> {
        let upload = Self {
            directory,
            file,
            name: key.split_last().1.into(),
            temporary: Some(temporary),
            is_doubtful: false,
            attributes,
            path: root.shown(key.as_bytes()),
            lasts: root.lasts,
            keeps: root.keeps,
        };
        // Refused now rather than after gigabytes; checked again before the switch.
        upload.require_replaceable(Action::Begin)?;
        Ok(upload)
    }

    pub(super) fn put(&self, offset: u64, data: &[u8]) -> Result<(), TierError> {
        write_fully(offset, data, |at, rest| rustix::io::pwrite(&self.file, rest, at))
            .map_err(|errno| self.failed(Action::Write, errno))
    }

    fn failed(&self, action: Action, errno: Errno) -> TierError {
        TierError::from_errno(action, self.path.clone(), errno)
    }

    pub(super) fn switch(&mut self, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        self.require_replaceable(Action::Commit)?;
        apply(&self.file, self.attributes).map_err(|errno| self.failed(Action::Commit, errno))?;
        if let Err(errno) = self.lasts.sync(&self.file) {
            self.is_doubtful = true;
            return Err(self.failed(Action::Commit, errno));
        }
        let failed = |errno| TierError::from_errno(Action::Commit, self.path.clone(), errno);
        let temporary = self.temporary.as_deref().expect("an upload is committed once");
        match precondition {
            Precondition::Any => {
                fs::renameat(&self.directory, temporary, &self.directory, &*self.name)
            }
            Precondition::Absent => {
                rename_no_replace((&self.directory, temporary), (&self.directory, &*self.name))
            }
            Precondition::Matches(identity) => return self.swap(identity),
        }
        .map_err(failed)?;
        self.temporary = None;
        self.switched()
    }

    /// In the place of the version `expected`, and of no other.
    fn swap(&mut self, expected: u64) -> Result<ObjectMeta, TierError> {
        let failed = |errno| TierError::from_errno(Action::Commit, self.path.clone(), errno);
        // From here on it lies under a name of its own, also when this fails: who drops it looks before it removes it.
        let temporary = self.temporary.as_mut().expect("an upload is committed once");
        let target = (self.directory.as_fd(), &*self.name);
        match swap::swap((&self.directory, temporary), target, expected).map_err(failed)? {
            Swapped::Done => {}
            Swapped::Other => {
                let path = self.path.clone();
                return Err(TierError::Changed { action: Action::Commit, path });
            }
            Swapped::Unsupported => {
                let from = temporary.as_slice();
                fs::renameat(&self.directory, from, &self.directory, &*self.name)
                    .map_err(failed)?;
            }
        }
        let replaced = self.temporary.take();
        let meta = self.switched()?;
        // Once nothing brings it back.
        replaced.inspect(|replaced| swap::discard(&self.directory, replaced));
        Ok(meta)
    }

    /// Makes the new name durable.
    fn switched(&self) -> Result<ObjectMeta, TierError> {
        let failed = |errno| TierError::from_errno(Action::Commit, self.path.clone(), errno);
        self.lasts.sync_names(&self.directory).map_err(failed)?;
        fs::fstat(&self.file).map(|stat| meta(&stat)).map_err(failed)
    }

    /// rename(2) would also replace a link or a pipe; those are not ours.
    fn require_replaceable(&self, action: Action) -> Result<(), TierError> {
        match fs::statat(&self.directory, &*self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed(action, errno)),
            Ok(there) => match no_object(FileType::from_raw_mode(there.st_mode)) {
                None => Ok(()),
                Some(what) => Err(TierError::NotObject { action, path: self.path.clone(), what }),
            },
        }
    }
}

impl Drop for PosixUpload {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            swap::discard(&self.directory, &temporary);
        }
    }
}
