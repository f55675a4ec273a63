//! A set: packs, their index and, when sealed, the wrapped key, in the directory `.hayase-packs` of a place.
//!
//! An index is never changed: the next generation is committed where none was, so that of two writers
//! one succeeds and the other is told; [`super::claim`] where the storage can not decide that.
//! Readers take the highest generation.

use std::collections::HashSet;
use std::io::BufReader;
use std::time::{Duration, SystemTime};

use hayase_layout::ByteCount;
use hayase_tier::{Precondition, TierError};
use ring::rand::SecureRandom;

use super::claim::Claim;
use super::contents::{Found, look, put, remove};
use super::index::{Index, PackId};
use super::object::{ObjectReader, ObjectStream, ObjectWriter, file_name, key_of};
use super::writer::object_name;
use super::{DataKey, MasterKey, PackError, PackReader};
use crate::Place;
use crate::limits::PIECE_BYTES;

/// The object with the wrapped data key.
const KEY_OBJECT: &str = "key.json";

/// Says that packs are being written and have no index yet; goes with the first index. Packs without either have
/// lost theirs.
const BEGUN_OBJECT: &str = "begun";

/// Longest key object.
const KEY_OBJECT_BYTES_MAX: u64 = 4096;

/// Readers look again so often when an index is replaced under them.
const OPEN_TRIES_MAX: usize = 4;

/// A pack that no index names is removed when it is older: younger ones may be another writer's.
const LEFTOVER_AGE: Duration = Duration::from_secs(24 * 3600);

/// One set, as it was at some moment.
#[derive(Debug)]
pub struct PackSet {
    place: Place,
    key: Option<DataKey>,
    /// 0 before the first index.
    generation: u64,
    /// Of that generation.
    pub index: Index,
}

