//! Ordered listings of a tree of directories, in bounded memory; and the sweep.
//!
//! Bytewise order of keys is the order of a walk in which a directory sorts as `name/`. A page keeps,
//! for each directory between the prefix and the place it has reached, at most one name more than the
//! page's limit, however large the directory is; a larger directory is read again for its next names.
//! Only the deepest directory is open, so depth costs no descriptors.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use rustix::fs::{self, AtFlags, Dir, FileType};
use rustix::io::Errno;

use super::beneath::Root;
use super::{meta, no_object, system_time};
use crate::key::{KEY_BYTES_MAX, TEMPORARY_PREFIX};
use crate::{Action, Depth, Entry, EntryKind, Key, ListRequest, Page, TierError};

/// A directory on the way, with the names in it that are still to be visited.
struct Level {
    /// Empty (the root), or ends with `/`.
    path: Vec<u8>,
    /// What the names must begin with: of the first level only, else empty.
    begins: Vec<u8>,
    /// As they sort: a directory with a slash at its end.
    names: VecDeque<(Vec<u8>, FileType)>,
    /// More names follow this one; `None` when `names` goes to the end.
    more_after: Option<Vec<u8>>,
}

pub(super) fn page(root: &Root, request: &ListRequest) -> Result<Page, TierError> {
    let limit = request.bounded_limit();
    let Some((base, begins)) = split_prefix(&request.prefix) else { return Ok(Page::default()) };
    let walk = Walk { root, request, names_max: limit + 1 };
    let mut levels = vec![walk.level(base.to_vec(), begins.to_vec(), None)?];
    let mut open: Option<(Vec<u8>, OwnedFd)> = None;
    let mut entries: Vec<Entry> = Vec::new();
    while let Some(level) = levels.last_mut() {
        let Some((name, kind)) = level.names.pop_front() else {
            let done = levels.pop().expect("the loop saw a level");
            if done.more_after.is_some() {
                levels.push(walk.level(done.path, done.begins, done.more_after.as_deref())?);
            }
            continue;
        };
        let full = [level.path.as_slice(), &name].concat();
        let descend = kind == FileType::Directory && request.depth == Depth::All;
        if descend && full.len() < KEY_BYTES_MAX {
            levels.push(walk.level(full, Vec::new(), None)?);
            continue;
        }
        if entries.len() == limit {
            return Ok(Page { next: entries.last().map(|entry| entry.name.clone()), entries });
        }
        let what = match kind {
            FileType::RegularFile if full.len() <= KEY_BYTES_MAX => {
                walk.object(&mut open, &level.path, &name)?
            }
            FileType::Directory if request.depth == Depth::One => Some(EntryKind::Directory),
            FileType::RegularFile | FileType::Directory => {
                Some(EntryKind::Other("its path is longer than a key may be"))
            }
            other => no_object(other).map(EntryKind::Other),
        };
        entries.extend(what.map(|kind| Entry { name: full, kind }));
    }
    Ok(Page { entries, next: None })
}

/// The directory of a prefix (empty, or with its slash) and what its names must begin with; `None`
/// when no key can begin so.
fn split_prefix(prefix: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = prefix.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let (base, begins) = prefix.split_at(end);
    let valid = base.is_empty() || Key::new(&base[..end - 1]).is_ok();
    valid.then_some((base, begins))
}

struct Walk<'a> {
    root: &'a Root,
    request: &'a ListRequest,
    /// Names kept of one directory at a time.
    names_max: usize,
}

impl Walk<'_> {
    /// Reads the smallest wanted names of one directory that sort behind `beyond`.
    fn level(
        &self,
        path: Vec<u8>,
        begins: Vec<u8>,
        beyond: Option<&[u8]>,
    ) -> Result<Level, TierError> {
        let mut names = BTreeMap::new();
        let mut dropped = false;
        for_each_name(self.root, &path, Action::List, |_, name, kind| {
            if name.starts_with(TEMPORARY_PREFIX) || !name.starts_with(&begins) {
                return Ok(());
            }
            let mut sorts_as = name.to_vec();
            if kind == FileType::Directory {
                sorts_as.push(b'/');
            }
            let passed = beyond.is_some_and(|last| sorts_as.as_slice() <= last);
            if !passed && self.is_ahead(&path, &sorts_as) {
                names.insert(sorts_as, kind);
            }
            if names.len() > self.names_max {
                names.pop_last();
                dropped = true;
            }
            Ok(())
        })?;
        let names: VecDeque<_> = names.into_iter().collect();
        let more_after = names.back().filter(|_| dropped).map(|(name, _)| name.clone());
        Ok(Level { path, begins, names, more_after })
    }

    /// Something under this name can come after the page before.
    fn is_ahead(&self, path: &[u8], sorts_as: &[u8]) -> bool {
        let Some(after) = self.request.after.as_deref() else { return true };
        let full = [path, sorts_as].concat();
        let may_hold_more = self.request.depth == Depth::All && sorts_as.ends_with(b"/");
        full.as_slice() > after || (may_hold_more && after.starts_with(&full))
    }

    /// Attributes of one file; `None` when it is gone, or no file any more.
    fn object(
        &self,
        open: &mut Option<(Vec<u8>, OwnedFd)>,
        path: &[u8],
        name: &[u8],
    ) -> Result<Option<EntryKind>, TierError> {
        if open.as_ref().is_none_or(|(opened, _)| opened != path) {
            let Some(directory) = open_listed(self.root, path, Action::List)? else {
                return Ok(None);
            };
            *open = Some((path.to_vec(), directory));
        }
        let (_, directory) = open.as_ref().expect("opened above");
        match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                Ok(Some(EntryKind::Object(meta(&stat))))
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
fn open_listed(root: &Root, path: &[u8], action: Action) -> Result<Option<OwnedFd>, TierError> {
    match root.open_directory(path.strip_suffix(b"/").unwrap_or(path)) {
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
    let Some(directory) = open_listed(root, path, action)? else { return Ok(()) };
    let failed = |errno| TierError::from_errno(action, root.shown(path), errno);
    for name in Dir::read_from(&directory).map_err(failed)? {
        let name = name.map_err(failed)?;
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
            if kind != FileType::RegularFile || !name.starts_with(TEMPORARY_PREFIX) {
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
            if system_time(stat.st_mtime, stat.st_mtime_nsec) < before {
                let answer = fs::unlinkat(directory, name, AtFlags::empty()).map(|()| None);
                removed += usize::from(gone(answer)?.is_some());
            }
            Ok(())
        })?;
    }
    Ok(removed)
}
