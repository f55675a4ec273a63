//! Ordered listings of a tree of directories, in bounded memory.
//!
//! Bytewise order of keys is the order of a walk in which a directory sorts as `name/`. A page keeps,
//! for each directory between the prefix and the place it has reached, at most one name more than the
//! page's limit, however large the directory is; a larger directory is read again for its next names.
//! Not here: how a directory is read ([`Directories`] is implemented by each tier with a tree).

use std::collections::{BTreeMap, VecDeque};

use crate::key::{KEY_BYTES_MAX, is_temporary};
use crate::{Depth, Entry, EntryKind, Key, ListRequest, ObjectMeta, Page, TierError};

/// What stands under a name of a directory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Seen {
    /// A directory.
    Directory,
    /// An object; its attributes where the directory told them too.
    Object(Option<ObjectMeta>),
    /// Neither, and why it is no object.
    Other(&'static str),
}

/// A tree that can be listed. Paths of directories are empty (the root), or end with `/`.
pub(crate) trait Directories {
    /// Calls `visit` for each name of the directory but `.` and `..`, in no order; for none when it
    /// vanished, or became something else, meanwhile. `visit` asks nothing of the tree.
    fn for_each_name(
        &mut self,
        path: &[u8],
        visit: &mut dyn FnMut(&[u8], Seen),
    ) -> Result<(), TierError>;

    /// Attributes of one object; `None` when it is gone, or no object any more.
    fn object(&mut self, path: &[u8], name: &[u8]) -> Result<Option<ObjectMeta>, TierError>;
}

/// A directory on the way, with the names in it that are still to be visited.
struct Level {
    /// Empty (the root), or ends with `/`.
    path: Vec<u8>,
    /// What the names must begin with: of the first level only, else empty.
    begins: Vec<u8>,
    /// As they sort: a directory with a slash at its end.
    names: VecDeque<(Vec<u8>, Seen)>,
    /// More names follow this one; `None` when `names` goes to the end.
    more_after: Option<Vec<u8>>,
}

pub(crate) fn page(
    directories: impl Directories,
    request: &ListRequest,
) -> Result<Page, TierError> {
    let limit = request.bounded_limit();
    let Some((base, begins)) = split_prefix(&request.prefix) else { return Ok(Page::default()) };
    let mut walk = Walk { directories, request, names_max: limit + 1 };
    let mut levels = vec![walk.level(base.to_vec(), begins.to_vec(), None)?];
    let mut entries: Vec<Entry> = Vec::new();
    while let Some(level) = levels.last_mut() {
        let Some((name, seen)) = level.names.pop_front() else {
            let done = levels.pop().expect("the loop saw a level");
            if done.more_after.is_some() {
                levels.push(walk.level(done.path, done.begins, done.more_after.as_deref())?);
            }
            continue;
        };
        let full = [level.path.as_slice(), &name].concat();
        let descend = seen == Seen::Directory && request.depth == Depth::All;
        if descend && full.len() < KEY_BYTES_MAX {
            levels.push(walk.level(full, Vec::new(), None)?);
            continue;
        }
        if entries.len() == limit {
            return Ok(Page { next: entries.last().map(|entry| entry.name.clone()), entries });
        }
        let kind = match seen {
            Seen::Object(Some(meta)) if full.len() <= KEY_BYTES_MAX => {
                Some(EntryKind::Object(meta))
            }
            Seen::Object(None) if full.len() <= KEY_BYTES_MAX => {
                walk.directories.object(&level.path, &name)?.map(EntryKind::Object)
            }
            Seen::Directory if request.depth == Depth::One => Some(EntryKind::Directory),
            Seen::Object(_) | Seen::Directory => {
                Some(EntryKind::Other("its path is longer than a key may be"))
            }
            Seen::Other(what) => Some(EntryKind::Other(what)),
        };
        entries.extend(kind.map(|kind| Entry { name: full, kind }));
    }
    Ok(Page { entries, next: None })
}

/// The directory of a prefix (empty, or with its slash) and what its names must begin with; `None`
/// when no key can begin so.
pub(crate) fn split_prefix(prefix: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = prefix.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let (base, begins) = prefix.split_at(end);
    let valid = base.is_empty() || Key::new(&base[..end - 1]).is_ok();
    valid.then_some((base, begins))
}

struct Walk<'a, D> {
    directories: D,
    request: &'a ListRequest,
    /// Names kept of one directory at a time.
    names_max: usize,
}

impl<D: Directories> Walk<'_, D> {
    /// Reads the smallest wanted names of one directory that sort behind `beyond`.
    fn level(
        &mut self,
        path: Vec<u8>,
        begins: Vec<u8>,
        beyond: Option<&[u8]>,
    ) -> Result<Level, TierError> {
        let mut names = BTreeMap::new();
        let mut dropped = false;
        let (request, names_max) = (self.request, self.names_max);
        self.directories.for_each_name(&path, &mut |name, seen| {
            if is_temporary(name) || !name.starts_with(&begins) {
                return;
            }
            let mut sorts_as = name.to_vec();
            if seen == Seen::Directory {
                sorts_as.push(b'/');
            }
            let passed = beyond.is_some_and(|last| sorts_as.as_slice() <= last);
            if !passed && is_ahead(request, &path, &sorts_as) {
                names.insert(sorts_as, seen);
            }
            if names.len() > names_max {
                names.pop_last();
                dropped = true;
            }
        })?;
        let names: VecDeque<_> = names.into_iter().collect();
        let more_after = names.back().filter(|_| dropped).map(|(name, _)| name.clone());
        Ok(Level { path, begins, names, more_after })
    }
}

/// Something under this name can come after the page before.
fn is_ahead(request: &ListRequest, path: &[u8], sorts_as: &[u8]) -> bool {
    let Some(after) = request.after.as_deref() else { return true };
    let full = [path, sorts_as].concat();
    let may_hold_more = request.depth == Depth::All && sorts_as.ends_with(b"/");
    full.as_slice() > after || (may_hold_more && after.starts_with(&full))
}
