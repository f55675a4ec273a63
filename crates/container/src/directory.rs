//! A directory that is kept open, and the files in it by name.
//!
//! Held by its descriptor: a container that is renamed while it is open goes on working.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hayase_layout::ByteCount;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::ContainerError;

/// See the module.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    /// What it was opened as; for people only.
    path: PathBuf,
}

/// Room of a file system. A quota may be less.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// For processes without privileges.
    pub(crate) free: ByteCount,
    /// All of it, used or not.
    pub(crate) total: ByteCount,
}

impl Directory {
    /// `NotFound` when nothing is there, `NotContainer` when it is not a directory.
    pub(crate) fn open(path: &Path) -> Result<Self, ContainerError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = path.to_owned();
        match retry(|| fs::open(&path, flags, Mode::empty())) {
            Ok(fd) => Ok(Self { fd, path }),
            Err(Errno::NOENT) => Err(ContainerError::NotFound { path }),
            Err(Errno::NOTDIR) => Err(ContainerError::NotContainer { path }),
            Err(errno) => Err(ContainerError::io("open the directory", &path, errno.into())),
        }
    }

    /// Its inode number.
    pub(crate) fn inode(&self) -> io::Result<u64> {
        Ok(retry(|| fs::fstat(&self.fd))?.st_ino)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What it is called now: without links, and also behind a rename.
    pub(crate) fn real_path(&self) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// Of a file in it; for people.
    pub(crate) fn shown(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes a file that was not there, for writing.
    pub(crate) fn create_file(&self, name: &str) -> io::Result<File> {
        stop::step()?;
        self.open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
    }

    pub(crate) fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        stop::look()?;
        let mode = Mode::from_raw_mode(0o666);
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(File::from(retry(|| fs::openat(&self.fd, name, flags, mode))?))
    }

    /// Length of a file in it; `None` when it is not there.
    pub(crate) fn len(&self, name: &str) -> io::Result<Option<u64>> {
        match retry(|| fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(stat) => Ok(Some(u64::try_from(stat.st_size).unwrap_or(0))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Room of its file system. `None` where that does not tell.
    pub(crate) fn room(&self) -> Option<Room> {
        let stat = retry(|| fs::fstatvfs(&self.fd)).ok().filter(|stat| stat.f_blocks > 0)?;
        let bytes = |blocks: u64| ByteCount(blocks.saturating_mul(stat.f_frsize));
        Some(Room { free: bytes(stat.f_bavail), total: bytes(stat.f_blocks) })
    }

    /// All names in it, sorted; without `.` and `..`. Names that are no UTF-8 with replacements.
    pub(crate) fn names(&self) -> Result<Vec<String>, ContainerError> {
        stop::list_slowly(|| self.list())
    }

    fn list(&self) -> Result<Vec<String>, ContainerError> {
        let failed =
            |errno: Errno| ContainerError::io("list the directory", &self.path, errno.into());
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(String::from_utf8_lossy(name).into_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Gives a file another name. A file that has it would be replaced: for names that are drawn.
    pub(crate) fn rename_file(&self, from: &str, to: &str) -> io::Result<()> {
        stop::step()?;
        Ok(retry(|| fs::renameat(&self.fd, from, &self.fd, to))?)
    }

    /// It is well when it is gone already.
    pub(crate) fn remove(&self, name: &str) -> Result<(), ContainerError> {
        let path = || self.shown(name);
        stop::step().map_err(|source| ContainerError::io("remove", &path(), source))?;
        match retry(|| fs::unlinkat(&self.fd, name, AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(ContainerError::io("remove", &path(), errno.into())),
        }
    }

    /// Names in it are durable afterwards. File systems that sync no directories have no need to.
    pub(crate) fn sync(&self) -> Result<(), ContainerError> {
        let failed = |source| ContainerError::io("sync the directory", &self.path, source);
        stop::step().map_err(failed)?;
        sync_directory(&self.fd, &self.path)
    }

    /// Its own name is durable afterwards.
    pub(crate) fn sync_name(&self) -> Result<(), ContainerError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = retry(|| fs::openat(&self.fd, "..", flags, Mode::empty()));
        let parent = parent
            .map_err(|errno| ContainerError::io("open the parent of", &self.path, errno.into()))?;
        sync_directory(&parent, &self.path)
    }

    /// An extended attribute, where there are any: `false` where there are none.
    pub(crate) fn set_xattr(&self, name: &str, value: &[u8]) -> bool {
        fs::fsetxattr(&self.fd, name, value, fs::XattrFlags::empty()).is_ok()
    }

    pub(crate) fn remove_xattr(&self, name: &str) {
        // It may never have been set, or be refused here: the mark is the file.
        let _ = fs::fremovexattr(&self.fd, name);
    }
}

fn sync_directory(fd: &OwnedFd, path: &Path) -> Result<(), ContainerError> {
    match retry(|| fs::fsync(fd)) {
        Ok(()) | Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
        Err(errno) => Err(ContainerError::io("sync the directory", path, errno.into())),
    }
}

/// Whether a file that was there is there no more: of one that is open, NFS says it in its own way.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::STALE.raw_os_error())
}

/// Again while a signal interrupts.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            answer => return answer,
        }
    }
}

/// The directory that a path lies in, and its name there.
pub(crate) fn split(path: &Path) -> Result<(&Path, &OsStr), ContainerError> {
    let what = || format!("{} is no name for a file", path.display());
    let name = path.file_name().ok_or_else(|| ContainerError::Invalid { what: what() })?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")), name))
}

/// A hidden name beside `name` that nobody has: 64 random bits.
pub(crate) fn hidden_name(name: &OsStr) -> OsString {
    // A name has at most 255 bytes.
    let kept = &name.as_bytes()[..name.len().min(200)];
    let random = format!(".hayase-{:016x}", random());
    OsString::from_vec([b".", kept, random.as_bytes()].concat())
}

/// Whether a name is that of something that is being made or removed: not to be shown to anybody.
pub fn is_hidden_name(name: &str) -> bool {
    let random = name.strip_prefix('.').and_then(|rest| rest.rsplit_once(".hayase-"));
    random.is_some_and(|(_, hex)| hex.len() == 16 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Random enough to be alone: keys from the system, and a new state each time; of a process that was forked, whose keys
/// are those of its parent, by its number and the time.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one((std::process::id(), SystemTime::now()))
}

/// Tests stop a thread before one of the changes that it makes to directories, as a kill does, or let several take
/// turns.
#[cfg(test)]
pub(crate) mod stop {
    use std::cell::RefCell;
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    use std::io;
    use std::sync::mpsc::{Receiver, Sender};

    use crate::ContainerError;

    /// What a thread waits for before each of its steps: changes, opens, and the halves of listings.
    pub(crate) struct Turns {
        pub(crate) arrived: Sender<()>,
        /// Without a sender it is killed.
        pub(crate) go: Receiver<()>,
        /// Which names a listing finds in its first half.
        pub(crate) seed: u64,
    }

    thread_local! {
        static LEFT: RefCell<Option<u64>> = const { RefCell::new(None) };
        static TURNS: RefCell<Option<Turns>> = const { RefCell::new(None) };
    }

    /// This number of changes is made; then every one fails, until this is called again.
    pub(crate) fn after(changes: Option<u64>) {
        LEFT.replace(changes);
    }

    /// This thread takes turns with others.
    pub(crate) fn take_turns(turns: Turns) {
        TURNS.replace(Some(turns));
    }

    /// Before a change.
    pub(super) fn step() -> io::Result<()> {
        look()?;
        LEFT.with_borrow_mut(|left| match left {
            None => Ok(()),
            Some(0) => Err(io::Error::other("stopped")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        })
    }

    /// Before something that changes nothing.
    pub(super) fn look() -> io::Result<()> {
        TURNS.with_borrow(|turns| {
            let Some(turns) = turns else { return Ok(()) };
            let _ = turns.arrived.send(());
            turns.go.recv().map_err(|_| io::Error::other("stopped"))
        })
    }

    /// A listing takes time: half of the names are as they were before a step, the others as they are behind it.
    pub(super) fn list_slowly(
        list: impl Fn() -> Result<Vec<String>, ContainerError>,
    ) -> Result<Vec<String>, ContainerError> {
        let Some(seed) = TURNS.with_borrow(|turns| turns.as_ref().map(|turns| turns.seed)) else {
            return list();
        };
        let failed = |source| ContainerError::io("list", std::path::Path::new("F"), source);
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let is_first = |name: &String| hasher.hash_one((name, seed)) & 1 == 0;
        look().map_err(failed)?;
        let mut names = list()?;
        names.retain(is_first);
        look().map_err(failed)?;
        names.extend(list()?.into_iter().filter(|name| !is_first(name)));
        names.sort_unstable();
        Ok(names)
    }
}

#[cfg(not(test))]
mod stop {
    use crate::ContainerError;

    /// Only tests stop.
    #[expect(clippy::unnecessary_wraps, reason = "the one of tests fails")]
    pub(super) fn step() -> std::io::Result<()> {
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "the one of tests fails")]
    pub(super) fn look() -> std::io::Result<()> {
        Ok(())
    }

    pub(super) fn list_slowly(
        list: impl Fn() -> Result<Vec<String>, ContainerError>,
    ) -> Result<Vec<String>, ContainerError> {
        list()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_gone_is_told_from_one_that_can_not_be_read() {
        let gone = |errno: Errno| is_gone(&errno.into());
        assert!(gone(Errno::NOENT) && gone(Errno::STALE));
        assert!(!gone(Errno::IO) && !gone(Errno::ACCESS));
    }

    #[test]
    fn hidden_names_are_known_again() {
        let hidden = hidden_name(OsStr::new("out.h5"));
        assert!(is_hidden_name(hidden.to_str().unwrap()), "{hidden:?}");
        assert!(hidden_name(OsStr::new(&"n".repeat(255))).len() <= 255);
        for name in ["out.h5", ".out.h5", ".out.hayase-12", "x.hayase-0123456789abcdef", ""] {
            assert!(!is_hidden_name(name), "{name}");
        }
    }
}
