//! Servers that do not answer: who notices, and what is done then.
//!
//! A home waits for a recall for [`crate::limits::RECALL_DEADLINE`], then takes what it asked for as
//! given back. So a node that does not hear of a home for [`HOME_SILENCE`] gives back by itself.
//!
//! Nobody is asked whether it lives unless it matters: a home whose grants are in use, at most once a
//! second; a server that a call waits for; a node that holds a lock that another wants. Who does not
//! answer is suspected, and server 0 decides ([`crate::membership`]).

use std::collections::HashSet;
use std::rc::Rc;

use hayase_layout::ServerId;
use hayase_wire::message::{PeerRequest, PeerState};
use tokio::time::Instant;

use crate::limits::{HOME_ASKED, HOME_SILENCE, LOOK, SUSPICION, UNREACHABLE};
use crate::node::Node;

impl Node {
    /// Asks homes in use whether they live, until the task is dropped.
    pub(crate) async fn watch_homes(self: Rc<Self>) {
        let mut silent: HashSet<ServerId> = HashSet::new();
        loop {
            self.sessions.until_in_use().await;
            tokio::time::sleep(LOOK).await;
            for (home, heard) in self.sessions.in_use() {
                if heard.elapsed() < HOME_ASKED {
                    silent.remove(&home);
                    continue;
                }
                self.ask_whether_alive(home);
                if heard.elapsed() >= HOME_SILENCE && silent.insert(home) {
                    tracing::warn!(%home, "not heard of: what it granted is given back");
                    let this = Rc::clone(&self);
                    tokio::task::spawn_local(async move { this.home_lost(home).await });
                }
            }
        }
    }

    /// Returns when a server could not be connected to for [`UNREACHABLE`]; until then it is suspected
    /// while nothing is heard of it.
    pub(crate) async fn until_unreachable(self: &Rc<Self>, to: ServerId) {
        let mut since: Option<Instant> = None;
        loop {
            tokio::time::sleep(LOOK).await;
            if !self.sessions.hears(to) {
                self.ask_whether_alive(to);
            }
            match self.peers.link(to).state() {
                PeerState::Connected => since = None,
                _ if since.get_or_insert_with(Instant::now).elapsed() >= UNREACHABLE => return,
                _ => {}
            }
        }
    }

    /// Who is in the way of others at this home is asked whether it lives, until nobody is.
    pub(crate) fn watch_lock_holders(self: &Rc<Self>) {
        if self.watches_lock_holders.replace(true) {
            return;
        }
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            loop {
                let holders = this.locks.borrow().nodes_waited_for();
                if holders.is_empty() {
                    break;
                }
                for server in holders.into_iter().map(|node| ServerId(node.0)) {
                    if server != this.me && !this.sessions.hears(server) {
                        this.ask_whether_alive(server);
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
            this.watches_lock_holders.set(false);
        });
    }

    /// Suspects a server that does not answer.
    pub(crate) fn ask_whether_alive(self: &Rc<Self>, server: ServerId) {
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let ping = this.peers.call(server, &PeerRequest::Ping, None, None, SUSPICION);
            match ping.await {
                Ok(_) => this.sessions.heard(server),
                Err(_) => this.suspect(server),
            }
        });
    }
}
