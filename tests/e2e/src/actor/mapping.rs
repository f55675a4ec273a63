//! Mapped files: the only unsafe room of the tests.
//!
//! Other processes and other nodes change the bytes of a shared mapping while we look at them, so
//! they are never borrowed as a slice: each access copies through volatile loads and stores.
#![expect(unsafe_code, reason = "mmap, and access to memory that others change")]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use super::MapKind;

/// A mapped range of a file, unmapped on drop.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to no thread, and is only accessed by volatile copies.
unsafe impl Send for Mapping {}
// SAFETY: as above; races between threads concern bytes, as between processes.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        kind: MapKind,
    ) -> Result<Self, Errno> {
        let (prot, flags) = match kind {
            MapKind::SharedRead => (ProtFlags::READ, MapFlags::SHARED),
            MapKind::SharedWrite => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED),
            MapKind::Private => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE),
        };
        // SAFETY: a fresh mapping at a place of the kernel's choice overlaps nothing of ours.
        let start = unsafe { mmap(std::ptr::null_mut(), len, prot, flags, file, offset)? };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, len })
    }

    /// `None` when the range is not inside the mapping.
    pub(super) fn read(&self, offset: usize, len: usize) -> Option<Vec<u8>> {
        self.holds(offset, len)?;
        // SAFETY: `holds` proved that each place is inside the mapping, which lives as long as self.
        let byte = |at| unsafe { self.start.add(at).read_volatile() };
        Some((offset..offset + len).map(byte).collect())
    }

    /// `None` when the range is not inside the mapping.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Option<()> {
        self.holds(offset, bytes.len())?;
        for (at, byte) in (offset..).zip(bytes) {
            // SAFETY: as in `read`; a mapping that is not writable ends the process by SIGSEGV.
            unsafe { self.start.add(at).write_volatile(*byte) }
        }
        Some(())
    }

    pub(super) fn sync(&self) -> Result<(), Errno> {
        // SAFETY: the range is the whole mapping.
        unsafe { msync(self.start.as_ptr().cast(), self.len, MsyncFlags::SYNC) }
    }

    fn holds(&self, offset: usize, len: usize) -> Option<()> {
        (offset.checked_add(len)? <= self.len).then_some(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the whole mapping and nothing of it was lent out.
        // An error here could only be a wrong range; there is nobody to tell.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
