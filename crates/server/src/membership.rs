//! Which nodes are lost: declared by server 0 alone, believed by all others.
//!
//! Nobody beats while all is well. A server beats to server 0 when it starts, when it does not hear
//! another that it waits for, or that stands in somebody's way ([`Node::suspect`]), and until a new
//! epoch is settled. Server 0 asks the suspected whether it lives; who is silent for [`WATCH`] then is
//! declared lost in a new *epoch*, which is durable before it is told. A server that has taken the epoch refuses the lost
//! incarnation ([`PeerReply::Dead`]) and calls it no more. Only when every living server has taken it
//! do homes release what the lost node had open and locked: until then it might still write to a part
//! somewhere under a lock that another node already has. Without server 0 nobody is declared lost
//! and nothing is released, so two halves of a job never grant the same lock.
//!
//! A node that finds itself declared lost begins a new incarnation: its server ends, is started again
//! and tells what its processes hold; locks that were released meanwhile are lost for good.
//!
//! Here: the decisions, pure, and the tasks that carry them out.
//! Source: `docs/design/001-coherence.md`, "Lost nodes"; RFC 8881, 8.4 (leases).

mod coordinator;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hayase_layout::{NodeId, ServerId};
use hayase_wire::PeerIdentity;
use hayase_wire::message::{MembersNow, PeerReply, PeerRequest, Refused};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::coordinator::Coordinator;
use crate::convert::meta_refused;
use crate::home::Event;
use crate::limits::{BEAT, BEAT_DEADLINE, LOOK, NO_COORDINATOR, WATCH};
use crate::node::{Node, libc_errno};

/// Server 0: it alone declares.
const COORDINATOR: ServerId = ServerId(0);

/// What this server believes.
#[derive(Default)]
pub(crate) struct Membership {
    now: RefCell<MembersNow>,
    /// Of lost nodes whose opens and locks were not released here yet: the epoch of their loss.
    unreleased: RefCell<BTreeMap<ServerId, u64>>,
    coordinator: RefCell<Option<Coordinator>>,
    /// Since when server 0 does not answer beats.
    coordinator_silent: Cell<Option<Instant>>,
    /// Servers that this one does not hear: server 0 is told with the next beat.
    suspects: RefCell<BTreeSet<ServerId>>,
    /// There is something to beat for, or (at server 0) to watch.
    wakes: Notify,
    changed: Notify,
    /// This incarnation was declared lost.
    pub(crate) is_lost: Notify,
}

impl Membership {
    /// `known`: incarnations that must be somewhere, even if they are never heard.
    pub(crate) fn new(
        me: ServerId,
        servers: u16,
        members: MembersNow,
        known: &[(ServerId, u64)],
    ) -> Self {
        let coordinator =
            (me == COORDINATOR).then(|| Coordinator::new(servers, known, Instant::now()));
        Self {
            now: RefCell::new(members),
            coordinator: RefCell::new(coordinator),
            ..Self::default()
        }
    }

    pub(crate) fn is_server_lost(&self, server: ServerId) -> bool {
        self.now.borrow().is_server_lost(server)
    }

    pub(crate) fn lost(&self) -> Vec<ServerId> {
        self.now.borrow().lost.iter().map(|(server, _)| *server).collect()
    }

    pub(crate) fn has_lost(&self) -> bool {
        !self.now.borrow().lost.is_empty()
    }

    /// Whether somebody decides about lost nodes, as far as this server knows.
    pub(crate) fn has_coordinator(&self) -> bool {
        self.coordinator_silent.get().is_none_or(|since| since.elapsed() < NO_COORDINATOR)
    }

    /// Whether all that was lost is released, as far as this server knows.
    fn is_settled(&self) -> bool {
        let now = self.now.borrow();
        now.released >= now.epoch && self.unreleased.borrow().is_empty()
    }

    /// A lost node is back and says itself what it holds: nothing of it is released over its head.
    pub(crate) fn tells_again(&self, server: ServerId) {
        self.unreleased.borrow_mut().remove(&server);
    }

    /// Returns when `server` is declared lost.
    pub(crate) async fn until_lost(&self, server: ServerId) {
        loop {
            let changed = self.changed.notified();
            if self.is_server_lost(server) {
                return;
            }
            changed.await;
        }
    }
}

/// What a caller of a lost server is told.
pub(crate) fn lost(server: ServerId) -> Refused {
    Refused::because(libc_errno::EIO, format!("node {server} is lost"))
}

impl Node {
    /// Whether requests of this incarnation are refused.
    pub(crate) fn refuses(&self, from: PeerIdentity) -> bool {
        self.membership.now.borrow().is_lost(from.server, from.start_id)
    }

    /// Beats, or (server 0) watches and declares, when there is a reason; until the task is dropped.
    pub(crate) async fn keep_membership(self: Rc<Self>) {
        loop {
            if self.me == COORDINATOR {
                self.watch().await;
            } else {
                let is_answered = self.beat().await;
                let is_quiet = is_answered
                    && self.membership.is_settled()
                    && self.membership.suspects.borrow().is_empty();
                match is_quiet {
                    true => self.membership.wakes.notified().await,
                    false => tokio::time::sleep(BEAT).await,
                }
            }
        }
    }

