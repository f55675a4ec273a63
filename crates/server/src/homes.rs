//! The homes in memory: carries out what [`crate::home::Home`] decides.
//!
//! An inode that nobody has open and of which nobody holds anything has no entry here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use hayase_layout::{InodeId, NodeId, ServerId};
use hayase_wire::message::{Access, Grants, InodeRequest, Opening, PeerReply};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::data::LocalUsers;
use crate::home::{Effect, Event, Held, Home, Ticket};
use crate::late::Late;
use crate::limits::{ATTR_GRANT, HOMES_GRANTED_MAX, HOMES_SWEEP_STEP, PROBE_PAUSE, PROBES_MAX};
use crate::node::Node;

/// What an operation was given when it went on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) grants: Grants,
    pub(crate) writing: bool,
}

struct Entry {
    home: Home,
    tickets: HashMap<Ticket, oneshot::Sender<Given>>,
    granted: Instant,
    probe_failed: Option<Instant>,
    /// By a transfer, the last time; at first the time at which the entry was made.
    probe_asked: Instant,
}

/// All inodes of this home that somebody has to do with.
#[derive(Default)]
pub(crate) struct Homes {
    entries: RefCell<HashMap<InodeId, Entry>>,
    next_ticket: std::cell::Cell<Ticket>,
    sweep_at: std::cell::Cell<usize>,
    /// What these nodes have gathered of these files comes too late; kept over restarts.
    pub(crate) late: Late,
    /// Told of the end of each probe.
    probed: Notify,
}

impl Homes {
    /// `late`: as a former life of this server knew it.
    pub(crate) fn new(late: Late) -> Self {
        Self { late, ..Self::default() }
    }

    fn ticket(&self) -> Ticket {
        self.next_ticket.set(self.next_ticket.get() + 1);
        self.next_ticket.get()
    }

    /// Whether any node has it open.
    pub(crate) fn is_open(&self, ino: InodeId) -> bool {
        self.entries.borrow().get(&ino).is_some_and(|entry| entry.home.is_open())
    }

    pub(crate) fn is_open_on(&self, ino: InodeId, node: NodeId) -> bool {
        self.entries.borrow().get(&ino).is_some_and(|entry| entry.home.is_open_on(node))
    }

    /// What a node has open of it.
    pub(crate) fn held_by(&self, ino: InodeId, node: NodeId) -> Access {
        let entries = self.entries.borrow();
        let mut opens = entries.get(&ino).into_iter().flat_map(|entry| entry.home.opens());
        opens.find(|(opener, _)| *opener == node).map(|(_, held)| held.access()).unwrap_or_default()
    }

    /// Whether any node has it open for writing.
    pub(crate) fn has_writers(&self, ino: InodeId) -> bool {
        let entries = self.entries.borrow();
        entries
            .get(&ino)
            .is_some_and(|entry| entry.home.opens().any(|(_, held)| held.access().write))
    }

    /// Whether any node has anything of this home open for writing. O(n) of what is open.
    pub(crate) fn is_written(&self) -> bool {
        let entries = self.entries.borrow();
        entries.values().any(|entry| entry.home.opens().any(|(_, held)| held.access().write))
    }

    pub(crate) fn may_gather(&self, ino: InodeId, node: NodeId) -> bool {
        self.entries.borrow().get(&ino).is_some_and(|entry| entry.home.may_gather(node))
    }

    /// Lets `node` gather what it writes, if it may.
    pub(crate) fn gather(&self, ino: InodeId, node: NodeId) -> bool {
        let mut entries = self.entries.borrow_mut();
        let gathers = entries.get_mut(&ino).is_some_and(|entry| entry.home.gather(node));
        if gathers {
            self.late.gathers(ino, node);
        }
        gathers
    }

    /// Whether what `node` has gathered may still be written.
    pub(crate) fn takes_gathered(&self, ino: InodeId, node: NodeId) -> bool {
        self.entries.borrow().get(&ino).is_some_and(|entry| entry.home.takes_gathered(node))
    }

