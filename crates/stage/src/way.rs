//! What stands in the way of an older entry: a file where it has a directory, or the other way round.

use std::collections::HashSet;

use crate::item::Item;

/// Names that are taken, and as what.
#[derive(Debug, Default)]
pub(crate) struct Way {
    directories: HashSet<Vec<u8>>,
    others: HashSet<Vec<u8>>,
}

impl Way {
    /// Takes the name of `item`, and those above it as directories.
    pub(crate) fn add(&mut self, item: &Item) {
        for ancestor in item.name.ancestors().filter(|name| !name.is_empty()) {
            if !self.directories.contains(ancestor) {
                self.directories.insert(ancestor.to_vec());
            }
        }
        let set = if item.is_directory() { &mut self.directories } else { &mut self.others };
        set.insert(item.name.as_bytes().to_vec());
    }

    /// Both can not be in one tree.
    pub(crate) fn is_blocked_by(&self, former: &Item) -> bool {
        let name = former.name.as_bytes();
        let itself = if former.is_directory() { &self.others } else { &self.directories };
        itself.contains(name) || former.name.ancestors().any(|above| self.others.contains(above))
    }
}
