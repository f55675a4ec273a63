//! A lost index, made again from the packs: each has an index of its own.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use hayase_tier::{Key, TierError};
use ring::rand::SecureRandom;

use super::index::{Index, PackId, PackLine};
use super::{Location, MasterKey, PackError, PackSet, Row};
use crate::Place;
use crate::way::Way;

/// What was found, and what could not be read.
#[derive(Debug, Default)]
pub struct Reindexed {
    /// Entries of the new index.
    pub entries: usize,
    /// Packs that it names.
    pub packs: usize,
    /// Names of which several packs had something else: of each the version that was written last is taken, by
    /// the storage's clock, which a copy of the packs has set anew.
    pub doubtful: usize,
    /// Packs that are left out, and why.
    pub unread: Vec<(PackId, PackError)>,
}

/// Makes the index of a set that has packs and no index. Of entries that several packs have, that of the pack
/// which was written last counts; what was removed from the set comes back when its pack is still there. Large
/// files beside the packs get no row: whoever copies finds them by their names, whoever mounts does not.
///
/// Reads the end of every pack, one after the other.
///
/// # Errors
/// `NoPacks` where there are none, `IndexThere` where nothing is lost; as [`PackSet::open`] and
/// [`PackSet::commit`].
pub fn reindex(
    place: &Place,
    master: Option<&MasterKey>,
    random: &dyn SecureRandom,
) -> Result<Reindexed, PackError> {
    let Some((mut set, _)) = PackSet::look_and_read(place, master)? else {
        return Err(PackError::NoPacks { place: place.describe() });
    };
    if set.has_index() {
        return Err(PackError::IndexThere { place: place.describe() });
    }
    let mut packs = set.unnamed_packs()?;
    // The latest first: what it has stands in the way of the others.
    packs.sort_by_key(|&(id, committed)| Reverse((committed, id)));
    let mut made = Reindexed::default();
    let mut entries = Entries::default();
    for (id, _) in packs {
        match set.pack_of(id).and_then(|pack| pack.own_index()) {
            Ok(own) => entries.add(own),
            Err(error @ PackError::Tier(TierError::Unavailable { .. })) => return Err(error),
            Err(error) => made.unread.push((id, error)),
        }
    }
    made.doubtful = entries.doubtful;
    if entries.lines.is_empty() {
        return match made.unread.is_empty() {
            true => Err(PackError::NoPacks { place: place.describe() }),
            false => Ok(made),
        };
    }
    let index = entries.index();
    (made.entries, made.packs) = (index.rows.len(), index.packs.len());
    // As if no pack was old: what could not be read stays for whoever can.
    set.commit(index, random, SystemTime::UNIX_EPOCH)?;
    Ok(made)
}

/// Entries of packs that were added in the reverse order of writing.
#[derive(Default)]
struct Entries {
    /// By name, and whether it is a directory: a bucket may have both.
    rows: HashMap<(Key, bool), (PackId, Row)>,
    lines: HashMap<PackId, PackLine>,
    way: Way,
    doubtful: usize,
}

impl Entries {
    /// What later packs have, or stand in the way of, is left out.
    fn add(&mut self, own: Index) {
        let line = own.packs[0];
        self.lines.insert(line.id, line);
        let key = |row: &Row| (row.item.name.clone(), row.item.is_directory());
        let mut new = Vec::new();
        for row in own.rows {
            match self.rows.get(&key(&row)) {
                Some((_, later)) => {
                    let is_same = later.item == row.item && later.crc32c == row.crc32c;
                    self.doubtful += usize::from(!is_same && !row.item.is_directory());
                }
                None if self.way.is_blocked_by(&row.item) => self.doubtful += 1,
                None => new.push(row),
            }
        }
        for row in new {
            self.way.add(&row.item);
            self.rows.insert(key(&row), (line.id, row));
        }
    }

    /// In the order of trees, packs by name; only packs of which something counts.
    fn index(self) -> Index {
        let used: HashSet<PackId> = self.rows.values().map(|(id, _)| *id).collect();
        let mut ids: Vec<PackId> = used.into_iter().collect();
        ids.sort_unstable();
        let numbers: HashMap<PackId, u32> = ids.iter().copied().zip(0..).collect();
        let mut rows: Vec<Row> = self
            .rows
            .into_values()
            .map(|(id, mut row)| {
                row.location = row.location.map(|at| Location { pack: numbers[&id], ..at });
                row
            })
            .collect();
        rows.sort_by(|a, b| a.item.order(&b.item));
        Index { packs: ids.iter().map(|id| self.lines[id]).collect(), rows }
    }
}
