//! Sessions: what a node holds at a home is valid between one incarnation of each.
//!
//! Before all else a node tells an incarnation that it meets for the first time what it holds there
//! ([`MemberRequest::Reclaim`]); until then it is served nothing that depends on it. So a home that was
//! started anew learns its opens and locks, and one whose peer was started anew learns which of them
//! are over.
//! Source: `docs/design/001-coherence.md`, "Sessions and restarts".

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use hayase_layout::{InodeId, NodeId, ServerId};
use hayase_wire::message::{
    Access, HeldLock, HeldOpen, Holding, InodeRequest, LeftLink, MemberRequest, PeerReply,
    PeerRequest, Refused,
};
use hayase_wire::{BoxBuffer, COORDINATOR, PeerIdentity};
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout};

use crate::convert::meta_refused;
use crate::home::Event;
use crate::keyed_lock::KeyedLock;
use crate::limits::{CALL_DEADLINE, HOME_IN_USE, LOST_PAUSE, RETURNED_PAUSE};
use crate::locks::LockOwner;
use crate::membership::lost;
use crate::node::Node;
use crate::peers::Served;
use crate::refusals::{libc_errno, unexpected};
use crate::request::{Grants, Properties};

/// No incarnation is called so: who has met this one begins anew with every other.
const NOBODY: u64 = 0;

/// Both directions.
pub(crate) struct Sessions {
    /// Incarnations that have told what they hold here.
    theirs: RefCell<HashMap<ServerId, u64>>,
    /// Incarnations that were told what is held there.
    ours: RefCell<HashMap<ServerId, u64>>,
    telling: KeyedLock<ServerId>,
    /// When each server was asked something, and when it answered, last.
    asked: RefCell<HashMap<ServerId, Instant>>,
    used: Notify,
    answered: RefCell<HashMap<ServerId, Instant>>,
    /// Whether processes know what they lost because this node was declared lost.
    own_loss: Mutex<bool>,
    /// What was listed so far by who has not finished.
    listed: RefCell<HashMap<ServerId, Listed>>,
}

#[derive(Default)]
struct Listed {
    opens: HashSet<InodeId>,
    owners: HashSet<LockOwner>,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self {
            theirs: RefCell::default(),
            ours: RefCell::default(),
            telling: KeyedLock::new(),
            asked: RefCell::default(),
            used: Notify::new(),
            answered: RefCell::default(),
            own_loss: Mutex::default(),
            listed: RefCell::default(),
        }
    }

    /// The start of a server that was told what is held there: another one when it was started anew since.
    pub(crate) fn start_of(&self, server: ServerId) -> Option<u64> {
        self.ours.borrow().get(&server).copied().filter(|start| *start != NOBODY)
    }

    /// A request is sent that may be granted something.
    fn asks(&self, server: ServerId) {
        self.asked.borrow_mut().insert(server, Instant::now());
        self.used.notify_one();
    }

    /// Returns when something is asked for after there was nothing in use.
    pub(crate) async fn until_in_use(&self) {
        while self.in_use().is_empty() {
            self.used.notified().await;
        }
    }

    pub(crate) fn heard(&self, server: ServerId) {
        self.answered.borrow_mut().insert(server, Instant::now());
        // What it granted with its first answer is in use now.
        self.used.notify_one();
    }

    /// Homes that may have granted something that is still used, and since when they are silent.
    pub(crate) fn in_use(&self) -> Vec<(ServerId, Instant)> {
        let asked = self.asked.borrow();
        let lately = asked.iter().filter(|(_, at)| at.elapsed() < HOME_IN_USE);
        let answered = self.answered.borrow();
        let mut in_use: Vec<_> =
            lately.filter_map(|(server, _)| Some((*server, *answered.get(server)?))).collect();
        in_use.sort_unstable();
        in_use
    }

    /// A node is lost: what its incarnation says does not count any more.
    pub(crate) fn end(&self, server: ServerId) {
        self.theirs.borrow_mut().remove(&server);
    }

    /// Whether a later incarnation than this has told what it holds here: start ids grow.
    pub(crate) fn has_newer(&self, server: ServerId, start_id: u64) -> bool {
        self.theirs.borrow().get(&server).is_some_and(|known| *known > start_id)
    }

    /// Which incarnation of a server has told what it holds here.
    pub(crate) fn who_told(&self, server: ServerId) -> Option<u64> {
        self.theirs.borrow().get(&server).copied()
    }

    /// Whether this incarnation has told what it holds here.
    pub(crate) fn has(&self, peer: PeerIdentity) -> bool {
        self.theirs.borrow().get(&peer.server) == Some(&peer.start_id)
    }
}

