//! Groups: which servers keep parts and names, and whose storage a node uses.
//!
//! A job may have nodes without storage. Each of them belongs to the group of one server with storage, which
//! takes what it writes first and holds its `local`; a node with storage is of its own server's group.
//! Here: that table, and the server of a name. Pure, and the same on all nodes of a job.
//! Not here: how a job's storage nodes are chosen on a command line, what a server does for its group.
//! Source: paper 003 (LLIO), section 3.1.1: some nodes carry storage and serve the others of their group.

use crate::{InodeId, NodeId, ServerId, shard::name_shard};

/// The servers of a job that have storage, and the groups that they serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    nodes: u16,
    /// Ascending, without repetition, not empty, all below `nodes`.
    storage: Vec<ServerId>,
}

/// Why servers can not carry the storage of a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupsError {
    /// A job without storage is none.
    #[error("no node stores files")]
    Empty,
    /// More than there are.
    #[error("{count} nodes cannot store files: the job has only {nodes}")]
    TooMany {
        /// Asked for.
        count: u16,
        /// Of the job.
        nodes: u16,
    },
    /// One that the job does not have.
    #[error("there is no node {node}: the last of the job is node {}", .nodes.saturating_sub(1))]
    NoSuchNode {
        /// Which.
        node: u16,
        /// Of the job; they are numbered from 0.
        nodes: u16,
    },
}

impl Groups {
    /// Every one of `nodes` has storage; at least one is assumed.
    pub fn all(nodes: u16) -> Self {
        let nodes = nodes.max(1);
        Self { nodes, storage: (0..nodes).map(ServerId).collect() }
    }

    /// These of `nodes` have storage, in any order.
    pub fn new(nodes: u16, storage: &[u16]) -> Result<Self, GroupsError> {
        if let Some(&node) = storage.iter().find(|node| **node >= nodes) {
            return Err(GroupsError::NoSuchNode { node, nodes });
        }
        let mut storage: Vec<_> = storage.iter().copied().map(ServerId).collect();
        storage.sort_unstable();
        storage.dedup();
        if storage.is_empty() { Err(GroupsError::Empty) } else { Ok(Self { nodes, storage }) }
    }

    /// `count` of `nodes` have storage, at equal distances, so that groups are runs of neighbours: the first
    /// node of each.
    pub fn spread(nodes: u16, count: u16) -> Result<Self, GroupsError> {
        let first = |group: u16| u32::from(group) * u32::from(nodes) / u32::from(count);
        // Below `nodes`, which is a `u16`, unless there are more groups than nodes.
        let storage: Vec<_> = (0..count).map(|group| first(group) as u16).collect();
        match count > nodes {
            true => Err(GroupsError::TooMany { count, nodes }),
            false => Self::new(nodes, &storage),
        }
    }

    /// Servers with storage, in order; at least one.
    pub fn servers(&self) -> &[ServerId] {
        &self.storage
    }

    /// How many servers have storage.
    pub fn count(&self) -> u16 {
        u16::try_from(self.storage.len()).expect("they are some of the nodes, which a u16 counts")
    }

    /// Whether the node has storage of its own. O(log servers).
    pub fn has_storage(&self, node: NodeId) -> bool {
        self.storage.binary_search(&ServerId(node.0)).is_ok()
    }

    /// The server whose storage the node uses first: its own, else its group's. Nodes without storage are dealt
    /// out in runs as equal as can be. O(log servers).
    pub fn server_of(&self, node: NodeId) -> ServerId {
        match self.storage.binary_search(&ServerId(node.0)) {
            Ok(own) => self.storage[own],
            Err(before) => {
                let guest = usize::from(node.0) - before;
                let guests = usize::from(self.nodes) - self.storage.len();
                let servers = self.storage.len();
                // Rounded so that the groups of `spread` are neighbours.
                let group = (guest * servers + servers - 1) / guests.max(1);
                self.storage[group.min(servers - 1)]
            }
        }
    }

    /// The nodes without storage in the group of `server`, in order. O(nodes log servers).
    pub fn guests_of(&self, server: ServerId) -> impl Iterator<Item = NodeId> + '_ {
        let nodes = (0..self.nodes).map(NodeId);
        nodes.filter(move |node| !self.has_storage(*node) && self.server_of(*node) == server)
    }

    /// The server that holds the entry whose name has this `hash` in `parent`: that of a private tree holds all
    /// its names, others spread over all storage.
    pub fn shard(&self, parent: InodeId, hash: u64) -> ServerId {
        match parent.owner() {
            Some(_) => parent.home(),
            None => self.storage[usize::from(name_shard(parent, hash, self.count()).0)],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(groups: &Groups, expected: &str) {
        let servers: Vec<_> =
            (0..groups.nodes).map(|node| groups.server_of(NodeId(node)).to_string()).collect();
        assert_eq!(servers.join(" "), expected, "{groups:?}");
    }

    #[test]
    fn nodes_without_storage_use_their_groups() {
        check(&Groups::all(3), "0 1 2");
        check(&Groups::spread(8, 2).unwrap(), "0 0 0 0 4 4 4 4");
        check(&Groups::spread(5, 2).unwrap(), "0 0 2 2 2");
        check(&Groups::spread(3, 3).unwrap(), "0 1 2");
        check(&Groups::new(6, &[1, 0]).unwrap(), "0 1 0 0 1 1"); // not all to the nearest
        check(&Groups::new(4, &[3]).unwrap(), "3 3 3 3");
        check(&Groups::new(4, &[2, 2]).unwrap(), "2 2 2 2");
    }

    #[test]
    fn storage_must_be_somewhere() {
        assert_eq!(Groups::new(3, &[]), Err(GroupsError::Empty));
        assert_eq!(Groups::spread(3, 0), Err(GroupsError::Empty));
        assert_eq!(Groups::new(3, &[3]), Err(GroupsError::NoSuchNode { node: 3, nodes: 3 }));
        assert!(Groups::spread(3, 4).is_err());
    }

    #[test]
    fn names_lie_with_storage_and_private_ones_with_their_tree() {
        let groups = Groups::new(5, &[1, 4]).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for hash in (0..64u64).map(|name| name.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            seen.insert(groups.shard(InodeId::ROOT, hash));
            let tree = InodeId::private_root(ServerId(4), NodeId(2));
            assert_eq!(groups.shard(tree, hash), ServerId(4));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), groups.servers());
        let all = Groups::all(7);
        assert_eq!(all.shard(InodeId(77), 99), name_shard(InodeId(77), 99, 7));
    }

    proptest! {
        #[test]
        fn groups_are_even_and_everybody_is_in_one(
            nodes in 1..200u16, storage in prop::collection::vec(any::<u16>(), 1..20)
        ) {
            let storage: Vec<_> = storage.into_iter().map(|node| node % nodes).collect();
            let groups = Groups::new(nodes, &storage).unwrap();
            let mut guests = 0;
            let sizes: Vec<_> = groups.servers().iter().map(|server| {
                prop_assert_eq!(groups.server_of(NodeId(server.0)), *server);
                let size = groups.guests_of(*server).count();
                guests += size;
                Ok(size)
            }).collect::<Result<_, TestCaseError>>()?;
            prop_assert_eq!(guests + sizes.len(), usize::from(nodes));
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", sizes);
        }
    }
}
