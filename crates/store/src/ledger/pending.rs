//! Extended attributes of a file that the tier does not have yet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Values of extended attributes by name.
pub type XattrValues = BTreeMap<Vec<u8>, Vec<u8>>;

/// Bytes of all of them in a record, counted by [`PendingXattrs::bytes`]: they are written with each of its states.
pub const PENDING_XATTRS_BYTES_MAX: usize = 64 << 10;

/// What a name costs beside its bytes and those of its value.
const BYTES_OF_EACH: usize = 8;

/// What the job has set and removed since the version that the tier has, if that is the file's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingXattrs {
    /// The file has these and no others; else they come on top of those of the tier's version.
    pub are_all: bool,
    /// New values by name; `None` was removed.
    pub changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl PendingXattrs {
    /// The file has these and no others, whatever the tier has under its name.
    pub fn all(values: XattrValues) -> Self {
        let changes = values.into_iter().map(|(name, value)| (name, Some(value))).collect();
        Self { are_all: true, changes }
    }

    /// Sets one, or removes it.
    pub fn change(&mut self, name: Vec<u8>, value: Option<Vec<u8>>) {
        match value {
            None if self.are_all => drop(self.changes.remove(&name)),
            value => drop(self.changes.insert(name, value)),
        }
    }

    /// All that the file has, where its version in the tier has `below`.
    pub fn over(&self, below: XattrValues) -> XattrValues {
        let mut values = if self.are_all { XattrValues::new() } else { below };
        for (name, value) in &self.changes {
            match value {
                Some(value) => drop(values.insert(name.clone(), value.clone())),
                None => drop(values.remove(name)),
            }
        }
        values
    }

    /// What they take in a record, at most.
    pub fn bytes(&self) -> usize {
        let bytes = |(name, value): (&Vec<u8>, &Option<Vec<u8>>)| {
            BYTES_OF_EACH + name.len() + value.as_ref().map_or(0, Vec::len)
        };
        self.changes.iter().map(bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(names: &[&str]) -> XattrValues {
        names.iter().map(|name| (name.as_bytes().to_vec(), name.as_bytes().to_vec())).collect()
    }

    fn check(pending: &PendingXattrs, below: &[&str], expected: &[&str]) {
        assert_eq!(pending.over(values(below)), values(expected), "{pending:?}");
    }

    #[test]
    fn changes_come_on_top_of_what_the_tier_has_or_are_all() {
        let mut some = PendingXattrs::default();
        check(&some, &["a", "b"], &["a", "b"]);
        let mut all = PendingXattrs::all(values(&["a"]));
        for pending in [&mut some, &mut all] {
            pending.change(b"c".to_vec(), Some(b"c".to_vec()));
            pending.change(b"a".to_vec(), None);
        }
        check(&some, &["a", "b"], &["b", "c"]);
        check(&all, &["a", "b"], &["c"]);
        // Of a removed one the tier has to hear only where it has it.
        assert_eq!((some.changes.len(), all.changes.len()), (2, 1));
    }
}