impl Node {
    /// Makes sure that what processes of this node hold at `ino`'s home was told to it since this server
    /// was started: only then is it known what of it is lost.
    pub(crate) async fn meet_home(self: &Rc<Self>, ino: InodeId) -> Result<(), Refused> {
        let home = ino.home();
        let is_known = home == self.me || self.sessions.ours.borrow().contains_key(&home);
        if self.incarnation > 1 && !is_known {
            self.ask(home, InodeRequest::GetAttr { ino }).await?;
        }
        Ok(())
    }

    /// Asks another server; begins a session with it where there is none.
    pub(crate) async fn call(
        self: &Rc<Self>,
        to: ServerId,
        request: &PeerRequest,
        mut send: Option<(BoxBuffer, usize)>,
        mut into: Option<BoxBuffer>,
    ) -> Result<Served, Refused> {
        let is = Properties::of(request);
        let mut until = Instant::now() + is.deadline;
        if is.grants == Grants::Keeps {
            self.sessions.asks(to);
        }
        let mut told = None;
        loop {
            let sent = send.as_ref().map(|(_, len)| *len);
            let left = until.saturating_duration_since(Instant::now());
            let called = tokio::select! {
                biased;
                called = self.peers.call(to, request, send, into, left) => {
                    called.inspect_err(|error| tracing::warn!(%error, "no answer"))?
                }
                () = self.membership.until_lost(to) => return Err(lost(to)),
                () = self.peers.until_unreachable(to) => {
                    let why = format!("server {to} can not be reached");
                    return Err(Refused::because(libc_errno::EIO, why));
                }
            };
            if !matches!(called.served.reply, PeerReply::Dead) {
                self.sessions.heard(to);
            }
            match called.served.reply {
                PeerReply::NoSession { start_id } => {
                    if told.replace(start_id) == Some(start_id) {
                        // It was told, and does not know it any more.
                        self.sessions.ours.borrow_mut().insert(to, NOBODY);
                    } else {
                        // It was waited for while it started.
                        until = Instant::now() + is.deadline;
                    }
                    self.begin_session(to, start_id).await?;
                    if is.held.is_some_and(|ino| ino.home() == to) {
                        // With the former session a lock may have been lost: the caller looks again.
                        return Ok(PeerReply::Stale.into());
                    }
                }
                PeerReply::Dead => {
                    self.membership.told_lost_by(to);
                    let why = format!("server {to} answers that this node was declared lost");
                    return Err(Refused::because(libc_errno::EIO, why));
                }
                _ => return Ok(called.served),
            }
            send = called.sent.zip(sent);
            into = called.served.payload.map(|(buffer, _)| buffer);
        }
    }

    /// Tells `to` what this node holds there, if that was not done meanwhile.
    pub(crate) async fn begin_session(
        self: &Rc<Self>,
        to: ServerId,
        start_id: u64,
    ) -> Result<(), Refused> {
        let _turn = self.sessions.telling.lock(to).await;
        let before = self.sessions.ours.borrow().get(&to).copied();
        if before == Some(start_id) {
            return Ok(());
        }
        self.grace.own_known().await;
        self.end_lost_locks().await?;
        // At a first meeting of two first incarnations nobody holds anything.
        let mut locks = Vec::new();
        if before.is_some() || self.incarnation > 1 {
            locks = self.clients.locks_at(to).await?;
            locks.retain(|held| !self.clients.has_lost(held));
            self.clients.home_lost(to).await;
        }
        let as_of = self.clients.asked();
        let opens: Vec<_> = self.clients.held_at(to, as_of);
        tracing::info!(%to, opens = opens.len(), locks = locks.len(), "a session begins");
        let mut lost = Vec::new();
        for holding in Holding::in_batches(&opens, &locks) {
            let request = MemberRequest::Reclaim { holding: Box::new(holding), as_of }.into();
            match self.peers.call(to, &request, None, None, CALL_DEADLINE).await?.served.reply {
                PeerReply::Reclaimed { lost: more } => lost.extend(more),
                PeerReply::Refused(refused) => return Err(refused),
                other => return Err(unexpected(&other)),
            }
        }
        self.sessions.ours.borrow_mut().insert(to, start_id);
        self.clients.tell_lost(lost).await;
        Ok(())
    }

