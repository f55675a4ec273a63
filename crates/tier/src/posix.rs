//! A directory of any mounted file system (Lustre, GPFS, NFS, ext4, XFS) as a tier.
//!
//! Here: [`Posix`], one call after the other. Rooms: [`beneath`] (paths that can not leave the root),
//! [`tree`] (directories and links), [`upload`] (temporary, fsync, rename, fsync), [`swap`] (a rename over one version
//! only), [`no_replace`] (over none), [`renamed`] (of one version only), [`whole`] (uploads of many small files),
//! [`parts`] and [`journal`] (uploads that outlive their process), [`names`] (directories read for listings and for the
//! sweep), [`xattrs`] (where the file system has them).
//! An object is a regular file. Symbolic links are never followed below the root, wherever they
//! point; a listing shows them as no objects.
//! Unfinished uploads lie beside their target as `.hayase-partial-<random>`, or under a name that tells
//! its owner ([`crate::Owner`]). The journal of one that can be resumed lies beside it under a name made of the target's.

mod beneath;
pub mod journal;
mod names;
mod no_replace;
mod parts;
mod renamed;
mod swap;
mod tree;
mod upload;
mod whole;
mod xattrs;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::SystemTime;

use hayase_layout::ByteCount;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use self::beneath::{Lasts, Root};
use self::swap::Swapped;
use crate::descriptor::read_fully;
use crate::owner::Attachment;
use crate::timestamp::{seconds_and_nanos, system_time};
use crate::{
    Action, Attributes, Capabilities, Key, ListRequest, ObjectMeta, Owner, Page, PartsUpload,
    Reader, Tier, TierError, Tree, Upload, UploadOf, Whole, XattrChanges, Xattrs,
};

/// A mounted directory.
#[derive(Debug)]
pub struct Posix {
    root: Root,
    /// Names can be exchanged, which only an owner has tried; others find out when they commit.
    compares: bool,
}

impl Posix {
    /// Opens the directory at `path`, which stays open; later changes of `path` itself do not matter.
    ///
    /// # Errors
    /// `Missing`, `NotObject` (no directory) or `Denied`; nothing is written.
    pub fn attach(path: &Path) -> Result<Self, TierError> {
        Self::attach_lasting(path, Lasts::BeyondPowerCut)
    }

    /// The same for a directory that ends with the job, as its areas do: nothing is synced, so that a
    /// small file costs no trip to the disk. Of the contract only "durable means durable" is weaker: what
    /// was written survives the end of any process, and no power cut.
    ///
    /// # Errors
    /// As [`Posix::attach`].
    pub fn attach_passing(path: &Path) -> Result<Self, TierError> {
        Self::attach_lasting(path, Lasts::WithMachine)
    }

    /// The same as [`Posix::attach`] for a directory in the cache area of a job, which brings what lies there
    /// to a tier of its own: names of unfinished uploads are such that that tier can have them.
    ///
    /// # Errors
    /// As [`Posix::attach`].
    pub fn attach_cached(path: &Path) -> Result<Self, TierError> {
        Self::attach_lasting(path, Lasts::InCache)
    }

    /// The same as [`Posix::attach`] for `owner`, who can then remove what its earlier attachments left
    /// ([`Tier::sweep_own`]).
    ///
    /// # Errors
    /// As [`Posix::attach`].
    pub fn attach_owned(path: &Path, owner: &Owner) -> Result<Self, TierError> {
        let mut tier = Self::attach(path)?;
        tier.root.own = Some(Attachment::of(owner));
        tier.compares = tier.root.exchanges_names();
        Ok(tier)
    }

    fn attach_lasting(path: &Path, lasts: Lasts) -> Result<Self, TierError> {
        let shown = path.display().to_string();
        let root = Root::attach(path, lasts).map_err(|errno| match errno {
            Errno::NOTDIR => TierError::NotObject {
                action: Action::Attach,
                path: shown,
                what: "it is not a directory",
            },
            other => TierError::from_errno(Action::Attach, shown, other),
        })?;
        Ok(Self { root, compares: false })
    }

    fn failed(&self, action: Action, key: &Key) -> impl Fn(Errno) -> TierError {
        let path = self.root.shown(key.as_bytes());
        move |errno| TierError::from_errno(action, path.clone(), errno)
    }

    /// The directory of `key`, open, and what stands under its name there now.
    fn find(&self, action: Action, key: &Key) -> Result<(OwnedFd, Stat), TierError> {
        let directory = self.root.open_directory(key.split_last().0);
        let directory = directory.map_err(self.failed(action, key))?;
        let stat = self.look(action, key, &directory)?;
        Ok((directory, stat))
    }

