//! What stands at the target where something of another kind is to be: a directory for a file, or the reverse.
//!
//! Both are known while planning, so that a dry run tells what a real one does. Only `--delete` takes them
//! away: a directory when everything else has arrived, as all that is removed, and then what waited for it is
//! made ([`super::finish`]); a file at once, since what is to lie below the directory can not wait.
//!
//! Only targets with a tree have such names; a store and packs hold both.

use hayase_tier::Key;

use crate::item::Item;

/// A directory stands in the place of a file, and stays.
pub(super) const DIRECTORY_STAYS: &str =
    "a directory stands in its place, and only --delete takes it away";

/// A file stands in the place of a directory, and stays.
pub(super) const FILE_STAYS: &str =
    "a file stands in the place of a directory, and only --delete takes it away";

/// One of the two, with `--delete`: it is not selected, or a part of the source is not known.
pub(super) const NOT_TO_BE_REMOVED: &str =
    "something of another kind stands in its place, which was not to be removed";

/// With `--max-delete` nothing goes before all that would go is counted.
pub(super) const FILE_WAITS: &str = "a file stands in the place of a directory, and with --max-delete it does not go before all removals are counted: remove it, or leave --max-delete out";

/// A directory was to go, and something failed before.
pub(super) const DIRECTORY_WAITS: &str =
    "a directory stands in its place, which goes when everything else has arrived";

/// A directory was to go, and did not.
pub(super) const DIRECTORY_IS_FULL: &str =
    "a directory stands in its place, with names in it that were not to be removed";

/// Names of the target, no directories, that a walk has passed and that may still turn out to be in the way
/// of a directory: each is the begin of the next, so there are few.
#[derive(Debug, Default)]
pub(super) struct Passed(Vec<Key>);

impl Passed {
    /// The walk passes a name; names come in the order of trees.
    pub(super) fn push(&mut self, name: &Key) {
        while self.0.last().is_some_and(|last| !name.as_bytes().starts_with(last.as_bytes())) {
            self.0.pop();
        }
        self.0.push(name.clone());
    }

    /// What stands where `item`, or a directory above it, is to be.
    pub(super) fn in_the_way_of(&self, item: &Item) -> Option<&Key> {
        let name = item.name.as_bytes();
        self.0.iter().find(|passed| match name.strip_prefix(passed.as_bytes()) {
            Some(rest) => rest.starts_with(b"/") || (rest.is_empty() && item.is_directory()),
            None => false,
        })
    }

    /// It stands there no longer.
    pub(super) fn forget(&mut self, name: &Key) {
        self.0.retain(|passed| passed != name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Kind, Mtime};

    #[test]
    fn names_in_the_way_are_known_until_no_directory_can_meet_them() {
        let item = |name: &str, kind| Item {
            name: Key::new(name).unwrap(),
            kind,
            mode: 0o755,
            mtime: Mtime::EPOCH,
        };
        let directory = |name| item(name, Kind::Directory);
        let mut passed = Passed::default();
        for name in ["a", "x", "x-1", "x-1-a", "x.d"] {
            passed.push(&Key::new(name).unwrap());
        }
        let found = |passed: &Passed, item: &Item| {
            passed.in_the_way_of(item).map(std::string::ToString::to_string)
        };
        assert_eq!(found(&passed, &directory("x")), Some("x".to_owned()));
        assert_eq!(found(&passed, &directory("x/y/z")), Some("x".to_owned()));
        assert_eq!(found(&passed, &directory("x.d")), Some("x.d".to_owned()));
        assert_eq!(found(&passed, &item("x", Kind::File { bytes: 1 })), None);
        assert_eq!(found(&passed, &directory("a")), None, "it was passed long ago");
        passed.forget(&Key::new("x").unwrap());
        assert_eq!(found(&passed, &directory("x")), None);
    }
}
