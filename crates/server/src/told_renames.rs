//! Renames that are done, and whose intents their coordinator keeps: until all who were told of them would still
//! know after a power cut.
//!
//! The commit of a rename is durable before anybody else acts on it ([`crate::peer_service`]), so what a power cut
//! takes is the knowledge of those who were told: the inode's home forgets the new name, the victim's home that it
//! lost its own, the old name's shard that it is unbound. As long as the intent is there they are told again. So they
//! are asked to make their names durable, all renames of a while with one message to each server, and the intents of
//! those that nobody has forgotten by then are dropped. Nobody waits for it.
//!
//! A server that was started anew since it was told is told again: it may have lost it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use hayase_layout::{InodeId, ServerId};
use hayase_wire::message::{Binding, FileKind, PeerReply, PeerRequest, Place};

use crate::limits::RENAMES_DELAY;
use crate::node::Node;

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

    /// Those of `told` whose servers are all among `durable`, in the life in which they were told; and the others.
    fn settled(told: &HashMap<u64, Starts>, durable: &Starts) -> (Vec<u64>, Vec<u64>) {
        let is_kept = |(server, start): (&ServerId, &Option<u64>)| {
            start.is_some() && durable.get(server) == Some(start)
        };
        let (mut kept, mut others) = (Vec::new(), Vec::new());
        for (op, starts) in told {
            let into = if starts.iter().all(is_kept) { &mut kept } else { &mut others };
            into.push(*op);
        }
        kept.sort_unstable();
        others.sort_unstable();
        (kept, others)
    }
}

impl Node {
    /// Coordinator: the other servers that act on a rename, as they are known before they are told of it.
    pub(crate) fn others_in_rename(
        &self,
        moved: InodeId,
        victim: Option<Binding>,
        from: &Place,
    ) -> Starts {
        let victim = victim.filter(|victim| victim.kind != FileKind::Directory);
        let mut servers = BTreeSet::from([moved.home(), self.shard_of(from.parent, &from.name)]);
        servers.extend(victim.map(|victim| victim.ino.home()));
        servers.remove(&self.me);
        servers.into_iter().map(|server| (server, self.sessions.start_of(server))).collect()
    }

    /// Coordinator: these servers were told of rename `op`, all that it asks of them.
    pub(crate) fn rename_is_told(self: &Rc<Self>, op: u64, mut others: Starts) {
        if others.is_empty() {
            return self.finished(self.me, op);
        }
        for (server, start) in &mut others {
            // Met while it was told.
            *start = start.or(self.sessions.start_of(*server));
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
            let servers = {
                let in_hand = self.told_renames.in_hand.borrow();
                in_hand.values().flat_map(BTreeMap::keys).copied().collect()
            };
            let durable = self.durable_names_of(servers).await;
            let told = self.told_renames.in_hand.take();
            let (kept, others) = ToldRenames::settled(&told, &durable);
            self.drop_intents_here(&kept);
            for op in others {
                // Not waited for: it may need a server that does not answer.
                let this = Rc::clone(&self);
                tokio::task::spawn_local(async move { this.finish_intent(op).await });
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
            let request = PeerRequest::SyncNames { bound: Vec::new() };
            asked.push((server, tokio::task::spawn_local(self.ask(server, request))));
        }
        let mut durable = Starts::new();
        for (server, asking) in asked {
            match asking.await {
                Ok(Ok(PeerReply::Outcome(_))) => {
                    durable.insert(server, self.sessions.start_of(server));
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
            let (found, others) = ToldRenames::settled(&told, &starts(durable));
            assert_eq!(found, kept);
            assert_eq!(found.len() + others.len(), told.len());
        };
        check(&[(1, Some(10)), (2, Some(20))], &[1, 2]);
        check(&[(1, Some(10)), (2, Some(21))], &[2]);
        check(&[(1, Some(11)), (2, Some(20)), (3, Some(30))], &[4]);
        check(&[(1, None)], &[]);
    }
}
