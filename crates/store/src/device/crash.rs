//! Parts that forget what was not synced, as storage does in a power cut.
//!
//! Here: a memory device that writes down what was changed since the last sync of each file, and
//! makes what may be left of it. Not here: names and inodes ([`crate::meta::MemoryStore`] forgets
//! those).
//!
//! What a power cut leaves of one file: what the last sync saw, and any of the changes since, each
//! as a whole or not at all, with its time. A file that was never synced may be gone; one that was removed may be
//! back. A sync of data only leaves the times as they were. Files know nothing of each other.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use hayase_layout::LocalOffset;

use super::memory::{Content, Still, Times, place};
use super::{Device, DeviceFile, MemoryDevice, PartStat, SetTime, Whence};
use crate::part::{PartError, PartId};

/// See the module header.
#[derive(Default)]
pub struct CrashDevice {
    now: MemoryDevice,
    logs: Arc<Mutex<HashMap<PartId, Log>>>,
    failing: Arc<Failing>,
}

/// Syncs that are still to fail, after some that do not.
#[derive(Default)]
struct Failing {
    spared: AtomicUsize,
    count: AtomicUsize,
}

impl Failing {
    /// Whether the next sync fails.
    fn next(&self) -> bool {
        let takes_one = |left: &AtomicUsize| {
            let one_less = |left: usize| left.checked_sub(1);
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
        };
        !takes_one(&self.spared) && takes_one(&self.count)
    }
}

/// What storage knows of a file, and what has happened since.
#[derive(Default)]
struct Log {
    /// Which file of this name: handles of a removed one write nothing here.
    generation: u64,
    /// As of the last sync; `None` when there was none.
    durable: Option<Still>,
    changes: Vec<(Change, Times)>,
    removed: bool,
}

enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { len: usize },
    Allocate { mode: i32, offset: usize, len: usize },
}

impl CrashDevice {
    /// A device without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// The files as they may be after a power cut now. `survives` is asked once for each change
    /// that was not synced: making the file, then each write to it in order, then its removal.
    pub fn after_power_cut(&self, survives: impl FnMut() -> bool) -> MemoryDevice {
        MemoryDevice::with_files(self.left(survives).into_iter())
    }

    /// The same as a device that may lose power again.
    pub fn restarted(&self, survives: impl FnMut() -> bool) -> Self {
        let left = self.left(survives);
        let durable = |(id, still): &(PartId, Still)| {
            (*id, Log { durable: Some(still.clone()), ..Log::default() })
        };
        let logs = left.iter().map(durable).collect();
        let now = MemoryDevice::with_files(left.into_iter());
        Self { now, logs: Arc::new(Mutex::new(logs)), failing: Arc::default() }
    }

    /// The next `count` syncs fail with `EIO`, and what was written since the last one is gone, but for the length of the file: as
    /// Linux does it after an error of write-back, once it has dropped the pages. The sync after that succeeds.
    pub fn fail_syncs(&self, count: usize) {
        self.fail_syncs_after(0, count);
    }

    /// The same after `spared` syncs that succeed.
    pub fn fail_syncs_after(&self, spared: usize, count: usize) {
        self.failing.spared.store(spared, Ordering::SeqCst);
        self.failing.count.store(count, Ordering::SeqCst);
    }

    fn left(&self, mut survives: impl FnMut() -> bool) -> Vec<(PartId, Still)> {
        let mut left = Vec::new();
        let logs = self.logs();
        let mut ids: Vec<_> = logs.keys().copied().collect();
        ids.sort_unstable(); // the same answers lead to the same files
        for id in ids {
            let log = &logs[&id];
            let made = log.durable.is_some() || survives();
            let made_empty = || Still { content: Content::default(), times: Times::now() };
            let mut still = log.durable.clone().unwrap_or_else(made_empty);
            for (change, times) in &log.changes {
                if survives() {
                    change.apply(&mut still.content);
                    still.times = *times;
                }
            }
            let removed = log.removed && survives();
            if made && !removed {
                left.push((id, still));
            }
        }
        left
    }

