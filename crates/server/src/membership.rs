//! Which nodes are lost: declared by server 0 alone, believed by all others.
//!
//! Every server keeps a connection to server 0. The kernels at its ends ask each other each second, so
//! that nobody is woken while all is well: both ends learn within 2 s that the other's machine is gone,
//! and at once that its process is. A server beats over it when it was made, each second while something
//! is not settled, and else [`rest`] apart, so that server 0 hears so many beats at most at any size
//! of the job. A server whose connection ended, that does not beat over another one for [`SILENCE`] then and
//! does not answer server 0 either, is declared lost in a new *epoch*, which is durable before it is sent. A server that has taken the epoch refuses the lost
//! incarnation ([`PeerReply::Dead`]) and calls it no more. Only when every living server has taken it
//! do homes release what the lost node had open and locked: until then it might still write to a part
//! somewhere under a lock that another node already has. Without server 0 nobody is declared lost
//! and nothing is released, so two halves of a job never grant the same lock.
//!
//! A node that finds itself declared lost begins a new incarnation: its server ends, is started again
//! and tells what its processes hold; what they had locked at other homes is lost for good. It ends that itself
//! ([`Node::end_lost_locks`]): a home that was started anew since does not know that it released it.
//!
//! Here: the decisions, pure, and the tasks that carry them out.
//! Source: `docs/design/001-coherence.md`, "Lost nodes"; RFC 8881, 8.4 (leases).

mod coordinator;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::{NodeId, ServerId};
use hayase_wire::deadline::CONNECT_WAIT;
use hayase_wire::message::{
    MemberRequest, MembersNow, PeerReply, PeerRequest, Refused, ServerRequest,
};
use hayase_wire::{COORDINATOR, PeerIdentity, Presence};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::coordinator::Coordinator;
use crate::limits::{BEAT, BEAT_DEADLINE, REST, REST_OF_EACH, SILENCE};
use crate::node::Node;
use crate::refusals::libc_errno;

/// Between two beats of a server while nothing happens.
fn rest(servers: u16) -> Duration {
    REST.max(REST_OF_EACH * u32::from(servers))
}

