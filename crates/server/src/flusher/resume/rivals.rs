//! Files of a dead job that had the same name, by the ledgers of their homes.
//!
//! A program renamed one of them over the other. A power cut took from the home of the earlier file that it lost its
//! name; the later file was synced, so it has the name. Fault: a power cut on every node
//! (`docs/design/000-faults.md`).

use std::collections::HashMap;

use hayase_layout::InodeId;
use hayase_store::LedgerRecord;
use hayase_wire::message::Refused;

use super::left::LeftNodes;

/// The records of such files, by their name.
#[derive(Default)]
pub(super) struct Rivals(HashMap<Vec<u8>, Vec<LedgerRecord>>);

impl Rivals {
    /// Among the records of all ledgers, those of tombstones and of files without a name excepted. O(n log n).
    pub(super) fn among<'a>(records: impl Iterator<Item = &'a LedgerRecord>) -> Self {
        let mut records: Vec<_> = records.collect();
        records.sort_unstable_by_key(|record| (&record.path, record.ino));
        let same_name = records.chunk_by(|one, next| one.path == next.path);
        let rivals = same_name.filter(|records| records.len() > 1).map(|records| {
            (records[0].path.clone(), records.iter().copied().cloned().collect::<Vec<_>>())
        });
        Self(rivals.collect())
    }

    /// Those of one name; none where only one file has it.
    pub(super) fn of(&self, path: &[u8]) -> &[LedgerRecord] {
        self.0.get(path).map_or(&[], Vec::as_slice)
    }

    /// What became of one of them.
    pub(super) fn follow(&mut self, path: &[u8], now: &LedgerRecord) {
        let rivals = self.0.get_mut(path).into_iter().flatten();
        for rival in rivals.filter(|rival| rival.ino == now.ino) {
            *rival = now.clone();
        }
    }
}

/// Which of `rivals` the server of their name says has it. `None` where nobody can say so, or it is another file.
pub(super) fn owner(nodes: &dyn LeftNodes, rivals: &[LedgerRecord]) -> Option<InodeId> {
    let is_rival = |ino: &InodeId| rivals.iter().any(|rival| rival.ino == *ino);
    let bound = rivals.iter().find_map(|rival| bound_to_name_of(nodes, rival.ino).ok().flatten());
    bound.filter(is_rival)
}

/// What has the name that a file has by the record of its home.
fn bound_to_name_of(nodes: &dyn LeftNodes, ino: InodeId) -> Result<Option<InodeId>, Refused> {
    let Some((dir, name)) = nodes.node(ino.home())?.inode(ino)?.name else { return Ok(None) };
    for shard in nodes.node(dir.home())?.shards_of(dir)? {
        if let Some(found) = nodes.node(shard)?.entry_of(dir, &name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
