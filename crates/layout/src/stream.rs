//! Streams: what every regular pattern of bytes can tell, whatever it is made of.
//!
//! Here: the map between a dense sequence of bytes and the places in a file that it selects, in order.
//! Not here: the patterns themselves ([`crate::run`], [`crate::view`]).
//!
//! All patterns are ascending: a later byte of the stream lies at a later offset. So the bytes that a
//! pattern has in one extent of the file are one extent of its stream, whatever their gaps.

use crate::{ByteCount, Extent, GlobalOffset, Offset, StreamExtent, StreamOffset};

/// An ascending pattern of bytes: stream <-> file.
pub trait StreamMap {
    /// Where the byte at `offset` of the stream lies, and how many bytes from it on lie behind each other
    /// at least. `None` behind the end of the pattern.
    fn stretch(&self, offset: StreamOffset) -> Option<(GlobalOffset, ByteCount)>;

    /// How many bytes of the stream lie before `offset` of the file.
    fn rank(&self, offset: GlobalOffset) -> StreamOffset;

    /// Forward: where the byte at `offset` of the stream lies. `None` behind the end of the pattern.
    fn forward(&self, offset: StreamOffset) -> Option<GlobalOffset> {
        self.stretch(offset).map(|(start, _)| start)
    }

    /// Backward: which byte of the stream lies at `offset`. `None` in gaps and outside.
    fn backward(&self, offset: GlobalOffset) -> Option<StreamOffset> {
        let rank = self.rank(offset);
        (self.forward(rank) == Some(offset)).then_some(rank)
    }

    /// The bytes of the stream that lie in `extent`.
    fn within(&self, extent: Extent) -> StreamExtent {
        StreamExtent::within_valid(self.rank(extent.start()).0, self.rank(extent.end()).0)
    }

    /// Where the bytes `window` of the stream lie: ascending, longest possible, none empty.
    ///
    /// Lengths sum to `window.len()` unless the pattern ends before. One [`StreamMap::stretch`] each, no
    /// allocation.
    fn extents(&self, window: StreamExtent) -> Extents<'_, Self> {
        Extents { map: self, rest: window, held: None }
    }

    /// Visits the bytes `window` of the stream as extents: ascending, none empty, neighbours may touch.
    ///
    /// The same bytes as of [`StreamMap::extents`], in a few additions each where a pattern counts along.
    fn walk(&self, window: StreamExtent, visit: &mut impl FnMut(Extent))
    where
        Self: Sized,
    {
        self.extents(window).for_each(visit);
    }
}

/// See [`StreamMap::extents`].
#[derive(Debug)]
pub struct Extents<'a, M: ?Sized> {
    map: &'a M,
    rest: StreamExtent,
    /// Found, but its neighbour may touch it.
    held: Option<Extent>,
}

impl<M: StreamMap + ?Sized> Extents<'_, M> {
    fn next_stretch(&mut self) -> Option<Extent> {
        if self.rest.is_empty() {
            return None;
        }
        let (start, len) = self.map.stretch(self.rest.start())?;
        let len = len.min(self.rest.len());
        self.rest = self.rest.split_at(StreamOffset(self.rest.start().0 + len.0)).1;
        Some(Extent::within_valid(start.0, start.0 + len.0))
    }
}

impl<M: StreamMap + ?Sized> Iterator for Extents<'_, M> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let mut found = match self.held.take() {
            Some(held) => held,
            None => self.next_stretch()?,
        };
        while let Some(next) = self.next_stretch() {
            if next.start() != found.end() {
                self.held = Some(next);
                break;
            }
            found = Extent::within_valid(found.start().get(), next.end().get());
        }
        Some(found)
    }
}
