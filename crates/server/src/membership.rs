//! Which nodes are lost: declared by server 0 alone, believed by all others.
//!
//! Every server beats to server 0. One that was silent for [`SILENCE`] is declared lost in a new
//! *epoch*, which is durable before it is told. A server that has taken the epoch refuses the lost
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

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::{NodeId, ServerId};
use hayase_wire::PeerIdentity;
use hayase_wire::message::{MembersNow, PeerReply, PeerRequest, Refused};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::convert::meta_refused;
use crate::home::Event;
use crate::limits::{BEAT, BEAT_DEADLINE, LOOK, SILENCE, STALL};
use crate::node::{Node, libc_errno};

/// Server 0: it alone declares.
const COORDINATOR: ServerId = ServerId(0);

/// What server 0 knows of the others.
#[derive(Debug)]
pub(crate) struct Coordinator {
    heard: BTreeMap<ServerId, Heard>,
    /// When it looked last: if that is long ago, it was this server that was silent.
    looked: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Instant,
    start_id: Option<u64>,
    took: u64,
}

impl Coordinator {
    /// Everybody counts as heard of just now.
    pub(crate) fn new(servers: u16, known: &[(ServerId, u64)], now: Instant) -> Self {
        let heard = |server| {
            let start_id = known.iter().find(|(known, _)| *known == server).map(|(_, id)| *id);
            (server, Heard { at: now, start_id, took: 0 })
        };
        Self { heard: (1..servers).map(ServerId).map(heard).collect(), looked: now }
    }

    /// A server beats. True when that changes who is lost: another incarnation of a lost one is back.
    pub(crate) fn beat(
        &mut self,
        members: &mut MembersNow,
        from: PeerIdentity,
        took: u64,
        now: Instant,
    ) -> bool {
        if members.is_lost(from.server, from.start_id) {
            return false; // It is told so.
        }
        let heard = Heard { at: now, start_id: Some(from.start_id), took };
        self.heard.insert(from.server, heard);
        let before = members.lost.len();
        members.lost.retain(|(server, _)| *server != from.server);
        let is_back = members.lost.len() < before;
        members.epoch += u64::from(is_back);
        is_back
    }

    /// Who has been silent for too long, and whether for so long that it does not matter why.
    pub(crate) fn silent(&mut self, members: &MembersNow, now: Instant) -> Vec<(ServerId, bool)> {
        if now.duration_since(std::mem::replace(&mut self.looked, now)) >= SILENCE / 2 {
            // Their beats wait in our sockets.
            self.heard.values_mut().for_each(|heard| heard.at = now);
        }
        let living = self.heard.iter().filter(|(server, _)| !members.is_server_lost(**server));
        living
            .filter(|(_, heard)| heard.start_id.is_some())
            .map(|(server, heard)| (*server, now.duration_since(heard.at)))
            .filter(|(_, silent)| *silent >= SILENCE)
            .map(|(server, silent)| (server, silent >= STALL))
            .collect()
    }

    /// How long until somebody may have been silent for too long; soon enough to see that we slept ourselves.
    fn next_look(&self, members: &MembersNow, now: Instant) -> Duration {
        let living = self.heard.iter().filter(|(server, _)| !members.is_server_lost(**server));
        let heard = living.filter(|(_, heard)| heard.start_id.is_some());
        let due = heard.filter_map(|(_, heard)| (heard.at + SILENCE).checked_duration_since(now));
        due.filter(|left| !left.is_zero()).min().unwrap_or(LOOK).min(LOOK)
    }

    /// Declares these lost; false when there is nobody to declare.
    pub(crate) fn declare(&self, members: &mut MembersNow, silent: &[ServerId]) -> bool {
        let start_id = |server: &ServerId| Some((*server, self.heard.get(server)?.start_id?));
        let lost: Vec<_> = silent.iter().filter_map(start_id).collect();
        members.epoch += u64::from(!lost.is_empty());
        members.lost.extend(&lost);
        !lost.is_empty()
    }