/// What was written before that time is nobody's work of `now`.
fn leftover_before(now: SystemTime) -> SystemTime {
    now.checked_sub(LEFTOVER_AGE).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn index_name(generation: u64) -> String {
    format!("index-{generation:016x}")
}

impl PackSet {
    /// Is there a set, or the beginning of one?
    pub fn is_in(place: &Place) -> Result<bool, PackError> {
        Ok(!look(place)?.is_nothing())
    }

    /// Opens the set in `place` with its index.
    ///
    /// # Errors
    /// `NoPacks`; `IndexLost`; `KeyMissing`, `KeyUnexpected`, `WrongKey`; and everything that an index can lack.
    pub fn open(place: &Place, master: Option<&MasterKey>) -> Result<Self, PackError> {
        match Self::look_and_read(place, master)? {
            Some((set, _)) if set.generation > 0 => Ok(set),
            Some((_, found)) if !found.packs.is_empty() => {
                Err(PackError::IndexLost { place: place.describe() })
            }
            _ => Err(PackError::NoPacks { place: place.describe() }),
        }
    }

    /// What there is of a set for whoever writes to it: also one that was begun and has no index. Writes nothing.
    ///
    /// # Errors
    /// As [`PackSet::open`], but not `NoPacks`; `IndexLost` only where nobody is about to write one.
    pub fn open_to_write(
        place: &Place,
        master: Option<&MasterKey>,
    ) -> Result<Option<Self>, PackError> {
        match Self::look_and_read(place, master)? {
            Some((_, found)) if found.is_lost() => {
                Err(PackError::IndexLost { place: place.describe() })
            }
            found => Ok(found.map(|(set, _)| set)),
        }
    }

    /// As [`PackSet::open_to_write`]; where there is none, begins one: sealed when there is a master key.
    pub fn open_or_begin(
        place: &Place,
        master: Option<&MasterKey>,
        random: &dyn SecureRandom,
    ) -> Result<Self, PackError> {
        let set = Self::open_to_write(place, master)?;
        if set.as_ref().is_none_or(|set| set.generation == 0) {
            put(place, BEGUN_OBJECT, b"", Precondition::Any)?;
        }
        if let Some(set) = set {
            return Ok(set);
        }
        if let Some(master) = master {
            let text = DataKey::random(random)?.wrap(master, random)?;
            match put(place, KEY_OBJECT, &text, Precondition::Absent) {
                // Somebody else began the set just now; theirs is the key.
                Ok(()) | Err(PackError::Tier(TierError::Exists { .. })) => {}
                // Two beginners would each write theirs, and what one of them sealed would be lost.
                Err(PackError::Tier(TierError::Unsupported { .. })) => {
                    return Err(PackError::FirstKey { place: place.describe() });
                }
                Err(error) => return Err(error),
            }
        }
        let key = Self::read_key(place, master, master.is_some())?;
        Ok(Self { place: place.clone(), key, generation: 0, index: Index::default() })
    }

    /// As it is, with an index or without one; `None` when there is nothing of a set.
    pub(super) fn look_and_read(
        place: &Place,
        master: Option<&MasterKey>,
    ) -> Result<Option<(Self, Found)>, PackError> {
        let mut last = None;
        for _ in 0..OPEN_TRIES_MAX {
            let found = look(place)?;
            if found.is_nothing() {
                return Ok(None);
            }
            match Self::read(place, master, &found) {
                // Replaced and removed since we looked.
                Err(PackError::Tier(error @ TierError::Missing { .. })) => last = Some(error),
                answer => return answer.map(|set| Some((set, found))),
            }
        }
        Err(last.expect("the loop ran").into())
    }

    fn read(place: &Place, master: Option<&MasterKey>, found: &Found) -> Result<Self, PackError> {
        let is_sealed = found.has_key
            || found.generations.iter().any(|&(_, sealed)| sealed)
            || found.packs.iter().any(|&(_, sealed, _)| sealed);
        let key = match Self::read_key(place, master, is_sealed) {
            // Where it is listed it is there, or was replaced since.
            Err(PackError::Tier(TierError::Missing { .. })) if !found.has_key => {
                return Err(PackError::KeyLost { place: place.describe() });
            }
            key => key?,
        };
        let of_this_kind = |&&(_, sealed): &&(u64, bool)| sealed == key.is_some();
        let generation =
            found.generations.iter().find(of_this_kind).map_or(0, |&(number, _)| number);
        let mut set = Self { place: place.clone(), key, generation, index: Index::default() };
        if generation > 0 {
            set.index = set.read_index()?;
        }
        Ok(set)
    }

    fn read_key(
        place: &Place,
        master: Option<&MasterKey>,
        is_sealed: bool,
    ) -> Result<Option<DataKey>, PackError> {
        match (is_sealed, master) {
            (false, None) => Ok(None),
            (false, Some(_)) => Err(PackError::KeyUnexpected { place: place.describe() }),
            (true, None) => Err(PackError::KeyMissing { place: place.describe() }),
            (true, Some(master)) => {
                let reader = place.tier.open(&key_of(place, KEY_OBJECT)?)?;
                let len = reader.meta().size.get().min(KEY_OBJECT_BYTES_MAX) as usize;
                let mut text = vec![0; len];
                let count = reader.read_at(0, &mut text)?;
                DataKey::unwrap(&text[..count], master, &place.describe()).map(Some)
            }
        }
    }

    fn read_index(&self) -> Result<Index, PackError> {
        let name = index_name(self.generation);
        let object = ObjectReader::open(&self.place, &name, "txt", self.key.as_ref())?;
        let shown = object.shown.clone();
        let end = object.len();
        let mut source = BufReader::with_capacity(PIECE_BYTES, ObjectStream::new(object));
        let index = Index::read(&mut source, &shown)?;
        // The end line ends the object: what follows it was never written by us.
        if !std::io::BufRead::fill_buf(&mut source).is_ok_and(<[u8]>::is_empty) {
            let why = format!("it goes on behind its end line, to byte {end}");
            return Err(PackError::Damaged { object: shown, why });
        }
        Ok(index)
    }

    /// An index says what is in it.
    pub(crate) fn has_index(&self) -> bool {
        self.generation > 0
    }

    /// Of an index that was just made it is, also when it is empty.
    pub(crate) fn needs(&self, index: &Index) -> bool {
        self.generation == 0 || self.index != *index
    }

    /// Where it lies.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// `None` when it is not sealed.
    pub fn key(&self) -> Option<&DataKey> {
        self.key.as_ref()
    }

    /// Opens the pack that rows call `number`.
    pub fn pack(&self, number: u32) -> Result<PackReader, PackError> {
        PackReader::open(&self.place, self.index.packs[number as usize].id, self.key.as_ref())
    }

    /// Opens a pack by its name, whether the index names it or not.
    pub fn pack_of(&self, id: PackId) -> Result<PackReader, PackError> {
        PackReader::open(&self.place, id, self.key.as_ref())
    }

    /// Packs that the index does not name, of the kind (sealed or not) that this set is: what a writer
    /// that was killed left, or another one is just writing. With the time of their commit.
    pub fn unnamed_packs(&self) -> Result<Vec<(PackId, SystemTime)>, PackError> {
        Ok(self.unnamed(&look(&self.place)?))
    }

    fn unnamed(&self, found: &Found) -> Vec<(PackId, SystemTime)> {
        let named: HashSet<PackId> = self.index.packs.iter().map(|pack| pack.id).collect();
        let is_ours = |&&(id, sealed, _): &&(PackId, bool, SystemTime)| {
            sealed == self.key.is_some() && !named.contains(&id)
        };
        found.packs.iter().filter(is_ours).map(|&(id, _, mtime)| (id, mtime)).collect()
    }

    /// What was written before that time belongs to no writer of now, by the storage's own clock; `None` when
    /// somebody has made another index since ours, who knows better.
    pub(crate) fn oldest_of_writers(&self) -> Result<Option<SystemTime>, PackError> {
        let found = look(&self.place)?;
        let latest = found.generations.iter().find(|&&(_, sealed)| sealed == self.key.is_some());
        let is_ours = latest.is_some_and(|&(generation, _)| generation == self.generation);
        let written = found.indexed.filter(|_| is_ours);
        Ok(written.map(leftover_before))
    }

    /// Makes `index` the set's index, then removes what it no longer needs: former generations, packs
    /// that it stopped naming, and unnamed packs older than a day by `now`.
    ///
    /// # Errors
    /// `Conflict` when another writer was faster; then nothing changed.
    pub fn commit(
        &mut self,
        index: Index,
        random: &dyn SecureRandom,
        now: SystemTime,
    ) -> Result<(), PackError> {
        let place = self.place.clone();
        let is_decided_there = place.tier.capabilities().absent_max == Some(ByteCount(u64::MAX));
        let claim = match is_decided_there {
            true => None,
            false => Some(Claim::make(&place, (self.generation, self.key.is_some()), random)?),
        };
        let next = claim.as_ref().map_or(self.generation + 1, |claim| claim.generation);
        self.write_index(&index, next, claim.as_ref(), random)?;
        let before: HashSet<PackId> = self.index.packs.iter().map(|pack| pack.id).collect();
        (self.generation, self.index) = (next, index);
        let found = look(&place)?;
        if found.has_begun {
            remove(&place, BEGUN_OBJECT)?;
        }
        // Where our clock is ahead of the storage's, its own tells how old a pack is.
        let oldest = leftover_before(found.indexed.map_or(now, |written| written.min(now)));
        for (id, mtime) in self.unnamed(&found) {
            // What can not say what it holds is damaged, and not for us to give up.
            let is_left = || mtime < oldest && self.pack_of(id).and_then(|p| p.own_index()).is_ok();
            if before.contains(&id) || is_left() {
                remove(&place, &file_name(&object_name(id), "tar", self.key.as_ref()))?;
            }
        }
        for &(generation, is_sealed) in &found.generations {
            if generation < next && is_sealed == self.key.is_some() {
                remove(&place, &file_name(&index_name(generation), "txt", self.key.as_ref()))?;
            }
        }
        claim.map_or(Ok(()), Claim::end)
    }

    /// The object of generation `next`, where nobody else has one.
    fn write_index(
        &self,
        index: &Index,
        next: u64,
        claim: Option<&Claim<'_>>,
        random: &dyn SecureRandom,
    ) -> Result<(), PackError> {
        let (name, key) = (index_name(next), self.key.as_ref());
        let mut object = ObjectWriter::begin(&self.place, &name, "txt", key, random)?;
        index.write(|piece| object.write(piece))?;
        let Some(claim) = claim else {
            return match object.commit(Precondition::Absent) {
                Err(PackError::Tier(TierError::Exists { .. })) => {
                    Err(PackError::Conflict { place: self.place.describe() })
                }
                other => other.map(drop),
            };
        };
        object.commit(Precondition::Any)?;
        claim.confirm(&file_name(&name, "txt", key))
    }

    /// Wraps the data key by another master key; no data is touched.
    ///
    /// # Errors
    /// `KeyUnexpected` when the set is not sealed.
    pub fn rekey(&self, master: &MasterKey, random: &dyn SecureRandom) -> Result<(), PackError> {
        let Some(key) = &self.key else {
            return Err(PackError::KeyUnexpected { place: self.place.describe() });
        };
        put(&self.place, KEY_OBJECT, &key.wrap(master, random)?, Precondition::Any)
    }
}
