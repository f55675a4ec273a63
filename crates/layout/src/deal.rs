//! The arithmetic of stripes alone: units of a file dealt round robin over parts, forward (file to part) and backward.
//!
//! Not here: where the parts lie ([`crate::StripeMap`]).

use crate::{ByteCount, Extent, GlobalOffset, LocalExtent, LocalOffset, units::OFFSET_MAX};

/// Units of `unit` bytes dealt over `width` parts.
///
/// Invariant: `unit >= 1`, `width >= 1`, `unit * width` fits; a width of 1 has one endless unit, so
/// that a file in one part is the same arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deal {
    unit: u64,
    width: u16,
}

impl Deal {
    /// Everything in part 0, at its own offset.
    pub(crate) const WHOLE: Self = Self { unit: OFFSET_MAX + 1, width: 1 };

    pub(crate) fn new(unit: ByteCount, width: u16) -> Self {
        if width == 1 { Self::WHOLE } else { Self { unit: unit.0, width } }
    }

    pub(crate) fn unit(self) -> ByteCount {
        ByteCount(self.unit)
    }

    /// Number of parts.
    pub(crate) fn width(self) -> u16 {
        self.width
    }

    /// The same, to count units with.
    pub(crate) fn parts(self) -> u64 {
        u64::from(self.width)
    }

    fn part(self, unit: u64) -> u16 {
        (unit % self.parts()) as u16 // below a `u16`
    }

    pub(crate) fn locate(self, offset: GlobalOffset) -> (u16, LocalOffset) {
        let (unit, inside) = (offset.0 / self.unit, offset.0 % self.unit);
        (self.part(unit), LocalOffset(unit / self.parts() * self.unit + inside))
    }

    /// `None` when no file reaches so far.
    pub(crate) fn global(self, part: u16, offset: LocalOffset) -> Option<GlobalOffset> {
        let (round, inside) = (offset.0 / self.unit, offset.0 % self.unit);
        let unit = round.checked_mul(self.parts())?.checked_add(u64::from(part))?;
        let global = unit.checked_mul(self.unit)?.checked_add(inside)?;
        (global <= OFFSET_MAX).then_some(GlobalOffset(global))
    }

    /// What `extent` has in the part of its `nth` unit; `nth` is below the width and there is such a unit.
    pub(crate) fn share(self, extent: Extent, nth: u64) -> (u16, LocalExtent) {
        let (start, last) = (extent.start().0, extent.end().0 - 1);
        let (first_unit, last_unit) = (start / self.unit + nth, last / self.unit);
        let part = self.part(first_unit);
        let begin = if nth == 0 { start } else { first_unit * self.unit };
        // The last unit of this part that `extent` touches, and how much of it.
        let unit = last_unit - (last_unit - first_unit) % self.parts();
        let end = if unit == last_unit { last } else { unit * self.unit + self.unit - 1 };
        let (begin, end) = (self.locate(GlobalOffset(begin)).1, self.locate(GlobalOffset(end)).1);
        (part, LocalExtent::within_valid(begin.0, end.0 + 1))
    }

    pub(crate) fn part_len(self, part: u16, file_size: ByteCount) -> ByteCount {
        let round = self.unit * self.parts();
        let (rounds, rest) = (file_size.0 / round, file_size.0 % round);
        let last = rest.saturating_sub(u64::from(part) * self.unit).min(self.unit);
        ByteCount(rounds * self.unit + last)
    }
}