    /// This server waits for another, or somebody is in others' way, and does not answer: server 0 is to find out
    /// whether it lives.
    pub(crate) fn suspect(&self, server: ServerId) {
        if self.me == COORDINATOR {
            self.watch_for(server);
        } else {
            // Of server 0 itself a beat tells enough.
            self.membership.suspects.borrow_mut().insert(server);
            self.membership.wakes.notify_one();
        }
    }

    /// As server 0.
    fn watch_for(&self, server: ServerId) {
        if let Some(coordinator) = self.membership.coordinator.borrow_mut().as_mut() {
            coordinator.suspect(&self.membership.now.borrow(), server, Instant::now());
            self.membership.wakes.notify_one();
        }
    }

    /// Somebody wants to know who lives: server 0 asks all others, these ask server 0.
    pub(crate) fn look_around(&self) {
        self.all_servers().for_each(|server| self.watch_for(server));
        self.membership.wakes.notify_one();
    }

    /// False when server 0 did not answer.
    async fn beat(self: &Rc<Self>) -> bool {
        let took = self.membership.now.borrow().epoch;
        let silent: Vec<_> = self.membership.suspects.take().into_iter().collect();
        let beat = PeerRequest::Beat { took, silent: silent.clone() };
        let answer = self.peers.call(COORDINATOR, &beat, None, None, BEAT_DEADLINE).await;
        match answer.map(|called| called.served.reply) {
            Ok(PeerReply::Members(members)) => {
                self.membership.coordinator_silent.set(None);
                self.take(*members);
                return true;
            }
            Ok(PeerReply::Dead) => self.membership.is_lost.notify_one(),
            Ok(other) => tracing::error!(?other, "a beat answered by something else"),
            Err(error) => tracing::debug!(%error, "server 0 does not answer"),
        }
        self.membership.suspects.borrow_mut().extend(silent);
        let since = self.membership.coordinator_silent.get();
        self.membership.coordinator_silent.set(since.or_else(|| Some(Instant::now())));
        false
    }

    /// As server 0: somebody beats.
    pub(crate) fn beaten(
        self: &Rc<Self>,
        from: PeerIdentity,
        took: u64,
        silent: &[ServerId],
    ) -> PeerReply {
        let is_back = {
            let mut coordinator = self.membership.coordinator.borrow_mut();
            let Some(coordinator) = coordinator.as_mut() else {
                let why = "only server 0 is beaten to";
                return PeerReply::Refused(Refused::because(libc_errno::EPROTO, why));
            };
            let mut members = self.membership.now.borrow_mut();
            let is_back = coordinator.beat(&mut members, from, took);
            members.released = coordinator.taken_by_all(&members);
            is_back
        };
        silent.iter().for_each(|server| self.watch_for(*server));
        if is_back {
            tracing::info!(server = %from.server, "a lost node is back");
            let members = self.membership.now.borrow().clone();
            self.keep_members(&members);
            self.membership.changed.notify_waiters();
            // The others are told that it is.
            self.membership.wakes.notify_one();
        }
        self.release_lost();
        PeerReply::Members(Box::new(self.membership.now.borrow().clone()))
    }

    /// As server 0: waits until there is somebody to watch or to tell, then looks once.
    async fn watch(self: &Rc<Self>) {
        if self.has_nothing_to_watch() {
            self.membership.wakes.notified().await;
        }
        let before = Instant::now();
        tokio::time::sleep(self.next_look()).await;
        let has_slept = before.elapsed() >= WATCH / 2;
        if let Some(coordinator) = self.membership.coordinator.borrow_mut().as_mut()
            && has_slept
        {
            coordinator.slept(Instant::now());
        }
        self.ask_the_watched();
        self.declare().await;
        if !self.membership.is_settled() {
            self.tell_members().await;
        }
    }

    /// How long until somebody may have been silent for too long.
    fn next_look(&self) -> std::time::Duration {
        let coordinator = self.membership.coordinator.borrow();
        let due = coordinator.as_ref().and_then(|c| c.next_due(Instant::now()));
        due.unwrap_or(LOOK).min(LOOK)
    }

    fn has_nothing_to_watch(&self) -> bool {
        let coordinator = self.membership.coordinator.borrow();
        let watches = coordinator.as_ref().is_some_and(|c| !c.watched().is_empty());
        !watches && !self.membership.has_lost() && self.membership.is_settled()
    }

