//! Parts: plain files that hold the bytes of files, kept open within a bound.
//!
//! Here: [`Parts`] with its open files, [`Part`] and its calls. [`PartId`] and [`PartError`] are what devices speak of too.
//! Rooms: [`quiescence`] asks the kernel whether anybody else may still write; [`Removal`] removes
//! parts when the end of their names is safe; [`failed`] keeps errors of write-back.
//! Not here: the files themselves ([`crate::device`]); which part holds which byte
//! (`hayase_layout`); who may have it open (`hayase_server`).
//!
//! Invariants: at most one [`Part`] file is open for one id at a time, so that appends and the
//! quiescence probe see every descriptor of this process; at most `open_max` files are kept open
//! that nobody uses.

use std::fmt;
use std::sync::Arc;

use crate::device::{Device, DeviceFile};

mod error;
mod failed;
mod id;
mod open_parts;
pub mod quiescence;
mod removal;

pub use self::error::PartError;
pub use self::id::PartId;
pub use self::removal::{Removal, RemovalError};

use self::failed::FailedParts;
use self::open_parts::OpenParts;

/// The parts of one node's area.
pub struct Parts {
    device: Arc<dyn Device>,
    open: OpenParts,
    failed: Arc<FailedParts>,
}

impl Parts {
    /// The parts on `device`; up to `open_max` files stay open while nobody uses them.
    pub fn open(device: Arc<dyn Device>, open_max: usize) -> Self {
        let failed = Arc::new(FailedParts::default());
        Self { device, open: OpenParts::new(open_max, Arc::clone(&failed)), failed }
    }

    /// Makes an empty part; [`PartError::Exists`] when there is one.
    pub fn create(&self, id: PartId) -> Result<Part, PartError> {
        let file = self.device.create(id)?;
        self.failed.forget(id);
        Ok(self.open.keep(id, file))
    }

    /// A part that is there.
    pub fn get(&self, id: PartId) -> Result<Part, PartError> {
        if let Some(part) = self.open.get(id) {
            return Ok(part);
        }
        let file = self.device.open(id)?;
        Ok(self.open.keep(id, file))
    }

    /// Removes a part; nothing happens when it is not there. Whoever has it open keeps its bytes.
    pub fn remove(&self, id: PartId) -> Result<(), PartError> {
        self.device.remove(id)?;
        self.open.forget(id);
        self.failed.forget(id);
        Ok(())
    }

    /// The storage has lost bytes of this part, as far as this process has heard.
    pub fn has_failed(&self, id: PartId) -> bool {
        self.failed.has(id)
    }

    /// All parts, in no order; reads the directories.
    pub fn list(&self) -> Result<Vec<PartId>, PartError> {
        self.device.list()
    }

    /// How many parts are open now.
    pub fn open_count(&self) -> usize {
        self.open.count()
    }
}

/// One open part. Clones share the file; its calls are those of [`DeviceFile`].
#[derive(Clone)]
pub struct Part {
    id: PartId,
    file: Arc<dyn DeviceFile>,
    failed: Arc<FailedParts>,
}

impl Part {
    /// Which part.
    pub fn id(&self) -> PartId {
        self.id
    }

    /// As [`DeviceFile::sync`]. Fails for ever once it has failed, until the part is emptied: what was to be written then is
    /// lost.
    pub fn sync(&self, data_only: bool) -> Result<(), PartError> {
        self.failed.check(self.id)?;
        self.file.sync(data_only).inspect_err(|error| self.failed.add(error))
    }

    /// Whether what was read before this call is what was written: fails as [`Part::sync`] where the storage has lost bytes.
    /// Waits for what is on its way to the storage, and begins nothing.
    pub fn check_written(&self) -> Result<(), PartError> {
        self.failed.check(self.id)?;
        self.file.check_writeback().inspect_err(|error| self.failed.add(error))
    }

    /// The storage has lost bytes of it, as far as this process has heard.
    pub fn has_failed(&self) -> bool {
        self.failed.has(self.id)
    }

    /// As [`DeviceFile::truncate`].
    pub fn truncate(&self, len: u64) -> Result<(), PartError> {
        self.file.truncate(len)?;
        if len == 0 {
            self.failed.forget(self.id);
        }
        Ok(())
    }
}

impl std::ops::Deref for Part {
    type Target = dyn DeviceFile;

    fn deref(&self) -> &Self::Target {
        self.file.as_ref()
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use hayase_layout::{InodeId, LocalOffset};

    use super::*;
    use crate::device::MemoryDevice;

    fn at(offset: u64) -> LocalOffset {
        LocalOffset(offset)
    }

    fn id(ino: u64) -> PartId {
        PartId { ino: InodeId(ino), epoch: 1, index: 2 }
    }

    #[test]
    fn open_files_are_bounded_and_shared() {
        let parts = Parts::open(Arc::new(MemoryDevice::new()), 4);
        let held = parts.create(id(0)).unwrap();
        held.write_at(at(0), b"held").unwrap();
        for ino in 1..100 {
            parts.create(id(ino)).unwrap().write_at(at(0), &[ino as u8]).unwrap();
            assert!(parts.open_count() <= 5, "{} are open", parts.open_count());
        }
        let again = parts.get(id(0)).unwrap();
        assert!(Arc::ptr_eq(&held.file, &again.file), "one open file for one part");
        let mut byte = [0];
        assert_eq!(parts.get(id(7)).unwrap().read_at(at(0), &mut byte).unwrap(), 1);
        assert_eq!(byte, [7]);
    }

    #[test]
    fn a_removed_part_is_missing_but_lives_for_its_holder() {
        let parts = Parts::open(Arc::new(MemoryDevice::new()), 4);
        let part = parts.create(id(1)).unwrap();
        part.write_at(at(0), b"x").unwrap();
        parts.remove(id(1)).unwrap();
        parts.remove(id(1)).unwrap();
        assert!(matches!(parts.get(id(1)), Err(PartError::Missing { .. })));
        let mut byte = [0];
        assert_eq!(part.read_at(at(0), &mut byte).unwrap(), 1);
        assert!(parts.list().unwrap().is_empty());
        parts.create(id(1)).unwrap();
        assert!(matches!(parts.create(id(1)), Err(PartError::Exists { .. })));
    }
}
