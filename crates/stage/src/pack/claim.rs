//! Who writes the next index, where a store can not be told "only where nothing is" of an object of any size.
//!
//! A writer says first that it will: an object of its own with the number of the next generation in its name. Then it
//! looks, writes the index, and looks again. Of writers that began with the same index at most one succeeds.
//! Whose claim comes when the other's index is there, or when another claim has the same number, is told by its
//! first look; who claims a higher number before that index is there takes the other's place, which that one is told by
//! its second look. So a claim that a killed writer left is in nobody's way.
//! Asks for listings that show all that was written before them, as Amazon S3 and Ceph promise.

use hayase_tier::Precondition;
use ring::rand::SecureRandom;

use super::PackError;
use super::contents::{Found, look, put, remove};
use crate::Place;

/// What people find in it.
const TEXT: &[u8] =
    b"A hayase process writes the next index of these packs, or was killed when it did.\n";

/// Of one writer, until it is ended.
pub(super) struct Claim<'a> {
    place: &'a Place,
    /// The object's.
    name: String,
    /// That the next index will have.
    pub(super) generation: u64,
    /// That of the index which the writer began with.
    before: u64,
    is_sealed: bool,
}

impl<'a> Claim<'a> {
    /// Claims the generation after `before`, or after the last that was claimed.
    ///
    /// # Errors
    /// `Conflict` when another writer was faster, or is just as fast.
    pub(super) fn make(
        place: &'a Place,
        (before, is_sealed): (u64, bool),
        random: &dyn SecureRandom,
    ) -> Result<Self, PackError> {
        let mut token = [0; 8];
        random.fill(&mut token).map_err(|_| PackError::Random)?;
        let claimed = look(place)?.claims.into_iter().map(|(generation, _)| generation).max();
        let generation = claimed.unwrap_or(0).max(before) + 1;
        let name = format!("claim-{generation:016x}-{:016x}.txt", u64::from_be_bytes(token));
        put(place, &name, TEXT, Precondition::Any)?;
        let claim = Self { place, name, generation, before, is_sealed };
        claim.check(|newer| newer > before, |other| other >= generation)?;
        Ok(claim)
    }

    /// After the index was written: it is the next one, and nobody else's is.
    ///
    /// # Errors
    /// `Conflict`: then `index`, the object that was written, is gone.
    pub(super) fn confirm(&self, index: &str) -> Result<(), PackError> {
        let is_foreign = |newer| newer > self.before && newer != self.generation;
        let checked = self.check(is_foreign, |other| other > self.generation);
        if matches!(checked, Err(PackError::Conflict { .. })) {
            remove(self.place, index)?;
        }
        checked
    }

    /// Nobody has one of these indexes, nor another claim of one of these generations; else this claim is ended.
    fn check(
        &self,
        is_newer: impl Fn(u64) -> bool,
        is_rival: impl Fn(u64) -> bool,
    ) -> Result<(), PackError> {
        let Found { generations, claims, .. } = look(self.place)?;
        let has_rival = claims.iter().any(|(other, name)| is_rival(*other) && *name != self.name);
        let mut ours = generations.iter().filter(|(_, sealed)| *sealed == self.is_sealed);
        if !has_rival && !ours.any(|(generation, _)| is_newer(*generation)) {
            return Ok(());
        }
        remove(self.place, &self.name)?;
        Err(PackError::Conflict { place: self.place.describe() })
    }

    /// The index is there: all claims up to it go.
    pub(super) fn end(self) -> Result<(), PackError> {
        let claims = look(self.place)?.claims.into_iter();
        claims
            .filter(|(generation, _)| *generation <= self.generation)
            .try_for_each(|(_, name)| remove(self.place, &name))
    }
}
