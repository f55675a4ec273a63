//! Extents: contiguous bytes, and sorted lists of them.
//!
//! Here: one half-open range of one kind of offset; lists that stay sorted, disjoint and coalesced.
//! Not here: regular patterns of many extents ([`crate::run`]), where their bytes lie ([`crate::Layout`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ByteCount, GlobalOffset, LocalOffset, StreamOffset, units::Offset};

mod list;

pub use list::ExtentList;

/// `start..start + len`; may be empty. Ends at [`crate::units::OFFSET_MAX`] or before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(
    try_from = "(O, ByteCount)",
    into = "(O, ByteCount)",
    bound(serialize = "O: Offset", deserialize = "O: Offset")
)]
pub struct Extent<O = GlobalOffset> {
    start: O,
    len: ByteCount,
}

/// Contiguous bytes of one part.
pub type LocalExtent = Extent<LocalOffset>;

/// Contiguous bytes of a view stream.
pub type StreamExtent = Extent<StreamOffset>;

/// Why two numbers are no extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtentError {
    /// It would end beyond what `off_t` can say.
    #[error("{len} bytes at offset {start} end beyond the largest file offset")]
    TooFar {
        /// First byte.
        start: u64,
        /// Number of bytes.
        len: u64,
    },
    /// The end is before the start.
    #[error("a range cannot end at {end}, before its start {start}")]
    Backwards {
        /// First byte.
        start: u64,
        /// First byte behind.
        end: u64,
    },
}

impl<O: Offset> Extent<O> {
    /// Fails when the end is beyond [`crate::units::OFFSET_MAX`].
    pub fn new(start: O, len: ByteCount) -> Result<Self, ExtentError> {
        match start.checked_add(len) {
            Some(_) => Ok(Self { start, len }),
            None => Err(ExtentError::TooFar { start: start.get(), len: len.0 }),
        }
    }

    /// `start..end`; fails when `end` is before `start`, or too far.
    pub fn between(start: O, end: O) -> Result<Self, ExtentError> {
        let len = start
            .distance_to(end)
            .ok_or(ExtentError::Backwards { start: start.get(), end: end.get() })?;
        Self::new(start, len)
    }

    /// Inside this module and its neighbours only: ends taken from valid extents are valid.
    pub(crate) fn within_valid(start: u64, end: u64) -> Self {
        debug_assert!(start <= end && end <= crate::units::OFFSET_MAX);
        Self { start: O::at(start), len: ByteCount(end - start) }
    }

    /// First byte.
    pub fn start(self) -> O {
        self.start
    }

    /// First byte behind.
    pub fn end(self) -> O {
        O::at(self.start.get() + self.len.0)
    }

    /// Number of bytes.
    pub fn len(self) -> ByteCount {
        self.len
    }

    /// Whether it holds no byte.
    pub fn is_empty(self) -> bool {
        self.len.is_zero()
    }

    /// Whether the byte at `offset` is inside.
    pub fn contains(self, offset: O) -> bool {
        self.start <= offset && offset < self.end()
    }

    /// Whether every byte of `other` is inside; an empty one always is.
    pub fn covers(self, other: Self) -> bool {
        other.is_empty() || self.start <= other.start && other.end() <= self.end()
    }

    /// Whether some byte is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.intersect(other).is_some()
    }

    /// The bytes in both; `None` when there are none.
    pub fn intersect(self, other: Self) -> Option<Self> {
        let (start, end) = (self.start.max(other.start).get(), self.end().min(other.end()).get());
        (start < end).then(|| Self::within_valid(start, end))
    }

    /// The part before `offset` and the part from it on; either may be empty.
    pub fn split_at(self, offset: O) -> (Self, Self) {
        let (start, end) = (self.start.get(), self.end().get());
        let middle = offset.get().clamp(start, end);
        (Self::within_valid(start, middle), Self::within_valid(middle, end))
    }

    /// Consecutive pieces that end at multiples of `step` of the offset, in order, none empty.
    ///
    /// Panics when `step` is zero. O(1) each, no allocation.
    pub fn chunks(self, step: ByteCount) -> impl Iterator<Item = Self> + Clone {
        assert!(!step.is_zero(), "chunks have a length");
        let (mut at, end) = (self.start.get(), self.end().get());
        std::iter::from_fn(move || {
            let stop = at.checked_add(step.0 - at % step.0).map_or(end, |stop| stop.min(end));
            let chunk = (at < end).then(|| Self::within_valid(at, stop));
            at = stop;
            chunk
        })
    }
}

