//! Gathering: the mount of one node keeps small writes for a while and hands them on together.
//!
//! It does so only while its node is the only one that has the file open, and writes it by messages: then nobody
//! else can have seen what is not handed on yet. Whoever wants to open, change or look at the file waits until it
//! was, by the same recall that takes grants back.
//!
//! Source: `docs/design/001-coherence.md`, "Small writes"; LLIO (paper 003) 4.2.4.

use hayase_layout::NodeId;

use super::Home;

/// Who gathers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Gatherer {
    node: NodeId,
    /// It did not answer a recall: what it hands on now comes too late, but others wait until what it handed on in
    /// time is in the part.
    is_late: bool,
}

impl Home {
    pub(super) fn gatherer(&self) -> Option<NodeId> {
        self.gatherer.map(|gatherer| gatherer.node)
    }

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
            && !self.unprobed
            && !self.probing
    }

    /// Lets `node` gather, if it may.
    pub(crate) fn gather(&mut self, node: NodeId) -> bool {
        let may_gather = self.may_gather(node);
        if may_gather {
            self.gatherer = Some(Gatherer { node, is_late: false });
        }
        may_gather
    }

    /// Whether what `node` has gathered may still be written.
    pub(crate) fn takes_gathered(&self, node: NodeId) -> bool {
        self.gatherer == Some(Gatherer { node, is_late: false })
    }

    /// The node that others than `node` wait for.
    pub(crate) fn gathers_for_another(&self, node: NodeId) -> Option<NodeId> {
        self.gatherer().filter(|gatherer| *gatherer != node)
    }

    /// Takes nothing more of what `node` has gathered; [`super::Event::Silent`] follows when what was taken is in the part.
    pub(crate) fn take_no_more_gathered(&mut self, node: NodeId) {
        if let Some(gatherer) = &mut self.gatherer
            && gatherer.node == node
        {
            gatherer.is_late = true;
        }
    }

    /// The former life of this home let nobody gather beside another opener. So who had it open alone may have
    /// gathered, and goes on doing so.
    pub(super) fn suppose_gathering(&mut self, node: NodeId) {
        let held = self.opens.get(&node);
        let may_gather = held.is_some_and(|held| held.access().write && !held.local);
        let is_sole = self.opens.len() == 1;
        self.gatherer = (may_gather && is_sole).then_some(Gatherer { node, is_late: false });
    }

    pub(super) fn stop_gathering(&mut self, node: NodeId) {
        self.gatherer.take_if(|gatherer| gatherer.node == node);
    }
}
