//! The directory of a set: what lies in it, by one listing, and its small objects.

use std::time::SystemTime;

use hayase_tier::{Attributes, EntryKind, ListRequest, Precondition, TierError};

use super::PackError;
use super::index::PackId;
use super::object::{DIRECTORY, key_of};
use crate::Place;

/// What lies in the directory of a set.
#[derive(Default)]
pub(super) struct Found {
    /// Highest first; and whether it is sealed.
    pub(super) generations: Vec<(u64, bool)>,
    /// Generations that somebody claimed, and the names of the objects that say so.
    pub(super) claims: Vec<(u64, String)>,
    pub(super) packs: Vec<(PackId, bool, SystemTime)>,
    /// When the latest index was written, by the storage's clock.
    pub(super) indexed: Option<SystemTime>,
    pub(super) has_key: bool,
    pub(super) has_begun: bool,
}

/// Lists the directory of the set in `place`.
pub(super) fn look(place: &Place) -> Result<Found, PackError> {
    let prefix = [place.prefix(), DIRECTORY.as_bytes(), b"/"].concat();
    let mut found = Found::default();
    let mut request = ListRequest::one_level(prefix.clone());
    loop {
        let page = place.tier.list(&request)?;
        for entry in page.entries {
            let EntryKind::Object(meta) = entry.kind else { continue };
            let name = &entry.name[prefix.len()..];
            found.take(name, meta.mtime);
        }
        let Some(next) = page.next else { break };
        request = request.continued(next);
    }
    found.generations.sort_unstable();
    found.generations.reverse();
    Ok(found)
}

impl Found {
    fn take(&mut self, name: &[u8], mtime: SystemTime) {
        let (stem, is_sealed) = match (name.strip_suffix(b".sealed"), name) {
            (Some(stem), _) => (stem, true),
            (None, b"key.json") => {
                self.has_key = true;
                return;
            }
            (None, b"begun") => {
                self.has_begun = true;
                return;
            }
            (None, name) => match name.strip_suffix(b".tar").or(name.strip_suffix(b".txt")) {
                Some(stem) => (stem, false),
                None => return,
            },
        };
        if let Some(id) = stem.strip_prefix(b"pack-").and_then(PackId::parse) {
            self.packs.push((id, is_sealed, mtime));
        } else if let Some(digits) = stem.strip_prefix(b"index-").filter(|d| d.len() == 16) {
            let number = std::str::from_utf8(digits).ok();
            let number = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            self.indexed = self.indexed.max(Some(mtime));
            self.generations.extend(number.map(|number| (number, is_sealed)));
        } else if let Some(generation) = claimed_generation(stem) {
            self.claims.push((generation, String::from_utf8_lossy(name).into_owned()));
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.generations.is_empty() && self.packs.is_empty() && !self.has_key && !self.has_begun
    }

    /// Nothing says what counts of the packs, and nobody is about to say it.
    pub(super) fn is_lost(&self) -> bool {
        !self.packs.is_empty() && self.generations.is_empty() && !self.has_begun
    }
}

/// Generation of a claim, from the object's name without its extension.
fn claimed_generation(stem: &[u8]) -> Option<u64> {
    let digits = stem.strip_prefix(b"claim-").filter(|digits| digits.len() == 33)?;
    let (generation, token) = std::str::from_utf8(digits).ok()?.split_once('-')?;
    u64::from_str_radix(token, 16).ok()?;
    u64::from_str_radix(generation, 16).ok()
}

/// Writes a small object.
pub(super) fn put(
    place: &Place,
    name: &str,
    bytes: &[u8],
    precondition: Precondition,
) -> Result<(), PackError> {
    let mut upload = place.tier.begin(&key_of(place, name)?, Attributes::default())?;
    upload.write_at(0, bytes)?;
    upload.commit(precondition)?;
    Ok(())
}

/// Removes an object; somebody else may have done it.
pub(super) fn remove(place: &Place, name: &str) -> Result<(), PackError> {
    match place.tier.delete(&key_of(place, name)?) {
        Ok(()) | Err(TierError::Missing { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