    /// Asks the suspected whether they live, and tells the lost that they are: they may be back.
    fn ask_the_watched(self: &Rc<Self>) {
        let watched = self.membership.coordinator.borrow().as_ref().map(Coordinator::watched);
        let news = PeerRequest::Members(Box::new(self.membership.now.borrow().clone()));
        let asked =
            watched.unwrap_or_default().into_iter().map(|server| (server, PeerRequest::Ping));
        let told = self.membership.lost().into_iter().map(|server| (server, news.clone()));
        for (server, request) in asked.chain(told) {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                let answer = this.peers.call(server, &request, None, None, BEAT_DEADLINE).await;
                if answer.is_ok()
                    && let Some(coordinator) = this.membership.coordinator.borrow_mut().as_mut()
                {
                    coordinator.answered(server);
                }
            });
        }
    }

    async fn declare(self: &Rc<Self>) {
        let suspects = {
            let mut coordinator = self.membership.coordinator.borrow_mut();
            let Some(coordinator) = coordinator.as_mut() else { return };
            coordinator.silent(&self.membership.now.borrow(), Instant::now())
        };
        let mut silent = Vec::new();
        for (server, is_certain) in suspects {
            // The kernel of a node that lives answers for a server that only stalls.
            if is_certain || !self.peers.link(server).is_listened_to().await {
                silent.push(server);
            }
        }
        let declared = {
            let mut coordinator = self.membership.coordinator.borrow_mut();
            let mut members = self.membership.now.borrow().clone();
            let declares = coordinator.as_mut().is_some_and(|c| c.declare(&mut members, &silent));
            declares.then_some(members)
        };
        let Some(members) = declared else { return };
        // Durable before it is told.
        self.keep_members(&members);
        self.take(members);
        self.tell_members().await;
        // Everybody who answered has taken it: what was held may be released now.
        self.tell_members().await;
    }

    /// As server 0: tells all living servers, and notes who has taken it.
    async fn tell_members(self: &Rc<Self>) {
        let members = self.membership.now.borrow().clone();
        let mut told = Vec::new();
        for server in self.all_servers().filter(|server| *server != self.me) {
            if !members.is_server_lost(server) {
                let (this, members) = (Rc::clone(self), Box::new(members.clone()));
                told.push((
                    server,
                    tokio::task::spawn_local(async move {
                        let news = PeerRequest::Members(members);
                        this.peers.call(server, &news, None, None, BEAT_DEADLINE).await.is_ok()
                    }),
                ));
            }
        }
        for (server, told) in told {
            if !told.await.unwrap_or(false) {
                self.watch_for(server);
            } else if let Some(coordinator) = self.membership.coordinator.borrow_mut().as_mut() {
                coordinator.took(server, members.epoch);
            }
        }
        {
            let coordinator = self.membership.coordinator.borrow();
            let mut now = self.membership.now.borrow_mut();
            if let Some(coordinator) = coordinator.as_ref() {
                now.released = coordinator.taken_by_all(&now);
            }
        }
        self.release_lost();
    }

    fn keep_members(&self, members: &MembersNow) {
        let kept = hayase_wire::encode(members)
            .map_err(|error| Refused::because(libc_errno::EIO, error.to_string()))
            .and_then(|bytes| self.names.keep_members(bytes).map_err(meta_refused));
        if let Err(error) = kept {
            tracing::error!(%error, "who is lost could not be kept");
        }
    }

    /// Believes what server 0 says, unless it is old news.
    pub(crate) fn take(self: &Rc<Self>, members: MembersNow) {
        if members.is_lost(self.me, self.start_id) {
            self.membership.is_lost.notify_one();
            return;
        }
        let newly_lost: Vec<_> = {
            let mut now = self.membership.now.borrow_mut();
            if (members.epoch, members.released) <= (now.epoch, now.released)
                && self.me != COORDINATOR
            {
                return;
            }
            let is_new = |(server, _): &&(ServerId, u64)| !now.is_server_lost(*server);
            let newly: Vec<_> = members.lost.iter().filter(is_new).copied().collect();
            *now = members;
            newly
        };
        let epoch = self.membership.now.borrow().epoch;
        for (server, start_id) in &newly_lost {
            tracing::warn!(%server, start_id, epoch, "node declared lost");
            self.sessions.end(*server);
            self.membership.unreleased.borrow_mut().insert(*server, epoch);
        }
        self.membership.changed.notify_waiters();
        self.release_lost();
        if !self.membership.is_settled() {
            self.membership.wakes.notify_one();
        }
        if !newly_lost.is_empty() {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                for (server, _) in newly_lost {
                    this.tell_home_dead(server).await;
                }
            });
            self.finish_old_intents();
        }
    }

    /// Ends what lost nodes held, once every living server refuses them.
    fn release_lost(self: &Rc<Self>) {
        let released = self.membership.now.borrow().released;
        let due: Vec<ServerId> = {
            let mut unreleased = self.membership.unreleased.borrow_mut();
            let due: Vec<_> = unreleased
                .iter()
                .filter(|(_, epoch)| **epoch <= released)
                .map(|(s, _)| *s)
                .collect();
            unreleased.retain(|server, _| !due.contains(server));
            due
        };
        for server in due {
            let node = NodeId(server.0);
            self.grace.told(server);
            let inos = self.homes.known_to(node);
            tracing::warn!(%server, inodes = inos.len(), "what a lost node held is released");
            for ino in &inos {
                self.home_event(*ino, Event::Gone { node });
            }
            self.reap_orphans(inos);
            self.release_locks_of(|owner| owner.node == node);
        }
    }
}
