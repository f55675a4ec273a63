//! Dealing a tree out to several nodes: who copies which item. Pure.
//!
//! Each node sees the same stream of items and deals it alike, so nobody has to tell anybody anything; a
//! checksum of what was seen tells whether they did see the same. Items go out in runs that lie side by
//! side, so that a stretch of a pack is read by one node; each run goes to the node that has the least to
//! do, by bytes and by number. Source: greedy list scheduling (Graham 1969): no node has more than the
//! fair share and one run.

use crate::checksum::Checksum;
use crate::item::{Item, Kind};
use crate::limits::{ITEM_COST_BYTES, SPREAD_RUN_BYTES};
use crate::source::Origin;

/// One node's part of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which of the nodes, from 0.
    pub node: u16,
    /// How many there are.
    pub nodes: u16,
    /// Directories are copied as well, all of them, by every node, which has a target of its own; otherwise all
    /// have one target, only directories that the node's files need are made, and keep what attributes they
    /// get, and what others may continue stays until a complete copy.
    pub directories: bool,
}

/// Deals a stream of items out.
#[derive(Debug)]
pub(crate) struct Dealer {
    share: Share,
    /// What each node has to do so far, in bytes.
    loads: Vec<u64>,
    /// Whose turn it is, with how much of a run, in which pack.
    run: Option<(usize, u64, Option<u32>)>,
    seen: Checksum,
}

impl Dealer {
    pub(crate) fn new(share: Share) -> Self {
        let loads = vec![0; usize::from(share.nodes.max(1))];
        Self { share, loads, run: None, seen: Checksum::new() }
    }

    /// Whether the next item of the stream is for this node.
    pub(crate) fn is_ours(&mut self, item: &Item, origin: &Origin) -> bool {
        self.seen.update(item.name.as_bytes());
        if item.kind == Kind::Directory {
            // Its time says when names came, which each node may know from its own moment on.
            return self.share.directories;
        }
        self.seen.update(&item.bytes().to_le_bytes());
        self.seen.update(&item.mtime.seconds().to_le_bytes());
        let pack = match origin {
            Origin::Row(row) => row.location.map(|at| at.pack),
            Origin::Object(_) => None,
        };
        let cost = item.bytes() + ITEM_COST_BYTES;
        let (node, taken) = match self.run {
            Some((node, taken, of)) if of == pack && taken + cost <= SPREAD_RUN_BYTES => {
                (node, taken)
            }
            _ => (self.least_loaded(), 0),
        };
        self.loads[node] += cost;
        self.run = Some((node, taken + cost, pack));
        node == usize::from(self.share.node)
    }

    /// Of equal ones the first.
    fn least_loaded(&self) -> usize {
        let loads = self.loads.iter().enumerate();
        loads.min_by_key(|(_, load)| **load).map_or(0, |(node, _)| node)
    }

    /// Two nodes that saw the same stream answer the same.
    pub(crate) fn seen(&self) -> u32 {
        self.seen.value()
    }
}

#[cfg(test)]
mod tests {
    use hayase_tier::Key;
    use proptest::prelude::*;

    use super::*;
    use crate::Mtime;
    use crate::pack::{Codec, Location, Row};

    fn item(number: usize, bytes: u64) -> Item {
        let name = Key::new(format!("f{number:06}")).unwrap();
        Item { name, kind: Kind::File { bytes }, mode: 0o644, mtime: Mtime::EPOCH }
    }

    fn in_pack(item: &Item, pack: u32) -> Origin {
        let at = Location { pack, offset: 512, stored: item.bytes(), codec: Codec::Raw };
        Origin::Row(Row { item: item.clone(), crc32c: 0, location: Some(at) })
    }

    fn dealers(nodes: u16) -> Vec<Dealer> {
        (0..nodes).map(|node| Dealer::new(Share { node, nodes, directories: false })).collect()
    }

    proptest! {
        #[test]
        fn each_item_is_one_nodes_and_none_has_more_than_its_share_and_a_run(
            sizes in prop::collection::vec(0u64..3 * SPREAD_RUN_BYTES, 1..300), nodes in 1u16..9,
        ) {
            let mut dealers = dealers(nodes);
            let mut loads = vec![0; usize::from(nodes)];
            for (number, &bytes) in sizes.iter().enumerate() {
                let item = item(number, bytes);
                let mut takers = 0;
                for (node, dealer) in dealers.iter_mut().enumerate() {
                    if dealer.is_ours(&item, &Origin::Object(None)) {
                        (takers, loads[node]) = (takers + 1, loads[node] + bytes + ITEM_COST_BYTES);
                    }
                }
                prop_assert_eq!(takers, 1);
            }
            let largest = sizes.iter().max().unwrap() + ITEM_COST_BYTES;
            let fair = loads.iter().sum::<u64>() / u64::from(nodes);
            prop_assert!(loads.iter().all(|&load| load <= fair + largest.max(SPREAD_RUN_BYTES)));
            prop_assert!(dealers.iter().all(|dealer| dealer.seen() == dealers[0].seen()));
        }
    }

    #[test]
    fn what_lies_side_by_side_stays_together_and_packs_are_taken_in_turn() {
        let mut dealer = dealers(2).remove(0);
        let ours: Vec<_> = (0..6)
            .map(|number| {
                let item = item(number, 100);
                dealer.is_ours(&item, &in_pack(&item, number as u32 / 3))
            })
            .collect();
        assert_eq!(ours, [true, true, true, false, false, false]);
    }

    #[test]
    fn who_saw_something_else_says_so() {
        let (mut a, mut b) = (dealers(2).remove(0), dealers(2).remove(1));
        a.is_ours(&item(1, 5), &Origin::Object(None));
        b.is_ours(&item(1, 6), &Origin::Object(None));
        assert_ne!(a.seen(), b.seen());
    }
}