    /// Where a former incarnation was declared lost, its homes have released what processes of this node
    /// had locked there, and others may have changed the files since. A home says so, but not one that was
    /// itself started anew before it was asked: so the processes lose it here, before any home is told.
    async fn end_lost_locks(self: &Rc<Self>) -> Result<(), Refused> {
        let mut is_done = self.sessions.own_loss.lock().await;
        if *is_done || self.incarnation == 1 || self.me == COORDINATOR {
            return Ok(());
        }
        if timeout(CALL_DEADLINE, self.membership.until_heard()).await.is_err() {
            let why = "server 0 has not said since this server was started anew who was lost";
            return Err(Refused::because(libc_errno::EIO, why));
        }
        if let Some(loss) = self.membership.loss_of(self.me)
            && self.meta.store().own_loss().map_err(meta_refused)? != Some(loss)
        {
            let mut lost = BTreeSet::new();
            for home in self.all_servers().filter(|home| *home != self.me) {
                let held = self.clients.locks_at(home).await?.into_iter();
                lost.extend(held.filter(|held| held.ticket.is_none()).map(|held| held.ino));
            }
            self.clients.tell_lost(lost.into_iter().collect()).await;
            self.meta.store().keep_own_loss(loss).map_err(meta_refused)?;
            self.meta.disk.sync().await?;
        }
        *is_done = true;
        Ok(())
    }

    /// As the home: `from` says what its node holds here.
    pub(crate) async fn reclaim(
        self: &Rc<Self>,
        from: PeerIdentity,
        holding: Holding,
        as_of: u64,
    ) -> PeerReply {
        let node = NodeId(from.server.0);
        self.membership.tells_again(from.server);
        let mut lost = Vec::new();
        for held in &holding.opens {
            if !self.reclaim_open(node, *held).await {
                lost.push(held.ino);
            }
        }
        for held in &holding.locks {
            if !self.reclaim_lock(node, *held) {
                lost.push(held.ino);
            }
        }
        self.keep_late();
        self.homes.late.until_durable(&self.meta.disk).await;
        if holding.last {
            // What its former life has handed on must not come after what this one is going to.
            self.handed_on.until_all_settled(&self.homes.known_to(node)).await;
        }
        let mut all = self.sessions.listed.borrow_mut();
        let listed = all.entry(from.server).or_default();
        listed.opens.extend(holding.opens.iter().map(|held| held.ino));
        listed.owners.extend(holding.locks.iter().map(|held| owner(node, held)));
        if holding.last {
            let listed = all.remove(&from.server).unwrap_or_default();
            drop(all);
            self.end_unlisted(node, as_of, &listed);
            self.homes.late.told(node, |ino| listed.opens.contains(&ino));
            self.membership.has_told(from);
            let before = self.sessions.theirs.borrow_mut().insert(from.server, from.start_id);
            if before.is_some_and(|before| before != from.start_id) {
                self.finish_old_intents();
            }
            self.finish_prepared_for(from.server);
            if let Some(cache) = &self.cache {
                cache.names_may_be_gone();
            }
            self.grace.told(from.server);
        }
        PeerReply::Reclaimed { lost }
    }

