//! Whole files from memory, many after each other, by as few calls as a file can be made durable with.
//!
//! The same promises as [`super::upload`]: each is written beside its target, synced, renamed over it. What
//! is saved: files that follow each other in one directory share its descriptor, and its names are made
//! durable together, before any of them is told to be there.

use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::beneath::Root;
use super::no_replace::is_taken;
use super::{again, apply, no_object};
use crate::descriptor::write_fully;
use crate::temporary::with_temporary_name;
use crate::{Action, Attributes, TierError, Whole};

/// Makes all of them; answers in their order.
pub(super) fn put_each(root: &Root, objects: &[Whole<'_>]) -> Vec<Result<(), TierError>> {
    let is_beside = |a: &Whole<'_>, b: &Whole<'_>| a.key.split_last().0 == b.key.split_last().0;
    let groups = objects.chunk_by(is_beside);
    groups.flat_map(|group| put_group(root, group)).collect()
}

/// Files of one directory.
fn put_group(root: &Root, group: &[Whole<'_>]) -> Vec<Result<(), TierError>> {
    let failed = |action: Action, object: &Whole<'_>, errno: Errno| {
        TierError::from_errno(action, root.shown(object.key.as_bytes()), errno)
    };
    let directory = match root.make_directory(group[0].key.split_last().0) {
        Ok(directory) => directory,
        Err(errno) => {
            return group.iter().map(|object| Err(failed(Action::Begin, object, errno))).collect();
        }
    };
    let mut maker = Maker { root, directory, kept: None };
    let mut answers: Vec<_> = group.iter().map(|object| maker.put(object)).collect();
    if answers.iter().any(Result::is_ok)
        && let Err(errno) = root.lasts.sync_names(&maker.directory)
    {
        for (answer, object) in answers.iter_mut().zip(group).filter(|(answer, _)| answer.is_ok()) {
            *answer = Err(failed(Action::Commit, object, errno));
        }
    }
    answers
}

/// Makes files in one directory.
struct Maker<'a> {
    root: &'a Root,
    directory: OwnedFd,
    /// A mode that was asked for at creation and became true: nothing masks bits of it here.
    kept: Option<u32>,
}

impl Maker<'_> {
    fn put(&mut self, object: &Whole<'_>) -> Result<(), TierError> {
        let root = self.root;
        let shown = || root.shown(object.key.as_bytes());
        let failed = |action| move |errno| (action, errno);
        let made = self.make(object).map_err(failed(Action::Begin));
        let (temporary, file) =
            made.map_err(|(action, errno)| TierError::from_errno(action, shown(), errno))?;
        let filled = write_fully(0, object.data, |at, rest| rustix::io::pwrite(&file, rest, at))
            .map_err(failed(Action::Write))
            .and_then(|()| self.dress(&file, object.attributes).map_err(failed(Action::Commit)))
            .and_then(|()| self.root.lasts.sync(&file).map_err(failed(Action::Commit)));
        let done = match filled {
            Ok(()) => self.switch(&temporary, object),
            Err((action, errno)) => Err(TierError::from_errno(action, shown(), errno)),
        };
        if done.is_err() {
            // What can not be removed now is hidden from listings and left to `sweep`.
            let _ = fs::unlinkat(&self.directory, temporary.as_slice(), AtFlags::empty());
        }
        done
    }

    /// An empty file of a name that nobody has.
    fn make(&self, object: &Whole<'_>) -> rustix::io::Result<(Vec<u8>, OwnedFd)> {
        let mode = Mode::from_raw_mode(object.attributes.mode.map_or(0o666, |mode| mode & 0o777));
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = |name: &[u8]| again(|| fs::openat(&self.directory, name, flags, mode));
        with_temporary_name(self.root.temporary_prefix(), create, is_taken)
    }

    /// Mode and time. A mode is set only where creation did not: a mask or an inherited list of rights took
    /// bits from it, which is found out once for each mode.
    fn dress(&mut self, file: &OwnedFd, attributes: Attributes) -> rustix::io::Result<()> {
        let mode = attributes.mode.map(|mode| mode & 0o777);
        if mode.is_some() && mode != self.kept {
            let found = fs::fstat(file)?.st_mode & 0o7777;
            if Some(found) == mode {
                self.kept = mode;
            }
        }
        let is_set = mode.is_none() || mode == self.kept;
        apply(file, Attributes { mode: mode.filter(|_| !is_set), mtime: attributes.mtime })
    }

    /// Gives the file its name; only a regular file is replaced.
    fn switch(&self, temporary: &[u8], object: &Whole<'_>) -> Result<(), TierError> {
        let path = || self.root.shown(object.key.as_bytes());
        let failed = |errno| TierError::from_errno(Action::Commit, path(), errno);
        let (name, at) = (object.key.split_last().1, &self.directory);
        match fs::renameat_with(at, temporary, at, name, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(()),
            // Not every file system has it (NFS).
            Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS) => {}
            Err(errno) => return Err(failed(errno)),
        }
        match fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
            Ok(there) => {
                if let Some(what) = no_object(FileType::from_raw_mode(there.st_mode)) {
                    let action = Action::Commit;
                    return Err(TierError::NotObject { action, path: path(), what });
                }
            }
        }
        fs::renameat(at, temporary, at, name).map_err(failed)
    }
}
