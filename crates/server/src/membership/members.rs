//! The tasks that keep the list of members: beats, looks, declarations, and the release of what lost nodes held.
//!
//! Not here: the decisions ([`super::Membership`]), what is released ([`Losses`]).

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::{NodeId, ServerId};
use hayase_wire::message::{
    MemberRequest, MembersNow, PeerReply, PeerRequest, Refused, ServerRequest,
};
use hayase_wire::times::CONNECT_WAIT;
use hayase_wire::{COORDINATOR, PeerIdentity, Presence};
use tokio::time::Instant;

use super::rest;
use crate::clients::Clients;
use crate::limits::{BEAT, BEAT_DEADLINE, SILENCE};
use crate::meta::Meta;
use crate::refusals::libc_errno;
use crate::rpc::Servers;

/// What happens to what others held, when they are lost.
pub(crate) trait Losses {
    /// Every living server refuses this node: ends what it had open and locked here.
    fn release(&self, node: NodeId);
    /// Operations that lost nodes began are finished.
    fn finish_old_intents(&self);
}

/// See the module.
pub(crate) struct MemberTasks {
    me: ServerId,
    servers: u16,
    start_id: u64,
    rpc: Rc<Servers>,
    meta: Rc<Meta>,
    clients: Rc<Clients>,
    losses: OnceCell<Rc<dyn Losses>>,
}

impl MemberTasks {
    pub(crate) fn new(
        (me, servers, start_id): (ServerId, u16, u64),
        (rpc, meta, clients): (&Rc<Servers>, &Rc<Meta>, &Rc<Clients>),
    ) -> Rc<Self> {
        let (rpc, meta, clients) = (Rc::clone(rpc), Rc::clone(meta), Rc::clone(clients));
        Rc::new(Self { me, servers, start_id, rpc, meta, clients, losses: OnceCell::new() })
    }

    /// From now on `losses` hears of them.
    pub(crate) fn tell(&self, losses: Rc<dyn Losses>) {
        let first = self.losses.set(losses);
        debug_assert!(first.is_ok(), "set once");
    }

    /// Beats, or (server 0) listens and declares, until the task is dropped.
    pub(crate) async fn keep(self: Rc<Self>) {
        loop {
            match self.me == COORDINATOR {
                true => self.look_at_the_others().await,
                false => self.keep_beating().await,
            }
        }
    }

    async fn look_at_the_others(self: &Rc<Self>) {
        let (wait, nobody_is_due) = self.rpc.membership.next_look();
        let before = Instant::now();
        self.rpc.membership.waits_since.set(Some(before));
        // A wake may be there as well when a stopped process continues.
        let is_put_off = tokio::select! {
            biased;
            () = self.rpc.membership.wakes.notified() => false,
            // This process is awake already: better now than once more for the look alone.
            () = self.rpc.membership.beats.notified(), if nobody_is_due => true,
            () = self.meta.clock.rest(wait) => false,
        };
        let is_late = before.elapsed() >= wait + SILENCE / 2;
        if is_put_off && !is_late && self.rpc.membership.suspects().is_empty() {
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
        self.rpc.membership.put_off_look(self.servers);
        PeerReply::Members(Box::new(self.rpc.membership.now.borrow().clone()))
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
        let mut silent = self.who_is_gone(self.rpc.membership.suspects()).await;
        let mut kept: Option<MembersNow> = None;
        loop {
            let still: Vec<_> =
                self.rpc.membership.suspects().into_iter().map(|(server, _)| server).collect();
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

    /// As server 0: tells the living servers that have not taken the latest, and notes which servers have it then.
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
            self.rpc.grace.lost(*server);
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
            if let Some(losses) = self.losses.get() {
                losses.finish_old_intents();
            }
        }
    }

    /// Ends what lost nodes held, once every living server refuses them.
    fn release_lost(&self) {
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
            if let Some(losses) = self.losses.get() {
                losses.release(NodeId(server.0));
            }
        }
    }
}
