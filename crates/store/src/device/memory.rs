//! Parts in memory, for tests.
//!
//! Here: the files and what each call does to their bytes ([`Content`], also used by the crash
//! device). Not here: forgetting ([`super::crash`]).

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use hayase_layout::LocalOffset;

use super::{Device, DeviceFile, PartStat, SetTime, Whence};
use crate::namespace::Time;
use crate::part::{PartError, PartId};

/// A device without storage. Files have no holes and no descriptors.
#[derive(Default)]
pub struct MemoryDevice {
    files: Mutex<HashMap<PartId, Arc<MemoryFile>>>,
}

impl MemoryDevice {
    /// A device without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// A device with these files.
    pub(super) fn with_files(files: impl Iterator<Item = (PartId, Still)>) -> Self {
        let files = files.map(|(id, still)| (id, MemoryFile::new(id, still))).collect();
        Self { files: Mutex::new(files) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PartId, Arc<MemoryFile>>> {
        self.files.lock().expect("no holder of this lock panics")
    }
}

impl Device for MemoryDevice {
    fn create(&self, id: PartId) -> Result<Arc<dyn DeviceFile>, PartError> {
        let mut files = self.lock();
        if files.contains_key(&id) {
            return Err(PartError::Exists { part: id, device: place() });
        }
        let file = MemoryFile::new(id, Still { content: Content::default(), times: Times::now() });
        files.insert(id, file.clone());
        Ok(Arc::new(file))
    }

    fn open(&self, id: PartId) -> Result<Arc<dyn DeviceFile>, PartError> {
        match self.lock().get(&id) {
            Some(file) => Ok(Arc::new(file.clone())),
            None => Err(PartError::Missing { part: id, device: place() }),
        }
    }

    fn remove(&self, id: PartId) -> Result<(), PartError> {
        self.lock().remove(&id);
        Ok(())
    }

    fn list(&self) -> Result<Vec<PartId>, PartError> {
        Ok(self.lock().keys().copied().collect())
    }
}

/// What errors name as the device.
pub(super) fn place() -> std::path::PathBuf {
    Path::new("(memory)").to_owned()
}

/// Bytes of a file, and what each change does to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content(pub(super) Vec<u8>);

impl Content {
    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if !bytes.is_empty() && self.0.len() < end {
            self.0.resize(end, 0);
        }
        if !bytes.is_empty() {
            self.0[offset..end].copy_from_slice(bytes);
        }
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.0.resize(len, 0);
    }

    /// As fallocate(2), as far as bytes can tell.
    pub(super) fn allocate(&mut self, mode: i32, offset: usize, len: usize) -> io::Result<()> {
        const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
        let zeroes = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
        let known = KEEP | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        if len == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if mode & !known != 0
            || mode & (KEEP | libc::FALLOC_FL_PUNCH_HOLE) == libc::FALLOC_FL_PUNCH_HOLE
        {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let end = offset + len;
        if mode & KEEP == 0 && self.0.len() < end {
            self.0.resize(end, 0);
        }
        if zeroes {
            let end = end.min(self.0.len());
            self.0[offset.min(end)..end].fill(0);
        }
        Ok(())
    }
}

/// When a file was changed last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) mtime: Time,
    pub(super) ctime: Time,
}

impl Times {
    pub(super) fn now() -> Self {
        let now = now();
        Self { mtime: now, ctime: now }
    }

