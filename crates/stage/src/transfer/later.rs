//! What planning leaves for the end, when everything else has arrived.

use hayase_tier::Key;

use crate::item::Item;
use crate::plan::Task;

/// Filled by planning alone.
#[derive(Default)]
pub(super) struct Later {
    /// Directories of the target that get their attributes at the end.
    pub(super) directories: Vec<Item>,
    /// The same where only marks of the source tell the attributes.
    pub(super) marked: Vec<Item>,
    /// What the source does not have, in order.
    pub(super) removals: Vec<Item>,
    /// Files and links in whose places directories stand that are among the removals.
    pub(super) waiting: Vec<Task>,
}

impl Later {
    /// A file or link that was to be removed at the end, and is not any more.
    pub(super) fn take_removal(&mut self, name: &Key) -> Option<Item> {
        let place =
            self.removals.iter().rposition(|old| old.name == *name && !old.is_directory())?;
        Some(self.removals.remove(place))
    }
}
