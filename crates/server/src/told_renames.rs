//! Renames that are done, and whose intents their coordinator keeps: until all who were told of them would still
//! know after a power cut.
//!
//! The commit of a rename is durable before anybody else acts on it ([`crate::peer_service`]), so what a power cut
//! takes is the knowledge of those who were told: the inode's home forgets the new name, the victim's home that it
//! lost its own, the old name's shard that it is unbound. As long as the intent is there they are told again. So they
//! are asked to make their names durable, all renames of a while with one message to each server, and the intents of
//! those that nobody has forgotten by then are dropped. Nobody waits for it.
//!
//! A server that was started anew since it was told is told again: it may have lost it. For one that was declared lost
//! its renames wait until it comes back, and hold up nobody: the others know of them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use hayase_layout::{InodeId, ServerId};
use hayase_wire::message::{Binding, FileKind, NameRequest, PeerReply};

use crate::limits::RENAMES_DELAY;
use crate::node::Node;

/// Renames that are told again at the same time.
const TOLD_AT_ONCE: usize = 16;

/// Servers, each with the start that we know of it: none when we have not met.
pub(crate) type Starts = BTreeMap<ServerId, Option<u64>>;

/// See the module.
#[derive(Default)]
pub(crate) struct ToldRenames {
    /// Of each rename, who was told, and in which life.
    renames: RefCell<HashMap<u64, Starts>>,
    /// Those for which servers make their names durable just now.
    in_hand: RefCell<HashMap<u64, Starts>>,
    /// Somebody is going to look at them.
    is_waiting: Cell<bool>,
}

impl ToldRenames {
    /// All who take part in this rename know of it.
    pub(crate) fn has(&self, op: u64) -> bool {
        self.renames.borrow().contains_key(&op) || self.in_hand.borrow().contains_key(&op)
    }

    /// Sorts `told` by what becomes of them, once the servers of `durable` keep what they were told in that life.
    fn settled(
        told: HashMap<u64, Starts>,
        durable: &Starts,
        is_lost: impl Fn(ServerId) -> bool,
    ) -> Settled {
        let is_kept = |(server, start): &(&ServerId, &Option<u64>)| {
            start.is_some() && durable.get(server) == Some(start)
        };
        let mut settled = Settled::default();
        for (op, starts) in told {
            let mut forgetful = starts.iter().filter(|told| !is_kept(told)).peekable();
            if forgetful.peek().is_none() {
                settled.kept.push(op);
            } else if forgetful.all(|(server, _)| is_lost(*server)) {
                settled.waiting.insert(op, starts);
            } else {
                settled.again.push(op);
            }
        }
        settled.kept.sort_unstable();
        settled.again.sort_unstable();
        settled
    }
}

/// What becomes of renames that all were told of.
#[derive(Debug, Default, PartialEq)]
struct Settled {
    /// Everybody keeps them.
    kept: Vec<u64>,
    /// Somebody is to be told again.
    again: Vec<u64>,
    /// Who might be is lost.
    waiting: HashMap<u64, Starts>,
}

impl Node {
    /// Coordinator: the other servers that act on a rename, as they are known before they are told of it.
    pub(crate) fn others_in_rename(
        &self,
        moved: InodeId,
        victim: Option<Binding>,
        old_shard: ServerId,
    ) -> Starts {
        let victim = victim.filter(|victim| victim.kind != FileKind::Directory);
        let mut servers = BTreeSet::from([moved.home(), old_shard]);
        servers.extend(victim.map(|victim| victim.ino.home()));
        servers.remove(&self.me);
        servers.into_iter().map(|server| (server, self.rpc.sessions.start_of(server))).collect()
    }