    /// Whether some node gathers.
    pub(crate) fn is_gathered(&self, ino: InodeId) -> bool {
        let entries = self.entries.borrow();
        entries.get(&ino).is_some_and(|entry| entry.home.gatherer().is_some())
    }

    /// Whether somebody of this home's node may write the part past the server, as far as this life has heard.
    pub(crate) fn has_local_users(&self, ino: InodeId) -> bool {
        let entries = self.entries.borrow();
        entries.get(&ino).is_some_and(|entry| entry.home.has_local_users())
    }

    /// Whether another node than `node` gathers.
    pub(crate) fn is_gathered_elsewhere(&self, ino: InodeId, node: NodeId) -> bool {
        let entries = self.entries.borrow();
        entries.get(&ino).is_some_and(|entry| entry.home.gathers_for_another(node).is_some())
    }

    /// From now on nothing is taken of what `node` has gathered.
    fn take_no_more_gathered(&self, ino: InodeId, node: NodeId) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&ino) {
            entry.home.take_no_more_gathered(node);
            if entry.home.is_late(node) {
                self.late.add(ino, node);
            }
        }
    }

    /// The same if others are going to change what `node`, which does not answer, may have gathered.
    fn gives_up(&self, ino: InodeId, node: NodeId) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&ino) {
            let gathers = entry.home.gatherer() == Some(node);
            entry.home.gives_up(node);
            if gathers && entry.home.is_late(node) {
                self.late.add(ino, node);
            }
        }
    }

    /// What `node` has gathered came: it does not hang.
    pub(crate) fn gatherer_came(&self, ino: InodeId) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&ino) {
            entry.home.gatherer_came();
        }
    }

    /// The nodes that have it open.
    pub(crate) fn open_on(&self, ino: InodeId) -> Vec<NodeId> {
        let entries = self.entries.borrow();
        let opens = entries.get(&ino).map(|entry| entry.home.opens().map(|(node, _)| node));
        opens.map(Iterator::collect).unwrap_or_default()
    }

    /// Inodes that `node` has open or was granted something of.
    pub(crate) fn known_to(&self, node: NodeId) -> Vec<InodeId> {
        let entries = self.entries.borrow();
        let known = entries.iter().filter(|(_, entry)| entry.home.is_known_to(node));
        let mut known: Vec<_> = known.map(|(ino, _)| *ino).collect();
        // What follows from a seed must not follow from the order of a table.
        known.sort_unstable();
        known
    }

    /// The inode is no more: nobody has to be told of it.
    pub(crate) fn ended(&self, ino: InodeId) {
        self.late.end(ino);
        let mut entries = self.entries.borrow_mut();
        let Some(entry) = entries.get_mut(&ino) else { return };
        entry.home.end();
        if entry.home.is_idle() {
            entries.remove(&ino);
        }
    }

    /// Whether one more inode may be granted something.
    fn has_room_for(&self, ino: InodeId) -> bool {
        let entries = self.entries.borrow();
        entries.len() < HOMES_GRANTED_MAX || entries.contains_key(&ino)
    }

    /// State and opens, for people.
    pub(crate) fn describe(&self, ino: InodeId) -> (String, Vec<(NodeId, Held)>) {
        let entries = self.entries.borrow();
        match entries.get(&ino) {
            Some(entry) => (entry.home.describe(), entry.home.opens().collect()),
            None => ("idle".to_owned(), Vec::new()),
        }
    }

    /// Inodes that somebody has open.
    pub(crate) fn open_count(&self) -> usize {
        self.entries.borrow().values().filter(|entry| entry.home.is_open()).count()
    }
}

impl Node {
    /// Books an open of `node`, after everybody else has given back what stands against it.
    pub(crate) async fn home_open(
        self: &Rc<Self>,
        ino: InodeId,
        node: NodeId,
        open: Opening,
    ) -> Given {
        let ticket = self.homes.ticket();
        let given = self.home_operation(ino, ticket, Event::Open { ticket, node, open }).await;
        self.until_taken(ino, node).await;
        given
    }