    pub(super) fn of(stat: &PartStat) -> Self {
        Self { mtime: stat.mtime, ctime: stat.ctime }
    }
}

/// A file at one moment.
#[derive(Clone, Debug)]
pub(super) struct Still {
    pub(super) content: Content,
    pub(super) times: Times,
}

struct MemoryFile {
    id: PartId,
    state: Mutex<State>,
}

struct State {
    content: Content,
    atime: Time,
    mtime: Time,
    ctime: Time,
}

impl MemoryFile {
    fn new(id: PartId, Still { content, times }: Still) -> Arc<Self> {
        let Times { mtime, ctime } = times;
        let state = State { content, atime: now(), mtime, ctime };
        Arc::new(Self { id, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    fn changed(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.mtime = now();
        state.ctime = state.mtime;
        state
    }

    fn position(&self, action: &'static str, offset: u64) -> Result<usize, PartError> {
        const LEN_MAX: u64 = 1 << 40;
        let too_big = || io::Error::from_raw_os_error(libc::EFBIG);
        if offset > LEN_MAX {
            return Err(PartError::from_io(action, self.id, &place(), too_big()));
        }
        Ok(usize::try_from(offset).expect("a device in memory runs on a 64-bit machine"))
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: since.as_secs().cast_signed(), nanos: since.subsec_nanos() }
}

// Every open is a handle of its own, as with real files.
impl DeviceFile for Arc<MemoryFile> {
    fn read_at(&self, offset: LocalOffset, buffer: &mut [u8]) -> Result<usize, PartError> {
        let state = self.lock();
        let offset = self.position("read", offset.0)?;
        let bytes = state.content.0.get(offset..).unwrap_or_default();
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn write_at(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), PartError> {
        let offset = self.position("write", offset.0)?;
        self.changed().content.write(bytes, offset);
        Ok(())
    }

    fn append(&self, bytes: &[u8]) -> Result<LocalOffset, PartError> {
        let mut state = self.changed();
        let offset = state.content.0.len();
        state.content.write(bytes, offset);
        Ok(LocalOffset(offset as u64))
    }

    fn truncate(&self, len: u64) -> Result<(), PartError> {
        let len = self.position("truncate", len)?;
        self.changed().content.truncate(len);
        Ok(())
    }

    fn sync(&self, _data_only: bool) -> Result<(), PartError> {
        Ok(())
    }

    fn stat(&self) -> Result<PartStat, PartError> {
        let state = self.lock();
        let size = state.content.0.len() as u64;
        let (atime, mtime, ctime) = (state.atime, state.mtime, state.ctime);
        Ok(PartStat { size, blocks: size.div_ceil(512), atime, mtime, ctime })
    }

    fn set_times(&self, atime: Option<SetTime>, mtime: Option<SetTime>) -> Result<(), PartError> {
        let mut state = self.lock();
        let pick = |time| match time {
            SetTime::Now => now(),
            SetTime::To(time) => time,
        };
        state.atime = atime.map_or(state.atime, pick);
        state.mtime = mtime.map_or(state.mtime, pick);
        state.ctime = now();
        Ok(())
    }

    fn allocate(&self, mode: i32, offset: u64, len: u64) -> Result<(), PartError> {
        let (start, len) = (self.position("allocate", offset)?, self.position("allocate", len)?);
        self.changed()
            .content
            .allocate(mode, start, len)
            .map_err(|e| PartError::from_io("allocate", self.id, &place(), e))
    }

    fn seek(&self, offset: u64, whence: Whence) -> Result<Option<u64>, PartError> {
        let size = self.lock().content.0.len() as u64;
        Ok((offset < size).then_some(match whence {
            Whence::Data => offset,
            Whence::Hole => size,
        }))
    }

    fn descriptor(&self) -> Result<Option<OwnedFd>, PartError> {
        Ok(None)
    }

    fn path_descriptor(&self) -> Result<Option<OwnedFd>, PartError> {
        Ok(None)
    }

    fn read_nowait(&self, offset: LocalOffset, buffer: &mut [u8]) -> Result<usize, PartError> {
        self.read_at(offset, buffer)
    }

    fn write_nowait(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), PartError> {
        self.write_at(offset, bytes)
    }

    fn is_quiescent(&self) -> Result<bool, PartError> {
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_the_suite() {
        super::super::conformance::run(&|| Arc::new(MemoryDevice::new()));
    }
}