    /// The epoch that every living server has taken.
    pub(crate) fn taken_by_all(&self, members: &MembersNow) -> u64 {
        let living = self.heard.iter().filter(|(server, _)| !members.is_server_lost(**server));
        living.map(|(_, heard)| heard.took).min().unwrap_or(members.epoch).min(members.epoch)
    }

    pub(crate) fn took(&mut self, server: ServerId, epoch: u64) {
        if let Some(heard) = self.heard.get_mut(&server) {
            heard.took = heard.took.max(epoch);
        }
    }
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
    /// When server 0 answered last.
    heard_coordinator: Cell<Option<Instant>>,
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

    /// Whether somebody decides about lost nodes, as far as this server knows.
    pub(crate) fn has_coordinator(&self, me: ServerId) -> bool {
        me == COORDINATOR
            || self.heard_coordinator.get().is_none_or(|at| at.elapsed() < 2 * SILENCE)
    }

    /// A lost node is back and says itself what it holds: nothing of it is released over its head.
    pub(crate) fn tells_again(&self, from: PeerIdentity) {
        self.unreleased.borrow_mut().remove(&from.server);
        self.back.borrow_mut().insert(from.server, from.start_id);
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

    /// Beats, or (server 0) listens and declares, until the task is dropped.
    pub(crate) async fn keep_membership(self: Rc<Self>) {
        loop {
            if self.me == COORDINATOR {
                let wait = {
                    let coordinator = self.membership.coordinator.borrow();
                    let members = self.membership.now.borrow();
                    let look = |c: &Coordinator| c.next_look(&members, Instant::now());
                    coordinator.as_ref().map_or(LOOK, look)
                };
                tokio::time::sleep(wait).await;
                self.declare().await;
            } else {
                self.beat().await;
                tokio::time::sleep(BEAT).await;
            }
        }
    }

    async fn beat(self: &Rc<Self>) {
        let took = self.membership.now.borrow().epoch;
        let beat = PeerRequest::Beat { took };
        let answer = self.peers.call(COORDINATOR, &beat, None, None, BEAT_DEADLINE).await;
        match answer.map(|called| called.served.reply) {
            Ok(PeerReply::Members(members)) => {
                self.membership.heard_coordinator.set(Some(Instant::now()));
                self.take(*members);
            }
            Ok(PeerReply::Dead) => self.membership.is_lost.notify_one(),
            Ok(other) => tracing::error!(?other, "a beat answered by something else"),
            Err(error) => tracing::debug!(%error, "server 0 does not answer"),
        }
    }

    /// As server 0: somebody beats.
    pub(crate) fn beaten(self: &Rc<Self>, from: PeerIdentity, took: u64) -> PeerReply {
        let is_back = {
            let mut coordinator = self.membership.coordinator.borrow_mut();
            let Some(coordinator) = coordinator.as_mut() else {
                let why = "only server 0 is beaten to";
                return PeerReply::Refused(Refused::because(libc_errno::EPROTO, why));
            };
            let mut members = self.membership.now.borrow_mut();
            let is_back = coordinator.beat(&mut members, from, took, Instant::now());
            members.released = coordinator.taken_by_all(&members);
            is_back
        };
        if is_back {
            tracing::info!(server = %from.server, "a lost node is back");
            let members = self.membership.now.borrow().clone();
            self.keep_members(&members);
            self.membership.changed.notify_waiters();
        }
        self.release_lost();
        PeerReply::Members(Box::new(self.membership.now.borrow().clone()))
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
            let coordinator = self.membership.coordinator.borrow();
            let mut members = self.membership.now.borrow().clone();
            let declares = coordinator.as_ref().is_some_and(|c| c.declare(&mut members, &silent));
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
            if told.await.unwrap_or(false)
                && let Some(coordinator) = self.membership.coordinator.borrow_mut().as_mut()
            {
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
            if self.sessions.has_newer(*server, *start_id) {
                continue; // Its next incarnation has told already what it holds.
            }
            self.sessions.end(*server);
            self.grace.told(*server);
            self.membership.unreleased.borrow_mut().insert(*server, epoch);
        }
        self.membership.changed.notify_waiters();
        self.release_lost();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(server: u16, start_id: u64) -> PeerIdentity {
        PeerIdentity { server: ServerId(server), start_id }
    }

    #[test]
    fn the_silent_are_declared_and_come_back_as_others() {
        let begin = Instant::now();
        let (mut coordinator, mut members) =
            (Coordinator::new(3, &[], begin), MembersNow::default());
        for server in [1, 2] {
            assert!(!coordinator.beat(&mut members, peer(server, 7), 0, begin));
        }
        let late = begin + SILENCE;
        for after in [SILENCE / 3, SILENCE * 2 / 3] {
            assert!(coordinator.silent(&members, begin + after).is_empty());
        }
        assert!(!coordinator.beat(&mut members, peer(2, 7), 0, late));
        assert_eq!(coordinator.silent(&members, late), [(ServerId(1), false)]);
        assert!(coordinator.declare(&mut members, &[ServerId(1)]));
        assert_eq!((members.epoch, &members.lost[..]), (1, &[(ServerId(1), 7)][..]));
        assert!(coordinator.silent(&members, late).is_empty(), "it is said once");
        assert!(!coordinator.declare(&mut members, &[]));

        assert_eq!(coordinator.taken_by_all(&members), 0, "2 has not taken it");
        coordinator.beat(&mut members, peer(2, 7), 1, late);
        assert_eq!(coordinator.taken_by_all(&members), 1);

        assert!(!coordinator.beat(&mut members, peer(1, 7), 0, late), "the lost one is lost");
        assert!(members.is_lost(ServerId(1), 7));
        assert!(coordinator.beat(&mut members, peer(1, 8), 0, late), "another one is back");
        assert_eq!((members.epoch, members.lost.len()), (2, 0));
    }

    #[test]
    fn the_next_look_is_when_somebody_is_due() {
        let begin = Instant::now();
        let (mut coordinator, mut members) =
            (Coordinator::new(3, &[], begin), MembersNow::default());
        assert_eq!(coordinator.next_look(&members, begin), LOOK, "nobody was heard");
        coordinator.beat(&mut members, peer(1, 7), 0, begin);
        coordinator.beat(&mut members, peer(2, 7), 0, begin + SILENCE / 2);
        let check = |after: Duration, expected: Duration| {
            assert_eq!(coordinator.next_look(&members, begin + after), expected, "{after:?}");
        };
        check(Duration::ZERO, LOOK);
        check(SILENCE - LOOK / 4, LOOK / 4);
        check(SILENCE, LOOK); // 1 is looked at now; not again at once if it only stalls
        check(SILENCE + SILENCE / 2 - LOOK / 8, LOOK / 8);
    }

    #[test]
    fn who_was_never_heard_is_declared_only_after_a_restart() {
        let begin = Instant::now();
        for (known, expected) in [(&[][..], false), (&[(ServerId(1), 7)][..], true)] {
            let members = MembersNow::default();
            let mut coordinator = Coordinator::new(2, known, begin);
            for after in [SILENCE / 3, SILENCE * 2 / 3] {
                assert!(coordinator.silent(&members, begin + after).is_empty());
            }
            assert_eq!(!coordinator.silent(&members, begin + SILENCE).is_empty(), expected);
        }
    }

    #[test]
    fn who_slept_itself_declares_nobody() {
        let begin = Instant::now();
        let (mut coordinator, mut members) =
            (Coordinator::new(2, &[], begin), MembersNow::default());
        coordinator.beat(&mut members, peer(1, 7), 0, begin);
        let woken = begin + 10 * SILENCE;
        assert!(coordinator.silent(&members, woken).is_empty());
        for after in [SILENCE / 3, SILENCE * 2 / 3] {
            assert!(coordinator.silent(&members, woken + after).is_empty());
        }
        assert_eq!(coordinator.silent(&members, woken + SILENCE), [(ServerId(1), false)]);
    }
}
