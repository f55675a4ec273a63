//! Gathering: the mount of one node keeps small writes for a while and hands them on together.
//!
//! It does so only while its node is the only one that has the file open, and writes it by messages: then nobody
//! else can have seen what is not handed on yet. Whoever wants to open, change or look at the file waits until it
//! was, by the same recall that takes grants back.
//!
//! Where the mount does not answer (it *hangs*), who only looks or reads goes on without what it has, which is taken
//! when it comes. Who changes bytes must not find older ones over them later: then the mount is *late*. So is one that
//! was lost while others were let at the file. Until a late one has closed the file, nothing that it has gathered is
//! taken, and it may not begin again, since what it would hand on then might be what it had before.
//!
//! Source: `docs/design/001-coherence.md`, "Small writes"; LLIO (paper 003) 4.2.4.

use hayase_layout::NodeId;

use super::{Effect, Home, Operation};
use hayase_wire::message::Grants;

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
            self.hangs = false;
        }
        may_gather
    }

    /// Whether what `node` has gathered comes too late.
    pub(crate) fn is_late(&self, node: NodeId) -> bool {
        self.late.contains(&node)
    }

    /// It has answered, or brought something: others wait for it again.
    pub(crate) fn gatherer_came(&mut self) {
        self.hangs = false;
    }

    /// The node that gathers.
    pub(crate) fn gatherer(&self) -> Option<NodeId> {
        self.gatherer
    }

    /// Whether what `node` has gathered may still be written.
    pub(crate) fn takes_gathered(&self, node: NodeId) -> bool {
        self.gatherer == Some(node) && !self.late.contains(&node)
    }

    /// The node that others than `node` wait for.
    pub(crate) fn gathers_for_another(&self, node: NodeId) -> Option<NodeId> {
        self.gatherer.filter(|gatherer| *gatherer != node)
    }

    /// `node` does not answer: where others are going to change bytes without it, nothing more is taken of it.
    /// [`super::Event::Silent`] follows when what was taken is in the part.
    pub(crate) fn gives_up(&mut self, node: NodeId) {
        if self.is_late_without(node) {
            self.take_no_more_gathered(node);
        }
    }

    /// Whether what `node` has gathered comes too late if nobody waits for it any more.
    pub(super) fn is_late_without(&self, node: NodeId) -> bool {
        let mut others = self.waiting.iter().filter(|operation| operation.node != node);
        !self.takes_gathered(node) || others.any(Operation::changes_bytes)
    }

    /// Those that wait for `node` change nothing, and do so without what it has gathered, which is taken when it comes.
    pub(super) fn go_on_without(&mut self, node: NodeId, effects: &mut Vec<Effect>) {
        self.hangs = true;
        let is_mine = |operation: &Operation| operation.node == node;
        let (mine, others) = std::mem::take(&mut self.waiting).into_iter().partition(is_mine);
        self.waiting = mine;
        let others: Vec<_> = others;
        effects.extend(others.into_iter().map(|operation| self.proceed(operation)));
    }

    /// Who comes to the file does not wait for a gatherer that hangs; but it is asked again, so that others wait as soon
    /// as it answers.
    pub(super) fn ask_who_hangs(&mut self, effects: &mut Vec<Effect>) {
        if let Some(gatherer) = self.gatherer.filter(|_| self.hangs) {
            self.recall(gatherer, Grants::ALL, effects);
        }
    }

    /// Takes nothing more of what `node` has gathered.
    pub(crate) fn take_no_more_gathered(&mut self, node: NodeId) {
        if self.writes(node) {
            self.late.insert(node);
        }
    }

    /// The former life of this home let nobody write beside a gatherer, unless it was late, which is told. So who alone
    /// writes it, by messages, may have gathered, and goes on; where others have it open it did not answer when they came.
    pub(super) fn suppose_gathering(&mut self) {
        let mut writers = self.opens.iter().filter(|(_, held)| held.access().write);
        let sole = match (writers.next(), writers.next()) {
            (Some((node, held)), None) if !held.local && !self.late.contains(node) => Some(*node),
            _ => None,
        };
        self.gatherer = sole;
        self.hangs = sole.is_some() && self.opens.len() > 1;
    }

    pub(super) fn stop_gathering(&mut self, node: NodeId) {
        if self.gatherer.take_if(|gatherer| *gatherer == node).is_some() {
            self.hangs = false;
        }
    }
}
