//! An area as a plain directory, whose bytes this process counts: for users who may not mount.
//!
//! Here: the count, kept by allocated blocks. Rooms: [`device`] charges every write.
//! Not here: limits that the kernel keeps ([`super::image`]).
//!
//! The limit holds because every byte goes through [`device`]: in such an area no process gets a
//! descriptor of a part. Invariant: `used` is the sum of what the device has charged for each part.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hayase_layout::ByteCount;

use super::{Area, AreaError, AreaUsage, PARTS_DIRECTORY};
use crate::device::{Device, PreadDevice};
use crate::part::PartError;

mod device;

pub use self::device::CountedDevice;

/// An area in a plain directory. Clones share the count.
#[derive(Clone, Debug)]
pub struct CountedArea {
    root: PathBuf,
    count: Arc<Count>,
}

/// Bytes in use and allowed. `used` may pass `size` only by what was there at the start.
#[derive(Debug)]
pub(super) struct Count {
    size: u64,
    used: AtomicU64,
}

impl CountedArea {
    /// The area in the directory `root`, made if missing; `size` is the limit for its parts. Reads
    /// the directories of parts once. Of size 0 it is what a server without storage has: room for names only.
    pub fn open(root: &Path, size: ByteCount) -> Result<Self, AreaError> {
        let parts = root.join(PARTS_DIRECTORY);
        std::fs::create_dir_all(&parts).map_err(|source| AreaError::Io {
            action: "make the area",
            path: root.to_owned(),
            source,
        })?;
        let used = allocated(&parts).map_err(|source| AreaError::Io {
            action: "count the bytes in",
            path: parts.clone(),
            source,
        })?;
        let count = Arc::new(Count { size: size.get(), used: AtomicU64::new(used) });
        Ok(Self { root: root.to_owned(), count })
    }
}

impl Count {
    /// Takes `bytes` if there are so many.
    fn take(&self, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.size);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    /// Takes `bytes` that are in use already, whatever the limit.
    fn charge(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::AcqRel);
    }

    fn give_back(&self, bytes: u64) {
        let less = |used: u64| Some(used.saturating_sub(bytes));
        let _ = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    fn free(&self) -> u64 {
        self.size.saturating_sub(self.used.load(Ordering::Acquire))
    }
}

/// By the number of a file system (statfs(2), `linux/magic.h`): btrfs, bcachefs, ZFS, NILFS, F2FS.
fn copies_on_write(f_type: u64) -> bool {
    matches!(f_type & 0xffff_ffff, 0x9123_683e | 0xca45_1a4e | 0x2fc1_2fc1 | 0x3434 | 0xf2f5_2010)
}

impl Area for CountedArea {
    fn root(&self) -> &Path {
        &self.root
    }

    fn kind(&self) -> &'static str {
        if self.count.size == 0 { "none" } else { "counted" }
    }

    fn usage(&self) -> Result<AreaUsage, AreaError> {
        let stat = rustix::fs::statvfs(&self.root).map_err(|errno| AreaError::Io {
            action: "ask for the free space of",
            path: self.root.clone(),
            source: errno.into(),
        })?;
        let below = stat.f_bavail.saturating_mul(stat.f_frsize);
        Ok(AreaUsage {
            total: self.count.size,
            free: self.count.free().min(below),
            inodes: 0,
            inodes_free: 0,
        })
    }

    fn overwrites_in_place(&self) -> bool {
        rustix::fs::statfs(&self.root).is_ok_and(|stat| !copies_on_write(stat.f_type as u64))
    }

    fn parts(&self) -> Result<Arc<dyn Device>, PartError> {
        let parts = self.root.join(PARTS_DIRECTORY);
        let device = Arc::new(PreadDevice::open(&parts)?);
        Ok(Arc::new(CountedDevice::new(device, parts, self.count.clone())))
    }
}

/// Allocated bytes of all files below `directory`.
fn allocated(directory: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += match metadata.is_dir() {
            true => allocated(&entry.path())?,
            false => metadata.blocks() * 512,
        };
    }
    Ok(bytes)
}