    /// Lets `node` change attributes or bytes of a file by a call without an open: others have given
    /// back when this returns, and get nothing again until the guard is dropped.
    pub(crate) async fn home_change(
        self: &Rc<Self>,
        ino: InodeId,
        node: NodeId,
        bits: Grants,
    ) -> ChangeGuard {
        let ticket = self.homes.ticket();
        self.home_operation(ino, ticket, Event::Change { ticket, node, bits }).await;
        let guard = ChangeGuard { node: Rc::clone(self), ino, ticket };
        self.until_taken(ino, node).await;
        guard
    }

    /// `node` is about to look at the file: what another node gathers of it has been handed on when this returns.
    pub(crate) async fn home_look(self: &Rc<Self>, ino: InodeId, node: NodeId) {
        if self.homes.is_gathered_elsewhere(ino, node) {
            let ticket = self.homes.ticket();
            self.home_operation(ino, ticket, Event::Look { ticket, node }).await;
        }
        self.until_taken(ino, node).await;
    }

    /// What another than `node` handed on in time is in the part when this returns, however it came that nobody waits
    /// for that one any more: it closed, was lost, or its server answered for a mount that did not. Nor does a power cut
    /// let any of those in who come too late.
    async fn until_taken(&self, ino: InodeId, node: NodeId) {
        if !self.handed_on.is_idle() && !self.homes.takes_gathered(ino, node) {
            self.handed_on.until_settled(ino).await;
        }
        self.homes.late.until_durable(&self.meta.disk).await;
    }

    /// What `node` may keep of attributes that it is about to be told.
    pub(crate) fn home_attributes(self: &Rc<Self>, ino: InodeId, node: NodeId) -> Grants {
        if !self.homes.has_room_for(ino) || !self.rpc.grace.is_over() {
            return Grants::NONE;
        }
        let ticket = self.homes.ticket();
        match self.home_step(ino, ticket, Event::Attributes { ticket, node }, None) {
            Some(given) => given.grants,
            None => Grants::NONE,
        }
    }

    pub(crate) fn home_event(self: &Rc<Self>, ino: InodeId, event: Event) {
        self.home_step(ino, 0, event, None);
        self.keep_late();
    }

    /// A lost node holds nothing of these any more.
    pub(crate) fn home_gone(self: &Rc<Self>, node: NodeId, inos: &[InodeId]) {
        for ino in inos {
            self.home_step(*ino, 0, Event::Gone { node }, None);
        }
        self.keep_late();
    }

    /// `node` tells later than others were waited for what it has open: what it has gathered is not taken. Of many at
    /// once; [`Node::keep_late`] follows.
    pub(crate) fn home_late(self: &Rc<Self>, ino: InodeId, node: NodeId) {
        self.homes.take_no_more_gathered(ino, node);
    }

    /// Before anything continues without those who are late: it is woken later, and waits until a power cut does
    /// not change it either ([`Late::until_durable`]).
    pub(crate) fn keep_late(&self) {
        let keep = |late: &[_]| self.meta.store().keep_late(late);
        if let Err(error) = self.homes.late.keep(keep) {
            tracing::error!(%error, "whose gathered bytes come too late is forgotten if this server is killed");
        }
    }

    async fn home_operation(self: &Rc<Self>, ino: InodeId, ticket: Ticket, event: Event) -> Given {
        let (sender, receiver) = oneshot::channel();
        if let Some(given) = self.home_step(ino, ticket, event, Some(sender)) {
            self.keep_late();
            return given;
        }
        // The sender lives in the table until the operation goes on.
        receiver.await.unwrap_or(Given { grants: Grants::NONE, writing: true })
    }