/// What this server believes.
#[derive(Default)]
pub(crate) struct Membership {
    now: RefCell<MembersNow>,
    /// Of lost nodes whose opens and locks were not released here yet: the epoch of their loss.
    unreleased: RefCell<BTreeMap<ServerId, u64>>,
    /// Incarnations that have told here what they hold: start ids grow.
    back: RefCell<BTreeMap<ServerId, u64>>,
    coordinator: RefCell<Option<Coordinator>>,
    /// When server 0 answered last, and whether it answered the last beat.
    heard_coordinator: Cell<Option<Instant>>,
    coordinator_answers: Cell<bool>,
    /// There is something to beat for, or (at server 0) to look at.
    wakes: Notify,
    /// At server 0: somebody has beaten, a while after it began to wait.
    beats: Notify,
    waits_since: Cell<Option<Instant>>,
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
        let rest = rest(servers);
        let coordinator =
            (me == COORDINATOR).then(|| Coordinator::new(servers, known, rest, Instant::now()));
        Self {
            now: RefCell::new(members),
            coordinator: RefCell::new(coordinator),
            ..Self::default()
        }
    }

    /// Whether a server was declared lost, and no later incarnation of it has told what it holds here:
    /// that may be granted something before server 0 has said that it is back.
    pub(crate) fn is_server_lost(&self, server: ServerId) -> bool {
        let back = self.back.borrow().get(&server).copied();
        let now = self.now.borrow();
        now.lost.iter().any(|(lost, id)| *lost == server && back.is_none_or(|back| back <= *id))
    }

    pub(crate) fn lost(&self) -> Vec<ServerId> {
        self.now.borrow().lost.iter().map(|(server, _)| *server).collect()
    }

    pub(crate) fn has_lost(&self) -> bool {
        !self.now.borrow().lost.is_empty()
    }

    /// As server 0: a server says that it is starting. False when it has for too long.
    fn starts(&self, server: ServerId) -> bool {
        let mut coordinator = self.coordinator.borrow_mut();
        coordinator.as_mut().is_some_and(|it| it.starts(server, Instant::now()))
    }

    /// As server 0: whether a server that is not lost has a connection here, over which it beats.
    pub(crate) fn hears(&self, server: ServerId) -> bool {
        let hears = self.coordinator.borrow().as_ref().is_some_and(|it| it.hears(server));
        hears && !self.is_server_lost(server)
    }

    /// Whether somebody decides about lost nodes, as far as this server knows.
    pub(crate) fn has_coordinator(&self, me: ServerId) -> bool {
        me == COORDINATOR
            || self.coordinator_answers.get()
            || self.heard_coordinator.get().is_none_or(|at| at.elapsed() < 2 * SILENCE)
    }

    /// Whether all that was lost is released, as far as this server knows.
    fn is_settled(&self) -> bool {
        let now = self.now.borrow();
        now.released >= now.epoch && self.unreleased.borrow().is_empty()
    }

    /// As server 0: what would be known if these were declared lost, and whether that is anything new.
    fn with_lost(&self, silent: &[ServerId]) -> (MembersNow, bool) {
        let coordinator = self.coordinator.borrow();
        let mut members = self.now.borrow().clone();
        let declares = coordinator.as_ref().is_some_and(|c| c.declare(&mut members, silent));
        (members, declares)
    }

    /// As server 0: the members after a heartbeat, and whether a lost node is back by it. `None` on other servers.
    fn with_beat(&self, from: PeerIdentity, took: u64) -> Option<(MembersNow, bool)> {
        let mut coordinator = self.coordinator.borrow_mut();
        let coordinator = coordinator.as_mut()?;
        let mut members = self.now.borrow().clone();
        let is_back = coordinator.beat(&mut members, from, took, Instant::now());
        members.released = coordinator.taken_by_all(&members);
        Some((members, is_back))
    }

    /// As server 0: the servers to which the latest is sent now.
    fn to_tell(&self) -> Vec<ServerId> {
        let (coordinator, now) = (self.coordinator.borrow(), self.now.borrow());
        coordinator.as_ref().map(|c| c.to_tell(&now, Instant::now())).unwrap_or_default()
    }

    /// A lost node is back and says itself what it holds: nothing of it is released over its head.
    pub(crate) fn tells_again(&self, server: ServerId) {
        self.unreleased.borrow_mut().remove(&server);
    }

    /// It has said all.
    pub(crate) fn has_told(&self, from: PeerIdentity) {
        self.back.borrow_mut().insert(from.server, from.start_id);
    }

    /// Returns when server 0 has answered once.
    pub(crate) async fn until_heard(&self) {
        loop {
            let changed = self.changed.notified();
            if self.heard_coordinator.get().is_some() {
                return;
            }
            changed.await;
        }
    }

    /// Which incarnation of a server that is back was declared lost last.
    pub(crate) fn loss_of(&self, server: ServerId) -> Option<u64> {
        self.now.borrow().loss_of(server)
    }

    /// A server refuses this incarnation as lost. Server 0 alone declares losses: it is asked at once, and what another server
    /// says ends nothing.
    pub(crate) fn told_lost_by(&self, server: ServerId) {
        if server == COORDINATOR {
            return self.is_lost.notify_one();
        }
        tracing::warn!(%server, "it answers that this node was declared lost: server 0 is asked");
        self.wakes.notify_one();
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
        self.rpc.membership.now.borrow().is_lost(from.server, from.start_id)
    }

    /// Beats, or (server 0) listens and declares, until the task is dropped.
    pub(crate) async fn keep_membership(self: Rc<Self>) {
        loop {
            match self.me == COORDINATOR {
                true => self.look_at_the_others().await,
                false => self.keep_beating().await,
            }
        }
    }

    async fn look_at_the_others(self: &Rc<Self>) {
        let (wait, nobody_is_due) = self.next_look();
        let before = Instant::now();
        self.rpc.membership.waits_since.set(Some(before));
        // A wake may be there as well when a stopped process goes on.
        let is_put_off = tokio::select! {
            biased;
            () = self.rpc.membership.wakes.notified() => false,
            // This process is awake already: better now than once more for the look alone.
            () = self.rpc.membership.beats.notified(), if nobody_is_due => true,
            () = self.meta.clock.rest(wait) => false,
        };
        let is_late = before.elapsed() >= wait + SILENCE / 2;
        if is_put_off && !is_late && self.suspects().is_empty() {
            return;
        }
        if let Some(coordinator) = self.rpc.membership.coordinator.borrow_mut().as_mut()
            && is_late
        {
            coordinator.slept(Instant::now());
        }
        self.declare().await;
        self.tell_members().await;
    }

    /// In how long to look, and whether only to see that all is well.
    fn next_look(&self) -> (Duration, bool) {
        let coordinator = self.rpc.membership.coordinator.borrow();
        let members = self.rpc.membership.now.borrow();
        let Some(coordinator) = coordinator.as_ref() else { return (REST, true) };
        let now = Instant::now();
        let next = coordinator.next_look(&members, now);
        let next =
            coordinator.next_telling(&members, now).map_or(next, |telling| telling.min(next));
        (next, next >= coordinator.longest_look())
    }

    async fn keep_beating(self: &Rc<Self>) {
        let began = Instant::now();
        self.beat().await;
        if !self.rpc.membership.coordinator_answers.get() || !self.rpc.membership.is_settled() {
            // After one that was waited for in vain the next one follows at once: it leaves when the connection is there.
            return tokio::time::sleep_until(began + BEAT).await;
        }
        let link = self.rpc.peers.link(COORDINATOR);
        tokio::select! {
            biased;
            () = link.until_down() => {}
            () = self.rpc.membership.wakes.notified() => {}
            () = self.meta.clock.rest(rest(self.servers)) => {}
        }
    }

    async fn beat(self: &Rc<Self>) {
        let took = self.rpc.membership.now.borrow().epoch;
        let beat = PeerRequest::from(MemberRequest::Beat { took });
        let answer = self.rpc.peers.call(COORDINATOR, &beat, None, None, BEAT_DEADLINE).await;
        self.rpc.membership.coordinator_answers.set(answer.is_ok());
        match answer.map(|called| called.served.reply) {
            Ok(PeerReply::Members(members)) => {
                self.rpc.sessions.heard(COORDINATOR);
                self.take(*members);
                if self.rpc.membership.heard_coordinator.replace(Some(Instant::now())).is_none() {
                    self.rpc.membership.changed.notify_waiters();
                }
            }
            Ok(PeerReply::Dead) => self.rpc.membership.is_lost.notify_one(),
            Ok(other) => tracing::error!(?other, "a beat answered by something else"),
            Err(error) => tracing::debug!(%error, "server 0 does not answer"),
        }
    }

    /// As server 0: somebody beats.
    pub(crate) async fn beaten(self: &Rc<Self>, from: PeerIdentity, took: u64) -> PeerReply {
        let mut kept: Option<MembersNow> = None;
        loop {
            let Some((members, is_back)) = self.rpc.membership.with_beat(from, took) else {
                let why = "only server 0 is beaten to";
                return PeerReply::Refused(Refused::because(libc_errno::EPROTO, why));
            };
            let is_kept = kept.is_some_and(|kept| kept.says_the_same(&members));
            if !is_back || is_kept {
                self.rpc.membership.now.replace(members);
                if is_back {
                    tracing::info!(server = %from.server, "a lost node is back");
                    self.rpc.membership.changed.notify_waiters();
                }
                break;
            }
            // Durable before anybody hears of it. Meanwhile another one may have come back, or one was lost.
            self.meta.keep_members(&members).await;
            kept = Some(members);
        }
        self.release_lost();
        if !self.rpc.membership.to_tell().is_empty() {
            self.rpc.membership.wakes.notify_one();
        }
        self.put_off_look();
        PeerReply::Members(Box::new(self.rpc.membership.now.borrow().clone()))
    }

    /// As server 0, awake anyway: the next look need not wake it. Twice a rest is enough, however many beat.
    fn put_off_look(&self) {
        let waits_since = self.rpc.membership.waits_since.get();
        if waits_since.is_some_and(|since| since.elapsed() >= rest(self.servers) / 2) {
            self.rpc.membership.beats.notify_one();
        }
    }

    /// As server 0: the connection over which a server beats has ended, after nothing had come from
    /// its machine for so long.
    pub(crate) fn beats_no_more(&self, from: PeerIdentity, silent: Duration) {
        if let Some(coordinator) = self.rpc.membership.coordinator.borrow_mut().as_mut() {
            let now = Instant::now();
            coordinator.ended(from, now.checked_sub(silent).unwrap_or(now));
            self.rpc.membership.wakes.notify_one();
        }
    }

    /// Durable before it is announced. A server whose heartbeat came while it was looked for, or while its loss was written down, lives.
    async fn declare(self: &Rc<Self>) {
        let mut silent = self.who_is_gone(self.suspects()).await;
        let mut kept: Option<MembersNow> = None;
        loop {
            let still: Vec<_> = self.suspects().into_iter().map(|(server, _)| server).collect();
            silent.retain(|server| still.contains(server));
            let (members, declares) = self.rpc.membership.with_lost(&silent);
            if kept.map_or(!declares, |kept| kept.says_the_same(&members)) {
                if declares {
                    self.take(members);
                    // Everybody who answers has taken it: what was held may be released then, and that is news again.
                    self.tell_members().await;
                }
                return;
            }
            self.meta.keep_members(&members).await;
            // Meanwhile one of them may have come back, or another one that was lost.
            kept = Some(members);
        }
    }

    /// As server 0: who has been silent for too long, and whether it does not matter why.
    fn suspects(&self) -> Vec<(ServerId, bool)> {
        let coordinator = self.rpc.membership.coordinator.borrow();
        let members = self.rpc.membership.now.borrow();
        coordinator.as_ref().map(|c| c.silent(&members, Instant::now())).unwrap_or_default()
    }

    /// A server that proves that it runs is not gone: its heartbeats may not get through, and a starting server sends none
    /// yet. Its
    /// kernel proves nothing, since anybody may listen at the port of a dead server.
    async fn who_is_gone(self: &Rc<Self>, suspects: Vec<(ServerId, bool)>) -> Vec<ServerId> {
        let mut asked = tokio::task::JoinSet::new();
        for (server, is_certain) in suspects {
            let link = self.rpc.peers.link(server);
            let this = Rc::clone(self);
            asked.spawn_local(async move {
                // An answer over the link proves it too: the handshake of `presence` is tried once, and may be lost.
                let ping = PeerRequest::from(ServerRequest::Ping);
                let ping = this.rpc.peers.call(server, &ping, None, None, CONNECT_WAIT);
                let answered = async {
                    if ping.await.is_err() {
                        std::future::pending::<()>().await;
                    }
                };
                let presence = tokio::select! {
                    biased;
                    presence = link.presence() => presence,
                    () = answered => Presence::Serving,
                };
                let is_gone = match presence {
                    Presence::Unknown => true,
                    Presence::Serving => is_certain,
                    Presence::Starting => !this.rpc.membership.starts(server),
                };
                is_gone.then_some(server)
            });
        }
        let mut gone: Vec<_> = asked.join_all().await.into_iter().flatten().collect();
        gone.sort_unstable();
        gone
    }

    /// As server 0: tells the living servers that have not taken the latest, and notes who has then.
    async fn tell_members(self: &Rc<Self>) {
        let members = self.rpc.membership.now.borrow().clone();
        let mut asked = tokio::task::JoinSet::new();
        for server in self.rpc.membership.to_tell() {
            let news = MemberRequest::Members(Box::new(members.clone()));
            let (this, news) = (Rc::clone(self), PeerRequest::from(news));
            asked.spawn_local(async move {
                let answer = this.rpc.peers.call(server, &news, None, None, BEAT_DEADLINE).await;
                (server, answer.is_ok_and(|called| matches!(called.served.reply, PeerReply::Done)))
            });
        }
        // Also when nobody else lives: what is released goes by the least that a living server has taken.
        let mut answered = asked.join_all().await;
        answered.sort_unstable();
        if let Some(coordinator) = self.rpc.membership.coordinator.borrow_mut().as_mut() {
            let now = Instant::now();
            for (server, has_taken) in answered {
                match has_taken {
                    true => coordinator.took(server, (&members).into(), now),
                    false => coordinator.did_not_take(server, now),
                }
            }
            let mut members = self.rpc.membership.now.borrow_mut();
            members.released = coordinator.taken_by_all(&members);
        }
        self.release_lost();
    }

    /// Believes what server 0 says, unless it is old news.
    pub(crate) fn take(self: &Rc<Self>, members: MembersNow) {
        if members.is_lost(self.me, self.start_id) {
            self.rpc.membership.is_lost.notify_one();
            return;
        }
        let newly_lost: Vec<_> = {
            let mut now = self.rpc.membership.now.borrow_mut();
            if (members.epoch, members.released) <= (now.epoch, now.released)
                && self.me != COORDINATOR
            {
                return;
            }
            let is_new = |(server, id): &&(ServerId, u64)| !now.is_lost(*server, *id);
            let newly: Vec<_> = members.lost.iter().filter(is_new).copied().collect();
            *now = members;
            newly
        };
        let epoch = self.rpc.membership.now.borrow().epoch;
        for (server, start_id) in &newly_lost {
            tracing::warn!(%server, start_id, epoch, "node declared lost");
            if self.rpc.sessions.has_newer(*server, *start_id) {
                continue; // Its next incarnation has told already what it holds.
            }
            self.rpc.sessions.end(*server);
            self.rpc.grace.told(*server);
            self.rpc.membership.unreleased.borrow_mut().insert(*server, epoch);
        }
        self.rpc.membership.changed.notify_waiters();
        self.release_lost();
        if !self.rpc.membership.is_settled() {
            self.rpc.membership.wakes.notify_one();
        }
        if !newly_lost.is_empty() {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                for (server, _) in newly_lost {
                    this.clients.tell_home_dead(server).await;
                    // Others may know already that it is lost: nobody here answers as if it were not.
                    this.clients.home_lost(server).await;
                }
            });
            self.finish_old_intents();
        }
    }

    /// Ends what lost nodes held, once every living server refuses them.
    fn release_lost(self: &Rc<Self>) {
        let released = self.rpc.membership.now.borrow().released;
        let due: Vec<ServerId> = {
            let mut unreleased = self.rpc.membership.unreleased.borrow_mut();
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
            let inos = self.homes.known_to(node);
            tracing::warn!(%server, inodes = inos.len(), "what a lost node held is released");
            self.home_gone(node, &inos);
            self.reap_orphans(inos);
            self.release_locks_of(|owner| owner.node == node);
        }
    }
}