impl<O: Offset> From<Extent<O>> for (O, ByteCount) {
    fn from(extent: Extent<O>) -> Self {
        (extent.start, extent.len)
    }
}

impl<O: Offset> TryFrom<(O, ByteCount)> for Extent<O> {
    type Error = ExtentError;

    fn try_from((start, len): (O, ByteCount)) -> Result<Self, Self::Error> {
        Self::new(start, len)
    }
}

impl<O: Offset> fmt::Display for Extent<O> {
    /// `start..end`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start(), self.end())
    }
}

impl<O: Offset> fmt::Debug for Extent<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::OFFSET_MAX;

    fn extent(start: u64, end: u64) -> Extent {
        Extent::between(GlobalOffset(start), GlobalOffset(end)).unwrap()
    }

    #[test]
    fn extents_end_where_files_can() {
        let check = |start, len, valid| {
            assert_eq!(Extent::new(GlobalOffset(start), ByteCount(len)).is_ok(), valid);
        };
        check(0, 0, true);
        check(OFFSET_MAX, 0, true);
        check(OFFSET_MAX - 1, 1, true);
        check(OFFSET_MAX, 1, false);
        check(u64::MAX, 0, false);
        check(1, u64::MAX, false); // the sum overflows
        assert!(Extent::between(GlobalOffset(2), GlobalOffset(1)).is_err());
    }

    #[test]
    fn bytes_from_outside_are_checked_too() {
        let bytes = postcard::to_stdvec(&(GlobalOffset(1), ByteCount(u64::MAX))).unwrap();
        assert!(postcard::from_bytes::<Extent>(&bytes).is_err());
        let bytes = postcard::to_stdvec(&extent(3, 9)).unwrap();
        assert_eq!(postcard::from_bytes::<Extent>(&bytes).unwrap(), extent(3, 9));
    }

    #[test]
    fn ranges_are_half_open() {
        let check = |a: Extent, b: Extent, both: &str| {
            let text = a.intersect(b).map(|both| both.to_string()).unwrap_or_default();
            assert_eq!(text, both);
            assert_eq!(a.overlaps(b), !both.is_empty());
            assert_eq!(b.intersect(a), a.intersect(b));
        };
        check(extent(0, 5), extent(5, 9), "");
        check(extent(0, 6), extent(5, 9), "5..6");
        check(extent(0, 9), extent(2, 4), "2..4");
        check(extent(0, 9), extent(4, 4), "");
        assert!(extent(0, 5).contains(GlobalOffset(4)) && !extent(0, 5).contains(GlobalOffset(5)));
        assert!(extent(0, 5).covers(extent(3, 5)) && !extent(0, 5).covers(extent(3, 6)));
        assert_eq!(extent(2, 8).split_at(GlobalOffset(3)), (extent(2, 3), extent(3, 8)));
        assert_eq!(extent(2, 8).split_at(GlobalOffset(9)), (extent(2, 8), extent(8, 8)));
    }

    #[test]
    fn chunks_end_at_multiples() {
        let check = |whole: Extent, step, text: &str| {
            let chunks: Vec<_> =
                whole.chunks(ByteCount(step)).map(|chunk| chunk.to_string()).collect();
            assert_eq!(chunks.join(" "), text);
        };
        check(extent(3, 12), 4, "3..4 4..8 8..12");
        check(extent(4, 5), 4, "4..5");
        check(extent(4, 4), 4, "");
        check(extent(3, 12), u64::MAX, "3..12");
        check(extent(OFFSET_MAX - 2, OFFSET_MAX), 4, "9223372036854775805..9223372036854775807");
    }
}
