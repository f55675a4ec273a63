//! Parts in a counted area: every call that may allocate is charged before and settled after.
//!
//! Here: the decorator around another device. Not here: the count ([`super`]).
//!
//! A part is charged its allocated bytes, but not what the file system below allocates ahead of the
//! end of a growing file on its own account: that is given back when it runs short.
//! Invariant: `Charge::bytes` of all open and closed parts together are what `used` counts.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use hayase_layout::LocalOffset;

use super::Count;
use crate::device::{Device, DeviceFile, PartStat, SetTime, Whence};
use crate::part::{PartError, PartId};

/// File systems allocate in blocks; no common one takes larger ones than this.
const BLOCK: u64 = 4096;
/// Blocks that a write may allocate besides its bytes: at both ends, and one to find them.
const BLOCKS_BESIDE: u64 = 3;

/// A device whose files share a limit of bytes.
pub struct CountedDevice {
    inner: Arc<dyn Device>,
    path: PathBuf,
    count: Arc<Count>,
    /// Charges of open parts.
    open: Mutex<HashMap<PartId, Weak<Charge>>>,
}

/// What one part is charged. Given back when the part is removed and closed.
struct Charge {
    count: Arc<Count>,
    state: Mutex<ChargeState>,
}

struct ChargeState {
    bytes: u64,
    /// End of what `allocate` has reserved; counts though it lies behind the end of the file.
    reserved_end: u64,
    /// What it has reserved last: writing there needs nothing.
    reserved: Range<u64>,
    removed: bool,
}

impl CountedDevice {
    /// Charges `count` for the files of `inner`, which lie in `path` (for messages).
    pub(super) fn new(inner: Arc<dyn Device>, path: PathBuf, count: Arc<Count>) -> Self {
        Self { inner, path, count, open: Mutex::default() }
    }

    fn open_charges(&self) -> MutexGuard<'_, HashMap<PartId, Weak<Charge>>> {
        self.open.lock().expect("no holder of this lock panics")
    }

    fn wrap(&self, id: PartId, inner: Arc<dyn DeviceFile>, bytes: u64) -> Arc<dyn DeviceFile> {
        let mut open = self.open_charges();
        let charge = open.get(&id).and_then(Weak::upgrade).unwrap_or_else(|| {
            let state = ChargeState { bytes, reserved_end: 0, reserved: 0..0, removed: false };
            Arc::new(Charge { count: self.count.clone(), state: Mutex::new(state) })
        });
        if open.len() > 64 && open.len().is_power_of_two() {
            open.retain(|_, charge| charge.strong_count() > 0);
        }
        open.insert(id, Arc::downgrade(&charge));
        Arc::new(CountedFile { id, inner, path: self.path.clone(), charge })
    }
}

impl Device for CountedDevice {
    fn create(&self, id: PartId) -> Result<Arc<dyn DeviceFile>, PartError> {
        let file = self.inner.create(id)?;
        self.open_charges().remove(&id);
        Ok(self.wrap(id, file, 0))
    }

    fn open(&self, id: PartId) -> Result<Arc<dyn DeviceFile>, PartError> {
        let file = self.inner.open(id)?;
        let bytes = charged(&file.stat()?, 0);
        Ok(self.wrap(id, file, bytes))
    }

