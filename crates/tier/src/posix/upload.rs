//! A new version of a file: written beside its target, synced, renamed over it, the directory synced.
//!
//! Invariant: until the switch the target is untouched; after it the target is the new version, whole.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::beneath::{Lasts, Root};
use super::{again, apply, meta, no_object};
use crate::key::TEMPORARY_PREFIX;
use crate::{Action, Attributes, Key, ObjectMeta, Precondition, TierError, Upload};

/// Names tried for the temporary; each is 64 random bits, so a second try is already strange.
const NAME_TRIES_MAX: usize = 8;

pub(super) fn begin(
    root: &Root,
    key: &Key,
    attributes: Attributes,
) -> Result<Box<dyn Upload>, TierError> {
    let path = root.shown(key.as_bytes());
    let failed = |errno| TierError::from_errno(Action::Begin, path.clone(), errno);
    let (parent, name) = key.split_last();
    let directory = root.make_directory(parent).map_err(failed)?;
    let (temporary, file) = create_temporary(&directory, attributes).map_err(failed)?;
    let name = name.into();
    let upload = PosixUpload {
        directory,
        file,
        name,
        temporary: Some(temporary),
        attributes,
        path,
        lasts: root.lasts,
    };
    // Refused now rather than after gigabytes; checked again before the switch.
    upload.require_replaceable(Action::Begin)?;
    Ok(Box::new(upload))
}

/// A new file of a name that nobody has; closed to others when the final mode is still to be set.
fn create_temporary(
    directory: &OwnedFd,
    attributes: Attributes,
) -> rustix::io::Result<(Vec<u8>, OwnedFd)> {
    let mode = Mode::from_raw_mode(if attributes.mode.is_some() { 0o600 } else { 0o666 });
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    with_temporary_name(|name| again(|| fs::openat(directory, name, flags, mode)))
}

/// Calls `make` with a name that nobody has, again while it answers that the name is taken.
pub(super) fn with_temporary_name<T>(
    make: impl Fn(&[u8]) -> rustix::io::Result<T>,
) -> rustix::io::Result<(Vec<u8>, T)> {
    for _ in 0..NAME_TRIES_MAX {
        let mut name = TEMPORARY_PREFIX.to_vec();
        name.extend_from_slice(format!("{:016x}", RandomState::new().hash_one(0)).as_bytes());
        match make(&name) {
            Err(Errno::EXIST) => {}
            answer => return answer.map(|made| (name, made)),
        }
    }
    Err(Errno::EXIST)
}

struct PosixUpload {
    directory: OwnedFd,
    file: OwnedFd,
    name: Box<[u8]>,
    /// `None` once it is the target.
    temporary: Option<Vec<u8>>,
    attributes: Attributes,
    path: String,
    lasts: Lasts,
}

impl Upload for PosixUpload {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), TierError> {
        write_fully(offset, data, |at, rest| rustix::io::pwrite(&self.file, rest, at))
            .map_err(|errno| self.failed(Action::Write, errno))
    }

    fn commit(mut self: Box<Self>, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        self.switch(precondition)
    }
}

impl PosixUpload {
    fn failed(&self, action: Action, errno: Errno) -> TierError {
        TierError::from_errno(action, self.path.clone(), errno)
    }

    fn switch(&mut self, precondition: Precondition) -> Result<ObjectMeta, TierError> {
        self.require_replaceable(Action::Commit)?;
        let failed = |errno| TierError::from_errno(Action::Commit, self.path.clone(), errno);
        apply(&self.file, self.attributes).map_err(failed)?;
        self.lasts.sync(&self.file).map_err(failed)?;
        let temporary = self.temporary.as_deref().expect("an upload is committed once");
        match precondition {
            Precondition::Any => {
                fs::renameat(&self.directory, temporary, &self.directory, &*self.name)
            }
            Precondition::Absent => rename_no_replace(&self.directory, temporary, &self.name),
        }
        .map_err(failed)?;
        self.temporary = None;
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
            // What can not be removed now is hidden from listings and left to `sweep`.
            let _ = fs::unlinkat(&self.directory, temporary.as_slice(), AtFlags::empty());
        }
    }
}

/// Gives `from` the name `to` unless that is taken.
fn rename_no_replace(directory: &OwnedFd, from: &[u8], to: &[u8]) -> rustix::io::Result<()> {
    match fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        // Not every file system has it (NFS); a second link is as exact.
        Err(Errno::INVAL | Errno::NOSYS) => link_no_replace(directory, from, to),
        answer => answer,
    }
}

fn link_no_replace(directory: &OwnedFd, from: &[u8], to: &[u8]) -> rustix::io::Result<()> {
    fs::linkat(directory, from, directory, to, AtFlags::empty())?;
    fs::unlinkat(directory, from, AtFlags::empty())
}

/// Repeats `write(offset, rest)` until all of `data` is taken, whatever signals and short writes say.
fn write_fully(
    offset: u64,
    data: &[u8],
    mut write: impl FnMut(u64, &[u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        let at = offset.checked_add(done as u64).ok_or(Errno::FBIG)?;
        match write(at, &data[done..]) {
            Err(Errno::INTR) => {}
            // The kernel took nothing and gave no reason: repeating could go on for ever.
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `write_fully` of `abcdefgh` at 100 against a kernel that answers as scripted.
    fn check(script: &[rustix::io::Result<usize>], result: rustix::io::Result<()>, calls: &str) {
        let mut answers = script.iter().copied();
        let mut seen = Vec::new();
        let outcome = write_fully(100, b"abcdefgh", |at, rest| {
            seen.push(format!("{at}:{}", String::from_utf8_lossy(rest)));
            answers.next().expect("more calls than scripted")
        });
        assert_eq!(outcome, result);
        assert_eq!(seen.join(" "), calls);
    }

    #[test]
    fn short_writes_and_signals_are_continued_where_they_stopped() {
        check(&[Ok(8)], Ok(()), "100:abcdefgh");
        check(&[Ok(3), Ok(5)], Ok(()), "100:abcdefgh 103:defgh");
        check(&[Err(Errno::INTR), Ok(8)], Ok(()), "100:abcdefgh 100:abcdefgh");
        check(&[Ok(7), Err(Errno::NOSPC)], Err(Errno::NOSPC), "100:abcdefgh 107:h");
        check(&[Ok(0)], Err(Errno::IO), "100:abcdefgh");
    }

    #[test]
    fn both_ways_to_rename_refuse_a_name_that_is_taken() {
        for rename in [rename_no_replace, link_no_replace] {
            let directory = tempfile::tempdir().unwrap();
            let at = fs::open(directory.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
            let read = |name| std::fs::read(directory.path().join(name));
            std::fs::write(directory.path().join("t"), "new").unwrap();
            std::fs::write(directory.path().join("taken"), "old").unwrap();
            assert_eq!(rename(&at, b"t", b"taken"), Err(Errno::EXIST));
            assert_eq!(rename(&at, b"t", b"free"), Ok(()));
            assert_eq!(read("taken").unwrap(), b"old");
            assert_eq!(read("free").unwrap(), b"new");
            assert!(read("t").is_err());
        }
    }
}
