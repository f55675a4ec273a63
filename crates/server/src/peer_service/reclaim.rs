//! What a node tells again after a restart, its own or that of the home: opens and locks are reclaimed, as in NFSv4.
//!
//! Not here: who must have told before it is served anything ([`crate::rpc::sessions`]), what waits meanwhile
//! ([`crate::grace`]).

use std::rc::Rc;

use hayase_layout::{NodeId, ServerId};
use hayase_wire::PeerIdentity;
use hayase_wire::message::{
    Access, HeldLock, HeldOpen, Holding, LeftLink, MemberRequest, PeerReply, Refused,
};

use crate::home::Event;
use crate::limits::{LOST_PAUSE, RETURNED_PAUSE};
use crate::locks::LockOwner;
use crate::node::Node;
use crate::refusals::unexpected;
use crate::rpc::sessions::Listed;

impl Node {
    /// As the home: `from` says what its node holds here.
    pub(crate) async fn reclaim(
        self: &Rc<Self>,
        from: PeerIdentity,
        holding: Holding,
        as_of: u64,
    ) -> PeerReply {
        let node = NodeId(from.server.0);
        self.rpc.membership.tells_again(from.server);
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
        let opens = holding.opens.iter().map(|held| held.ino);
        let owners = holding.locks.iter().map(|held| owner(node, held));
        self.rpc.sessions.lists(from.server, opens, owners);
        if holding.last {
            let listed = self.rpc.sessions.all_listed(from.server);
            self.end_unlisted(node, as_of, &listed);
            self.homes.late.told(node, |ino| listed.opens.contains(&ino));
            self.rpc.membership.has_told(from);
            let before = self.rpc.sessions.has_told(from);
            if before.is_some_and(|before| before != from.start_id) {
                self.finish_old_intents();
            }
            self.finish_prepared_for(from.server);
            if let Some(cache) = self.cache.get() {
                cache.names_may_be_gone();
            }
            self.rpc.grace.told(from.server);
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
        if !self.rpc.grace.is_over() || is_booked(open.access) {
            let in_grace = !self.rpc.grace.is_over();
            let late = self.homes.late.has(ino, node);
            self.home_event(ino, Event::Reclaimed { node, open, in_grace, late });
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
            // A waiting process must not overtake one that held it before and has not reported it yet.
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                this.rpc.grace.locks_known().await;
                this.wait_for_lock_again(node, held);
            });
            return true;
        }
        self.hold_lock_again(node, held, !self.rpc.grace.are_locks_known())
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
        for server in self.rpc.all().filter(|server| *server != self.me) {
            let (this, addresses) = (Rc::clone(self), addresses.clone());
            tokio::task::spawn_local(async move { this.until_told(server, &addresses).await });
        }
        self.rpc.grace.run().await;
    }

    /// Nobody else tells `server` that this one is back, and it may look for it where it was before; and
    /// it may be killed itself between hearing that and telling what it holds.
    async fn until_told(
        self: Rc<Self>,
        server: ServerId,
        addresses: &[hayase_wire::transport::Address],
    ) {
        let mut knows = false;
        while !knows || self.rpc.grace.waits_for(server) {
            let told = self.tell_returned(server, addresses).await;
            knows = told.is_ok();
            match told {
                Ok(left) => self.take_left_links(server, left).await,
                Err(error) => {
                    tracing::warn!(%server, %error, "it does not know that this server is back");
                }
            }
            let is_lost = self.rpc.membership.is_server_lost(server);
            tokio::time::sleep(if is_lost { LOST_PAUSE } else { RETURNED_PAUSE }).await;
        }
    }

    async fn tell_returned(
        self: &Rc<Self>,
        server: ServerId,
        addresses: &[hayase_wire::transport::Address],
    ) -> Result<Vec<LeftLink>, Refused> {
        let told = MemberRequest::Returned { addresses: addresses.to_vec() };
        match self.rpc.ask(server, told).await? {
            PeerReply::LinksLeft(links) => Ok(links),
            other => Err(unexpected(&other)),
        }
    }

    /// Another server was restarted: it waits to hear what this node holds there, and before that which
    /// links were left there.
    pub(crate) fn returned(
        self: &Rc<Self>,
        from: PeerIdentity,
        addresses: Vec<hayase_wire::transport::Address>,
    ) -> PeerReply {
        self.rpc.peers.link(from.server).set_addresses(addresses);
        let left = PeerReply::LinksLeft(self.left_links(from));
        if self.rpc.sessions.is_telling(from.server) {
            return left; // It is being told.
        }
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if let Err(error) = this.rpc.begin_session(from.server, from.start_id).await {
                tracing::warn!(server = %from.server, %error, "failed to tell it what this node holds there");
            }
        });
        left
    }
}

fn owner(node: NodeId, held: &HeldLock) -> LockOwner {
    LockOwner { node, process: held.process, id: held.lock.owner }
}
