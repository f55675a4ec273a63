//! Slots: a fixed pool of transfer buffers, all made at the start.
//!
//! Here: taking a slot, its return when it is dropped, telling those who wait.
//! Rooms: [`region`] is the memory. Not here: waiting (this crate is not asynchronous; a server
//! registers what to call with [`SlotPool::on_return`]).
//!
//! Invariants: the pool never grows, so memory is bounded whatever the load; a slot's memory belongs
//! to its [`Slot`] alone from `try_take` to drop.

use std::cell::UnsafeCell;
use std::sync::{Arc, Mutex, MutexGuard};

use hayase_layout::ByteCount;

mod region;

use self::region::Region;

/// Bytes of one slot.
pub const SLOT_SIZE: ByteCount = ByteCount::mib(1);

type Waker = Box<dyn Fn() + Send + Sync>;

/// See the module header. Clones share the pool.
#[derive(Clone)]
pub struct SlotPool {
    shared: Arc<Shared>,
}

struct Shared {
    region: Region,
    /// Numbers of the slots that nobody has. The one used last is taken first: it is in the caches.
    free: Mutex<Vec<usize>>,
    wakers: Mutex<Vec<Waker>>,
}

impl SlotPool {
    /// A pool of `count` slots in one piece of memory, in huge pages where the kernel gives them.
    /// Pages that were never used cost nothing.
    pub fn new(count: usize) -> std::io::Result<Self> {
        let region = Region::new(count)?;
        let free = Mutex::new((0..count).rev().collect());
        Ok(Self { shared: Arc::new(Shared { region, free, wakers: Mutex::default() }) })
    }

    /// A slot, or `None` when all are taken. Its bytes are what its last user left.
    pub fn try_take(&self) -> Option<Slot> {
        let index = self.shared.free().pop()?;
        Some(Slot { shared: Arc::clone(&self.shared), index })
    }

    /// Calls `waker` after each return of a slot, on the thread that returned it. It must be quick
    /// and must not take a slot itself.
    pub fn on_return(&self, waker: Waker) {
        self.shared.wakers.lock().expect("no waker panics").push(waker);
    }

    /// Slots that can be taken now.
    pub fn free(&self) -> usize {
        self.shared.free().len()
    }

    /// The addresses of all slots, one piece of memory, for who registers it with the kernel.
    pub(crate) fn span(&self) -> std::ops::Range<usize> {
        self.shared.region.span()
    }

    /// All slots.
    pub fn count(&self) -> usize {
        self.shared.region.count()
    }
}

/// All slots, whoever has them: for who has their memory registered with a device.
impl AsRef<[UnsafeCell<u8>]> for SlotPool {
    fn as_ref(&self) -> &[UnsafeCell<u8>] {
        self.shared.region.cells()
    }
}

impl Shared {
    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().expect("no holder of this lock panics")
    }
}

/// One buffer of [`SLOT_SIZE`]; goes back to its pool when it is dropped.
pub struct Slot {
    shared: Arc<Shared>,
    index: usize,
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        self.shared.region.slot(&self.index)
    }
}

impl AsMut<[u8]> for Slot {
    fn as_mut(&mut self) -> &mut [u8] {
        self.shared.region.slot_mut(&mut self.index)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.free().push(self.index);
        for waker in self.shared.wakers.lock().expect("no waker panics").iter() {
            waker();
        }
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slot({})", self.index)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn slots_are_few_and_come_back() {
        let pool = SlotPool::new(3).unwrap();
        let returned = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&returned);
        pool.on_return(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let slots: Vec<_> = (0..3).map(|_| pool.try_take().unwrap()).collect();
        assert!(pool.try_take().is_none());
        assert_eq!((pool.free(), pool.count()), (0, 3));
        drop(slots);
        assert_eq!((pool.free(), returned.load(Ordering::Relaxed)), (3, 3));
    }

    #[test]
    fn slots_do_not_overlap() {
        let pool = SlotPool::new(4).unwrap();
        let mut slots: Vec<_> = (0..4).map(|_| pool.try_take().unwrap()).collect();
        for (fill, slot) in slots.iter_mut().enumerate() {
            assert_eq!(slot.as_mut().len() as u64, SLOT_SIZE.get());
            slot.as_mut().fill(fill as u8 + 1);
        }
        for (fill, slot) in slots.iter().enumerate() {
            assert!(slot.as_ref().iter().all(|byte| *byte == fill as u8 + 1));
            assert_eq!(slot.as_ref().as_ptr().align_offset(4096), 0, "fit for direct I/O");
        }
    }

    #[test]
    fn a_slot_outlives_the_pool_and_crosses_threads() {
        let pool = SlotPool::new(1).unwrap();
        let mut slot = pool.try_take().unwrap();
        drop(pool);
        std::thread::spawn(move || slot.as_mut()[0] = 7).join().unwrap();
    }

    #[test]
    fn threads_never_share_a_slot() {
        let pool = SlotPool::new(2).unwrap();
        std::thread::scope(|scope| {
            for fill in 1..=4u8 {
                let pool = &pool;
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        let Some(mut slot) = pool.try_take() else { continue };
                        slot.as_mut()[..64].fill(fill);
                        std::thread::yield_now();
                        assert!(slot.as_ref()[..64].iter().all(|byte| *byte == fill));
                    }
                });
            }
        });
        assert_eq!(pool.free(), 2);
    }
}
