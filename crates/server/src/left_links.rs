//! Links that a home was to take when it was killed: the shards of the names tell its next incarnation.
//!
//! A home takes the link of a name that its own node removed right after the program was told
//! ([`crate::handed_over`]). So a shard remembers, as long as a removal is not finished, which
//! incarnation of the home takes the link, and says so when the home returns; the home takes it before
//! it tells anybody how many names the file has. A shard that was started anew meanwhile does not know:
//! then it finishes the removal as after any crash.
//! Source: `docs/design/001-coherence.md`, "Which process answers an unlink".

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use hayase_layout::{InodeId, NodeId, ServerId};
use hayase_store::namespace::IntentKind;
use hayase_store::ops;
use hayase_wire::PeerIdentity;
use hayase_wire::message::{LeftLink, Place, Refused};

use crate::home::ATTR;
use crate::limits::LINKS_LEFT_MAX;
use crate::node::Node;
use crate::recovery::is_gone;

/// At the shard: the incarnations of homes that take the links of removals that are not finished.
#[derive(Default)]
pub(crate) struct LinkTakers(RefCell<BTreeMap<u64, PeerIdentity>>);

impl LinkTakers {
    fn put(&self, op: u64, taker: PeerIdentity) {
        self.0.borrow_mut().insert(op, taker);
    }

    /// These are finished.
    pub(crate) fn end(&self, ops: &[u64]) {
        let mut takers = self.0.borrow_mut();
        for op in ops {
            takers.remove(op);
        }
    }

    /// Removals whose links were to be taken by an earlier incarnation than `home`, the newest
    /// [`LINKS_LEFT_MAX`] of them, in their order.
    fn left_to(&self, home: PeerIdentity) -> Vec<u64> {
        let takers = self.0.borrow();
        let is_left =
            |taker: &PeerIdentity| taker.server == home.server && taker.start_id != home.start_id;
        let newest = takers.iter().rev().filter(|(_, taker)| is_left(taker));
        let mut ops: Vec<_> = newest.take(LINKS_LEFT_MAX).map(|(op, _)| *op).collect();
        ops.reverse();
        ops
    }
}

impl Node {
    /// Removal `op` of a name here was asked for by `requester`: where that is the home of the inode, it may
    /// be killed with the link untaken, after its node's program was told.
    pub(crate) fn takes_link(&self, op: u64, ino: InodeId, requester: NodeId) {
        let server = ServerId(requester.0);
        if ino.home() == server
            && let Some(start_id) = self.rpc.sessions.who_told(server)
        {
            self.link_takers.put(op, PeerIdentity { server, start_id });
        }
    }

    /// As the shard: what `home` must know before it tells anybody of its inodes.
    pub(crate) fn left_links(&self, home: PeerIdentity) -> Vec<LeftLink> {
        let txn = self.meta.begin();
        let of = |op| match ops::intent(&txn, op) {
            Ok(Some(IntentKind::Remove { entry, parent, name, .. })) => {
                let (ino, place) = (entry.ino, Place { parent, name });
                let bound = ops::lookup(&txn, parent, &place.name);
                // Bound again, the link is the new name's.
                let is_free = bound.is_ok_and(|found| found.is_none_or(|found| found.ino != ino));
                is_free.then_some(LeftLink { op, ino, place })
            }
            _ => None,
        };
        self.link_takers.left_to(home).into_iter().filter_map(of).collect()
    }

    /// As the home that was started anew: what one shard says was left.
    pub(crate) async fn take_left_links(self: &Rc<Self>, shard: ServerId, left: Vec<LeftLink>) {
        // One may wait for a mount that has the file open, and hangs.
        let mut taking = tokio::task::JoinSet::new();
        for LeftLink { op, ino, place } in left {
            let this = Rc::clone(self);
            taking.spawn_local(async move {
                match this.take_left_link(ino, &place).await {
                    Ok(true) => this.finished(shard, op),
                    Ok(false) => {}
                    Err(refused) if is_gone(&refused) => this.finished(shard, op),
                    Err(error) => tracing::warn!(%ino, %error, "a link is taken later"),
                }
            });
        }
        taking.join_all().await;
        self.rpc.grace.links_told(shard);
    }

    /// False when it is not known whether it is the link that is meant: the shard finds out later. After the grace
    /// period a link of that name may be another's.
    async fn take_left_link(self: &Rc<Self>, ino: InodeId, place: &Place) -> Result<bool, Refused> {
        let _change = self.home_change(ino, self.node, ATTR).await;
        if self.rpc.grace.is_over() || !self.meta.intents.links_under_way(ino, place).is_empty() {
            return Ok(false);
        }
        self.unlink_in(self.meta.begin(), ino, place, self.node, false).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_is_what_an_earlier_incarnation_was_to_take() {
        let takers = LinkTakers::default();
        let of = |server, start_id| PeerIdentity { server: ServerId(server), start_id };
        for (op, taker) in [(5, of(1, 7)), (3, of(1, 7)), (4, of(2, 7)), (6, of(1, 8))] {
            takers.put(op, taker);
        }
        assert_eq!(takers.left_to(of(1, 8)), [3, 5]);
        assert_eq!(takers.left_to(of(1, 9)), [3, 5, 6]);
        assert_eq!(takers.left_to(of(2, 7)), [0; 0], "it lives");
        takers.end(&[3, 9]);
        assert_eq!(takers.left_to(of(1, 9)), [5, 6]);
    }

    #[test]
    fn no_more_than_fit_a_message() {
        let takers = LinkTakers::default();
        let taker = PeerIdentity { server: ServerId(1), start_id: 7 };
        let count = LINKS_LEFT_MAX as u64 + 2;
        (0..count).for_each(|op| takers.put(op, taker));
        let left = takers.left_to(PeerIdentity { start_id: 8, ..taker });
        assert_eq!(left, (2..count).collect::<Vec<_>>());
        let name = Place { parent: InodeId::ROOT, name: vec![b'n'; 255] };
        let link = LeftLink { op: u64::MAX, ino: InodeId(u64::MAX), place: name };
        let reply = hayase_wire::message::PeerReply::LinksLeft(vec![link; LINKS_LEFT_MAX]);
        let body = hayase_wire::encode(&reply).expect("encodes");
        assert!(body.len() <= hayase_wire::message::BODY_BYTES_MAX);
    }
}