    /// What stands under the last name of `key` in its directory.
    fn look(&self, action: Action, key: &Key, directory: &OwnedFd) -> Result<Stat, TierError> {
        let stat = fs::statat(directory, key.split_last().1, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(self.failed(action, key))?;
        self.require_object(action, key, &stat)?;
        Ok(stat)
    }

    fn require_object(&self, action: Action, key: &Key, stat: &Stat) -> Result<(), TierError> {
        match no_object(FileType::from_raw_mode(stat.st_mode)) {
            None => Ok(()),
            Some(what) => {
                Err(TierError::NotObject { action, path: self.root.shown(key.as_bytes()), what })
            }
        }
    }
}

impl Tier for Posix {
    fn capabilities(&self) -> Capabilities {
        let owned = self.root.own.is_some();
        Capabilities {
            rename: true,
            local_descriptor: true,
            tree: true,
            owned,
            resumes: !owned,
            compares: self.compares,
            xattrs: self.root.keeps.xattrs,
            acls: self.root.keeps.acls,
            ..Capabilities::CORE
        }
    }

    fn describe(&self) -> String {
        format!("directory {}", self.root.path().display())
    }

    fn list(&self, request: &ListRequest) -> Result<Page, TierError> {
        crate::walk::page(names::Names::new(&self.root), request)
    }

    fn stat(&self, key: &Key) -> Result<ObjectMeta, TierError> {
        let directory = self.root.reach_directory(key.split_last().0);
        let directory = directory.map_err(self.failed(Action::Stat, key))?;
        self.look(Action::Stat, key, &directory).map(|stat| meta(&stat))
    }

    fn open(&self, key: &Key) -> Result<Box<dyn Reader>, TierError> {
        let failed = self.failed(Action::Open, key);
        let (parent, name) = key.split_last();
        let directory = self.root.reach_directory(parent).map_err(&failed)?;
        // Not blocking, so that a pipe under this name is refused below instead of waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = again(|| fs::openat(&directory, name, flags | OFlags::NOCTTY, Mode::empty()))
            .map_err(&failed)?;
        let stat = fs::fstat(&file).map_err(&failed)?;
        self.require_object(Action::Open, key, &stat)?;
        Ok(Box::new(PosixReader { file, meta: meta(&stat), path: self.root.shown(key.as_bytes()) }))
    }

    fn begin(&self, key: &Key, attributes: Attributes) -> Result<Box<dyn Upload>, TierError> {
        upload::begin(&self.root, key, attributes)
    }

    fn resume_parts(
        &self,
        key: &Key,
        attributes: Attributes,
        of: UploadOf,
    ) -> Result<Option<Box<dyn PartsUpload>>, TierError> {
        parts::resume(&self.root, key, attributes, of)
    }

    fn unfinished_part_bytes(&self, key: &Key, size: u64) -> Option<u64> {
        parts::unfinished_part_bytes(&self.root, key, size)
    }

    fn put_each(&self, objects: &[Whole<'_>]) -> Vec<Result<(), TierError>> {
        whole::put_each(&self.root, objects)
    }

    fn set_attributes(&self, key: &Key, attributes: Attributes) -> Result<(), TierError> {
        let failed = self.failed(Action::SetAttributes, key);
        let (directory, _) = self.find(Action::SetAttributes, key)?;
        let (_, name) = key.split_last();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = again(|| fs::openat(&directory, name, flags, Mode::empty())).map_err(&failed)?;
        apply(&file, attributes).map_err(&failed)?;
        self.root.lasts.sync(&file).map_err(&failed)
    }

    fn user_xattrs(&self, key: &Key) -> Result<Xattrs, TierError> {
        self.xattrs_of(key)
    }

    fn root_xattrs(&self) -> Result<Xattrs, TierError> {
        if !self.root.keeps.xattrs && !self.root.keeps.acls {
            return Ok(Xattrs::new());
        }
        let failed = |errno| TierError::from_errno(Action::Xattrs, self.root.shown(b""), errno);
        let directory = self.root.open_directory(b"").map_err(failed)?;
        self.xattrs_at(directory.as_fd(), None).map_err(failed)
    }

    fn change_user_xattrs(&self, key: &Key, changes: &XattrChanges) -> Result<(), TierError> {
        self.change_xattrs_of(key, changes)
    }

    fn delete(&self, key: &Key) -> Result<(), TierError> {
        let failed = self.failed(Action::Delete, key);
        let (directory, _) = self.find(Action::Delete, key)?;
        fs::unlinkat(&directory, key.split_last().1, AtFlags::empty()).map_err(&failed)?;
        self.root.lasts.sync_names(&directory).map_err(&failed)
    }

    fn delete_version(&self, key: &Key, identity: u64) -> Result<(), TierError> {
        let failed = self.failed(Action::Delete, key);
        let (directory, _) = self.find(Action::Delete, key)?;
        let prefix = self.root.temporary_prefix();
        match swap::remove(&directory, prefix, key.split_last().1, identity).map_err(&failed)? {
            Swapped::Done => self.root.lasts.sync_names(&directory).map_err(&failed),
            _ => {
                let path = self.root.shown(key.as_bytes());
                Err(TierError::Changed { action: Action::Delete, path })
            }
        }
    }

    fn rename(&self, from: &Key, to: &Key) -> Result<(), TierError> {
        let (source, moved) = self.find(Action::Rename, from)?;
        if from == to {
            return Ok(());
        }
        let failed = self.failed(Action::Rename, to);
        let (parent, name) = to.split_last();
        let target = self.root.make_directory(parent).map_err(&failed)?;
        match fs::statat(&target, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
            Ok(there) => {
                self.require_object(Action::Rename, to, &there)?;
                if (there.st_dev, there.st_ino) == (moved.st_dev, moved.st_ino) {
                    // Two links of one file: rename(2) would do nothing and leave both.
                    fs::unlinkat(&source, from.split_last().1, AtFlags::empty())
                        .map_err(&failed)?;
                    return self.root.lasts.sync_names(&source).map_err(&failed);
                }
            }
        }
        fs::renameat(&source, from.split_last().1, &target, name).map_err(&failed)?;
        self.root.lasts.sync_names(&target).map_err(&failed)?;
        self.root.lasts.sync_names(&source).map_err(&failed)
    }

    fn rename_version(
        &self,
        from: (&Key, u64),
        to: (&Key, Option<u64>),
    ) -> Result<ObjectMeta, TierError> {
        self.rename_held(from, to)
    }

    fn tree(&self) -> Option<&dyn Tree> {
        Some(self)
    }

    fn sweep(&self, prefix: &[u8], before: SystemTime) -> Result<usize, TierError> {
        names::sweep(&self.root, prefix, before)
    }

    fn sweep_own(&self, directory: &[u8]) -> Result<usize, TierError> {
        names::sweep_own(&self.root, directory)
    }
}

/// One file, kept open: a rename over its name does not touch it.
struct PosixReader {
    file: OwnedFd,
    meta: ObjectMeta,
    path: String,
}

impl Reader for PosixReader {
    fn meta(&self) -> ObjectMeta {
        self.meta
    }