    fn remove(&self, id: PartId) -> Result<(), PartError> {
        let open = self.open_charges().get(&id).and_then(Weak::upgrade);
        if let Some(charge) = open {
            self.inner.remove(id)?;
            charge.lock().removed = true;
            self.open_charges().remove(&id);
            return Ok(());
        }
        let bytes = match self.inner.open(id).and_then(|file| file.stat()) {
            Ok(stat) => charged(&stat, 0),
            Err(PartError::Missing { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.inner.remove(id)?;
        self.count.give_back(bytes);
        Ok(())
    }

    fn list(&self) -> Result<Vec<PartId>, PartError> {
        self.inner.list()
    }
}

/// What a part is charged: its blocks, up to its end.
fn charged(stat: &PartStat, reserved_end: u64) -> u64 {
    let end = stat.size.max(reserved_end).div_ceil(BLOCK).saturating_mul(BLOCK);
    stat.blocks.saturating_mul(512).min(end)
}

impl ChargeState {
    fn has_reserved(&self, offset: u64, bytes: u64) -> bool {
        let end = offset.saturating_add(bytes);
        bytes > 0 && self.reserved.start <= offset && end <= self.reserved.end
    }
}

impl Charge {
    fn lock(&self) -> MutexGuard<'_, ChargeState> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Sets the charge to what the part has now.
    fn settle(&self, stat: &PartStat) {
        let mut state = self.lock();
        let bytes = charged(stat, state.reserved_end);
        if bytes > state.bytes {
            self.count.charge(bytes - state.bytes);
        } else {
            self.count.give_back(state.bytes - bytes);
        }
        state.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let state = self.lock();
        if state.removed {
            self.count.give_back(state.bytes);
        }
    }
}

struct CountedFile {
    id: PartId,
    inner: Arc<dyn DeviceFile>,
    path: PathBuf,
    charge: Arc<Charge>,
}

impl CountedFile {
    /// Makes a call that may allocate `bytes` (give or take blocks) at `offset`, if there is room.
    fn charging<T>(
        &self,
        action: &'static str,
        offset: Option<u64>,
        bytes: u64,
        call: impl FnOnce() -> Result<T, PartError>,
    ) -> Result<T, PartError> {
        let is_paid = offset.is_some_and(|offset| self.charge.lock().has_reserved(offset, bytes));
        let most = if is_paid { 0 } else { bytes.saturating_add(BLOCKS_BESIDE * BLOCK) };
        let mut taken = most;
        if !self.charge.count.take(most) {
            // Over bytes that are there already it needs nothing.
            let stat = self.inner.stat()?;
            let end = offset.map_or(u64::MAX, |offset| offset.saturating_add(bytes));
            if end > stat.size || stat.blocks.saturating_mul(512) < stat.size {
                let (part, device) = (self.id, self.path.clone());
                return Err(PartError::NoRoom { action, part, device });
            }
            taken = 0;
        }
        let result = call();
        let settled = self.settle();
        self.charge.count.give_back(taken);
        let value = result?;
        settled.map(|()| value)
    }

    fn settle(&self) -> Result<(), PartError> {
        match self.inner.stat() {
            Ok(stat) => {
                self.charge.settle(&stat);
                Ok(())
            }
            // Removed: its charge ends with its last user, as it stands.
            Err(PartError::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl DeviceFile for CountedFile {
    fn read_at(&self, offset: LocalOffset, buffer: &mut [u8]) -> Result<usize, PartError> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), PartError> {
        let write = || self.inner.write_at(offset, bytes);
        self.charging("write", Some(offset.0), bytes.len() as u64, write)
    }

    fn append(&self, bytes: &[u8]) -> Result<LocalOffset, PartError> {
        self.charging("append to", None, bytes.len() as u64, || self.inner.append(bytes))
    }

    fn truncate(&self, len: u64) -> Result<(), PartError> {
        self.inner.truncate(len)?;
        {
            let mut state = self.charge.lock();
            state.reserved_end = state.reserved_end.min(len);
            state.reserved.end = state.reserved.end.min(len);
        }
        self.settle()
    }

    fn sync(&self, data_only: bool) -> Result<(), PartError> {
        self.inner.sync(data_only)
    }

    fn check_writeback(&self) -> Result<(), PartError> {
        self.inner.check_writeback()
    }

    fn begin_writeback(&self, offset: LocalOffset, len: u64) -> Result<(), PartError> {
        self.inner.begin_writeback(offset, len)
    }

    fn stat(&self) -> Result<PartStat, PartError> {
        self.inner.stat()
    }

    fn set_times(&self, atime: Option<SetTime>, mtime: Option<SetTime>) -> Result<(), PartError> {
        self.inner.set_times(atime, mtime)
    }

    fn allocate(&self, mode: i32, offset: u64, len: u64) -> Result<(), PartError> {
        let allocate = || self.inner.allocate(mode, offset, len);
        if mode & !libc::FALLOC_FL_KEEP_SIZE != 0 {
            // Room may go, or lie elsewhere.
            self.charge.lock().reserved = 0..0;
        }
        if mode & libc::FALLOC_FL_PUNCH_HOLE != 0 {
            allocate()?;
            return self.settle();
        }
        self.charging("allocate", None, len, || {
            allocate()?;
            let mut state = self.charge.lock();
            state.reserved_end = state.reserved_end.max(offset.saturating_add(len));
            state.reserved = offset..offset.saturating_add(len);
            Ok(())
        })
    }

    fn seek(&self, offset: u64, whence: Whence) -> Result<Option<u64>, PartError> {
        self.inner.seek(offset, whence)
    }

    fn descriptor(&self) -> Result<Option<OwnedFd>, PartError> {
        // Who has a descriptor writes past the count.
        Ok(None)
    }

    fn path_descriptor(&self) -> Result<Option<OwnedFd>, PartError> {
        // The kernel would write past the count.
        Ok(None)
    }

    fn read_nowait(&self, offset: LocalOffset, buffer: &mut [u8]) -> Result<usize, PartError> {
        self.inner.read_nowait(offset, buffer)
    }

    fn write_nowait(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), PartError> {
        let write = || self.inner.write_nowait(offset, bytes);
        self.charging("write", Some(offset.0), bytes.len() as u64, write)
    }

    fn is_quiescent(&self) -> Result<bool, PartError> {
        // No process ever got a descriptor, so there is nobody to ask for.
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use hayase_layout::{ByteCount, InodeId};

    use super::super::CountedArea;
    use super::*;
    use crate::area::Area;

    fn id(ino: u64) -> PartId {
        PartId { ino: InodeId(ino), epoch: 0, index: 0 }
    }

    fn at(offset: u64) -> LocalOffset {
        LocalOffset(offset)
    }

    fn free(area: &CountedArea) -> u64 {
        area.usage().unwrap().free
    }

    #[test]
    fn passes_the_suite_of_devices() {
        let dir = tempfile::tempdir().unwrap();
        let count = std::cell::Cell::new(0);
        crate::device::conformance::run(&|| {
            count.set(count.get() + 1);
            let root = dir.path().join(count.get().to_string());
            CountedArea::open(&root, ByteCount::mib(64)).unwrap().parts().unwrap()
        });
    }

    #[test]
    fn a_full_area_says_so_and_overwrites_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let area = CountedArea::open(dir.path(), ByteCount::mib(1)).unwrap();
        let parts = area.parts().unwrap();
        let file = parts.create(id(1)).unwrap();
        let block = vec![1; 64 * 1024];
        let mut written = 0;
        let error = loop {
            match file.write_at(at(written), &block) {
                Ok(()) => written += block.len() as u64,
                Err(error) => break error,
            }
            assert!(written <= 1 << 20, "more than the limit");
        };
        assert_eq!(error.errno(), libc::ENOSPC);
        assert!(written >= 15 * 64 * 1024, "only {written} bytes fitted");
        file.write_at(at(0), &block).unwrap();
        assert_eq!(file.append(&block).unwrap_err().errno(), libc::ENOSPC);
        let other = parts.create(id(2)).unwrap();
        assert_eq!(other.write_at(at(0), &block).unwrap_err().errno(), libc::ENOSPC);
        assert_eq!(other.allocate(0, 0, 1 << 20).unwrap_err().errno(), libc::ENOSPC);
        file.truncate(0).unwrap();
        other.write_at(at(0), &block).unwrap();
    }

    #[test]
    fn space_comes_back_and_is_counted_again_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let area = CountedArea::open(dir.path(), ByteCount::mib(8)).unwrap();
        let parts = area.parts().unwrap();
        let all = free(&area);
        let block = vec![1; 1 << 20];
        for ino in 1..=3 {
            let file = parts.create(id(ino)).unwrap();
            file.write_at(at(0), &block).unwrap();
            file.allocate(libc::FALLOC_FL_KEEP_SIZE, 1 << 20, 4096).unwrap();
        }
        let used = all - free(&area);
        assert!((3 << 20..4 << 20).contains(&used), "{used}");
        parts.remove(id(1)).unwrap(); // closed
        let held = parts.open(id(2)).unwrap();
        parts.remove(id(2)).unwrap();
        assert_eq!((all - free(&area)) >> 20, 2, "an open part keeps its space");
        drop(held);
        assert_eq!((all - free(&area)) >> 20, 1);
        let again = CountedArea::open(dir.path(), ByteCount::mib(8)).unwrap();
        assert_eq!((all - free(&again)) >> 20, 1);
        again.parts().unwrap().remove(id(3)).unwrap();
        assert!(all - free(&again) < 1 << 20);
    }

    #[test]
    fn what_was_reserved_is_not_paid_twice() {
        let dir = tempfile::tempdir().unwrap();
        let area = CountedArea::open(dir.path(), ByteCount::mib(1)).unwrap();
        let file = area.parts().unwrap().create(id(1)).unwrap();
        let block = vec![1; 64 * 1024];
        file.write_at(at(0), &block).unwrap();
        let rest = free(&area) - 4 * BLOCK;
        file.allocate(libc::FALLOC_FL_KEEP_SIZE, 64 * 1024, rest).unwrap();
        assert!(free(&area) < 64 * 1024);
        for offset in (64 * 1024..rest).step_by(64 * 1024) {
            file.write_at(at(offset), &block).unwrap();
        }
        // Given back, it is not there any more.
        let size = file.stat().unwrap().size;
        file.truncate(size).unwrap();
        let left = free(&area);
        let refused = file.write_at(at(size), &vec![1; left as usize + 4096]).unwrap_err();
        assert_eq!(refused.errno(), libc::ENOSPC);
    }

    #[test]
    fn writers_together_stay_below_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let area = CountedArea::open(dir.path(), ByteCount::mib(2)).unwrap();
        let parts = area.parts().unwrap();
        std::thread::scope(|scope| {
            for ino in 1..=4 {
                let file = parts.create(id(ino)).unwrap();
                scope.spawn(move || {
                    let block = [7; 10_000];
                    while file.append(&block).is_ok() {}
                });
            }
        });
        let sum: u64 = parts
            .list()
            .unwrap()
            .into_iter()
            .map(|id| parts.open(id).unwrap().stat().unwrap().size)
            .sum();
        assert!((1_800_000..=2 << 20).contains(&sum), "{sum} bytes in 2 MiB");
    }
}
