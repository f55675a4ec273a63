//! A small file that one process at a time has: the mark of an unfinished upload that can be resumed.
//!
//! The lock is flock(2), so it is free the moment its process ends, however. Where the file system gives no
//! locks, or holds them on one machine only (`localflock` of Lustre: nobody can tell), there is no claim, or
//! one that other machines do not see.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::process::geteuid;

/// The file `name` in `directory`, locked, and as it was made or left; `None` where another one has it, and
/// where it can not be had.
pub(crate) fn claim(directory: impl AsFd, name: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    lock(&directory, name, fs::openat(&directory, name, flags | OFlags::NONBLOCK, mode).ok()?)
}

/// The same where it is there already.
pub(crate) fn claim_present(directory: impl AsFd, name: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    lock(&directory, name, fs::openat(&directory, name, flags, Mode::empty()).ok()?)
}

fn lock(directory: impl AsFd, name: &[u8], file: OwnedFd) -> Option<OwnedFd> {
    fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    // Between the open and the lock its owner may have removed it.
    let (ours, there) =
        (fs::fstat(&file).ok()?, fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?);
    ((ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) && is_own(&ours)).then_some(file)
}

/// A plain file of this user with one name: nobody else prepared it.
pub(crate) fn is_own(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == geteuid().as_raw()
        && stat.st_nlink == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_until_it_ends() {
        let around = tempfile::tempdir().unwrap();
        let directory = fs::open(around.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        assert!(claim_present(&directory, b"x").is_none());
        let first = claim(&directory, b"x").unwrap();
        assert!(claim(&directory, b"x").is_none() && claim_present(&directory, b"x").is_none());
        drop(first);
        let second = claim_present(&directory, b"x").unwrap();
        // Removed while it is had: the next one is another file.
        fs::unlinkat(&directory, "x", AtFlags::empty()).unwrap();
        assert!(claim(&directory, b"x").is_some());
        drop(second);
        std::os::unix::fs::symlink("x", around.path().join("link")).unwrap();
        assert!(claim(&directory, b"link").is_none(), "a link was followed");
        std::fs::hard_link(around.path().join("x"), around.path().join("y")).unwrap();
        assert!(claim(&directory, b"x").is_none(), "it has another name");
    }
}