    /// Books an open that was there before; false when its inode is not.
    pub(crate) async fn reclaim_open(self: &Rc<Self>, node: NodeId, held: HeldOpen) -> bool {
        let HeldOpen { ino, open } = held;
        let Ok(inode) = self.meta.inode(ino) else { return false };
        let booked = self.homes.held_by(ino, node);
        let is_booked =
            |wanted: Access| (booked.read || !wanted.read) && (booked.write || !wanted.write);
        if !self.grace.is_over() || is_booked(open.access) {
            let anew = !self.grace.is_over();
            let late = self.homes.late.has(ino, node);
            self.home_event(ino, Event::Reclaimed { node, open, anew, late });
            return true;
        }
        // Others may have been granted something meanwhile.
        if inode.nlink == 0 && !self.homes.is_open(ino) {
            return false;
        }
        self.home_open(ino, node, open).await;
        // Nobody has waited for what its mount may have gathered.
        self.home_late(ino, node);
        true
    }

    /// False when another may have held it meanwhile.
    pub(crate) fn reclaim_lock(self: &Rc<Self>, node: NodeId, held: HeldLock) -> bool {
        if held.ticket.is_some() {
            // Who waits must not overtake who held it before and has not told yet.
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                this.grace.locks_known().await;
                this.wait_for_lock_again(node, held);
            });
            return true;
        }
        self.hold_lock_again(node, held, !self.grace.are_locks_known())
    }

    /// What a node's former incarnation held and this one does not.
    fn end_unlisted(self: &Rc<Self>, node: NodeId, as_of: u64, listed: &Listed) {
        let access = Access { read: true, write: true };
        let mut ended = Vec::new();
        for ino in self.homes.known_to(node) {
            self.home_event(ino, Event::ToldAnew { node });
            if !listed.opens.contains(&ino) {
                self.home_event(ino, Event::Close { node, access, as_of });
                ended.push(ino);
            }
        }
        self.reap_orphans(ended);
        self.release_locks_of(|owner| owner.node == node && !listed.owners.contains(owner));
    }

    /// After a restart: makes the others tell what they hold here, and waits for it.
    pub(crate) async fn ask_others_to_tell(
        self: &Rc<Self>,
        addresses: Vec<hayase_wire::transport::Address>,
    ) {
        for server in self.all_servers().filter(|server| *server != self.me) {
            let (this, addresses) = (Rc::clone(self), addresses.clone());
            tokio::task::spawn_local(async move { this.until_told(server, &addresses).await });
        }
        self.grace.run().await;
    }

    /// Nobody else tells `server` that this one is back, and it may look for it where it was before; and
    /// it may be killed itself between hearing that and telling what it holds.
    async fn until_told(
        self: Rc<Self>,
        server: ServerId,
        addresses: &[hayase_wire::transport::Address],
    ) {
        let mut knows = false;
        while !knows || self.grace.waits_for(server) {
            let told = self.tell_returned(server, addresses).await;
            knows = told.is_ok();
            match told {
                Ok(left) => self.take_left_links(server, left).await,
                Err(error) => {
                    tracing::warn!(%server, %error, "it does not know that this server is back");
                }
            }
            let is_lost = self.membership.is_server_lost(server);
            tokio::time::sleep(if is_lost { LOST_PAUSE } else { RETURNED_PAUSE }).await;
        }
    }

    async fn tell_returned(
        self: &Rc<Self>,
        server: ServerId,
        addresses: &[hayase_wire::transport::Address],
    ) -> Result<Vec<LeftLink>, Refused> {
        let told = MemberRequest::Returned { addresses: addresses.to_vec() };
        match self.ask(server, told).await? {
            PeerReply::LinksLeft(links) => Ok(links),
            other => Err(unexpected(&other)),
        }
    }

    /// Another server was started anew: it waits to be told what this node holds there, and before that which
    /// links were left there.
    pub(crate) fn returned(
        self: &Rc<Self>,
        from: PeerIdentity,
        addresses: Vec<hayase_wire::transport::Address>,
    ) -> PeerReply {
        self.peers.link(from.server).set_addresses(addresses);
        let left = PeerReply::LinksLeft(self.left_links(from));
        if self.sessions.telling.is_locked(&from.server) {
            return left; // It is being told.
        }
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if let Err(error) = this.begin_session(from.server, from.start_id).await {
                tracing::warn!(server = %from.server, %error, "failed to tell it what this node holds there");
            }
        });
        left
    }
}

fn owner(node: NodeId, held: &HeldLock) -> LockOwner {
    LockOwner { node, process: held.process, id: held.lock.owner }
}
