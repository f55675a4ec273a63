//! A disk that takes as long as a test likes to make anything durable: syncs of parts, names and the ledger wait at a gate.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hayase_layout::LocalOffset;
use hayase_store::device::uring::Transfer;
use hayase_store::device::{DeviceFile, PartStat, SetTime, Whence};
use hayase_store::{Batch, Device, MemoryStore, MetaError, MetaStore, Pair, PartError, PartId};

use super::Gate;

/// Of one server.
#[derive(Default)]
pub(crate) struct SlowDisk {
    pub(crate) gate: Gate,
    /// The names say that the disk is behind, until the gate is open.
    pub(crate) is_behind: AtomicBool,
}

/// Names on it.
pub(super) struct SlowNames {
    pub(super) names: Arc<MemoryStore>,
    pub(super) disk: Arc<SlowDisk>,
}

impl MetaStore for SlowNames {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        self.names.get(key)
    }

    fn scan(&self, prefix: &[u8], from: &[u8], limit: usize) -> Result<Vec<Pair>, MetaError> {
        self.names.scan(prefix, from, limit)
    }

    fn commit(&self, batch: Batch) -> Result<(), MetaError> {
        self.names.commit(batch)
    }

    fn sync(&self) -> Result<(), MetaError> {
        self.disk.gate.pass();
        self.names.sync()
    }

    fn is_behind(&self) -> bool {
        self.disk.is_behind.load(Ordering::Acquire)
    }

    fn catch_up(&self) -> Result<(), MetaError> {
        self.disk.gate.pass();
        self.disk.is_behind.store(false, Ordering::Release);
        Ok(())
    }
}

/// Files on it.
pub(super) struct SlowDevice {
    pub(super) files: Arc<dyn Device>,
    pub(super) disk: Arc<SlowDisk>,
}

impl SlowDevice {
    fn slow(&self, file: Arc<dyn DeviceFile>) -> Arc<dyn DeviceFile> {
        Arc::new(SlowFile { file, disk: Arc::clone(&self.disk) })
    }
}

impl Device for SlowDevice {
    fn create(&self, id: PartId) -> Result<Arc<dyn DeviceFile>, PartError> {
        Ok(self.slow(self.files.create(id)?))
    }

    fn open(&self, id: PartId) -> Result<Arc<dyn DeviceFile>, PartError> {
        Ok(self.slow(self.files.open(id)?))
    }

    fn remove(&self, id: PartId) -> Result<(), PartError> {
        self.files.remove(id)
    }

    fn list(&self) -> Result<Vec<PartId>, PartError> {
        self.files.list()
    }

    fn place(&self, id: PartId) -> PathBuf {
        self.files.place(id)
    }
}

struct SlowFile {
    file: Arc<dyn DeviceFile>,
    disk: Arc<SlowDisk>,
}

impl DeviceFile for SlowFile {
    fn read_at(&self, offset: LocalOffset, buffer: &mut [u8]) -> Result<usize, PartError> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), PartError> {
        self.file.write_at(offset, bytes)
    }

    fn append(&self, bytes: &[u8]) -> Result<LocalOffset, PartError> {
        self.file.append(bytes)
    }

    fn truncate(&self, len: u64) -> Result<(), PartError> {
        self.file.truncate(len)
    }

    fn sync(&self, data_only: bool) -> Result<(), PartError> {
        self.disk.gate.pass();
        self.file.sync(data_only)
    }

    fn check_writeback(&self) -> Result<(), PartError> {
        self.file.check_writeback()
    }

    fn stat(&self) -> Result<PartStat, PartError> {
        self.file.stat()
    }

    fn set_times(&self, atime: Option<SetTime>, mtime: Option<SetTime>) -> Result<(), PartError> {
        self.file.set_times(atime, mtime)
    }

    fn allocate(&self, mode: i32, offset: u64, len: u64) -> Result<(), PartError> {
        self.disk.gate.pass();
        self.file.allocate(mode, offset, len)
    }

    fn seek(&self, offset: u64, whence: Whence) -> Result<Option<u64>, PartError> {
        self.file.seek(offset, whence)
    }

    fn snapshot(&self) -> Result<Option<OwnedFd>, PartError> {
        self.file.snapshot()
    }

    fn descriptor(&self) -> Result<Option<OwnedFd>, PartError> {
        self.file.descriptor()
    }

    fn path_descriptor(&self) -> Result<Option<OwnedFd>, PartError> {
        self.file.path_descriptor()
    }

    fn read_nowait(&self, offset: LocalOffset, buffer: &mut [u8]) -> Result<usize, PartError> {
        self.file.read_nowait(offset, buffer)
    }

    fn write_nowait(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), PartError> {
        self.file.write_nowait(offset, bytes)
    }

    fn direct(&self, transfer: Transfer, end: u64) -> Option<Arc<OwnedFd>> {
        self.file.direct(transfer, end)
    }

    fn is_quiescent(&self) -> Result<bool, PartError> {
        self.file.is_quiescent()
    }
}
