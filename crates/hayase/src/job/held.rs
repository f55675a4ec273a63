//! A directory that is held open: what another user puts in its path afterwards does not count.
//!
//! Here: looking at one name at a time, reading and removing below a held directory. Not here: which directories may be
//! believed ([`super::trust`]).
//! Each name is opened with `O_NOFOLLOW` from the descriptor of the directory above. That is what openat2(2) does with
//! `RESOLVE_NO_SYMLINKS`, for one name, on kernels before 5.6 and behind filters of system calls as well.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat, unlinkat};
use rustix::io::Errno;

/// For looking names up in it; it is not opened for reading.
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// For reading a file. A pipe in its place does not keep the reader waiting.
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// A directory, or whatever else a name led to.
#[derive(Clone, Debug)]
pub(crate) struct Held(Arc<OwnedFd>);

impl Held {
    /// `/`.
    pub(super) fn top() -> io::Result<Self> {
        let opened = rustix::fs::open("/", PLACE | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Self(Arc::new(opened)))
    }

    /// What a name in it is, held: a link itself, not what it leads to. A file system that is mounted there is not asked.
    pub(super) fn look(&self, name: &OsStr) -> io::Result<Self> {
        let open = |flags| openat(&*self.0, name, flags, Mode::empty());
        // As a directory first: only so is a file system mounted that waits for somebody to come.
        let opened = match open(PLACE | OFlags::DIRECTORY) {
            Err(Errno::NOTDIR) => open(PLACE),
            opened => opened,
        };
        Ok(Self(Arc::new(opened?)))
    }

    /// Owner, mode and the like.
    pub(super) fn found(&self) -> io::Result<Stat> {
        Ok(fstat(&*self.0)?)
    }

    /// The directory of this name in it; a link is refused.
    pub(crate) fn directory(&self, name: &OsStr) -> io::Result<Self> {
        let opened = openat(&*self.0, name, PLACE | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Self(Arc::new(opened)))
    }

    /// Where this link leads.
    pub(super) fn target(&self) -> io::Result<PathBuf> {
        let target = rustix::fs::readlinkat(&*self.0, "", Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    /// The number of the mount that it is in, without asking its file system: proc_pid_fdinfo(5).
    pub(super) fn mount(&self) -> Option<u64> {
        let shown = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd()));
        let shown = shown.ok()?;
        shown.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
    }

    /// Where this process reaches it, as long as it is held, whatever becomes of its path: proc_pid_fd(5).
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Whether both are the same directory.
    pub(super) fn is(&self, other: &Self) -> bool {
        let numbers = |held: &Self| fstat(&*held.0).map(|found| (found.st_dev, found.st_ino));
        matches!((numbers(self), numbers(other)), (Ok(one), Ok(two)) if one == two)
    }

    /// Opens a file below it to read; no link on the way is followed. It is not there where another host has removed the
    /// directory.
    pub(crate) fn open_file(&self, below: &Path) -> io::Result<File> {
        let (above, name) = (below.parent(), below.file_name().unwrap_or_default());
        let open = || -> rustix::io::Result<OwnedFd> {
            let mut at = self.0.clone();
            for name in above.into_iter().flatten() {
                at = Arc::new(openat(&*at, name, PLACE | OFlags::DIRECTORY, Mode::empty())?);
            }
            openat(&*at, name, FILE, Mode::empty())
        };
        match open() {
            Err(Errno::STALE) => Err(io::ErrorKind::NotFound.into()),
            opened => Ok(opened?.into()),
        }
    }

    /// Removes a name with all that is below it; links are not followed. Fine when it is not there.
    pub(crate) fn remove_all(&self, name: &OsStr) -> io::Result<()> {
        let found = match statat(&*self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT | Errno::STALE) => return Ok(()),
            found => found?,
        };
        let removed = match FileType::from_raw_mode(found.st_mode) {
            // Which follows no link below that path, and none in its last name.
            FileType::Directory => fs::remove_dir_all(self.path().join(name)),
            _ => Ok(unlinkat(&*self.0, name, AtFlags::empty())?),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes an empty directory that this user made.
    pub(crate) fn remove_empty(&self, name: &OsStr) -> io::Result<()> {
        self.remove_own(name, FileType::Directory, AtFlags::REMOVEDIR)
    }

    /// Removes a link that this user made.
    pub(crate) fn remove_link(&self, name: &OsStr) -> io::Result<()> {
        self.remove_own(name, FileType::Symlink, AtFlags::empty())
    }

    fn remove_own(&self, name: &OsStr, kind: FileType, flags: AtFlags) -> io::Result<()> {
        let found = statat(&*self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) != kind {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if found.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(unlinkat(&*self.0, name, flags)?)
    }

    /// Gives what is in it another name in it.
    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&*self.0, from, &*self.0, to)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn held(path: &Path) -> Held {
        let whole = path.canonicalize().unwrap();
        let mut at = Held::top().unwrap();
        for name in whole.iter().skip(1) {
            at = at.directory(name).unwrap();
        }
        at
    }

    #[test]
    fn nothing_is_reached_by_a_link_below_a_held_directory() {
        let top = tempfile::tempdir().unwrap();
        let (own, others) = (top.path().join("own"), top.path().join("others"));
        fs::create_dir_all(others.join("node-0")).unwrap();
        fs::write(others.join("node-0/file"), "of others").unwrap();
        fs::create_dir(&own).unwrap();
        symlink(others.join("node-0"), own.join("node-0")).unwrap();
        symlink(others.join("node-0/file"), own.join("file")).unwrap();
        let own_held = held(&own);
        for path in ["node-0/file", "file"] {
            let refused = own_held.open_file(Path::new(path)).unwrap_err();
            assert!(matches!(refused.raw_os_error(), Some(20 | 40)), "{path}: {refused}");
        }
        assert!(own_held.remove_empty("node-0".as_ref()).is_err());
        own_held.remove_all("node-0".as_ref()).unwrap();
        own_held.remove_link("file".as_ref()).unwrap();
        own_held.remove_all("missing".as_ref()).unwrap();
        assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
        assert_eq!(fs::read(others.join("node-0/file")).unwrap(), b"of others");
    }

    /// Another directory is where the held one was.
    #[test]
    fn a_held_directory_stays_the_same_when_its_path_does_not() {
        let top = tempfile::tempdir().unwrap();
        let (own, others) = (top.path().join("own"), top.path().join("others"));
        for dir in [&own, &others] {
            fs::create_dir_all(dir.join("below/deeper")).unwrap();
            fs::write(dir.join("name"), dir.as_os_str().as_encoded_bytes()).unwrap();
        }
        let own_held = held(&own);
        let moved = top.path().join("moved");
        fs::rename(&own, &moved).unwrap();
        symlink(&others, &own).unwrap();
        let read = io::read_to_string(own_held.open_file(Path::new("name")).unwrap()).unwrap();
        assert_eq!(Path::new(&read), own);
        own_held.remove_all("below".as_ref()).unwrap();
        assert!(others.join("below/deeper").exists() && !moved.join("below").exists());
        assert!(own_held.is(&held(&moved)) && !own_held.is(&held(&others)));
    }

    #[test]
    fn a_mount_is_told_by_its_number() {
        let proc = held(Path::new("/proc"));
        let lines = hayase_fuse::mount_table::read().unwrap();
        let line = lines.iter().find(|line| Some(line.number) == proc.mount()).unwrap();
        assert_eq!(line.point, Path::new("/proc"));
        assert_ne!(held(Path::new("/")).mount(), proc.mount());
    }
}