    /// Coordinator: these servers were told of rename `op`, all that it asks of them.
    pub(crate) fn rename_is_told(self: &Rc<Self>, op: u64, mut others: Starts) {
        if others.is_empty() {
            return self.finished(self.me, op);
        }
        for (server, start) in &mut others {
            // Met while it was told.
            *start = start.or(self.rpc.sessions.start_of(*server));
        }
        self.told_renames.renames.borrow_mut().insert(op, others);
        if !self.told_renames.is_waiting.replace(true) {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move { this.drop_told_renames().await });
        }
    }

    /// Until none is left.
    async fn drop_told_renames(self: Rc<Self>) {
        loop {
            tokio::time::sleep(self.intent_age.min(RENAMES_DELAY)).await;
            self.told_renames.in_hand.replace(self.told_renames.renames.take());
            let is_lost = |server| self.rpc.membership.is_server_lost(server);
            let servers = {
                let in_hand = self.told_renames.in_hand.borrow();
                let servers = in_hand.values().flat_map(BTreeMap::keys).copied();
                servers.filter(|server| !is_lost(*server)).collect()
            };
            let durable = self.durable_names_of(servers).await;
            let told = self.told_renames.in_hand.take();
            let settled = ToldRenames::settled(told, &durable, is_lost);
            self.told_renames.renames.borrow_mut().extend(settled.waiting);
            self.drop_intents_here(&settled.kept);
            for ops in settled.again.chunks(settled.again.len().div_ceil(TOLD_AT_ONCE).max(1)) {
                // Not waited for: it may need a server that does not answer.
                let (this, ops) = (Rc::clone(&self), ops.to_vec());
                tokio::task::spawn_local(async move {
                    for op in ops {
                        this.finish_intent(op).await;
                    }
                });
            }
            if self.told_renames.renames.borrow().is_empty() {
                self.told_renames.is_waiting.set(false);
                return;
            }
        }
    }

    /// Those of `servers` whose names survive a power cut from here on, and in which life.
    async fn durable_names_of(self: &Rc<Self>, servers: BTreeSet<ServerId>) -> Starts {
        let mut asked = Vec::new();
        for server in servers {
            let request = NameRequest::SyncNames { bound: Vec::new() };
            asked.push((server, tokio::task::spawn_local(self.rpc.ask(server, request))));
        }
        let mut durable = Starts::new();
        for (server, asking) in asked {
            match asking.await {
                Ok(Ok(PeerReply::Outcome(_))) => {
                    durable.insert(server, self.rpc.sessions.start_of(server));
                }
                Ok(Err(error)) => tracing::debug!(%server, %error, "its renames are told again"),
                _ => {}
            }
        }
        durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(of: &[(u16, Option<u64>)]) -> Starts {
        of.iter().map(|(server, start)| (ServerId(*server), *start)).collect()
    }

    #[test]
    fn only_what_all_keep_in_the_life_in_which_they_were_told_is_dropped() {
        let told = HashMap::from([
            (1, starts(&[(1, Some(10)), (2, Some(20))])),
            (2, starts(&[(1, Some(10))])),
            (3, starts(&[(2, Some(19))])),
            (4, starts(&[(3, Some(30))])),
            (5, starts(&[(1, None)])),
        ]);
        let check = |durable: &[(u16, Option<u64>)], kept: &[u64]| {
            let found = ToldRenames::settled(told.clone(), &starts(durable), |_| false);
            assert_eq!(found.kept, kept);
            assert_eq!(found.kept.len() + found.again.len(), told.len());
        };
        check(&[(1, Some(10)), (2, Some(20))], &[1, 2]);
        check(&[(1, Some(10)), (2, Some(21))], &[2]);
        check(&[(1, Some(11)), (2, Some(20)), (3, Some(30))], &[4]);
        check(&[(1, None)], &[]);
    }

    #[test]
    fn those_of_a_lost_server_wait_for_it_alone() {
        let told = HashMap::from([
            (1, starts(&[(1, Some(10)), (2, Some(20))])),
            (2, starts(&[(2, Some(20))])),
            (3, starts(&[(2, Some(20)), (3, Some(30))])),
        ]);
        let is_lost = |server| server == ServerId(2);
        let found = ToldRenames::settled(told.clone(), &starts(&[(1, Some(10))]), is_lost);
        let mut waiting = told;
        waiting.remove(&3);
        assert_eq!(found, Settled { kept: Vec::new(), again: vec![3], waiting });
    }
}
