//! Paths that can not leave the root: every directory is opened from the root's descriptor, link-free.
//!
//! One `openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)` where the kernel has it (5.6); otherwise one
//! `openat(O_NOFOLLOW)` for each name. Both refuse a link that somebody puts there meanwhile.
//! Here too: making directories so that they are durable before anything is put into them.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{self, Mode, NFS_SUPER_MAGIC, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::again;
use crate::key::{CACHED_TEMPORARY_PREFIX, TEMPORARY_PREFIX};
use crate::owner::Attachment;
use crate::xattrs::Kept;

/// Directories remembered as durable; when more are in use, the memory starts anew (it only saves fsyncs).
const DURABLE_DIRECTORIES_MAX: usize = 65_536;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Names in it can be looked up, and it is not read: nobody but the kernel hears of that.
const DIRECTORY_PATH: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How long what was written has to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasts {
    /// Beyond a power cut, once a call has returned.
    BeyondPowerCut,
    /// As long as the machine runs.
    WithMachine,
    /// Beyond a power cut, in the cache area of a job.
    InCache,
}

/// The directory that is the tier.
#[derive(Debug)]
pub(super) struct Root {
    /// Which attributes the file system of the root keeps; one that is mounted below is not asked.
    pub(super) keeps: Kept,
    directory: OwnedFd,
    pub(super) lasts: Lasts,
    /// Whose unfinished uploads are known as such.
    pub(super) own: Option<Attachment>,
    path: PathBuf,
    /// False once the kernel said that it has no openat2.
    one_step: AtomicBool,
    /// The kernel asks whether it knows the right names of a directory only when that is opened. NFS: names
    /// are believed for up to a minute otherwise, and another host's rename(2) is not seen.
    opens_make_fresh: bool,
    /// (path, inode) of directories whose names are known to be on stable storage.
    durable: Mutex<HashSet<(Box<[u8]>, u64)>>,
}

impl Root {
    /// Follows links in `path` itself: that is what the user named.
    pub(super) fn attach(path: &Path, lasts: Lasts) -> rustix::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = again(|| fs::open(path, flags, Mode::empty()))?;
        let is_nfs = |kind: fs::StatFs| kind.f_type == NFS_SUPER_MAGIC;
        Ok(Self {
            keeps: super::xattrs::kept_in(&directory),
            opens_make_fresh: fs::fstatfs(&directory).map_or(true, is_nfs),
            directory,
            lasts,
            own: None,
            path: path.to_path_buf(),
            one_step: AtomicBool::new(true),
            durable: Mutex::default(),
        })
    }

    /// How names of unfinished uploads begin.
    pub(super) fn temporary_prefix(&self) -> &[u8] {
        self.own.as_ref().map_or(self.lasts.temporary_prefix(), Attachment::prefix)
    }

    /// Whether names can be exchanged in it, tried with two hidden files. False where nothing can be made.
    pub(super) fn exchanges_names(&self) -> bool {
        super::swap::is_had(&self.directory, self.temporary_prefix())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What a person would type.
    pub(super) fn shown(&self, relative: &[u8]) -> String {
        use std::os::unix::ffi::OsStrExt;
        self.path.join(std::ffi::OsStr::from_bytes(relative)).display().to_string()
    }

    /// The directory `relative` (made of a key's names; empty: the root itself), no link on the way.
    pub(super) fn open_directory(&self, relative: &[u8]) -> rustix::io::Result<OwnedFd> {
        if relative.is_empty() {
            return again(|| fs::openat(&self.directory, ".", DIRECTORY, Mode::empty()));
        }
        if self.one_step.load(Ordering::Relaxed) {
            let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            match again(|| {
                fs::openat2(&self.directory, relative, DIRECTORY, Mode::empty(), beneath)
            }) {
                // EPERM: a container's system call filter that does not know the call.
                Err(Errno::NOSYS | Errno::PERM) => self.one_step.store(false, Ordering::Relaxed),
                answer => return answer,
            }
        }
        self.open_step_by_step(relative)
    }

    /// The same directory, for looking a name up in it and for nothing else. Where its names are right without
    /// that it is not opened, which is a question more to a distant file system.
    pub(super) fn reach_directory(&self, relative: &[u8]) -> rustix::io::Result<OwnedFd> {
        if self.opens_make_fresh || !self.one_step.load(Ordering::Relaxed) {
            return self.open_directory(relative);
        }
        let relative = if relative.is_empty() { b"." } else { relative };
        // Another file system may be mounted below, of which nothing is known.
        let here = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let reach = || fs::openat2(&self.directory, relative, DIRECTORY_PATH, Mode::empty(), here);
        match again(reach) {
            Err(Errno::NOSYS | Errno::PERM | Errno::XDEV) => self.open_directory(relative),
            answer => answer,
        }
    }

    fn open_step_by_step(&self, relative: &[u8]) -> rustix::io::Result<OwnedFd> {
        let mut at = self.open_directory(b"")?;
        for name in relative.split(|&byte| byte == b'/') {
            at = again(|| fs::openat(&at, name, DIRECTORY, Mode::empty()))?;
        }
        Ok(at)
    }

    /// Like [`Root::open_directory`], but makes what is missing; every name on the way is durable
    /// when this returns, whoever made it.
    pub(super) fn make_directory(&self, relative: &[u8]) -> rustix::io::Result<OwnedFd> {
        if relative.is_empty() {
            return self.open_directory(relative);
        }
        match self.open_directory(relative) {
            Ok(directory) if self.is_durable(relative, &directory)? => return Ok(directory),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let mut at = self.open_directory(b"")?;
        let mut end = 0;
        for name in relative.split(|&byte| byte == b'/') {
            end += name.len();
            let below = match again(|| fs::openat(&at, name, DIRECTORY, Mode::empty())) {
                Err(Errno::NOENT) => {
                    match fs::mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno),
                    }
                    again(|| fs::openat(&at, name, DIRECTORY, Mode::empty()))?
                }
                answer => answer?,
            };
            if !self.is_durable(&relative[..end], &below)? {
                self.lasts.sync_names(&at)?;
                self.remember_durable(&relative[..end], &below)?;
            }
            at = below;
            end += 1;
        }
        Ok(at)
    }

    fn is_durable(&self, relative: &[u8], directory: &OwnedFd) -> rustix::io::Result<bool> {
        let known = (relative.into(), fs::fstat(directory)?.st_ino);
        Ok(self.durable.lock().unwrap_or_else(PoisonError::into_inner).contains(&known))
    }

    fn remember_durable(&self, relative: &[u8], directory: &OwnedFd) -> rustix::io::Result<()> {
        let known = (relative.into(), fs::fstat(directory)?.st_ino);
        let mut durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        if durable.len() >= DURABLE_DIRECTORIES_MAX {
            durable.clear();
        }
        durable.insert(known);
        Ok(())
    }
}

