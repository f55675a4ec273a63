//! Gathering: the mount of one node keeps small writes for a while and hands them on together.
//!
//! It does so only while its node is the only one that has the file open, and writes it by messages: then nobody
//! else can have seen what is not handed on yet. Whoever wants to open, change or look at the file waits until it
//! was, by the same recall that takes grants back.
//!
//! A mount may have gathered more than the home knows of: it did not answer, or others were let at the file while it was
//! lost. It is *late*: until it has closed the file, nothing that it has gathered is taken, and it may not begin again,
//! since what it would hand on then might be what it had before.
//!
//! Source: `docs/design/001-coherence.md`, "Small writes"; LLIO (paper 003) 4.2.4.

use hayase_layout::NodeId;

use super::Home;

impl Home {
    /// Whether `node` may gather from now on.
    pub(crate) fn may_gather(&self, node: NodeId) -> bool {
        let is_sole = self.opens.keys().all(|opener| *opener == node);
        let writes_by_messages =
            self.opens.get(&node).is_some_and(|held| held.access().write && !held.local);
        let nothing_waits = self.waiting.is_empty() && self.changing.is_empty();
        let holds_alone = self.grants.keys().all(|holder| *holder == node);
        is_sole
            && writes_by_messages
            && nothing_waits
            && holds_alone
            && self.recalls.is_empty()
            && !self.late.contains(&node)
            && !self.unprobed
            && !self.probing
    }

    /// Lets `node` gather, if it may.
    pub(crate) fn gather(&mut self, node: NodeId) -> bool {
        let may_gather = self.may_gather(node);
        if may_gather {
            self.gatherer = Some(node);
        }
        may_gather
    }

    /// Whether what `node` has gathered may still be written.
    pub(crate) fn takes_gathered(&self, node: NodeId) -> bool {
        self.gatherer == Some(node) && !self.late.contains(&node)
    }

    /// The node that others than `node` wait for.
    pub(crate) fn gathers_for_another(&self, node: NodeId) -> Option<NodeId> {
        self.gatherer.filter(|gatherer| *gatherer != node)
    }

    /// Takes nothing more of what `node` has gathered. Where others wait for it, [`super::Event::Silent`] follows when what
    /// was taken is in the part.
    pub(crate) fn take_no_more_gathered(&mut self, node: NodeId) {
        if self.writes(node) {
            self.late.insert(node);
        }
    }

    /// The former life of this home let nobody gather beside another opener. So who had it open alone may have
    /// gathered, and goes on doing so. Where there are several, one may not have answered when the others were let at
    /// the file: what it has is not taken.
    pub(super) fn suppose_gathering(&mut self, node: NodeId) {
        let held = self.opens.get(&node);
        let may_gather = held.is_some_and(|held| held.access().write && !held.local);
        let is_sole = self.opens.len() == 1;
        self.gatherer = (may_gather && is_sole).then_some(node);
        if !is_sole {
            let writers = self.opens.iter().filter(|(_, held)| held.access().write);
            self.late.extend(writers.map(|(writer, _)| *writer));
        }
    }

    pub(super) fn stop_gathering(&mut self, node: NodeId) {
        self.gatherer.take_if(|gatherer| *gatherer == node);
    }
}
