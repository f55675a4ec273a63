//! Memory that many buffers lie in: a pool of slots, an arena.
//!
//! For transports that have it registered with their devices once. Not here: the buffers in it, and who may touch
//! which ([`crate::buffer`]).

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

/// One piece of memory that stays mapped, and where it is, as long as this lives.
///
/// Made from what owns it. Cells, since others read and write there meanwhile; nothing is done here but to know
/// the place.
pub struct Region {
    start: NonNull<UnsafeCell<u8>>,
    len: usize,
    _owner: Box<dyn AsRef<[UnsafeCell<u8>]>>,
}

impl Region {
    /// The memory of `owner`, kept by it: asked for once, and never lent to be changed again.
    pub fn new(owner: impl AsRef<[UnsafeCell<u8>]> + 'static) -> Self {
        // In a box, so that bytes inside of the owner itself stay where they are, too.
        let owner: Box<dyn AsRef<[UnsafeCell<u8>]>> = Box::new(owner);
        let cells = (*owner).as_ref();
        Self { start: NonNull::from(cells).cast(), len: cells.len(), _owner: owner }
    }

    /// Its first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }

    /// Its addresses.
    pub fn span(&self) -> Range<usize> {
        let start = self.start.addr().get();
        start..start + self.len
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Inside([UnsafeCell<u8>; 16]);

    impl AsRef<[UnsafeCell<u8>]> for Inside {
        fn as_ref(&self) -> &[UnsafeCell<u8>] {
            &self.0
        }
    }

    #[test]
    fn it_stays_where_it_is() {
        let region = Region::new(Inside([0; 16].map(UnsafeCell::new)));
        let (start, span) = (region.start(), region.span());
        let moved = [region];
        assert_eq!((moved[0].start(), moved[0].span()), (start, span.clone()));
        assert_eq!((start.addr(), span.len()), (span.start, 16));
    }
}
