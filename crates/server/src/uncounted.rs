//! New names of renames that are committed, and of which the inodes may not know yet.
//!
//! Invariant: a name is not taken from what a rename has bound it to before all of these renames are finished. There
//! may be several of one name: a file that went away and came back has two that bound it, and the older one is told
//! again where somebody may have forgotten it ([`crate::told_renames`]).

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use hayase_wire::message::Place;

/// See the module.
#[derive(Default)]
pub(crate) struct Uncounted {
    renames: RefCell<HashMap<Place, BTreeSet<u64>>>,
}

impl Uncounted {
    /// The links of rename `op`, which has bound `to`, are not counted yet.
    pub(crate) fn count_later(&self, to: Place, op: u64) {
        self.renames.borrow_mut().entry(to).or_default().insert(op);
    }

    /// They are.
    pub(crate) fn counted(&self, op: u64) {
        self.renames.borrow_mut().retain(|_, ops| {
            ops.remove(&op);
            !ops.is_empty()
        });
    }

    /// Renames that have bound this name, oldest first.
    pub(crate) fn of(&self, to: &Place) -> Vec<u64> {
        self.renames.borrow().get(to).into_iter().flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use hayase_layout::InodeId;

    use super::*;

    #[test]
    fn an_older_rename_that_is_told_again_does_not_hide_the_last_one() {
        let to = Place { parent: InodeId::ROOT, name: b"name".to_vec() };
        let uncounted = Uncounted::default();
        uncounted.count_later(to.clone(), 4);
        uncounted.count_later(to.clone(), 2);
        assert_eq!(uncounted.of(&to), [2, 4]);
        uncounted.counted(2);
        assert_eq!(uncounted.of(&to), [4], "its file does not know the name yet");
        uncounted.counted(4);
        assert!(uncounted.of(&to).is_empty());
    }
}
