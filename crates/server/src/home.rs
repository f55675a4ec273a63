//! The home of an inode: who has it open, who may cache it, and who must wait for whom.
//!
//! A pure state machine: [`Home::step`] takes an [`Event`] and returns [`Effect`]s; it does no I/O,
//! reads no clock and knows no connection. The server's shell ([`crate::homes`]) carries effects out
//! and feeds what comes of them back in. A model checker can own it as it is.
//!
//! Invariants, checked by the tests below after every step:
//! - H1: while a node may write (its open was answered), no *other* node holds CACHE or ATTR.
//! - H2: CACHE is held next to an open for writing only by that writer, and only if it is the only
//!   opener and asked for it ([`OpenKind::RemoteCachedWriter`]).
//! - H3: while the part may still be written through a forgotten mapping (`unprobed`), only the home
//!   node holds grants.
//! - H4: every waiting operation waits for a recall or a probe that is under way.
//! - H5: a node that gathers writes it by messages, no other may write it, nobody else holds a grant, and only if the
//!   gatherer has hung has another's operation gone on since it began: one that changes no bytes. One that is late gathers
//!   no more until it has closed.
//!
//! Rooms: [`gathering`] of writes. Source: `docs/design/001-coherence.md`,
//! "States of an inode", "What an open returns".

use std::collections::{BTreeMap, BTreeSet};

use hayase_layout::NodeId;
use hayase_wire::message::{Access, Grants, OpenKind, Opening, StillOpen};

use crate::booked::Booked;

mod gathering;

/// What a change of attributes alone takes back from others.
pub(crate) const ATTR: Grants = Grants { cache: false, attr: true };

/// Names a waiting operation to the shell.
pub(crate) type Ticket = u64;

/// What one node has open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) booked: Booked,
    /// Served by the kernel on the part itself: class L.
    pub(crate) local: bool,
}

impl Held {
    pub(crate) fn access(&self) -> Access {
        self.booked.access()
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A node wants it open (transitions only, but repeating one is harmless).
    Open { ticket: Ticket, node: NodeId, open: Opening },
    /// A node no longer has it open this way; what it asked for after number `as_of` is not meant.
    Close { node: NodeId, access: Access, as_of: u64 },
    /// A node is about to change attributes (`bits.attr`) or bytes (`bits.cache` too) by a call
    /// without an open: others give back first.
    Change { ticket: Ticket, node: NodeId, bits: Grants },
    /// That call is over.
    Changed { ticket: Ticket },
    /// A node looks at what others may be gathering: they hand it on first.
    Look { ticket: Ticket, node: NodeId },
    /// A node asks for attributes: what may it keep?
    Attributes { ticket: Ticket, node: NodeId },
    /// A node gave back.
    Returned { node: NodeId, bits: Grants, still_open: StillOpen },
    /// A node's session is over: it holds nothing any more.
    Gone { node: NodeId },
    /// A node does not answer, and by now has stopped to use what it was granted. What it has open
    /// stays open.
    Silent { node: NodeId },
    /// A node has it open since before this server was started (`in_grace`), or since before its own was; `late`: a recall
    /// was not answered there.
    Reclaimed { node: NodeId, open: Opening, in_grace: bool, late: bool },
    /// A node has told all that it has open: its server does not know what the former one was granted. Its mounts go
    /// on, and a recall that is under way is answered by the new one.
    ToldAnew { node: NodeId },
    /// The answer to [`Effect::Probe`].
    Probed { quiescent: bool },
}

/// What the shell must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Ask a node to give back; feed [`Event::Returned`] (or [`Event::Gone`]).
    Recall { node: NodeId, bits: Grants },
    /// Find out whether anything still writes the part; feed [`Event::Probed`].
    Probe,
    /// The operation may go on; what its node holds from now on; whether somebody may write.
    Proceed { ticket: Ticket, grants: Grants, writing: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Want {
    Open(Opening),
    Change { bits: Grants },
    Look,
}

/// An operation that waits, or (a change) that has gone on and is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Operation {
    ticket: Ticket,
    node: NodeId,
    want: Want,
}

impl Operation {
    /// It may change bytes.
    fn changes_bytes(&self) -> bool {
        match self.want {
            Want::Open(open) => open.access.write,
            Want::Change { bits } => bits.cache,
            Want::Look => false,
        }
    }

