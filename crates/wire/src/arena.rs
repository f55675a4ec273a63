//! Memory that a process shares with the server of its node: a memfd of slots of 1 MiB.
//!
//! The process makes it, takes slots and puts bytes there; the server opens the descriptor that
//! came with the first message and finds the bytes at the same place. Only slot numbers travel.
//!
//! Invariants: the memfd is sealed against shrinking and growing before anyone else has it, so no
//! access can fault; of an [`Arena`] at most one handle of a slot exists; the mapping lives as
//! long as any handle. A slot is of the process or of its server, never of both: the server's from the request that
//! names it to the answer. Slots are plain `&[u8]` here, so that file and network take them without a copy; that
//! nobody else writes there meanwhile is what [`Arena::open`] and [`Arena::descriptor`] oblige their callers to. A process
//! that breaks its word harms its own data: the server takes the bytes as they are and never decides by them twice.

use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::limits::{ARENA_SLOTS_MAX, PAYLOAD_BYTES_MAX};

const SLOT_BYTES: usize = PAYLOAD_BYTES_MAX;

/// Why there is no arena, or no such slot in it.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// None, or more than allowed.
    #[error("arena of {slots} slots: 1 to {ARENA_SLOTS_MAX} allowed")]
    Slots {
        /// As asked for.
        slots: u32,
    },
    /// The kernel would not make or map it.
    #[error("{action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The descriptor could be made shorter while we use it, or is no memfd.
    #[error("open arena: its descriptor is not sealed against shrinking")]
    Unsealed,
    /// Shorter or longer than its slots.
    #[error("open arena: {found} bytes where {expected} belong to its slots")]
    Size {
        /// By its slots.
        expected: u64,
        /// By fstat.
        found: u64,
    },
    /// There is no such slot.
    #[error("slot {slot} of an arena of {slots}")]
    NoSlot {
        /// As asked for.
        slot: u32,
        /// How many there are.
        slots: u32,
    },
    /// Longer than a slot.
    #[error("{len} bytes in a slot of {SLOT_BYTES}")]
    Length {
        /// As asked for.
        len: u32,
    },
    /// Another request uses it now.
    #[error("slot {slot} is in use by another request")]
    Busy {
        /// As asked for.
        slot: u32,
    },
}

/// One arena, as this process sees it. Clones are the same arena.
#[derive(Clone)]
pub struct Arena {
    inner: Arc<Inner>,
}

struct Inner {
    mapping: Mapping,
    descriptor: OwnedFd,
    /// One for each slot: a handle exists.
    taken: Box<[AtomicBool]>,
    /// Slots that [`Arena::take`] gives out; empty in a process that opened the arena.
    free: Mutex<Vec<u32>>,
    freed: Condvar,
}

impl Arena {
    /// A new arena of `slots` slots, for this process to take and lend.
    pub fn create(slots: u32) -> Result<Self, ArenaError> {
        let len = arena_len(slots)?;
        let action = |action| move |error: rustix::io::Errno| io_error(action, error);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor =
            memfd_create("hayase-arena", flags).map_err(action("make the memory of an arena"))?;
        rustix::fs::ftruncate(&descriptor, len as u64).map_err(action("size an arena"))?;
        fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(action("seal an arena"))?;
        Self::map(descriptor, slots, len, (0..slots).rev().collect())
    }

