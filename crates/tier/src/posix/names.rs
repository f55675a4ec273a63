//! Directories of a mounted file system, read for listings and for the sweep.
//!
//! Only one directory is open at a time, so depth costs no descriptors.

use std::os::fd::OwnedFd;
use std::time::SystemTime;

use rustix::fs::{self, AtFlags, FileType, RawDir, Stat};
use rustix::io::Errno;

use super::beneath::Root;
use super::swap::Exchange;
use super::{meta, no_object, swap};
use crate::key::is_temporary;
use crate::timestamp::system_time;
use crate::walk::{Directories, Seen, split_prefix};
use crate::{Action, ObjectMeta, TierError};

/// Names that are asked for at once take at most this much: a distant file system answers each time.
const NAMES_BYTES: usize = 128 << 10;

/// The directories below a root, for one listing.
pub(super) struct Names<'a> {
    root: &'a Root,
    /// The directory whose objects were asked for last.
    open: Option<(Vec<u8>, OwnedFd)>,
}

impl<'a> Names<'a> {
    pub(super) fn new(root: &'a Root) -> Self {
        Self { root, open: None }
    }
}

impl Directories for Names<'_> {
    fn for_each_name(
        &mut self,
        path: &[u8],
        visit: &mut dyn FnMut(&[u8], Seen),
    ) -> Result<(), TierError> {
        for_each_name(self.root, path, Action::List, |_, name, kind| {
            visit(
                name,
                match kind {
                    FileType::Directory => Seen::Directory,
                    other => no_object(other).map_or(Seen::Object(None), Seen::Other),
                },
            );
            Ok(())
        })
    }

    fn object(&mut self, path: &[u8], name: &[u8]) -> Result<Option<ObjectMeta>, TierError> {
        if self.open.as_ref().is_none_or(|(opened, _)| opened != path) {
            let reached = self.root.reach_directory(path.strip_suffix(b"/").unwrap_or(path));
            let Some(directory) = listed(self.root, path, Action::List, reached)? else {
                return Ok(None);
            };
            self.open = Some((path.to_vec(), directory));
        }
        let (_, directory) = self.open.as_ref().expect("opened above");
        match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                Ok(Some(meta(&stat)))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(None),
            Err(errno) => {
                let shown = self.root.shown(&[path, name].concat());
                Err(TierError::from_errno(Action::List, shown, errno))
            }
        }
    }
}

/// A directory that a listing met; `None` when it vanished, or became something else, meanwhile.
fn listed(
    root: &Root,
    path: &[u8],
    action: Action,
    found: rustix::io::Result<OwnedFd>,
) -> Result<Option<OwnedFd>, TierError> {
    match found {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(TierError::from_errno(action, root.shown(path), errno)),
    }
}

/// Calls `visit(directory, name, type)` for each name of the directory at `path`, in no order.
fn for_each_name(
    root: &Root,
    path: &[u8],
    action: Action,
    mut visit: impl FnMut(&OwnedFd, &[u8], FileType) -> Result<(), TierError>,
) -> Result<(), TierError> {
    let opened = root.open_directory(path.strip_suffix(b"/").unwrap_or(path));
    let Some(directory) = listed(root, path, action, opened)? else { return Ok(()) };
    let failed = |errno| TierError::from_errno(action, root.shown(path), errno);
    let mut buffer = Vec::with_capacity(NAMES_BYTES);
    let mut names = RawDir::new(&directory, buffer.spare_capacity_mut());
    while let Some(name) = names.next() {
        let name = match name {
            Err(Errno::INTR) => continue,
            // Removed while it was read: nothing is in it.
            Err(Errno::NOENT) => break,
            other => other.map_err(failed)?,
        };
        let bytes = name.file_name().to_bytes();
        if matches!(bytes, b"." | b"..") {
            continue;
        }
        let kind = match name.file_type() {
            // The file system does not tell in the directory itself.
            FileType::Unknown => match fs::statat(&directory, bytes, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(failed(errno)),
            },
            known => known,
        };
        visit(&directory, bytes, kind)?;
    }
    Ok(())
}

/// A version that came out where another one was replaced, and that nobody expected there.
fn is_somebody_elses(name: &[u8], found: &Stat) -> bool {
    Exchange::of_name(name).is_some_and(|exchange| !exchange.may_remove(found))
}

/// Removes temporaries last written before `before`, below the directory `prefix`.
pub(super) fn sweep(root: &Root, prefix: &[u8], before: SystemTime) -> Result<usize, TierError> {
    let Some((base, b"")) = split_prefix(prefix) else { return Ok(0) };
    let mut waiting = vec![base.to_vec()];
    let mut removed = 0;
    while let Some(path) = waiting.pop() {
        for_each_name(root, &path, Action::Sweep, |directory, name, kind| {
            if kind == FileType::Directory {
                waiting.push([&path, name, b"/"].concat());
            }
            if kind != FileType::RegularFile || !is_temporary(name) {
                return Ok(());
            }
            let gone = |answer: rustix::io::Result<_>| match answer {
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => {
                    let shown = root.shown(&[path.as_slice(), name].concat());
                    Err(TierError::from_errno(Action::Sweep, shown, errno))
                }
                Ok(value) => Ok(Some(value)),
            };
            let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(Some);
            let Some(stat) = gone(stat)?.flatten() else { return Ok(()) };
            if is_somebody_elses(name, &stat) {
                // Its own time is as old as its bytes; a process that is at it now has just renamed it.
                if system_time(stat.st_ctime, stat.st_ctime_nsec) < before {
                    gone(swap::rescue(directory, name).map(|_| None))?;
                }
                return Ok(());
            }
            if system_time(stat.st_mtime, stat.st_mtime_nsec) < before {
                let answer = fs::unlinkat(directory, name, AtFlags::empty()).map(|()| None);
                removed += usize::from(gone(answer)?.is_some());
            }
            Ok(())
        })?;
    }
    Ok(removed)
}

/// Removes what earlier attachments of the owner left in one directory, but for second names of objects.
pub(super) fn sweep_own(root: &Root, path: &[u8]) -> Result<usize, TierError> {
    let Some(own) = &root.own else { return Ok(0) };
    let mut removed = 0;
    for_each_name(root, path, Action::Sweep, |directory, name, kind| {
        if kind != FileType::RegularFile || !own.is_left_over(name) {
            return Ok(());
        }
        let remove = || {
            let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            // Cut off between the two halves of a commit by link: it is the object too, whose identity would change.
            let is_object = stat.st_nlink > 1;
            if is_somebody_elses(name, &stat) {
                return swap::rescue(directory, name).map(|_| 0);
            }
            if !is_object {
                fs::unlinkat(directory, name, AtFlags::empty())?;
            }
            Ok(usize::from(!is_object))
        };
        match remove() {
            Ok(gone) => removed += gone,
            Err(Errno::NOENT) => {}
            Err(errno) => {
                let shown = root.shown(&[path, b"/", name].concat());
                return Err(TierError::from_errno(Action::Sweep, shown, errno));
            }
        }
        Ok(())
    })?;
    Ok(removed)
}
