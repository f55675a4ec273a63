//! What stands at the target where something of another kind is to be: a directory for a file, or the reverse.
//!
//! Both are known while planning, so that a dry run tells what a real one does. Only `--delete` takes them
//! away: a directory when everything else has arrived, as all that is removed, and then what waited for it is
//! made ([`Shared::make_waiting`]); a file at once, since what is to lie below the directory can not wait.
//!
//! Only targets with a tree have such names; a store and packs hold both.

use hayase_tier::{Key, TierError};

use super::Shared;
use crate::item::Item;
use crate::pack::PackError;
use crate::plan::Planner;

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

const DIRECTORY_WAITS: &str =
    "a directory stands in its place, which goes when everything else has arrived";

const DIRECTORY_IS_FULL: &str =
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

impl Shared<'_> {
    /// Whether a directory stands at the target under the name of a file or link, where `next` is the target's
    /// first name behind it.
    pub(super) fn has_directory(
        &self,
        item: &Item,
        next: Option<&Item>,
    ) -> Result<bool, PackError> {
        let Some(next) = next else { return Ok(false) };
        // Between a name and the same with a slash sort only names that begin with it.
        if item.is_directory() || !next.name.as_bytes().starts_with(item.name.as_bytes()) {
            return Ok(false);
        }
        if next.name == item.name {
            return Ok(next.is_directory());
        }
        self.is_directory(&item.name)
    }

    /// A file or link that was to be removed at the end, and is not any more.
    pub(super) fn take_removal(&self, name: &Key) -> Option<Item> {
        let removals = &mut self.outcome().removals;
        let place = removals.iter().rposition(|old| old.name == *name && !old.is_directory());
        place.map(|place| removals.remove(place))
    }

    /// Makes the files whose places directories held until now.
    pub(super) fn make_waiting(&self) -> Result<(), PackError> {
        let waiting = std::mem::take(&mut self.outcome().waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        let why = match self.outcome().summary.is_complete() {
            true => DIRECTORY_IS_FULL,
            false => DIRECTORY_WAITS,
        };
        let (mut ready, mut others) = (Vec::new(), Vec::new());
        for task in waiting {
            let list = if self.is_directory(&task.item.name)? { &mut others } else { &mut ready };
            list.push(task);
        }
        for task in others {
            self.failed(&task.item.name.to_string(), PackError::InTheWay { why });
        }
        self.run(|sender| {
            let mut planner = Planner::new(None);
            for task in ready {
                planner.push(task).for_each(|work| self.send(sender, work));
            }
            planner.finish().into_iter().for_each(|work| self.send(sender, work));
            Ok(())
        })
    }

    /// Whether a directory of the target has this name.
    fn is_directory(&self, name: &Key) -> Result<bool, PackError> {
        let Some(tree) = self.target.tier.tree() else { return Ok(false) };
        let key = self.target.key(name.as_bytes())?;
        self.again(|| match tree.directory(&key) {
            Ok(_) => Ok(true),
            Err(TierError::Missing { .. } | TierError::NotObject { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        })
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
