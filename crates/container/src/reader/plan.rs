//! Plans: what is to be read from parts to fill a buffer, before anything is.
//!
//! For who shares the reading with others: it looks up by itself, and reads pieces for all.

use hayase_layout::{ByteCount, Extent, GlobalOffset, StreamMap, StreamOffset, View, WriterId};

use super::wanted::{cost, read_all, sort_by_part};
use super::{Gathering, ReadCost, Reader, Wanted, extent_at};
use crate::ContainerError;
use crate::limits::PIECES_MAX;

/// The beginning of a buffer, as pieces of parts. Its holes have been zeroed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Sorted by part and place; parts are those of the reader's index.
    pub wanted: Vec<Wanted>,
    /// Bytes of the buffer that are planned.
    pub bytes: usize,
    /// The rest of the buffer is to be planned by itself: it has too many pieces for one plan. Otherwise
    /// what is behind is behind the end of the file.
    pub is_cut: bool,
}

impl Plan {
    /// What it costs to read all of it. O(n).
    pub fn cost(&self) -> ReadCost {
        cost(&self.wanted)
    }
}

impl Reader {
    /// What [`Reader::read_at`] reads into `target`; as much of it as [`Reader::plan_extents`].
    pub fn plan_at(&self, offset: GlobalOffset, target: &mut [u8]) -> Result<Plan, ContainerError> {
        self.plan_extents([extent_at(offset, target.len())?], target)
    }

    /// What [`Reader::read_extents`] reads into `target`; as much of it as has about [`PIECES_MAX`] pieces.
    pub fn plan_extents(
        &self,
        extents: impl IntoIterator<Item = Extent>,
        target: &mut [u8],
    ) -> Result<Plan, ContainerError> {
        let mut gathering = Gathering::new(self, target);
        let mut is_cut = false;
        gathering.collect(extents, |_| {
            is_cut = true;
            Ok(false)
        })?;
        gathering.look_up();
        let (mut wanted, bytes) = (gathering.wanted, gathering.taken);
        sort_by_part(&mut wanted, self.index.parts().len());
        Ok(Plan { wanted, bytes, is_cut })
    }

    /// What [`Reader::read_through`] reads into `target`; as much of it as [`Reader::plan_extents`].
    pub fn plan_through(
        &self,
        view: &View,
        start: StreamOffset,
        target: &mut [u8],
    ) -> Result<Plan, ContainerError> {
        let window = view.window(start, ByteCount(target.len() as u64));
        let (mut wanted, mut rest) = (Vec::new(), window);
        while wanted.len() < PIECES_MAX
            && let Some((want, later)) = self.next_stretch(view, window, rest)
        {
            wanted.push(want);
            rest = later;
        }
        let done = (window.len().get() - rest.len().get()) as usize;
        if wanted.len() >= PIECES_MAX && !rest.is_empty() {
            sort_by_part(&mut wanted, self.index.parts().len());
            return Ok(Plan { wanted, bytes: done, is_cut: true });
        }
        let looked_up = self.plan_extents(view.extents(rest), &mut target[done..])?;
        wanted.extend(looked_up.wanted.into_iter().map(|mut want| {
            want.buffer = want.buffer.start + done..want.buffer.end + done;
            want
        }));
        sort_by_part(&mut wanted, self.index.parts().len());
        Ok(Plan { wanted, bytes: done + looked_up.bytes, is_cut: looked_up.is_cut })
    }

    /// Reads what is wanted, of these writers, whether the index knows them or not; what that cost.
    ///
    /// In the order of the parts, as [`Reader::read_extents`] does. Bytes may be wanted several times.
    pub fn read_wanted(
        &self,
        writers: &[WriterId],
        mut wanted: Vec<Wanted>,
        target: &mut [u8],
    ) -> Result<ReadCost, ContainerError> {
        sort_by_part(&mut wanted, writers.len());
        read_all(&self.parts, |part| writers[part as usize], &wanted, target)
    }

    /// Reads what was planned, of the reader's own index.
    pub fn read_planned(
        &self,
        wanted: &[Wanted],
        target: &mut [u8],
    ) -> Result<ReadCost, ContainerError> {
        read_all(&self.parts, |part| self.part(part).id, wanted, target)
    }
}