    /// Feeds one event and begins what follows; the answer when `ticket` went on at once.
    fn home_step(
        self: &Rc<Self>,
        ino: InodeId,
        ticket: Ticket,
        event: Event,
        wait: Option<oneshot::Sender<Given>>,
    ) -> Option<Given> {
        let mut entries = self.homes.entries.borrow_mut();
        let entry = entries.entry(ino).or_insert_with(|| Entry {
            home: match self.incarnation {
                1 => Home::new(self.node),
                _ => Home::after_restart(self.node),
            },
            tickets: HashMap::new(),
            granted: Instant::now(),
            probe_failed: None,
            probe_asked: Instant::now(),
        });
        if let Some(wait) = wait {
            entry.tickets.insert(ticket, wait);
        }
        let gatherer = entry.home.gatherer();
        let effects = entry.home.step(event);
        self.homes.late.follow(ino, event, (gatherer, &entry.home));
        if gatherer.is_some() && entry.home.gatherer() != gatherer {
            self.end_room(ino);
        }
        let mut mine = None;
        for effect in effects {
            match effect {
                Effect::Proceed { ticket: on, grants, writing } => {
                    if grants.attr {
                        entry.granted = Instant::now();
                    }
                    let given = Given { grants, writing };
                    let waiter = entry.tickets.remove(&on);
                    if on == ticket {
                        mine = Some(given);
                    } else if let Some(waiter) = waiter {
                        // A waiter that gave up is no longer there; its open ends with its session.
                        let _gone = waiter.send(given);
                    }
                }
                Effect::Recall { node, bits } => self.begin_recall(ino, node, bits),
                Effect::Probe => self.begin_probe(ino, entry.probe_failed),
            }
        }
        if entry.home.is_idle() {
            entries.remove(&ino);
        }
        drop(entries);
        self.sweep_homes();
        mine
    }

    pub(crate) fn begin_recall(self: &Rc<Self>, ino: InodeId, node: NodeId, bits: Grants) {
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let asked = this.rpc.ask(ServerId(node.0), InodeRequest::Recall { ino, bits }).await;
            let event = match asked {
                Ok(PeerReply::Recalled { still_open, gave_back }) if gave_back || !bits.cache => {
                    Event::Returned { node, bits, still_open }
                }
                other => {
                    tracing::warn!(%ino, %node, ?other, "recall not answered: its grants are void");
                    this.homes.gives_up(ino, node);
                    this.handed_on.until_settled(ino).await;
                    Event::Silent { node }
                }
            };
            this.home_event(ino, event);
            this.reap_orphans([ino]);
        });
    }

    /// Asks a node to close the opens of an inode that it keeps only for the next open. That is a request, not a recall: a node
    /// that does not answer keeps what it was granted.
    pub(crate) async fn let_go(self: &Rc<Self>, ino: InodeId, node: NodeId) {
        let bits = Grants::NONE;
        let asked = self.rpc.ask(ServerId(node.0), InodeRequest::Recall { ino, bits }).await;
        match asked {
            Ok(PeerReply::Recalled { still_open, .. }) => {
                self.home_event(ino, Event::Returned { node, bits, still_open });
                self.reap_orphans([ino]);
            }
            other => tracing::debug!(%ino, %node, ?other, "it lets nothing go"),
        }
    }

    /// The same of several nodes, without waiting for them.
    pub(crate) fn ask_to_let_go(self: &Rc<Self>, ino: InodeId, nodes: Vec<NodeId>) {
        for node in nodes {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move { this.let_go(ino, node).await });
        }
    }

    fn begin_probe(self: &Rc<Self>, ino: InodeId, failed: Option<Instant>) {
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let paused = failed.is_some_and(|at| at.elapsed() < PROBE_PAUSE);
            let quiescent = !paused && this.probe_part(ino).await;
            if !paused && let Some(entry) = this.homes.entries.borrow_mut().get_mut(&ino) {
                entry.probe_failed = (!quiescent).then(Instant::now);
            }
            this.home_event(ino, Event::Probed { quiescent });
            this.homes.probed.notify_waiters();
        });
    }

    /// When the table has grown: forgets ATTR of inodes that nobody asked about for long, and finds
    /// out about those that are here only because a mapping may still write their part.
    fn sweep_homes(self: &Rc<Self>) {
        let len = self.homes.entries.borrow().len();
        if len < self.homes.sweep_at.get().max(HOMES_SWEEP_STEP) {
            return;
        }
        let mut entries = self.homes.entries.borrow_mut();
        let mut unprobed = Vec::new();
        for (ino, entry) in entries.iter_mut() {
            if !entry.tickets.is_empty() {
                continue;
            }
            if entry.granted.elapsed() > ATTR_GRANT {
                entry.home.forget_attributes();
            }
            let failed_lately = entry.probe_failed.is_some_and(|at| at.elapsed() < ATTR_GRANT);
            if !failed_lately && entry.home.begin_idle_probe() {
                unprobed.push(*ino);
            }
        }
        entries.retain(|_, entry| !entry.home.is_idle());
        self.homes.sweep_at.set(entries.len() + HOMES_SWEEP_STEP);
        drop(entries);
        if !unprobed.is_empty() {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move { this.probe_idle(unprobed).await });
        }
    }

    /// Before `from` is told the attributes of many files: finds out about those of which only a mapping on this
    /// node may still write the part, so that they can be granted with what is told. Waits [`PROBES_MAX`] at most.
    pub(crate) async fn find_out_for(self: &Rc<Self>, from: NodeId, inos: &[InodeId]) {
        if from == self.node {
            return; // It is granted them all the same.
        }
        let (mut unknown, mut idle) = (Vec::new(), Vec::new());
        for ino in inos {
            let mut entries = self.homes.entries.borrow_mut();
            let Some(entry) = entries.get_mut(ino) else { continue };
            let failed = entry.probe_failed;
            let is_paused = failed.is_some_and(|at| at.elapsed() < PROBE_PAUSE);
            if is_paused || !entry.home.is_probed_for_others() {
                continue;
            }
            unknown.push(*ino);
            if !entry.home.begin_probe_for_others() {
                continue;
            }
            if entry.home.is_open() {
                self.begin_probe(*ino, failed);
            } else {
                idle.push(*ino);
            }
        }
        if !idle.is_empty() {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move { this.probe_idle(idle).await });
        }
        let found_out = async {
            for ino in unknown {
                self.probe_ended(ino).await;
            }
        };
        let _in_time = tokio::time::timeout(PROBES_MAX, found_out).await;
    }

    /// No probe of it is on its way, whoever began it.
    async fn probe_ended(&self, ino: InodeId) {
        let is_probing = || {
            let entries = self.homes.entries.borrow();
            entries.get(&ino).is_some_and(|entry| entry.home.is_probing())
        };
        while is_probing() {
            self.homes.probed.notified().await;
        }
    }

    /// Probes parts that nobody has open, all by one visit to the disk's threads.
    async fn probe_idle(self: &Rc<Self>, inos: Vec<InodeId>) {
        for (ino, quiescent) in self.data.probe(inos).await {
            if let Some(entry) = self.homes.entries.borrow_mut().get_mut(&ino) {
                entry.probe_failed = (!quiescent).then(Instant::now);
            }
            self.home_event(ino, Event::Probed { quiescent });
        }
        self.homes.probed.notify_waiters();
    }
}

