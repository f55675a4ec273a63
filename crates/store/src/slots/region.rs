//! The memory of all slots: one anonymous mapping, 2 MiB aligned, in huge pages if possible.
//!
//! Source: measurements of direct I/O, where 1 MiB in scattered 4 KiB pages is split by the block
//! layer: huge pages are worth more than registered buffers.
#![expect(unsafe_code, reason = "a mapping shared out in disjoint pieces; wrapped at once")]

use std::cell::UnsafeCell;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::SLOT_SIZE;

const SLOT_BYTES: usize = SLOT_SIZE.get() as usize;
const HUGE_BYTES: usize = 2 * 1024 * 1024;

/// Memory of `count` slots. Who owns the number of a slot owns its bytes: a number is the proof, so
/// it is neither copied nor made outside of `slots.rs`, where the free list holds each once.
pub(super) struct Region {
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    first: NonNull<u8>,
    count: usize,
}

// SAFETY: the region is plain memory, not bound to a thread; access to its slots is exclusive by
// ownership of their numbers.
unsafe impl Send for Region {}
// SAFETY: as above; `slot` and `slot_mut` borrow the number as Rust borrows the bytes.
unsafe impl Sync for Region {}

impl Region {
    pub(super) fn new(count: usize) -> io::Result<Self> {
        let too_many = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = count.checked_mul(SLOT_BYTES).ok_or_else(too_many)?;
        let mapping_bytes = bytes.checked_add(HUGE_BYTES).ok_or_else(too_many)?;
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let mapping =
            unsafe { mmap_anonymous(std::ptr::null_mut(), mapping_bytes, rights, flags)? };
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or_else(too_many)?;
        let padding = mapping.align_offset(HUGE_BYTES);
        // SAFETY: `padding` < HUGE_BYTES, and the mapping is that much longer than the slots.
        let first = unsafe { mapping.add(padding) };
        // Only advice: where there are no huge pages, small ones do.
        // SAFETY: the range lies in the mapping, and this advice keeps its contents.
        let _ = unsafe { madvise(first.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Ok(Self { mapping, mapping_bytes, first, count })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Addresses of all slots. Their order is that of their numbers.
    pub(super) fn span(&self) -> std::ops::Range<usize> {
        let start = self.first.as_ptr().expose_provenance();
        start..start + self.count * SLOT_BYTES
    }

    /// The memory of all slots, whoever has them.
    pub(super) fn cells(&self) -> &[UnsafeCell<u8>] {
        // SAFETY: inside the mapping, which lives as long as this. Cells promise nothing about who reads and writes
        // meanwhile.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr().cast(), self.count * SLOT_BYTES) }
    }

    /// The bytes of slot `index`, for as long as its number is borrowed.
    pub(super) fn slot<'a>(&'a self, index: &'a usize) -> &'a [u8] {
        let start = self.start(*index);
        // SAFETY: inside the mapping (checked), initialised (zero pages), and nobody writes while
        // the only number of this slot is borrowed.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), SLOT_BYTES) }
    }

    /// As [`Region::slot`], to write.
    pub(super) fn slot_mut<'a>(&'a self, index: &'a mut usize) -> &'a mut [u8] {
        let start = self.start(*index);
        // SAFETY: as in `slot`, and the number is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), SLOT_BYTES) }
    }

    fn start(&self, index: usize) -> NonNull<u8> {
        assert!(index < self.count, "slot numbers come from the free list");
        // SAFETY: `index` < `count`, and the mapping holds `count` slots from `first`.
        unsafe { self.first.add(index * SLOT_BYTES) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slot is left: each holds the pool.
        let unmapped = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
        debug_assert!(unmapped.is_ok(), "the range is the one that was mapped");
    }
}