    /// Nobody else may get a grant while this one is here.
    fn shuts_out(&self) -> bool {
        match self.want {
            Want::Open(open) => open.access.write,
            Want::Change { .. } => true,
            Want::Look => false,
        }
    }
}

/// One inode's state at its home.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Home {
    /// The node of the home server: the one whose kernel shares the part.
    node: NodeId,
    opens: BTreeMap<NodeId, Held>,
    grants: BTreeMap<NodeId, Grants>,
    recalls: BTreeMap<NodeId, Grants>,
    waiting: Vec<Operation>,
    changing: Vec<Operation>,
    gatherer: Option<NodeId>,
    /// The gatherer did not answer when others came that change no bytes: these do not wait, until it does.
    hangs: bool,
    /// What these have gathered comes too late, until they have closed it.
    late: BTreeSet<NodeId>,
    unprobed: bool,
    probing: bool,
    /// A local writer closed it while a probe was under way: that one tells nothing.
    overtaken: bool,
}

impl Home {
    pub(crate) fn new(node: NodeId) -> Self {
        Self {
            node,
            opens: BTreeMap::new(),
            grants: BTreeMap::new(),
            recalls: BTreeMap::new(),
            waiting: Vec::new(),
            changing: Vec::new(),
            gatherer: None,
            hangs: false,
            late: BTreeSet::new(),
            unprobed: false,
            probing: false,
            overtaken: false,
        }
    }

    /// As found by a server that was restarted: something may write the part that nobody has reported.
    pub(crate) fn after_restart(node: NodeId) -> Self {
        Self { unprobed: true, ..Self::new(node) }
    }

