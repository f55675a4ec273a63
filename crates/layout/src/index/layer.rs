//! One layer of an index: records of many writers, in families, by part, and by view.
//!
//! Here: building it, its blocks in an extent, backward. Not here: what wins ([`super::resolve`]).

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use super::{
    Bounds, IndexError, Logged, Origin,
    boxes::Boxes,
    current_records,
    family::{self, Family, Member, Pattern},
    resolve::{Candidate, Standing},
    same_view::SameView,
};
use crate::{
    Extent, LocalExtent, LocalOffset, Record, Selection, StreamExtent, StreamMap, View, ViewId,
    WriterId, units::Offset,
};

/// Records of one writer.
pub(super) struct Source<'a, V> {
    pub(super) logged: Logged,
    pub(super) records: &'a [Record],
    /// Its views.
    pub(super) view: V,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Layer {
    families: Boxes<Family>,
    /// Of each part its records in order of place.
    parts: BTreeMap<u32, Vec<Placed>>,
    same_view: SameView,
    end: u64,
}

/// One record as its part sees it.
#[derive(Clone, Debug)]
struct Placed {
    pattern: Pattern,
    window: StreamExtent,
    place: LocalOffset,
}

impl Layer {
    /// O(n log n) in the records. Fails on what can not have been written.
    pub(super) fn new<'a, V: Fn(ViewId) -> Option<Arc<View>>>(
        sources: impl Iterator<Item = Source<'a, V>>,
        bounds: &Bounds,
    ) -> Result<Self, IndexError> {
        let mut members = Vec::new();
        let mut parts: BTreeMap<u32, Vec<Placed>> = BTreeMap::new();
        let mut shared = BTreeMap::new();
        for source in sources {
            let placed = source.place(&mut members)?;
            match parts.entry(source.logged.part) {
                Entry::Vacant(entry) => drop(entry.insert(placed)),
                Entry::Occupied(mut entry) => {
                    entry.get_mut().extend(placed);
                    shared.insert(source.logged.part, source.logged.writer);
                }
            }
        }
        for (part, writer) in shared {
            sort_shared(parts.entry(part).or_default(), writer)?;
        }
        let same_view = SameView::gather(&members, |epoch| bounds.of(epoch));
        let families = family::gather(members, |epoch| bounds.of(epoch));
        let end = families.iter().map(|family| family.reach().end().0).max().unwrap_or(0);
        let families = Boxes::new(families, Family::reach);
        Ok(Self { families, parts, same_view, end })
    }

    /// Behind its last byte in the file.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn families(&self) -> &Boxes<Family> {
        &self.families
    }

    pub(super) fn same_view(&self) -> &SameView {
        &self.same_view
    }

    /// Adds every block of every record in `extent`.
    pub(super) fn candidates(&self, extent: Extent, found: &mut Vec<Candidate>) {
        self.families.for_each(extent, |family| family.candidates(extent, found));
    }

    /// Its first place in a part; `None` when it has none.
    pub(super) fn first(&self, part: u32) -> Option<LocalOffset> {
        Some(self.parts.get(&part)?.first()?.place)
    }

    /// Where the bytes `local` of a part were written to, in order of the part.
    pub(super) fn origins(
        &self,
        part: u32,
        local: LocalExtent,
    ) -> impl Iterator<Item = Origin> + '_ {
        let records = self.parts.get(&part).map_or(&[][..], Vec::as_slice);
        let first = records.partition_point(|record| record.end() <= local.start());
        records[first..]
            .iter()
            .map_while(move |record| record.local().intersect(local).map(|both| (record, both)))
            .flat_map(|(record, both)| record.origins(both))
    }
}

/// What several writers have in one part, by place. None may have a byte of another.
fn sort_shared(placed: &mut [Placed], writer: WriterId) -> Result<(), IndexError> {
    placed.sort_by_key(|record| record.place);
    match placed.windows(2).find(|pair| pair[0].end() > pair[1].place) {
        Some(pair) => Err(IndexError::Claimed { writer, place: pair[1].place }),
        None => Ok(()),
    }
}

impl<V: Fn(ViewId) -> Option<Arc<View>>> Source<'_, V> {
    /// Its current records, in order of place; adds them to those of all writers.
    fn place(&self, members: &mut Vec<Member>) -> Result<Vec<Placed>, IndexError> {
        let records = current_records(self.records);
        let mut placed = Vec::with_capacity(records.len());
        let mut end = LocalOffset(0);
        for record in records {
            if record.place < end {
                return Err(IndexError::Claimed {
                    writer: self.logged.writer,
                    place: record.place,
                });
            }
            let (pattern, window) = self.resolve(record)?;
            end = record.end().ok_or(self.too_far(record))?;
            let place = record.place;
            let standing = Standing { epoch: record.epoch, writer: self.logged.standing, place };
            let part = self.logged.part;
            members.push(Member { pattern: pattern.clone(), window, part, place, standing });
            placed.push(Placed { pattern, window, place });
        }
        Ok(placed)
    }

    /// The record's pattern, and which bytes of it; all of them are bytes that files can have.
    fn resolve(&self, record: &Record) -> Result<(Pattern, StreamExtent), IndexError> {
        match &record.selection {
            Selection::Run(run) => Ok((Pattern::Run(run.clone()), run.stream())),
            Selection::View { view, window } => {
                let no_view = IndexError::NoView { writer: self.logged.writer, view: *view };
                let declared = (self.view)(*view).ok_or(no_view)?;
                if declared.window(window.start(), window.len()) != *window {
                    return Err(self.too_far(record));
                }
                Ok((Pattern::View(declared), *window))
            }
        }
    }

    fn too_far(&self, record: &Record) -> IndexError {
        IndexError::TooFar { writer: self.logged.writer, place: record.place }
    }
}

impl Placed {
    fn local(&self) -> LocalExtent {
        LocalExtent::within_valid(self.place.0, self.place.0 + self.window.len().0)
    }

    fn end(&self) -> LocalOffset {
        self.local().end()
    }

    /// `local` is inside [`Placed::local`].
    fn origins(&self, local: LocalExtent) -> impl Iterator<Item = Origin> + '_ {
        let to_stream = |offset: LocalOffset| offset.get() - self.place.0 + self.window.start().0;
        let window = StreamExtent::within_valid(to_stream(local.start()), to_stream(local.end()));
        let mut place = local.start().0;
        self.pattern.extents(window).map(move |extent| {
            let local = LocalExtent::within_valid(place, place + extent.len().0);
            place = local.end().0;
            Origin { local, extent }
        })
    }
}
