//! Nodes whose gathered bytes come too late, by inode, as it is kept over restarts of this server.
//!
//! A home that has given a gatherer up lets others write. If it is killed then, its next life must not take for new what
//! the one that was given up brings. Source: `docs/design/001-coherence.md`, "Small writes".

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use hayase_layout::{InodeId, NodeId};

use crate::home::{Event, Home};
use crate::meta::NamesDisk;

/// See the module.
#[derive(Default)]
pub(crate) struct Late {
    known: RefCell<BTreeSet<(InodeId, NodeId)>>,
    /// What the disk has: perhaps some more, of files that were closed.
    kept: RefCell<BTreeSet<(InodeId, NodeId)>>,
    /// The disk is to have what is known.
    is_due: Cell<bool>,
    /// How often it was given that, and how many of these survive a power cut.
    written: Cell<u64>,
    durable: Cell<u64>,
}

impl Late {
    /// What a former life has kept.
    pub(crate) fn from_former_life(kept: Vec<(InodeId, NodeId)>) -> Self {
        let kept: BTreeSet<_> = kept.into_iter().collect();
        Self { known: RefCell::new(kept.clone()), kept: RefCell::new(kept), ..Self::default() }
    }

    pub(crate) fn has(&self, ino: InodeId, node: NodeId) -> bool {
        self.known.borrow().contains(&(ino, node))
    }

    pub(crate) fn add(&self, ino: InodeId, node: NodeId) {
        if self.known.borrow_mut().insert((ino, node)) {
            self.is_due.set(true);
        }
    }

    /// Follows a step of a home; `gatherer`: before it. Who did not gather has nothing that could come late.
    pub(crate) fn follow(
        &self,
        ino: InodeId,
        event: Event,
        (gatherer, home): (Option<NodeId>, &Home),
    ) {
        match event {
            Event::Silent { node } if gatherer == Some(node) && home.is_late(node) => {
                self.add(ino, node);
            }
            // It may come back with what it has.
            Event::Gone { node } if gatherer == Some(node) => self.add(ino, node),
            Event::Close { node, access, .. } if access.write && !home.is_late(node) => {
                self.forget(|late| *late == (ino, node));
            }
            _ => {}
        }
    }

    /// A node begins to gather: it has nothing from before. The disk must not say otherwise.
    pub(crate) fn gathers(&self, ino: InodeId, node: NodeId) {
        self.known.borrow_mut().remove(&(ino, node));
        if self.kept.borrow().contains(&(ino, node)) {
            self.is_due.set(true);
        }
    }

    /// A node has told all that it has open.
    pub(crate) fn told(&self, node: NodeId, has_open: impl Fn(InodeId) -> bool) {
        self.forget(|(ino, late)| *late == node && !has_open(*ino));
    }

    /// The inode is no more.
    pub(crate) fn end(&self, ino: InodeId) {
        self.forget(|(late, _)| *late == ino);
    }

    fn forget(&self, is_meant: impl Fn(&(InodeId, NodeId)) -> bool) {
        self.known.borrow_mut().retain(|late| !is_meant(late));
    }

    /// Calls `keep` with all of them if the disk is to have them.
    pub(crate) fn keep<E>(
        &self,
        keep: impl FnOnce(&[(InodeId, NodeId)]) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.is_due.get() {
            return Ok(());
        }
        let known = self.known.borrow().clone();
        keep(&known.iter().copied().collect::<Vec<_>>())?;
        self.kept.replace(known);
        self.is_due.set(false);
        self.written.set(self.written.get() + 1);
        Ok(())
    }

    /// What was kept survives a power cut, unless that can not be had.
    pub(crate) async fn until_durable(&self, names: &NamesDisk) {
        let Some(written) = self.not_durable() else { return };
        match names.sync().await {
            Ok(()) => self.durable(written),
            Err(error) => {
                tracing::error!(%error, "whose gathered bytes come too late is forgotten if the power fails");
            }
        }
    }

    /// What was kept last, if a power cut may forget it: to be passed to [`Late::durable`] after a sync that begins now.
    fn not_durable(&self) -> Option<u64> {
        (self.durable.get() < self.written.get()).then(|| self.written.get())
    }

    /// So much of what was kept survives a power cut.
    fn durable(&self, written: u64) {
        self.durable.set(self.durable.get().max(written));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: InodeId = InodeId(7);
    const A: NodeId = NodeId(1);

    /// What is on the disk afterwards; `None` when nothing was written.
    fn kept(late: &Late) -> Option<Vec<(InodeId, NodeId)>> {
        let mut written = None;
        let keep = |known: &[_]| {
            written = Some(known.to_vec());
            Ok::<(), ()>(())
        };
        late.keep(keep).unwrap();
        written
    }

    #[test]
    fn who_is_late_is_kept_once() {
        let late = Late::default();
        assert_eq!(kept(&late), None);
        late.add(F, A);
        late.add(F, A);
        assert_eq!(kept(&late), Some(vec![(F, A)]));
        late.add(F, A);
        assert_eq!(kept(&late), None);
        assert!(Late::from_former_life(vec![(F, A)]).has(F, A));
    }

    #[test]
    fn what_was_kept_during_a_sync_waits_for_the_next_one() {
        let late = Late::default();
        assert_eq!(late.not_durable(), None);
        late.add(F, A);
        kept(&late);
        let first = late.not_durable().expect("not yet");
        late.add(InodeId(8), A);
        kept(&late);
        late.durable(first);
        let second = late.not_durable().expect("the second is not");
        late.durable(second);
        late.durable(first);
        assert_eq!(late.not_durable(), None);
    }

    #[test]
    fn who_begins_anew_is_not_late_for_the_next_life_either() {
        let late = Late::from_former_life(vec![(F, A), (InodeId(8), A)]);
        late.told(A, |ino| ino == InodeId(8));
        assert!(!late.has(F, A) && late.has(InodeId(8), A));
        assert_eq!(kept(&late), None, "an end is not worth a sync");
        late.gathers(F, A);
        assert_eq!(kept(&late), Some(vec![(InodeId(8), A)]));
        late.gathers(F, A);
        assert_eq!(kept(&late), None);
    }
}