    /// One event in, the effects that follow out, in the order in which they must begin.
    pub(crate) fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Open { ticket, node, open } => {
                self.waiting.push(Operation { ticket, node, want: Want::Open(open) });
            }
            Event::Change { ticket, node, bits } => {
                self.waiting.push(Operation { ticket, node, want: Want::Change { bits } });
            }
            Event::Look { ticket, node } => {
                self.waiting.push(Operation { ticket, node, want: Want::Look });
            }
            Event::Changed { ticket } => self.changing.retain(|change| change.ticket != ticket),
            Event::Attributes { ticket, node } => {
                effects.push(self.grant_attributes(ticket, node));
                self.probe_for_next_time(node, &mut effects);
            }
            Event::Close { node, access, as_of } => self.close(node, access, as_of),
            Event::Returned { node, bits, still_open } => self.returned(node, bits, still_open),
            Event::Gone { node } => self.gone(node),
            Event::Silent { node } => self.silent(node, &mut effects),
            Event::Reclaimed { node, open, in_grace, late } => {
                self.reclaimed(node, &open, (in_grace, late));
            }
            Event::ToldAnew { node } => {
                self.grants.remove(&node);
            }
            Event::Probed { quiescent } => self.probed(quiescent, &mut effects),
        }
        self.settle(&mut effects);
        if matches!(event, Event::Open { .. } | Event::Look { .. }) {
            self.ask_who_hangs(&mut effects);
        }
        effects
    }

    /// Nothing is open, held, waiting or unknown: the shell may forget this state.
    pub(crate) fn is_idle(&self) -> bool {
        self.holds_nothing() && !self.unprobed
    }

    /// Nothing is open, held, waiting or being found out.
    fn holds_nothing(&self) -> bool {
        self.opens.is_empty()
            && self.grants.is_empty()
            && self.recalls.is_empty()
            && self.waiting.is_empty()
            && self.changing.is_empty()
            && !self.probing
    }

    /// Whether `node` has it open or was granted something.
    pub(crate) fn is_known_to(&self, node: NodeId) -> bool {
        self.opens.contains_key(&node) || self.grants.contains_key(&node)
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.opens.is_empty()
    }

    pub(crate) fn is_open_on(&self, node: NodeId) -> bool {
        self.opens.contains_key(&node)
    }

    pub(crate) fn opens(&self) -> impl Iterator<Item = (NodeId, Held)> + '_ {
        self.opens.iter().map(|(node, held)| (*node, *held))
    }

    /// `idle`, `shared-read` or `writing`, and why when that is not obvious.
    pub(crate) fn describe(&self) -> String {
        if let Some(gatherer) = self.gatherer {
            format!("writing (node {gatherer} alone, which gathers small writes)")
        } else if self.is_written() {
            "writing".to_owned()
        } else if self.unprobed {
            "writing (a local writer closed it; not yet known whether a mapping still writes)"
                .to_owned()
        } else if self.opens.is_empty() && self.grants.is_empty() {
            "idle".to_owned()
        } else {
            "shared-read".to_owned()
        }
    }

    fn grant_attributes(&mut self, ticket: Ticket, node: NodeId) -> Effect {
        let attr = self.may_keep_attributes(node);
        if attr {
            self.grants.entry(node).or_default().attr = true;
        }
        let cache = attr && self.grants.get(&node).is_some_and(|held| held.cache);
        Effect::Proceed { ticket, grants: Grants { cache, attr }, writing: self.is_writing() }
    }

    /// Nobody waits for this probe: it lets the next question be answered with a grant.
    fn probe_for_next_time(&mut self, node: NodeId, effects: &mut Vec<Effect>) {
        if node != self.node && self.begin_probe_for_others() {
            effects.push(Effect::Probe);
        }
    }

    /// Other nodes could be granted something if a probe found no mapping that writes, though this node may keep it
    /// open for reading.
    pub(crate) fn is_probed_for_others(&self) -> bool {
        self.unprobed && !self.is_written()
    }

    /// It is being found out whether something still writes the part.
    pub(crate) fn is_probing(&self) -> bool {
        self.probing
    }

    /// Begins such a probe, unless one is on its way; feed [`Event::Probed`].
    pub(crate) fn begin_probe_for_others(&mut self) -> bool {
        let begins = self.is_probed_for_others() && !self.probing;
        self.probing |= begins;
        begins
    }

    /// Takes ATTR back from everybody without asking: they have stopped using it by themselves.
    pub(crate) fn forget_attributes(&mut self) {
        let bits = Grants { cache: false, attr: true };
        self.grants.values_mut().for_each(|held| *held = without(*held, bits));
        self.grants.retain(|_, held| *held != Grants::NONE);
    }

    /// A process of the home's node has the part open past the server, or may still have it mapped.
    pub(crate) fn has_local_users(&self) -> bool {
        self.unprobed || self.has_local_opens()
    }

    fn has_local_opens(&self) -> bool {
        self.opens.values().any(|held| held.local)
    }

    /// Begins a probe when nothing but a mapping may still write the part; feed [`Event::Probed`].
    pub(crate) fn begin_probe(&mut self) -> bool {
        let begins = self.unprobed && !self.probing && !self.has_local_opens();
        self.probing |= begins;
        begins
    }

    /// The inode is no more: nobody has to be told of it, and nothing has to be known.
    pub(crate) fn end(&mut self) {
        self.forget_attributes();
        self.unprobed = false;
    }

    /// Begins a probe if that is all that keeps this state in memory; feed [`Event::Probed`].
    pub(crate) fn begin_idle_probe(&mut self) -> bool {
        let begins = self.unprobed && self.holds_nothing();
        self.probing |= begins;
        begins
    }

    fn close(&mut self, node: NodeId, access: Access, as_of: u64) {
        let Some(held) = self.opens.get_mut(&node) else { return };
        let ended = held.booked.end(access, as_of);
        if ended.write && held.local {
            self.unprobed = true;
            self.overtaken |= self.probing;
        }
        let is_closed = held.booked.is_empty();
        if ended.write {
            self.stop_gathering(node);
            self.late.remove(&node);
        }
        if is_closed {
            self.opens.remove(&node);
            self.drop_grants(node, Grants { cache: true, attr: false });
        }
    }

    fn returned(&mut self, node: NodeId, bits: Grants, still_open: StillOpen) {
        self.drop_grants(node, bits);
        if bits.cache {
            self.stop_gathering(node);
        }
        if let Some(asked) = self.recalls.get_mut(&node) {
            *asked = without(*asked, bits);
            if *asked == Grants::NONE {
                self.recalls.remove(&node);
            }
        }
        if let Some(held) = self.opens.get(&node) {
            self.close(node, held.booked.ended_by(still_open), still_open.as_of);
        }
    }

    fn silent(&mut self, node: NodeId, effects: &mut Vec<Effect>) {
        self.grants.remove(&node);
        self.recalls.remove(&node);
        if self.is_late_without(node) {
            self.take_no_more_gathered(node);
            self.stop_gathering(node);
        } else {
            self.go_on_without(node, effects);
        }
    }

    fn gone(&mut self, node: NodeId) {
        self.close(node, Access { read: true, write: true }, u64::MAX);
        self.grants.remove(&node);
        self.recalls.remove(&node);
        self.changing.retain(|change| change.node != node);
    }

    fn probed(&mut self, quiescent: bool, effects: &mut Vec<Effect>) {
        self.probing = false;
        let overtaken = std::mem::take(&mut self.overtaken);
        if quiescent && !overtaken {
            self.unprobed = false;
            return;
        }
        // Readers that waited for the answer go on without caching.
        let waited: Vec<_> =
            self.waiting.iter().filter(|operation| !operation.shuts_out()).copied().collect();
        for operation in waited {
            if self.conflicts(&operation).is_empty() {
                self.waiting.retain(|waiting| waiting.ticket != operation.ticket);
                effects.push(self.proceed(operation));
            }
        }
    }

    /// Lets every operation go on that can, and asks for what the others wait for.
    fn settle(&mut self, effects: &mut Vec<Effect>) {
        while let Some(at) = self.waiting.iter().position(|waiting| self.may_proceed(waiting)) {
            let operation = self.waiting.remove(at);
            effects.push(self.proceed(operation));
        }
        for at in 0..self.waiting.len() {
            let operation = self.waiting[at];
            for (node, bits) in self.conflicts(&operation) {
                self.recall(node, bits, effects);
            }
            if self.waits_for_probe(&operation) && !self.probing {
                self.probing = true;
                effects.push(Effect::Probe);
            }
        }
    }

    fn recall(&mut self, node: NodeId, bits: Grants, effects: &mut Vec<Effect>) {
        let asked = self.recalls.entry(node).or_default();
        let missing = without(bits, *asked);
        if missing != Grants::NONE {
            *asked = union(*asked, missing);
            effects.push(Effect::Recall { node, bits: missing });
        }
    }

    fn may_proceed(&self, operation: &Operation) -> bool {
        self.conflicts(operation).is_empty() && !self.waits_for_probe(operation)
    }

    /// What other nodes hold that this operation can not go on beside.
    fn conflicts(&self, operation: &Operation) -> Vec<(NodeId, Grants)> {
        if let Some(gatherer) = self.gathers_for_another(operation.node)
            && (!self.hangs || operation.changes_bytes())
        {
            return vec![(gatherer, Grants::ALL)]; // Nobody else holds anything.
        }
        let others = self.grants.iter().filter(|(node, _)| **node != operation.node);
        match operation.want {
            Want::Open(open) if open.access.write => {
                others.map(|(node, _)| (*node, Grants::ALL)).collect()
            }
            Want::Open(_) => others
                .filter(|(node, held)| held.cache && self.writes(**node))
                .map(|(node, _)| (*node, Grants::ALL))
                .collect(),
            Want::Change { bits } => others
                .filter(|(_, held)| (bits.attr && held.attr) || (bits.cache && held.cache))
                .map(|(node, _)| (*node, bits))
                .collect(),
            Want::Look => Vec::new(),
        }
    }

    /// A reader elsewhere would be told to cache, if only the part were known to be quiescent.
    fn waits_for_probe(&self, operation: &Operation) -> bool {
        matches!(operation.want, Want::Open(open) if !open.access.write)
            && self.unprobed
            && operation.node != self.node
            && !self.is_written()
    }

    fn proceed(&mut self, operation: Operation) -> Effect {
        let Operation { ticket, node, want } = operation;
        match want {
            Want::Change { .. } => self.changing.push(operation),
            Want::Open(open) => self.open(node, &open),
            Want::Look => {}
        }
        let grants = match self.recalls.contains_key(&node) {
            true => Grants::NONE,
            false => self.grants.get(&node).copied().unwrap_or_default(),
        };
        Effect::Proceed { ticket, grants, writing: self.is_writing() }
    }

    fn reclaimed(&mut self, node: NodeId, open: &Opening, (in_grace, late): (bool, bool)) {
        let held = self.opens.entry(node).or_default();
        held.booked.book(open);
        held.local |= open.kind == OpenKind::Local;
        if in_grace && late {
            // The former life of this home may have let others write.
            self.take_no_more_gathered(node);
        }
        if in_grace {
            self.suppose_gathering();
        }
    }

    fn open(&mut self, node: NodeId, open: &Opening) {
        let held = self.opens.entry(node).or_default();
        held.booked.book(open);
        held.local = open.kind == OpenKind::Local;
        // Who opens for writing has given its pages up before it asked.
        if self.recalls.contains_key(&node) && !open.access.write {
            return; // What it is asked to give back it holds until it has.
        }
        let attr = self.may_keep_attributes(node);
        let cache = attr
            && !self.unprobed
            && match (self.writes(node), open.kind) {
                (false, _) => true,
                (true, OpenKind::RemoteCachedWriter) => {
                    self.opens.keys().all(|opener| *opener == node)
                        && self.waiting.iter().all(|waiting| waiting.node == node)
                }
                (true, OpenKind::Local | OpenKind::Remote) => false,
            };
        let grants = Grants { cache, attr };
        if grants == Grants::NONE {
            self.grants.remove(&node);
        } else {
            self.grants.insert(node, grants);
        }
    }

    fn may_keep_attributes(&self, node: NodeId) -> bool {
        let recalled = self.recalls.contains_key(&node);
        let written_elsewhere =
            self.opens.iter().any(|(opener, held)| *opener != node && held.access().write);
        let changed_elsewhere = self
            .waiting
            .iter()
            .chain(&self.changing)
            .any(|operation| operation.node != node && operation.shuts_out());
        let settled = !self.unprobed || node == self.node;
        // The writer whose kernel caches is the only one that may know the size.
        let cached_writer = self
            .grants
            .iter()
            .any(|(holder, held)| *holder != node && held.cache && self.writes(*holder));
        !recalled && !written_elsewhere && !changed_elsewhere && settled && !cached_writer
    }

    fn writes(&self, node: NodeId) -> bool {
        self.opens.get(&node).is_some_and(|held| held.access().write)
    }

    /// Some node has it open for writing.
    fn is_written(&self) -> bool {
        self.opens.values().any(|held| held.access().write)
    }

    /// Somebody may write now or soon: an open of class R without CACHE must be a direct one.
    fn is_writing(&self) -> bool {
        self.is_written() || self.unprobed || self.waiting.iter().any(Operation::shuts_out)
    }

    fn drop_grants(&mut self, node: NodeId, bits: Grants) {
        if let Some(held) = self.grants.get_mut(&node) {
            *held = without(*held, bits);
            if *held == Grants::NONE {
                self.grants.remove(&node);
            }
        }
    }
}

fn without(held: Grants, bits: Grants) -> Grants {
    Grants { cache: held.cache && !bits.cache, attr: held.attr && !bits.attr }
}

fn union(left: Grants, right: Grants) -> Grants {
    Grants { cache: left.cache || right.cache, attr: left.attr || right.attr }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
