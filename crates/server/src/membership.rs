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
//! (`crate::rpc`): a home that was restarted since does not know that it released it.
//!
//! Here: the decisions, pure, and the tasks that carry them out.
//! Source: `docs/design/001-coherence.md`, "Lost nodes"; RFC 8881, 8.4 (leases).

mod coordinator;
mod members;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use hayase_layout::ServerId;
use hayase_wire::message::{MembersNow, Refused};
use hayase_wire::{COORDINATOR, PeerIdentity};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::coordinator::Coordinator;
pub(crate) use self::members::{Losses, MemberTasks};
use crate::limits::{REST, REST_OF_EACH, SILENCE};
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

    /// Whether requests of this incarnation are refused.
    pub(crate) fn refuses(&self, from: PeerIdentity) -> bool {
        self.now.borrow().is_lost(from.server, from.start_id)
    }

    /// In how long to look, and whether only to see that all is well.
    fn next_look(&self) -> (Duration, bool) {
        let coordinator = self.coordinator.borrow();
        let members = self.now.borrow();
        let Some(coordinator) = coordinator.as_ref() else { return (REST, true) };
        let now = Instant::now();
        let next = coordinator.next_look(&members, now);
        let next =
            coordinator.next_telling(&members, now).map_or(next, |telling| telling.min(next));
        (next, next >= coordinator.longest_look())
    }

    /// As server 0, awake anyway: the next look need not wake it. Twice a rest is enough, however many beat.
    fn put_off_look(&self, servers: u16) {
        let waits_since = self.waits_since.get();
        if waits_since.is_some_and(|since| since.elapsed() >= rest(servers) / 2) {
            self.beats.notify_one();
        }
    }

    /// As server 0: who has been silent for too long, and whether it does not matter why.
    fn suspects(&self) -> Vec<(ServerId, bool)> {
        let coordinator = self.coordinator.borrow();
        let members = self.now.borrow();
        coordinator.as_ref().map(|c| c.silent(&members, Instant::now())).unwrap_or_default()
    }
}

/// The answer to a caller of a lost server.
pub(crate) fn lost(server: ServerId) -> Refused {
    Refused::because(libc_errno::EIO, format!("node {server} is lost"))
}