impl Lasts {
    /// How names of unfinished uploads begin that nobody owns.
    fn temporary_prefix(self) -> &'static [u8] {
        match self {
            Self::BeyondPowerCut | Self::WithMachine => TEMPORARY_PREFIX,
            Self::InCache => CACHED_TEMPORARY_PREFIX,
        }
    }

    /// Makes the names in a directory durable.
    pub(super) fn sync_names(self, directory: &OwnedFd) -> rustix::io::Result<()> {
        match self.sync(directory) {
            // A file system that has no such call for directories makes its names durable by itself.
            Err(Errno::INVAL) => Ok(()),
            answer => answer,
        }
    }

    /// Makes the bytes and attributes of a file durable.
    pub(super) fn sync(self, file: &OwnedFd) -> rustix::io::Result<()> {
        match self {
            Self::BeyondPowerCut | Self::InCache => again(|| fs::fsync(file)),
            Self::WithMachine => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn roots(path: &Path) -> [Root; 2] {
        let stepwise = Root::attach(path, Lasts::BeyondPowerCut).unwrap();
        stepwise.one_step.store(false, Ordering::Relaxed);
        [Root::attach(path, Lasts::BeyondPowerCut).unwrap(), stepwise]
    }

    #[test]
    fn no_link_on_the_way_is_followed() {
        let around = tempfile::tempdir().unwrap();
        let root = around.path().join("root");
        std::fs::create_dir_all(root.join("real/deep")).unwrap();
        std::fs::create_dir(around.path().join("outside")).unwrap();
        symlink("../outside", root.join("out")).unwrap();
        symlink("real", root.join("in")).unwrap();
        symlink("../../outside", root.join("real/out")).unwrap();
        for root in roots(&root) {
            assert!(root.open_directory(b"real/deep").is_ok());
            assert!(root.reach_directory(b"real/deep").is_ok());
            for link in [&b"out"[..], b"in", b"real/out", b"in/deep"] {
                let refused = root.open_directory(link).unwrap_err();
                assert!(matches!(refused, Errno::LOOP | Errno::NOTDIR), "{refused}");
                let refused = root.reach_directory(link).unwrap_err();
                assert!(matches!(refused, Errno::LOOP | Errno::NOTDIR), "{refused}");
                let refused = root.make_directory(&[link, b"/new"].concat()).unwrap_err();
                assert!(matches!(refused, Errno::LOOP | Errno::NOTDIR), "{refused}");
            }
        }
        assert_eq!(std::fs::read_dir(around.path().join("outside")).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_is_opened_for_a_name_only_where_that_makes_it_fresh() {
        let around = tempfile::tempdir().unwrap();
        std::fs::create_dir(around.path().join("d")).unwrap();
        for path in ["name", "d/name"] {
            std::fs::write(around.path().join(path), path).unwrap();
        }
        let mut root = Root::attach(around.path(), Lasts::BeyondPowerCut).unwrap();
        for opens_make_fresh in [false, true] {
            root.opens_make_fresh = opens_make_fresh;
            for (directory, size) in [(&b""[..], 4), (b"d", 6)] {
                let reached = root.reach_directory(directory).unwrap();
                let found = fs::statat(&reached, "name", fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
                assert_eq!(found.st_size, size);
                // One that is not open can not be read.
                let read = fs::Dir::read_from(&reached).and_then(|mut names| names.next().unwrap());
                assert_eq!(read.is_ok(), opens_make_fresh, "{read:?}");
            }
        }
    }

    #[test]
    fn directories_are_made_once_and_remembered() {
        let root = tempfile::tempdir().unwrap();
        for (round, root) in roots(root.path()).iter().enumerate() {
            let path = format!("r{round}/a/b");
            root.make_directory(path.as_bytes()).unwrap();
            assert_eq!(root.durable.lock().unwrap().len(), 3);
            let again = root.make_directory(path.as_bytes()).unwrap();
            assert!(root.is_durable(path.as_bytes(), &again).unwrap());
        }
    }
}
