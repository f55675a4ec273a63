//! Who reads which bytes of which part for all: a rule that every process applies alike, without a word.
//!
//! A part is read on the node of its writer where the group has processes there, else by anybody; its
//! units of [`UNIT`] are dealt to these processes in turn, beginning with the writer's rank: so the parts of
//! one program are shared by all, and each process reads long stretches.

use std::collections::BTreeMap;

use hayase_container::limits::READ_BYTES_MAX;
use hayase_layout::{ByteCount, LocalExtent, LocalOffset, NodeId, Writer};

/// Bytes of a part that one process reads on end.
pub(crate) const UNIT: ByteCount = READ_BYTES_MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Owners {
    /// All ranks.
    all: Vec<u32>,
    /// Those of each node.
    by_node: BTreeMap<NodeId, Vec<u32>>,
}

impl Owners {
    /// Of a group whose ranks run on these nodes.
    pub(crate) fn new(nodes: &[NodeId]) -> Self {
        let mut by_node: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        for (rank, node) in (0..).zip(nodes) {
            by_node.entry(*node).or_default().push(rank);
        }
        Self { all: (0..nodes.len() as u32).collect(), by_node }
    }

    /// Number of processes.
    pub(crate) fn ranks(&self) -> usize {
        self.all.len()
    }

    /// Number of nodes that they run on.
    pub(crate) fn nodes(&self) -> usize {
        self.by_node.len()
    }

    /// The rank that reads the byte at `local` of a part.
    pub(crate) fn of(&self, writer: &Writer, local: LocalOffset) -> u32 {
        let near = self.by_node.get(&writer.id.node).unwrap_or(&self.all);
        let turn = u64::from(writer.rank.0) + local.0 / UNIT.0;
        near[(turn % near.len() as u64) as usize]
    }

    /// Pieces that one rank reads each, in order.
    pub(crate) fn split(
        &self,
        writer: &Writer,
        local: LocalExtent,
    ) -> impl Iterator<Item = (u32, LocalExtent)> {
        local.chunks(UNIT).map(move |piece| (self.of(writer, piece.start()), piece))
    }
}

#[cfg(test)]
mod tests {
    use hayase_layout::{Rank, ServerId, WriterId};

    use super::*;

    fn writer(node: u16, rank: u32) -> Writer {
        let id = WriterId { node: NodeId(node), process: 7, opening: 0 };
        Writer { id, rank: Rank(rank), server: ServerId(0) }
    }

    fn owners(nodes: &[u16]) -> Owners {
        Owners::new(&nodes.iter().map(|node| NodeId(*node)).collect::<Vec<_>>())
    }

    #[test]
    fn parts_are_read_on_the_nodes_of_their_writers() {
        let owners = owners(&[1, 2, 1, 2, 3]);
        assert_eq!((owners.ranks(), owners.nodes()), (5, 3));
        for (node, near) in [(1, vec![0, 2]), (2, vec![1, 3]), (3, vec![4])] {
            for at in 0..6 {
                let owner = owners.of(&writer(node, 9), LocalOffset(at * UNIT.0));
                assert!(near.contains(&owner), "{owner} is not on node {node}");
            }
        }
    }

    #[test]
    fn parts_of_one_program_are_dealt_to_all() {
        let owners = owners(&[0; 3]);
        let first: Vec<_> =
            (0..6).map(|rank| owners.of(&writer(0, rank), LocalOffset(5))).collect();
        assert_eq!(first, [0, 1, 2, 0, 1, 2]);
        // Of a node that the group does not run on.
        let far: Vec<_> =
            (0..4).map(|at| owners.of(&writer(8, 1), LocalOffset(at * UNIT.0))).collect();
        assert_eq!(far, [1, 2, 0, 1]);
    }

    #[test]
    fn pieces_end_where_their_reader_changes() {
        let owners = owners(&[0; 2]);
        let local = LocalExtent::new(LocalOffset(UNIT.0 - 3), ByteCount(10)).unwrap();
        let pieces: Vec<_> = owners.split(&writer(0, 0), local).collect();
        assert_eq!(pieces.len(), 2);
        assert_eq!((pieces[0].0, pieces[0].1.len()), (0, ByteCount(3)));
        assert_eq!((pieces[1].0, pieces[1].1.len()), (1, ByteCount(7)));
    }
}
