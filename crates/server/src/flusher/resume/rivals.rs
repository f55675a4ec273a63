//! Files of a dead job that have the same path, by the ledgers of their homes.
//!
//! A program renamed one of them over the other, and a power cut on every node took away some of what said so. The
//! ledgers say which one is the later: the home of a file that is renamed over another one writes its new path and its
//! place among the files of that name in one record, durably ([`LedgerRecord::place`]). Where one of them was removed
//! and not replaced they do not, and the names decide: one file has the name, for its home and for the server of the
//! name, and the homes of the others know no name of theirs any more. Where that is not so either, nothing is assumed.
//! Fault: every node loses power (`docs/design/000-faults.md`).

use std::collections::HashMap;

use hayase_layout::InodeId;
use hayase_store::{LedgerRecord, TierVersion};
use hayase_tier::Tier;
use hayase_wire::message::Refused;

use super::left::LeftNodes;
use crate::cache::paths::key;
use crate::cache::tombstones::version_at;

/// A directory, and a name in it.
type Name = (InodeId, Vec<u8>);

/// The records of such files.
#[derive(Default)]
pub(super) struct Rivals {
    by_path: HashMap<Vec<u8>, Vec<LedgerRecord>>,
    /// Those that replaced one another, or were about to, by the first of them.
    by_first: HashMap<InodeId, Vec<LedgerRecord>>,
}

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
        let mut by_first: HashMap<_, Vec<_>> = HashMap::new();
        for record in &records {
            for first in firsts(record) {
                by_first.entry(first).or_default().push((*record).clone());
            }
        }
        by_first.retain(|_, records| records.len() > 1);
        records.sort_unstable_by_key(|record| (&record.path, record.ino));
        let same_path = records.chunk_by(|one, next| one.path == next.path);
        let rivals = same_path.filter(|records| records.len() > 1).map(|records| {
            (records[0].path.clone(), records.iter().copied().cloned().collect::<Vec<_>>())
        });
        Self { by_path: rivals.collect(), by_first }
    }

    /// What became of one of them, whose path was this.
    pub(super) fn follow(&mut self, path: &[u8], now: &LedgerRecord) {
        let same_path = self.by_path.get_mut(path).into_iter().flatten();
        for rival in same_path.filter(|rival| rival.ino == now.ino) {
            *rival = now.clone();
        }
        for first in firsts(now) {
            let same_first = self.by_first.get_mut(&first).into_iter().flatten();
            for rival in same_first.filter(|rival| rival.ino == now.ino) {
                *rival = now.clone();
            }
        }
    }

    /// For the file of `record`.
    pub(super) fn claim(
        &self,
        record: &LedgerRecord,
        nodes: &dyn LeftNodes,
        tier: &dyn Tier,
    ) -> Claim {
        if self.is_replaced(record, tier) {
            return Claim::Lost;
        }
        let rivals = self.by_path.get(&record.path).map_or(&[][..], Vec::as_slice);
        let is_earlier = |rival: &&LedgerRecord| rival.place().is_before(record.place());
        let mut earlier: Vec<_> = rivals.iter().filter(is_earlier).cloned().collect();
        let Some(owner) = owner(nodes, &record.path, rivals) else {
            return Claim::Over(earlier);
        };
        if owner.ino == record.ino {
            let nameless = rivals.iter().filter(|rival| has_no_name(nodes, rival.ino));
            earlier.extend(nameless.cloned());
            return Claim::Over(earlier);
        }
        let is_later = owner.place().is_before(record.place());
        match owner.state.is_safe() && !is_later && has_no_name(nodes, record.ino) {
            true => Claim::Lost,
            false => Claim::Over(earlier),
        }
    }

    /// Whether a file that was renamed over this one is in the tier. One that has not heard that it is there, or whose
    /// rename was not answered, is known there by its version.
    fn is_replaced(&self, record: &LedgerRecord, tier: &dyn Tier) -> bool {
        let place = record.place();
        let rivals = self.by_first.get(&place.first).map_or(&[][..], Vec::as_slice);
        let is_later = |rival: &&LedgerRecord| {
            place.is_before(rival.place()) || rival.follows.is_some_and(|to| place.is_before(to))
        };
        let mut later = rivals.iter().filter(is_later).peekable();
        if later.peek().is_none() {
            return false;
        }
        let found = key(&record.path).ok().and_then(|key| version_at(tier, &key).ok().flatten());
        later.any(|rival| {
            let is_here = rival.path == record.path && rival.state.is_safe();
            is_here || found.is_some_and(|found| is_of(rival, &found))
        })
    }
}

/// Whether what the tier shows is of this file, and not one that it is to replace.
fn is_of(record: &LedgerRecord, found: &TierVersion) -> bool {
    let is_known = record.version.is_some_and(|version| version.identity == found.identity);
    is_known && record.state.is_safe() || record.sent == Some((found.size, found.mtime))
}

/// The first files of the names that a file has, or is about to get.
fn firsts(record: &LedgerRecord) -> impl Iterator<Item = InodeId> + use<> {
    let first = record.place().first;
    let other = record.follows.map(|place| place.first).filter(|other| *other != first);
    [Some(first), other].into_iter().flatten()
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