    /// The arena of another process, by its descriptor.
    ///
    /// # Safety
    /// While a slot is borrowed here nobody else writes to it: not the process that made the arena, not another
    /// [`Arena`] of the same memory, nobody by the descriptor; while it is borrowed to be changed nobody else reads it
    /// either.
    ///
    /// ```compile_fail,E0133
    /// # fn second_view(memory: std::os::fd::OwnedFd) {
    /// let _ = hayase_wire::Arena::open(memory, 1); // Not without `unsafe`.
    /// # }
    /// ```
    pub unsafe fn open(descriptor: OwnedFd, slots: u32) -> Result<Self, ArenaError> {
        let len = arena_len(slots)?;
        // A file that knows no seals answers EINVAL.
        let seals = fcntl_get_seals(&descriptor).map_err(|_| ArenaError::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(ArenaError::Unsealed);
        }
        let stat =
            rustix::fs::fstat(&descriptor).map_err(|error| io_error("measure an arena", error))?;
        let found = stat.st_size as u64;
        if found != len as u64 {
            return Err(ArenaError::Size { expected: len as u64, found });
        }
        Self::map(descriptor, slots, len, Vec::new())
    }

    fn map(
        descriptor: OwnedFd,
        slots: u32,
        len: usize,
        free: Vec<u32>,
    ) -> Result<Self, ArenaError> {
        let mapping = Mapping::new(descriptor.as_fd(), len)?;
        let taken = (0..slots).map(|_| AtomicBool::new(false)).collect();
        let (free, freed) = (Mutex::new(free), Condvar::new());
        Ok(Self { inner: Arc::new(Inner { mapping, descriptor, taken, free, freed }) })
    }

    /// What the server needs to open it.
    ///
    /// # Safety
    /// Whoever has it, or a copy, uses a slot only while it is not borrowed here, as [`Arena::open`] says.
    ///
    /// ```compile_fail,E0133
    /// # fn write_below(arena: &hayase_wire::Arena) {
    /// let _ = arena.descriptor(); // Not without `unsafe`.
    /// # }
    /// ```
    pub unsafe fn descriptor(&self) -> BorrowedFd<'_> {
        self.inner.descriptor.as_fd()
    }

    /// How many slots it has.
    pub fn slots(&self) -> u32 {
        self.inner.taken.len() as u32
    }

    /// A free slot; waits while all are taken.
    pub fn take(&self) -> Slot {
        let mut free = self.lock_free();
        loop {
            if let Some(slot) = self.pop(&mut free) {
                return slot;
            }
            free = self.inner.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A free slot, or `None` when all stay taken for `wait`.
    pub fn take_within(&self, wait: Duration) -> Option<Slot> {
        let until = Instant::now() + wait;
        let mut free = self.lock_free();
        loop {
            if let Some(slot) = self.pop(&mut free) {
                return Some(slot);
            }
            let left = until.checked_duration_since(Instant::now())?;
            let waited = self.inner.freed.wait_timeout(free, left);
            free = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A free slot, if there is one now.
    pub fn try_take(&self) -> Option<Slot> {
        self.pop(&mut self.lock_free())
    }

    fn lock_free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        // The list is whole after each of its operations, also in a thread that panics.
        self.inner.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pop(&self, free: &mut Vec<u32>) -> Option<Slot> {
        let slot = free.pop()?;
        let mut claimed = self.claim(slot, SLOT_BYTES).expect("a free slot has no handle");
        claimed.listed = true;
        Some(Slot { slot: claimed })
    }

    /// The first `len` bytes of slot `slot`, as a request names them.
    pub fn slot(&self, slot: u32, len: u32) -> Result<ArenaSlot, ArenaError> {
        let slots = self.slots();
        if slot >= slots {
            return Err(ArenaError::NoSlot { slot, slots });
        }
        if len as usize > SLOT_BYTES {
            return Err(ArenaError::Length { len });
        }
        self.claim(slot, len as usize)
    }

    fn claim(&self, slot: u32, len: usize) -> Result<ArenaSlot, ArenaError> {
        if self.inner.taken[slot as usize].swap(true, Ordering::Acquire) {
            return Err(ArenaError::Busy { slot });
        }
        Ok(ArenaSlot { inner: self.inner.clone(), slot, len, listed: false })
    }
}

fn arena_len(slots: u32) -> Result<usize, ArenaError> {
    if slots == 0 || slots > ARENA_SLOTS_MAX {
        return Err(ArenaError::Slots { slots });
    }
    Ok(slots as usize * SLOT_BYTES)
}

fn io_error(action: &'static str, error: rustix::io::Errno) -> ArenaError {
    ArenaError::Io { action, source: error.into() }
}

/// The start of one slot, with nobody else in this process at it; a [`crate::Buffer`].
pub struct ArenaSlot {
    inner: Arc<Inner>,
    slot: u32,
    len: usize,
    /// From the free list, and goes back there.
    listed: bool,
}

/// A slot that was taken: whole, and free again when dropped.
pub struct Slot {
    slot: ArenaSlot,
}

impl ArenaSlot {
    /// Its number, as it travels.
    pub fn index(&self) -> u32 {
        self.slot
    }
}

impl Slot {
    /// Its number, as it travels.
    pub fn index(&self) -> u32 {
        self.slot.slot
    }
}

impl AsRef<[u8]> for ArenaSlot {
    fn as_ref(&self) -> &[u8] {
        let start = self.inner.mapping.at(self.slot as usize * SLOT_BYTES, self.len);
        // SAFETY: `at` proved that the bytes are inside the mapping, which `inner` keeps; no other handle of the slot
        // exists in this arena (`taken`), `&self` keeps this one from writing, and others leave it alone as whoever
        // gave the memory to them or took it from them promised (`open`, `descriptor`). The memfd can not shrink. Any
        // bytes are valid `u8`.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len) }
    }
}

impl AsMut<[u8]> for ArenaSlot {
    fn as_mut(&mut self) -> &mut [u8] {
        let start = self.inner.mapping.at(self.slot as usize * SLOT_BYTES, self.len);
        // SAFETY: as in `as_ref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        self.slot.as_ref()
    }
}

impl AsMut<[u8]> for Slot {
    fn as_mut(&mut self) -> &mut [u8] {
        self.slot.as_mut()
    }
}

impl Drop for ArenaSlot {
    fn drop(&mut self) {
        let inner = &self.inner;
        let taken = &inner.taken[self.slot as usize];
        if self.listed {
            let mut free = inner.free.lock().unwrap_or_else(PoisonError::into_inner);
            // Under the lock, so that nobody pops a slot that still counts as taken.
            taken.store(false, Ordering::Release);
            free.push(self.slot);
            inner.freed.notify_one();
        } else {
            taken.store(false, Ordering::Release);
        }
    }
}

/// All slots, for a [`crate::region::Region`].
impl AsRef<[UnsafeCell<u8>]> for Arena {
    fn as_ref(&self) -> &[UnsafeCell<u8>] {
        let Mapping { start, len } = &self.inner.mapping;
        // SAFETY: the whole mapping, which `inner` keeps. Cells promise nothing about who reads and writes meanwhile.
        unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), *len) }
    }
}

