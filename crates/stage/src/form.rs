//! The form that a target has: packs, or loose objects. A copy keeps it.
//!
//! Readers take an entry of the packs before a loose object of the same name. So loose files copied over
//! packs would not be seen, and packs made over loose files would let removed ones come back; neither is begun.

use ring::rand::SecureRandom;

use crate::item::Kind;
use crate::limits::PACK_BYTES;
use crate::options::Options;
use crate::pack::{PackError, PackSet};
use crate::walk::{Met, Walk};
use crate::{Place, Sizes};

/// What a target holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// No small file; perhaps directories, and large files, which lie loose in either form.
    Nothing,
    /// A set of packs, or the beginning of one.
    Packed,
    /// Files of their own, and no packs.
    Loose,
}

impl Form {
    /// Looks at names until it is known.
    pub fn of(place: &Place) -> Result<Self, PackError> {
        match PackSet::is_in(place)? {
            true => Ok(Self::Packed),
            // Larger ones lie beside packs as well.
            false if has_file(place, PACK_BYTES.get())? => Ok(Self::Loose),
            false => Ok(Self::Nothing),
        }
    }
}

/// Makes what all writers of packs need, before several of them begin at once: a sealed set has one key.
///
/// # Errors
/// As [`transfer`](crate::transfer()) with these options when it begins.
pub fn begin_packs(
    target: &Place,
    options: &Options,
    random: &dyn SecureRandom,
) -> Result<(), PackError> {
    check(target, options)?;
    let Some(packs) = &options.packs else { return Ok(()) };
    PackSet::open_or_begin(target, packs.master.as_ref(), random).map(drop)
}

/// Refuses a copy that would change the form of what is there.
pub(crate) fn check(target: &Place, options: &Options) -> Result<(), PackError> {
    let place = || target.describe();
    match &options.packs {
        // Part of a copy of several steps: large files beside the packs of the small ones.
        None if options.sizes != Sizes::All => Ok(()),
        None if PackSet::is_in(target)? => Err(PackError::TargetPacked { place: place() }),
        None => Ok(()),
        // Larger ones may be what a killed run, which never came to write an index, left beside its packs.
        Some(packs) if !PackSet::is_in(target)? && has_file(target, packs.bytes)? => {
            Err(PackError::TargetLoose { place: place() })
        }
        Some(_) => Ok(()),
    }
}

/// A file or link of at most `bytes_max`.
fn has_file(place: &Place, bytes_max: u64) -> Result<bool, PackError> {
    let mut walk = Walk::new(place);
    while let Some(met) = walk.next() {
        match met? {
            Met::Item(item, _) if matches!(item.kind, Kind::Directory) => {}
            Met::Item(item, _) if item.bytes() > bytes_max => {}
            Met::Item(..) | Met::Other(..) => return Ok(true),
        }
    }
    Ok(false)
}
