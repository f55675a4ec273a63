//! Pieces: what an extent of a file is, in its parts and in the caller's buffer.
//!
//! Here: the two forms that every map gives. One [`Piece`] is contiguous everywhere; one [`PartPiece`]
//! is contiguous in its part and scattered in the buffer, so that a call is one request per part.
//! Not here: the maps that make them ([`crate::StripeMap`], [`crate::PartMap`]).

use std::ops::Range;

use crate::{Extent, LocalExtent, ServerId, deal::Deal, units::Offset};

/// Bytes that are contiguous in the file, in one part and in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which part of the file, counted from 0.
    pub part: u32,
    /// Where that part lies.
    pub server: ServerId,
    /// Where in the part.
    pub local: LocalExtent,
    /// Where in the file.
    pub extent: Extent,
    /// Where in the caller's buffer, whose byte 0 is the start of the extent that was split.
    pub(crate) buffer: u64,
}

impl Piece {
    /// Where in the caller's buffer, whose byte 0 is the start of the extent that was split.
    pub fn buffer(&self) -> Range<usize> {
        // No cut: `usize` has 64 bits wherever this crate builds (checked in lib.rs).
        self.buffer as usize..(self.buffer + self.extent.len().0) as usize
    }
}

/// All bytes of an extent that lie in one part: contiguous there, in several pieces of the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartPiece {
    /// Which part of the file, counted from 0.
    pub part: u16,
    /// Where that part lies.
    pub server: ServerId,
    /// Where in the part.
    pub local: LocalExtent,
    pub(crate) window: Extent,
    pub(crate) deal: Deal,
    /// How far the part's bytes lie behind where the deal alone puts them.
    pub(crate) shift: u64,
}

impl PartPiece {
    /// Where its bytes are in the caller's buffer, in the order in which they lie in the part.
    ///
    /// Lengths sum to `local.len()`; none is empty. O(1) each, no allocation.
    pub fn buffers(&self) -> impl Iterator<Item = Range<usize>> + Clone + use<> {
        let Self { part, window, deal, shift, .. } = *self;
        let dealt =
            LocalExtent::within_valid(self.local.start().0 - shift, self.local.end().0 - shift);
        dealt.chunks(deal.unit()).map(move |chunk| {
            let start = deal.global(part, chunk.start()).expect("made from a valid extent").get();
            let start = (start - window.start().0) as usize;
            start..start + chunk.len().0 as usize
        })
    }

    /// The same bytes as several pieces of at most `len_max` bytes, in order of their place.
    ///
    /// Cuts at multiples of `len_max` in the part. Panics when `len_max` is zero.
    pub fn requests(&self, len_max: crate::ByteCount) -> impl Iterator<Item = Self> + use<> {
        let whole = *self;
        self.local.chunks(len_max).map(move |local| Self { local, ..whole })
    }

    /// Copies its bytes out of the caller's buffer, into the order in which they lie in the part.
    ///
    /// Panics when `target` is not as long as `local`, or `source` is not the caller's buffer.
    pub fn gather(&self, source: &[u8], target: &mut [u8]) {
        let mut at = 0;
        for range in self.buffers() {
            let len = range.len();
            target[at..at + len].copy_from_slice(&source[range]);
            at += len;
        }
        assert_eq!(at, target.len(), "as many bytes as the piece has");
    }

    /// Copies bytes of the part, from the start of `local` on, to where they belong in the caller's
    /// buffer. `source` may be shorter than `local`, as after a short read.
    pub fn scatter(&self, source: &[u8], target: &mut [u8]) {
        let mut rest = source;
        for range in self.buffers() {
            let (now, later) = rest.split_at(range.len().min(rest.len()));
            target[range.start..range.start + now.len()].copy_from_slice(now);
            rest = later;
        }
        assert!(rest.is_empty(), "no more bytes than the piece has");
    }
}
