//! Entries that lie close together in a pack of the source: read by one request.

use std::borrow::Cow;
use std::sync::Arc;

use crate::limits::{BATCH_BYTES, GAP_BYTES_MAX};
use crate::pack::{Location, PackError, PackReader, Row, Stretch};
use crate::plan::Task;
use crate::source::Origin;

/// Consecutive bytes of a pack.
pub(super) struct PackStretch {
    pack: Arc<PackReader>,
    /// As rows call it.
    number: u32,
    bytes: Stretch,
}

impl PackStretch {
    /// Bytes of `pack` from one entry to another by one read, into `buffer`.
    pub(super) fn read(
        pack: Arc<PackReader>,
        (first, last): (Location, Location),
        buffer: Vec<u8>,
    ) -> Result<Self, PackError> {
        let len = usize::try_from(last.offset + last.stored - first.offset).unwrap_or(usize::MAX);
        let bytes = pack.read_stretch(first.offset, len, buffer)?;
        Ok(Self { pack, number: first.pack, bytes })
    }

    /// The buffer, to be used again.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.bytes.into_buffer()
    }

    /// An entry lies in it.
    pub(super) fn holds(&self, at: Location) -> bool {
        at.pack == self.number && self.bytes.holds(at.offset, at.stored)
    }

    /// Opens it up to the end of an entry, which lies in it, where it is sealed.
    pub(super) fn open_through(&mut self, last: Location) -> Result<(), PackError> {
        self.pack.open_until(&mut self.bytes, last.offset.saturating_add(last.stored))
    }

    /// One entry of it that is open, checked.
    pub(super) fn entry(&self, row: &Row) -> Result<Cow<'_, [u8]>, PackError> {
        self.pack.entry_of(row, &self.bytes)
    }
}

/// Bytes of a pack from the first entry of a batch to its last.
pub(super) fn stretch_bytes(tasks: &[Task]) -> u64 {
    first_and_last(tasks).map_or(0, |(first, last)| last.offset + last.stored - first.offset)
}

/// The last of the tasks that one read brings together with the first, which lies in a pack.
pub(super) fn together(tasks: &[Task], first: Location) -> Location {
    let mut last = first;
    for next in tasks.iter().map_while(location) {
        let gap = next.offset.checked_sub(last.offset + last.stored);
        let is_near = next == first || gap.is_some_and(|gap| gap <= GAP_BYTES_MAX);
        let end = next.offset.saturating_add(next.stored);
        if next.pack != first.pack || !is_near || end.saturating_sub(first.offset) > BATCH_BYTES {
            break;
        }
        last = next;
    }
    last
}

/// Where its bytes lie, if they lie in a pack.
pub(super) fn location(task: &Task) -> Option<Location> {
    match &task.origin {
        Origin::Row(row) => row.location,
        Origin::Object(_) => None,
    }
}

/// Where the first and the last entry lie of those tasks whose bytes lie in packs.
pub(super) fn first_and_last(tasks: &[Task]) -> Option<(Location, Location)> {
    let mut places = tasks.iter().filter_map(location);
    let first = places.next()?;
    Some((first, places.next_back().unwrap_or(first)))
}
