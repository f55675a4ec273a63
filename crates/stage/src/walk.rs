//! A place, walked: every item below it, in the order of trees, a page of names at a time.

use std::collections::VecDeque;

use hayase_tier::{Entry, EntryKind, Key, ListRequest, ObjectMeta, TierError, Tree};

use crate::Place;
use crate::item::{Item, Kind, Mtime};
use crate::limits::WALK_PAGE_NAMES;
use crate::pack::DIRECTORY;

/// Of a directory whose mark was not asked, or says nothing.
const DIRECTORY_MODE: u32 = 0o755;

/// What a walk meets.
#[derive(Debug)]
pub(crate) enum Met {
    /// A name that can be copied; of an object what the listing told of it.
    Item(Item, Option<ObjectMeta>),
    /// A name that can not, and why.
    Other(Vec<u8>, &'static str),
}

/// Levels between the top and where the walk is; of a tier without a tree only one.
pub(crate) struct Walk<'a> {
    place: &'a Place,
    levels: Vec<Level>,
}

struct Level {
    request: ListRequest,
    entries: VecDeque<Entry>,
    /// There are no pages behind `entries`.
    is_last: bool,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(place: &'a Place) -> Self {
        let mut walk = Self { place, levels: Vec::new() };
        walk.descend(place.prefix().to_vec());
        walk
    }

    /// Of one object of the place only, whose full name is `name`.
    pub(crate) fn of_one(place: &'a Place, name: Vec<u8>, meta: ObjectMeta) -> Self {
        let request = ListRequest::all(name.clone());
        let entries = VecDeque::from([Entry { name, kind: EntryKind::Object(meta) }]);
        Self { place, levels: vec![Level { request, entries, is_last: true }] }
    }

    fn descend(&mut self, prefix: Vec<u8>) {
        let mut request = match self.place.tier.tree() {
            Some(_) => ListRequest::one_level(prefix),
            None => ListRequest::all(prefix),
        };
        request.limit = WALK_PAGE_NAMES;
        request.marks = self.place.tier.marks().is_some();
        self.levels.push(Level { request, entries: VecDeque::new(), is_last: false });
    }

    /// The next name; `None` at the end. After an error the directory it is about is left out.
    pub(crate) fn next(&mut self) -> Option<Result<Met, TierError>> {
        loop {
            let level = self.levels.last_mut()?;
            let Some(entry) = level.entries.pop_front() else {
                if level.is_last {
                    self.levels.pop();
                    continue;
                }
                match self.place.tier.list(&level.request) {
                    Ok(page) => {
                        level.is_last = page.next.is_none();
                        level.entries = page.entries.into();
                        level.request.after = page.next;
                    }
                    Err(error) => {
                        self.levels.pop();
                        return Some(Err(error));
                    }
                }
                continue;
            };
            if let Some(met) = self.meet(entry) {
                return Some(met);
            }
        }
    }

    fn meet(&mut self, entry: Entry) -> Option<Result<Met, TierError>> {
        let full = entry.name.strip_suffix(b"/").unwrap_or(&entry.name);
        let relative = &full[self.place.prefix().len()..];
        if relative == DIRECTORY.as_bytes() || relative.starts_with(b".hayase-packs/") {
            return None;
        }
        let (Ok(key), Ok(name)) = (Key::new(full), Key::new(relative)) else {
            return Some(Ok(Met::Other(relative.to_vec(), "it has a name that no file may have")));
        };
        let file = |meta: ObjectMeta| Item {
            name: name.clone(),
            kind: Kind::File { bytes: meta.size.get() },
            mode: meta.mode & 0o777,
            mtime: meta.mtime.into(),
        };
        let tree = self.place.tier.tree();
        let met = match (entry.kind, tree) {
            (EntryKind::Object(meta), _) => Met::Item(file(meta), Some(meta)),
            // Its mark says more, to those who ask.
            (EntryKind::Directory, None) => {
                let (kind, mode, mtime) = (Kind::Directory, DIRECTORY_MODE, Mtime::EPOCH);
                Met::Item(Item { name, kind, mode, mtime }, None)
            }
            (EntryKind::Directory, Some(tree)) => {
                self.descend([full, b"/"].concat());
                match tree.directory(&key) {
                    Ok(meta) => {
                        let (mode, mtime) = (meta.mode, meta.mtime.into());
                        Met::Item(Item { name, kind: Kind::Directory, mode, mtime }, None)
                    }
                    // Gone since it was listed.
                    Err(TierError::Missing { .. }) => return None,
                    Err(error) => return Some(Err(error)),
                }
            }
            (EntryKind::Other(why), tree) => match link(tree, &key) {
                Some(target) => {
                    let kind = Kind::Link { target: target.into() };
                    Met::Item(Item { name, kind, mode: 0o777, mtime: Mtime::EPOCH }, None)
                }
                None => Met::Other(relative.to_vec(), why),
            },
        };
        Some(Ok(met))
    }
}

fn link(tree: Option<&dyn Tree>, key: &Key) -> Option<Vec<u8>> {
    tree?.link(key).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hayase_tier::Posix;

    use super::*;

    fn names(place: &Place) -> Vec<String> {
        let mut walk = Walk::new(place);
        let mut names = Vec::new();
        while let Some(met) = walk.next() {
            match met.unwrap() {
                Met::Item(item, _) if item.is_directory() => names.push(format!("{}/", item.name)),
                Met::Item(item, _) => names.push(item.name.to_string()),
                Met::Other(name, _) => names.push(format!("? {}", name.escape_ascii())),
            }
        }
        names
    }

    #[test]
    fn a_directory_is_walked_in_the_order_of_trees() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        for directory in ["a", "a/empty", "a.d", ".hayase-packs", "b/.hayase-packs"] {
            std::fs::create_dir_all(at(directory)).unwrap();
        }
        for file in ["a/x", "a-b", "a.d/y", "z", ".hayase-packs/key.json"] {
            std::fs::write(at(file), file).unwrap();
        }
        std::os::unix::fs::symlink("a/x", at("link")).unwrap();
        rustix_fifo(&at("pipe"));
        let place = Place::root(Arc::new(Posix::attach(top.path()).unwrap()));
        let all = [
            "a-b",
            "a.d/",
            "a.d/y",
            "a/",
            "a/empty/",
            "a/x",
            "b/",
            "b/.hayase-packs/",
            "link",
            "? pipe",
            "z",
        ];
        assert_eq!(names(&place), all);
        let below = Place::below(place.tier, b"/a/").unwrap();
        assert_eq!(names(&below), ["empty/", "x"]);
    }

    fn rustix_fifo(path: &std::path::Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    }
}