    fn logs(&self) -> MutexGuard<'_, HashMap<PartId, Log>> {
        self.logs.lock().expect("no holder of this lock panics")
    }

    fn wrap(&self, id: PartId, inner: Arc<dyn DeviceFile>, generation: u64) -> Arc<dyn DeviceFile> {
        let (logs, failing) = (self.logs.clone(), self.failing.clone());
        Arc::new(CrashFile { id, inner, generation, logs, failing })
    }
}

impl Change {
    fn apply(&self, content: &mut Content) {
        match self {
            Self::Write { offset, bytes } => content.write(bytes, *offset),
            Self::Truncate { len } => content.truncate(*len),
            Self::Allocate { mode, offset, len } => {
                content.allocate(*mode, *offset, *len).expect("it was possible the first time");
            }
        }
    }
}

impl Device for CrashDevice {
    fn create(&self, id: PartId) -> Result<Arc<dyn DeviceFile>, PartError> {
        let file = self.now.create(id)?;
        let mut logs = self.logs();
        let log = logs.entry(id).or_default();
        *log = Log { generation: log.generation + 1, ..Log::default() };
        Ok(self.wrap(id, file, log.generation))
    }

    fn open(&self, id: PartId) -> Result<Arc<dyn DeviceFile>, PartError> {
        let file = self.now.open(id)?;
        let generation = self.logs().get(&id).map_or(0, |log| log.generation);
        Ok(self.wrap(id, file, generation))
    }

    fn remove(&self, id: PartId) -> Result<(), PartError> {
        self.now.remove(id)?;
        if let Some(log) = self.logs().get_mut(&id) {
            log.removed = true;
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<PartId>, PartError> {
        self.now.list()
    }
}

struct CrashFile {
    id: PartId,
    generation: u64,
    inner: Arc<dyn DeviceFile>,
    logs: Arc<Mutex<HashMap<PartId, Log>>>,
    failing: Arc<Failing>,
}

impl CrashFile {
    /// Drops the bytes that were written since the last sync.
    fn lose(&self, log: Option<&mut Log>) -> Result<(), PartError> {
        let durable = log.and_then(|log| {
            log.changes.clear();
            log.durable.as_ref().map(|still| still.content.0.clone())
        });
        let (durable, len) = (durable.unwrap_or_default(), self.inner.stat()?.size);
        self.inner.truncate(0)?;
        self.inner.write_at(LocalOffset(0), &durable)?;
        self.inner.truncate(len.max(durable.len() as u64))?;
        let lost = std::io::Error::from_raw_os_error(libc::EIO);
        Err(PartError::from_io("sync", self.id, &place(), lost))
    }

    /// Makes a change and writes it down, both under the lock: their orders are the same.
    fn change<T>(
        &self,
        call: impl FnOnce() -> Result<T, PartError>,
        change: impl FnOnce(&T) -> Change,
    ) -> Result<T, PartError> {
        let mut logs = self.logs.lock().expect("no holder of this lock panics");
        let value = call()?;
        if let Some(log) = logs.get_mut(&self.id).filter(|log| log.generation == self.generation) {
            log.changes.push((change(&value), Times::of(&self.inner.stat()?)));
        }
        Ok(value)
    }
}

impl DeviceFile for CrashFile {
    fn read_at(&self, offset: LocalOffset, buffer: &mut [u8]) -> Result<usize, PartError> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), PartError> {
        let write = || self.inner.write_at(offset, bytes);
        self.change(write, |()| Change::Write { offset: offset.0 as usize, bytes: bytes.to_vec() })
    }

    fn append(&self, bytes: &[u8]) -> Result<LocalOffset, PartError> {
        let append = || self.inner.append(bytes);
        self.change(append, |at| Change::Write { offset: at.0 as usize, bytes: bytes.to_vec() })
    }

    fn truncate(&self, len: u64) -> Result<(), PartError> {
        let truncate = || self.inner.truncate(len);
        self.change(truncate, |()| Change::Truncate { len: len as usize })
    }

    fn sync(&self, data_only: bool) -> Result<(), PartError> {
        let mut logs = self.logs.lock().expect("no holder of this lock panics");
        if self.failing.next() {
            return self.lose(logs.get_mut(&self.id));
        }
        self.inner.sync(data_only)?;
        let stat = self.inner.stat()?;
        let mut bytes = vec![0; stat.size as usize];
        self.inner.read_at(LocalOffset(0), &mut bytes)?;
        if let Some(log) = logs.get_mut(&self.id).filter(|log| log.generation == self.generation) {
            let before = log.durable.as_ref().filter(|_| data_only).map(|still| still.times);
            let times = before.unwrap_or_else(|| Times::of(&stat));
            log.durable = Some(Still { content: Content(bytes), times });
            log.changes.clear();
        }
        Ok(())
    }

    fn check_writeback(&self) -> Result<(), PartError> {
        self.inner.check_writeback()
    }

    fn stat(&self) -> Result<PartStat, PartError> {
        self.inner.stat()
    }

    fn set_times(&self, atime: Option<SetTime>, mtime: Option<SetTime>) -> Result<(), PartError> {
        self.inner.set_times(atime, mtime)
    }

    fn allocate(&self, mode: i32, offset: u64, len: u64) -> Result<(), PartError> {
        let allocate = || self.inner.allocate(mode, offset, len);
        let (offset, len) = (offset as usize, len as usize);
        self.change(allocate, |()| Change::Allocate { mode, offset, len })
    }

    fn seek(&self, offset: u64, whence: Whence) -> Result<Option<u64>, PartError> {
        self.inner.seek(offset, whence)
    }

    fn descriptor(&self) -> Result<Option<OwnedFd>, PartError> {
        self.inner.descriptor()
    }

    fn give_descriptor(&self) -> Result<Option<OwnedFd>, PartError> {
        self.inner.give_descriptor()
    }

    fn path_descriptor(&self) -> Result<Option<OwnedFd>, PartError> {
        self.inner.path_descriptor()
    }

    fn read_nowait(&self, offset: LocalOffset, buffer: &mut [u8]) -> Result<usize, PartError> {
        self.inner.read_nowait(offset, buffer)
    }

    fn write_nowait(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), PartError> {
        self.write_at(offset, bytes)
    }

    fn is_quiescent(&self) -> Result<bool, PartError> {
        self.inner.is_quiescent()
    }
}

#[cfg(test)]
mod tests {
    use hayase_layout::InodeId;

