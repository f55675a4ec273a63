//! A tree to copy from, as a stream of items in order: loose objects, a set of packs, or both.

use std::cmp::Ordering;

use hayase_tier::{Key, ObjectMeta, TierError};

use crate::Place;
use crate::item::Item;
use crate::pack::{MasterKey, PackError, PackSet, Row};
use crate::walk::{Met, Walk};

/// Where the bytes of an item are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An object, link or directory of its own; of an object what the listing told of it.
    Object(Option<ObjectMeta>),
    /// An entry of the source's index: in a pack, or a loose object whose checksum is known.
    Row(Row),
}

/// One step of the stream.
#[derive(Debug)]
pub enum Next {
    /// A name that can be copied.
    Item(Item, Origin),
    /// A name that can not, and why.
    Other(Vec<u8>, &'static str),
    /// A directory that can not be read; the stream goes on behind it.
    Unreadable(PackError),
}

/// A tree to copy from.
#[derive(Debug)]
pub struct Source {
    place: Place,
    set: Option<PackSet>,
    /// The full name of the only file that is copied, and what it was when it was looked for.
    only: Option<(Key, ObjectMeta)>,
}

impl Source {
    /// One file of `place`, as a tree of nothing else; `None` when there is no such file. Packs there do not matter.
    ///
    /// # Errors
    /// What the storage says.
    pub fn file(place: Place, name: &[u8]) -> Result<Option<Self>, PackError> {
        let Ok(key) = place.key(name) else { return Ok(None) };
        match place.tier.stat(&key) {
            Ok(meta) => Ok(Some(Self { place, set: None, only: Some((key, meta)) })),
            Err(TierError::Missing { .. } | TierError::NotObject { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks whether there are packs in `place`, and opens their index.
    pub fn open(place: Place, master: Option<&MasterKey>) -> Result<Self, PackError> {
        let set = match PackSet::open(&place, master) {
            Ok(set) => Some(set),
            Err(PackError::NoPacks { .. }) if master.is_some() => {
                return Err(PackError::KeyUnexpected { place: place.describe() });
            }
            Err(PackError::NoPacks { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { place, set, only: None })
    }

    /// Of a copy that unpacks nothing sealed: what is kept sealed is not opened on its way to another kept form.
    pub fn open_plain(place: Place) -> Result<Self, PackError> {
        match Self::open(place, None) {
            Err(PackError::KeyMissing { place }) => Err(PackError::SourceSealed { place }),
            other => other,
        }
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The packs, where there are some.
    pub fn set(&self) -> Option<&PackSet> {
        self.set.as_ref()
    }

    /// A store in which no object has such a name, and no packs: there is no tree. An error is told by whoever
    /// walks.
    pub fn is_nothing(&self) -> bool {
        self.place.tier.tree().is_none() && self.set.is_none() && self.is_empty()
    }

    /// Not one name: perhaps a storage that is not mounted, or packs of one.
    pub fn is_empty(&self) -> bool {
        let has_rows = self.set.as_ref().is_some_and(|set| !set.index.rows.is_empty());
        !has_rows && self.walk().next().is_none()
    }

    fn walk(&self) -> Walk<'_> {
        match &self.only {
            Some((key, meta)) => Walk::of_one(&self.place, key.as_bytes().to_vec(), *meta),
            None => Walk::new(&self.place),
        }
    }

    /// All of it, in the order of trees.
    pub fn stream(&self) -> Stream<'_> {
        let rows = self.set.as_ref().map_or(&[][..], |set| &set.index.rows);
        Stream { walk: self.walk(), met: None, rows: rows.iter() }
    }
}

/// Merges the walk and the rows; where both have a name, the row counts.
pub struct Stream<'a> {
    walk: Walk<'a>,
    /// Walked, and not yet answered.
    met: Option<(Item, Option<ObjectMeta>)>,
    rows: std::slice::Iter<'a, Row>,
}

impl Iterator for Stream<'_> {
    type Item = Next;

    fn next(&mut self) -> Option<Next> {
        if self.met.is_none() {
            match self.walk.next() {
                Some(Ok(Met::Item(item, meta))) => self.met = Some((item, meta)),
                Some(Ok(Met::Other(name, why))) => return Some(Next::Other(name, why)),
                Some(Err(error)) => return Some(Next::Unreadable(error.into())),
                None => {}
            }
        }
        let order = match (&self.met, self.rows.as_slice().first()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((item, _)), Some(row)) => item.order(&row.item),
        };
        if order.is_lt() {
            return self.met.take().map(|(item, meta)| Next::Item(item, Origin::Object(meta)));
        }
        if order.is_eq() {
            self.met = None;
        }
        let row = self.rows.next().expect("it was looked at");
        Some(Next::Item(row.item.clone(), Origin::Row(row.clone())))
    }
}

/// Whether anything can be seen in a place, loose or in packs.
pub fn has_names(place: &Place) -> bool {
    matches!(Walk::new(place).next(), Some(Ok(_))) || has_packs(place)
}

/// Who may get an object may not be allowed to look for packs below its name.
fn has_packs(place: &Place) -> bool {
    let none = |error: &PackError| {
        matches!(error, PackError::NoPacks { .. } | PackError::Tier(TierError::Denied { .. }))
    };
    PackSet::open(place, None).err().is_none_or(|error| !none(&error))
}

/// For reports: a name as a person can read it.
pub fn shown(name: &[u8]) -> String {
    Key::new(name).map_or_else(|_| name.escape_ascii().to_string(), |key| key.to_string())
}
