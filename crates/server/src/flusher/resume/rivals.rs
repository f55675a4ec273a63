//! Files of a dead job that have the same path, by the ledgers of their homes.
//!
//! A program renamed one of them over the other, and a power cut on every node took away some of what said so. Where the
//! names still know, they decide: one file has the name, for its home and for the server of the name, and the homes of the
//! others know no name of theirs any more. Where that is not so, nothing is assumed: names and ledgers of several nodes may
//! each be behind, and a file that another one seems to have replaced may be the newer one.
//! Fault: every node loses power (`docs/design/000-faults.md`).

use std::collections::HashMap;

use hayase_layout::InodeId;
use hayase_store::LedgerRecord;
use hayase_wire::message::Refused;

use super::left::LeftNodes;

/// A directory, and a name in it.
type Name = (InodeId, Vec<u8>);

/// The records of such files, by their path.
#[derive(Default)]
pub(super) struct Rivals(HashMap<Vec<u8>, Vec<LedgerRecord>>);

/// What a file may do with a path that others have too.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It replaces versions of these.
    Over(Vec<LedgerRecord>),
    /// Another file has the path, and the tier has that one.
    Lost,
}

impl Rivals {
    /// Among the records of all ledgers, without tombstones and files that have lost their name. O(n log n).
    pub(super) fn among<'a>(records: impl Iterator<Item = &'a LedgerRecord>) -> Self {
        let mut records: Vec<_> = records.collect();
        records.sort_unstable_by_key(|record| (&record.path, record.ino));
        let same_path = records.chunk_by(|one, next| one.path == next.path);
        let rivals = same_path.filter(|records| records.len() > 1).map(|records| {
            (records[0].path.clone(), records.iter().copied().cloned().collect::<Vec<_>>())
        });
        Self(rivals.collect())
    }

    /// What became of one of them.
    pub(super) fn follow(&mut self, path: &[u8], now: &LedgerRecord) {
        let rivals = self.0.get_mut(path).into_iter().flatten();
        for rival in rivals.filter(|rival| rival.ino == now.ino) {
            *rival = now.clone();
        }
    }

    /// For the file of `record`.
    pub(super) fn claim(&self, record: &LedgerRecord, nodes: &dyn LeftNodes) -> Claim {
        let rivals = self.0.get(&record.path).map_or(&[][..], Vec::as_slice);
        let Some(owner) = owner(nodes, &record.path, rivals) else {
            return Claim::Over(Vec::new());
        };
        if owner.ino == record.ino {
            let earlier = rivals.iter().filter(|rival| has_no_name(nodes, rival.ino));
            return Claim::Over(earlier.cloned().collect());
        }
        match owner.state.is_safe() && has_no_name(nodes, record.ino) {
            true => Claim::Lost,
            false => Claim::Over(Vec::new()),
        }
    }
}

/// Which of `rivals` has `path`: its home calls it so, and the server of the name says that it is this file. `None` where
/// that is not so of one of them alone.
fn owner<'a>(
    nodes: &dyn LeftNodes,
    path: &[u8],
    rivals: &'a [LedgerRecord],
) -> Option<&'a LedgerRecord> {
    let last = path.rsplit(|byte| *byte == b'/').next()?;
    let mut owners = rivals.iter().filter(|rival| {
        let name = name_of(nodes, rival.ino).ok().flatten().filter(|(_, name)| name == last);
        let bound = name.and_then(|name| bound_to(nodes, &name).ok().flatten());
        bound == Some(rival.ino)
    });
    let owner = owners.next()?;
    owners.next().is_none().then_some(owner)
}

/// Whether the home of a file knows that it has lost its name.
fn has_no_name(nodes: &dyn LeftNodes, ino: InodeId) -> bool {
    name_of(nodes, ino).is_ok_and(|name| name.is_none())
}

fn name_of(nodes: &dyn LeftNodes, ino: InodeId) -> Result<Option<Name>, Refused> {
    Ok(nodes.node(ino.home())?.inode(ino)?.name)
}

/// What a name stands for, as its server says.
fn bound_to(nodes: &dyn LeftNodes, (dir, name): &Name) -> Result<Option<InodeId>, Refused> {
    for shard in nodes.node(dir.home())?.shards_of(*dir)? {
        if let Some(found) = nodes.node(shard)?.entry_of(*dir, name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