    use super::*;

    const ID: PartId = PartId { ino: InodeId(7), epoch: 0, index: 0 };

    #[test]
    fn passes_the_suite() {
        super::super::conformance::run(&|| Arc::new(CrashDevice::new()));
    }

    fn left(device: &CrashDevice, mut survivors: u32) -> Option<Vec<u8>> {
        let left = device.after_power_cut(|| {
            let survives = survivors & 1 == 1;
            survivors >>= 1;
            survives
        });
        let file = left.open(ID).ok()?;
        let mut bytes = vec![0; 100];
        let len = file.read_at(LocalOffset(0), &mut bytes).unwrap();
        Some(bytes[..len].to_vec())
    }

    #[test]
    fn only_the_synced_is_sure() {
        let device = CrashDevice::new();
        let file = device.create(ID).unwrap();
        file.write_at(LocalOffset(0), b"abc").unwrap();
        assert_eq!(left(&device, 0b00), None, "not even the name");
        assert_eq!(left(&device, 0b01).as_deref(), Some(&b""[..]));
        assert_eq!(left(&device, 0b11).as_deref(), Some(&b"abc"[..]));
        file.sync(true).unwrap();
        file.write_at(LocalOffset(1), b"X").unwrap();
        file.append(b"Y").unwrap();
        assert_eq!(left(&device, 0b00).as_deref(), Some(&b"abc"[..]));
        assert_eq!(left(&device, 0b01).as_deref(), Some(&b"aXc"[..]));
        assert_eq!(left(&device, 0b10).as_deref(), Some(&b"abcY"[..]), "in any order");
        let twice = device.restarted(|| true);
        twice.open(ID).unwrap().write_at(LocalOffset(0), b"Z").unwrap();
        assert_eq!(
            left(&twice, 0b0).as_deref(),
            Some(&b"aXcY"[..]),
            "what was left once is durable"
        );
        device.remove(ID).unwrap();
        assert_eq!(left(&device, 0b011).as_deref(), Some(&b"aXcY"[..]), "a removed file is back");
        assert_eq!(left(&device, 0b100), None);
    }
}
