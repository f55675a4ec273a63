//! Tiles: the filetypes whose bytes ascend, as the short list of runs that a [`View`] repeats.
//!
//! Here: filetype -> view. Not here: what is done with a filetype that is no view (its calls tell
//! their extents one by one, by [`Datatype::walk`]).
//! Source: MPI 4.1, section 14.1.1 (filetype: displacements are monotonically nondecreasing).

use super::{Datatype, Kind, Placed, Shape};
use crate::{ByteCount, GlobalOffset, Run, View, run::fold::fold};

/// Most runs of one tile. More would make every lookup and every published view slow; such a filetype is
/// served as what its calls select.
pub const TILE_RUNS_MAX: usize = 1 << 16;

impl Datatype {
    /// The view that begins at `displacement` and repeats this filetype, where it is one: its bytes
    /// ascend, none is selected twice, repetitions do not interlock, and the runs are at most
    /// [`TILE_RUNS_MAX`].
    pub fn view(&self, displacement: GlobalOffset) -> Option<View> {
        let body = self.body.as_ref()?;
        let extent = u64::try_from(self.extent).ok()?;
        // A filetype that repeats a shorter tile without a seam is that tile.
        if let Kind::Repeated { count, stride, inner } = &body.shape.kind
            && let Ok(stride) = u64::try_from(*stride)
            && count.checked_mul(stride) == Some(extent)
        {
            let runs = runs(body.offset, inner)?;
            return View::new(displacement, ByteCount(stride), &runs).ok();
        }
        let runs = runs(body.offset, &body.shape)?;
        View::new(displacement, ByteCount(extent), &runs).ok()
    }
}

fn runs(offset: i64, shape: &Shape) -> Option<Vec<Run>> {
    let start = GlobalOffset(u64::try_from(offset.checked_add(shape.low)?).ok()?);
    match &shape.kind {
        Kind::Block => Run::new(start, ByteCount(shape.len), &[]).ok().map(|run| vec![run]),
        Kind::Repeated { count, stride, inner } => {
            let stride = ByteCount(u64::try_from(*stride).ok()?);
            let once = runs(offset, inner)?;
            if let [run] = &once[..] {
                return run.clone().repeat(*count, stride).ok().map(|run| vec![run]);
            }
            if count.checked_mul(once.len() as u64)? > TILE_RUNS_MAX as u64 {
                return None;
            }
            let moved = |run: &Run, nth: u64| {
                run.clone().starting_at(GlobalOffset(run.start().0 + nth * stride.0)).ok()
            };
            (0..*count).flat_map(|nth| once.iter().map(move |run| moved(run, nth))).collect()
        }
        Kind::Sequence(members) => sequence_runs(offset, members),
    }
}

fn sequence_runs(offset: i64, members: &[Placed]) -> Option<Vec<Run>> {
    let mut all = Vec::new();
    for member in members {
        all.extend(runs(offset.checked_add(member.offset)?, &member.shape)?);
        if all.len() > TILE_RUNS_MAX {
            return None;
        }
    }
    Some(fold(all))
}