/// Shared memory at a fixed place.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory that any thread may use; who may when is kept by `taken`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(descriptor: BorrowedFd<'_>, len: usize) -> Result<Self, ArenaError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice changes no memory in use.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, descriptor, 0)
        };
        let start = start.map_err(|error| io_error("map an arena", error))?;
        // SAFETY: the range was mapped just now; the advice does not change its content.
        // Large pages are only a wish.
        let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxHugepage) };
        let start = NonNull::new(start.cast()).expect("mmap gives no null without MAP_FIXED");
        Ok(Self { start, len })
    }

    /// The place of `start..start + len`; panics when that is not inside.
    fn at(&self, start: usize, len: usize) -> NonNull<u8> {
        assert!(start <= self.len && len <= self.len - start, "slots are inside their arena");
        // SAFETY: `start` is at most `len` bytes behind the start of one mapping of `len` bytes.
        unsafe { self.start.add(start) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; every handle holds an `Arc` of its owner, so
        // none is left.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping is unmapped once");
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} slots)", self.slots())
    }
}

impl fmt::Debug for ArenaSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArenaSlot({}, {} bytes)", self.slot, self.len)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({})", self.index())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// The tests borrow a slot of one of them at a time.
    fn second_view(arena: &Arena) -> Arena {
        // SAFETY: as said.
        unsafe { Arena::open(descriptor(arena), arena.slots()) }.unwrap()
    }

    fn descriptor(arena: &Arena) -> OwnedFd {
        // SAFETY: of `second_view`, or for what is refused.
        unsafe { arena.descriptor() }.try_clone_to_owned().unwrap()
    }

    #[test]
    fn bytes_of_one_process_are_seen_by_the_other() {
        let ours = Arena::create(3).unwrap();
        let theirs = second_view(&ours);
        let mut slot = ours.take();
        slot.as_mut()[..5].copy_from_slice(b"hello");
        let mut seen = theirs.slot(slot.index(), 5).unwrap();
        assert_eq!(seen.as_ref(), b"hello");
        seen.as_mut()[0] = b'j';
        assert_eq!(&slot.as_ref()[..5], b"jello");
        assert_eq!(slot.as_ref().len(), SLOT_BYTES);
        drop((ours, theirs));
        assert_eq!(seen.as_ref(), b"jello", "a slot keeps its memory");
    }

    #[test]
    fn slots_run_out_and_come_back() {
        let arena = Arena::create(2).unwrap();
        let (first, second) = (arena.take(), arena.take());
        assert_ne!(first.index(), second.index());
        assert!(arena.try_take().is_none());
        assert!(arena.take_within(Duration::from_millis(5)).is_none());
        let waiter = thread::spawn({
            let arena = arena.clone();
            move || arena.take().index()
        });
        let index = first.index();
        drop(first);
        assert_eq!(waiter.join().unwrap(), index);
        assert!(arena.try_take().is_some());
    }

    #[test]
    fn requests_name_only_slots_that_are_there_and_idle() {
        let arena = Arena::create(2).unwrap();
        let view = second_view(&arena);
        assert!(matches!(view.slot(2, 1), Err(ArenaError::NoSlot { slot: 2, slots: 2 })));
        assert!(matches!(view.slot(0, (1 << 20) + 1), Err(ArenaError::Length { .. })));
        let held = view.slot(0, 1 << 20).unwrap();
        assert!(matches!(view.slot(0, 1), Err(ArenaError::Busy { slot: 0 })));
        drop(held);
        assert!(view.slot(0, 0).unwrap().as_ref().is_empty());
    }

    #[test]
    fn what_could_fault_is_no_arena() {
        assert!(matches!(Arena::create(0), Err(ArenaError::Slots { .. })));
        assert!(matches!(Arena::create(ARENA_SLOTS_MAX + 1), Err(ArenaError::Slots { .. })));
        let arena = Arena::create(2).unwrap();
        // SAFETY: none of them is opened.
        let open = |memory, slots| unsafe { Arena::open(memory, slots) };
        assert!(matches!(open(descriptor(&arena), 3), Err(ArenaError::Size { .. })));
        assert!(rustix::fs::ftruncate(descriptor(&arena), 0).is_err(), "sealed");
        let plain = tempfile::tempfile().unwrap();
        plain.set_len(2 << 20).unwrap();
        assert!(matches!(open(plain.into(), 2), Err(ArenaError::Unsealed)));
        let unsealed = memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, 1 << 20).unwrap();
        assert!(matches!(open(unsealed, 1), Err(ArenaError::Unsealed)));
    }

    #[test]
    fn threads_never_share_a_slot() {
        let arena = Arena::create(3).unwrap();
        thread::scope(|scope| {
            for thread in 0..6u8 {
                let arena = &arena;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let mut slot = arena.take();
                        slot.as_mut()[..64].fill(thread);
                        thread::yield_now();
                        assert!(slot.as_ref()[..64].iter().all(|byte| *byte == thread));
                    }
                });
            }
        });
        assert_eq!(arena.lock_free().len(), 3);
    }
}
