//! Nodes whose gathered bytes come too late, by inode, as it is kept over restarts of this server.
//!
//! A home that has given a gatherer up lets others write. If it is killed then, its next life must not take for new what
//! the one that was given up brings. Source: `docs/design/001-coherence.md`, "Small writes".

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use hayase_layout::{InodeId, NodeId};

use crate::home::{Event, Home};

/// See the module.
#[derive(Default)]
pub(crate) struct Late {
    known: RefCell<BTreeSet<(InodeId, NodeId)>>,
    /// Something changed since it was kept.
    changed: Cell<bool>,
}

impl Late {
    /// What a former life has kept.
    pub(crate) fn from_former_life(kept: Vec<(InodeId, NodeId)>) -> Self {
        Self { known: RefCell::new(kept.into_iter().collect()), changed: Cell::new(false) }
    }

    pub(crate) fn has(&self, ino: InodeId, node: NodeId) -> bool {
        self.known.borrow().contains(&(ino, node))
    }

    pub(crate) fn add(&self, ino: InodeId, nodes: impl Iterator<Item = NodeId>) {
        for node in nodes {
            if self.known.borrow_mut().insert((ino, node)) {
                self.changed.set(true);
            }
        }
    }

    /// Follows a step of a home; `gatherer`: before it.
    pub(crate) fn follow(
        &self,
        ino: InodeId,
        event: Event,
        (gatherer, home): (Option<NodeId>, &Home),
    ) {
        self.add(ino, home.late());
        match event {
            // It may come back with what it has.
            Event::Gone { node } => self.add(ino, gatherer.into_iter().filter(|of| *of == node)),
            Event::Close { node, access, .. }
                if access.write && !home.late().any(|late| late == node) =>
            {
                self.remove(|late| *late == (ino, node));
            }
            _ => {}
        }
    }

    /// The inode is no more.
    pub(crate) fn end(&self, ino: InodeId) {
        self.remove(|(late, _)| *late == ino);
    }

    fn remove(&self, is_meant: impl Fn(&(InodeId, NodeId)) -> bool) {
        let mut known = self.known.borrow_mut();
        let before = known.len();
        known.retain(|late| !is_meant(late));
        self.changed.set(self.changed.get() || known.len() < before);
    }

    /// Calls `keep` with all of them if something changed since the last time.
    pub(crate) fn keep<E>(
        &self,
        keep: impl FnOnce(&[(InodeId, NodeId)]) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.changed.get() {
            return Ok(());
        }
        let known: Vec<_> = self.known.borrow().iter().copied().collect();
        keep(&known)?;
        self.changed.set(false);
        Ok(())
    }
}