/// A change under way; others get grants again when it is dropped.
pub(crate) struct ChangeGuard {
    node: Rc<Node>,
    ino: InodeId,
    ticket: Ticket,
}

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        self.node.home_event(self.ino, Event::Changed { ticket: self.ticket });
    }
}

impl LocalUsers for Rc<Node> {
    /// As far as is known: past the server, a process of this node may read or write the part of an inode of this home.
    fn is_used_locally(&self, ino: InodeId) -> bool {
        // Nobody has reported it: a former life of this server may have let it be mapped.
        let is_unknown = || self.incarnation > 1 && !self.homes.entries.borrow().contains_key(&ino);
        self.homes.has_local_users(ino) || is_unknown()
    }

    /// Waits for the answer until [`PROBES_MAX`] after it was asked for.
    async fn find_mapping(&self, ino: InodeId) {
        let asked = {
            let mut entries = self.homes.entries.borrow_mut();
            let Some(entry) = entries.get_mut(&ino) else { return };
            let failed = entry.probe_failed;
            let is_paused = failed.is_some_and(|at| at.elapsed() < PROBE_PAUSE);
            if !is_paused && entry.home.begin_probe() {
                entry.probe_asked = Instant::now();
                self.begin_probe(ino, failed);
            }
            entry.probe_asked
        };
        let left = PROBES_MAX.saturating_sub(asked.elapsed());
        if !left.is_zero() {
            let _in_time = tokio::time::timeout(left, self.probe_ended(ino)).await;
        }
    }
}
