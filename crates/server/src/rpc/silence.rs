//! Homes that do not answer: what they granted is given back before they can have given it to others.
//!
//! A home waits for a recall for [`crate::limits::RECALL_DEADLINE`], then takes what it asked for as
//! given back. So a node that does not hear of a home for [`HOME_SILENCE`] gives back by itself.

use std::collections::HashSet;
use std::rc::Rc;

use hayase_layout::ServerId;
use hayase_wire::message::{PeerRequest, ServerRequest};

use super::Servers;
use crate::limits::{BEAT_DEADLINE, HOME_SILENCE, LOOK};

impl Servers {
    /// Asks homes in use whether they live, until the task is dropped.
    pub(crate) async fn watch_homes(self: Rc<Self>) {
        let mut silent: HashSet<ServerId> = HashSet::new();
        loop {
            self.sessions.until_in_use().await;
            tokio::time::sleep(LOOK).await;
            for (home, heard) in self.sessions.in_use() {
                if heard.elapsed() < LOOK {
                    silent.remove(&home);
                    continue;
                }
                self.ping(home);
                if heard.elapsed() >= HOME_SILENCE && silent.insert(home) {
                    tracing::warn!(%home, "not heard of: what it granted is given back");
                    let this = Rc::clone(&self);
                    tokio::task::spawn_local(async move { this.clients.home_lost(home).await });
                }
            }
        }
    }

    pub(crate) fn ping(self: &Rc<Self>, home: ServerId) {
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let ping = PeerRequest::from(ServerRequest::Ping);
            if this.peers.call(home, &ping, None, None, BEAT_DEADLINE).await.is_ok() {
                this.sessions.heard(home);
            }
        });
    }
}
