//! Links of names that are gone, taken a little later: many in a row, off the way of who removes the next.
//!
//! Nobody sees one: they are taken before anything is served that could show them
//! ([`Node::take_links`]), and when the mount hears of their removals. Until then each holds its inode
//! as any change does. A server that ends leaves them to the shards of the names.
//! Source: `docs/design/001-coherence.md`, "Who answers an unlink".

use std::cell::RefCell;

use hayase_layout::InodeId;

use crate::node::Node;
use crate::node_service::Rest;

/// What is left of each removal, in their order.
#[derive(Default)]
pub(crate) struct UntakenLinks(RefCell<Vec<(InodeId, Rest)>>);

impl UntakenLinks {
    pub(crate) fn push(&self, ino: InodeId, rest: Rest) {
        self.0.borrow_mut().push((ino, rest));
    }

    fn has(&self, ino: InodeId) -> bool {
        self.0.borrow().iter().any(|(untaken, _)| *untaken == ino)
    }

    fn take(&self) -> Vec<(InodeId, Rest)> {
        self.0.take()
    }
}

impl Node {
    /// To be called before anything else is served, but for removals of files.
    pub(crate) fn take_links(&self) {
        for (_, rest) in self.untaken_links.take() {
            rest();
        }
    }

    /// Another name of this inode is removed, which would wait for those before it.
    pub(crate) fn take_links_of(&self, ino: InodeId) {
        if self.untaken_links.has(ino) {
            self.take_links();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn each_is_known_until_all_are_taken_in_order() {
        let (links, taken) = (UntakenLinks::default(), Rc::new(RefCell::new(Vec::new())));
        for ino in [7, 9, 7] {
            let taken = Rc::clone(&taken);
            links.push(InodeId(ino), Box::new(move || taken.borrow_mut().push(ino)));
        }
        assert!(links.has(InodeId(7)) && links.has(InodeId(9)) && !links.has(InodeId(8)));
        for (_, rest) in links.take() {
            rest();
        }
        assert_eq!(*taken.borrow(), [7, 9, 7]);
        assert!(!links.has(InodeId(7)) && links.take().is_empty());
    }
}