    /// A rename over its name, and the end of its last name, change the time that is part of the identity.
    fn meta_now(&self) -> Option<Result<ObjectMeta, TierError>> {
        let failed = |errno| TierError::from_errno(Action::Stat, self.path.clone(), errno);
        Some(fs::fstat(&self.file).map(|stat| meta(&stat)).map_err(failed))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, TierError> {
        read_fully(&self.file, offset, buffer)
            .map_err(|errno| TierError::from_errno(Action::Read, self.path.clone(), errno))
    }

    fn local_descriptor(&self) -> Option<Result<OwnedFd, TierError>> {
        Some(self.file.try_clone().map_err(|source| TierError::Io {
            action: Action::Open,
            path: self.path.clone(),
            source,
        }))
    }
}

/// Repeats a call that a signal interrupted.
fn again<T>(call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    rustix::io::retry_on_intr(call)
}

/// Mode and times; `None` stays. The file is not synced here.
fn apply(file: impl AsFd, attributes: Attributes) -> rustix::io::Result<()> {
    if let Some(mode) = attributes.mode {
        fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
    }
    if let Some(mtime) = attributes.mtime {
        let keep = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT };
        fs::futimens(&file, &Timestamps { last_access: keep, last_modification: timespec(mtime) })?;
    }
    Ok(())
}

/// Why a file of this type is no object; `None` when it is one.
fn no_object(kind: FileType) -> Option<&'static str> {
    match kind {
        FileType::RegularFile => None,
        FileType::Directory => Some("it is a directory"),
        FileType::Symlink => Some("it is a symbolic link, and links are not followed"),
        FileType::Fifo => Some("it is a pipe"),
        FileType::Socket => Some("it is a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("it is a device"),
        _ => Some("it is not a regular file"),
    }
}

fn meta(stat: &Stat) -> ObjectMeta {
    let size = u64::try_from(stat.st_size).expect("the kernel gives no negative size");
    // No device number: hosts, and boots of one, give the same mount of a network file system different ones.
    let mut identity = Vec::with_capacity(32);
    for word in [stat.st_ino, size] {
        identity.extend_from_slice(&word.to_le_bytes());
    }
    identity.extend_from_slice(&stat.st_ctime.to_le_bytes());
    identity.extend_from_slice(&stat.st_ctime_nsec.to_le_bytes());
    ObjectMeta {
        size: ByteCount(size),
        mode: stat.st_mode & 0o777,
        mtime: system_time(stat.st_mtime, stat.st_mtime_nsec),
        identity: xxhash_rust::xxh3::xxh3_64(&identity),
    }
}

fn timespec(time: SystemTime) -> Timespec {
    let (tv_sec, nanos) = seconds_and_nanos(time);
    Timespec { tv_sec, tv_nsec: nanos.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_same_whatever_the_number_of_the_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let here = fs::stat(file.path()).unwrap();
        let with = |change: fn(&mut Stat)| {
            let mut stat = here;
            change(&mut stat);
            meta(&stat)
        };
        assert_eq!(meta(&here), with(|stat| stat.st_dev += 1));
        assert_ne!(meta(&here).identity, with(|stat| stat.st_ctime_nsec ^= 1).identity);
        assert_ne!(meta(&here).identity, with(|stat| stat.st_ino += 1).identity);
    }
}
