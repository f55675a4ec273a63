//! Devices: what the files of parts lie on.
//!
//! Here: the traits. Rooms: [`PreadDevice`] on a directory, [`uring`] past the page cache of its files,
//! [`MemoryDevice`] for tests, [`CrashDevice`] which forgets what was not synced, [`conformance`] which all pass.
//! Not here: keeping files open ([`crate::part`]); a limit of bytes ([`crate::area::counted`]).
//!
//! The contract, in words: a file grows by writing behind its end, the gap reads as zeros. What
//! `write_at` has returned is read by everybody. `sync` makes the file, its bytes and its name
//! survive a power cut. A removed file lives until its last user lets go of it.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use hayase_layout::LocalOffset;

use crate::namespace::Time;
use crate::part::{PartError, PartId};

pub mod conformance;
mod crash;
mod memory;
mod pread;
pub mod uring;

pub use self::crash::CrashDevice;
pub use self::memory::MemoryDevice;
pub use self::pread::PreadDevice;

/// A place for parts.
pub trait Device: Send + Sync {
    /// Makes an empty file; [`PartError::Exists`] when there is one.
    fn create(&self, id: PartId) -> Result<Arc<dyn DeviceFile>, PartError>;

    /// Opens a file; [`PartError::Missing`] when there is none.
    fn open(&self, id: PartId) -> Result<Arc<dyn DeviceFile>, PartError>;

    /// Removes a file; nothing happens when there is none.
    fn remove(&self, id: PartId) -> Result<(), PartError>;

    /// All files, in no order.
    fn list(&self) -> Result<Vec<PartId>, PartError>;

    /// Where a file lies, for a person.
    fn place(&self, id: PartId) -> PathBuf {
        PathBuf::from(id.to_string())
    }
}

/// The file of one part. All calls may be made from several threads at once.
pub trait DeviceFile: Send + Sync {
    /// Reads from `offset`; returns how many bytes there were, fewer than asked for only at the end.
    fn read_at(&self, offset: LocalOffset, buffer: &mut [u8]) -> Result<usize, PartError>;

    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), PartError>;

    /// Writes all of `bytes` at the end and returns where that was. Exact beside other appenders, in
    /// this process and in others that opened the file with `O_APPEND`.
    fn append(&self, bytes: &[u8]) -> Result<LocalOffset, PartError>;

    /// Cuts off or adds zeros.
    fn truncate(&self, len: u64) -> Result<(), PartError>;

    /// Makes the bytes written so far survive a power cut; with `data_only`, times need not.
    fn sync(&self, data_only: bool) -> Result<(), PartError>;

    /// Fails where bytes of this file could not be written to the storage since this was asked last, or synced; waits for those
    /// on their way, and begins nothing.
    fn check_writeback(&self) -> Result<(), PartError> {
        Ok(())
    }

    /// Begins to write `len` bytes from `offset` to the disk, so that a later [`DeviceFile::sync`]
    /// finds less to do. Promises nothing.
    fn begin_writeback(&self, _offset: LocalOffset, _len: u64) -> Result<(), PartError> {
        Ok(())
    }

    /// Size and times. [`PartError::Missing`] when the file was unlinked behind our back.
    fn stat(&self) -> Result<PartStat, PartError>;

    /// Sets the times that are given.
    fn set_times(&self, atime: Option<SetTime>, mtime: Option<SetTime>) -> Result<(), PartError>;

    /// As fallocate(2); `mode` are its `FALLOC_FL_*` flags. `EOPNOTSUPP` where it can not be done.
    fn allocate(&self, mode: i32, offset: u64, len: u64) -> Result<(), PartError>;

    /// The next data or hole at or behind `offset`; `None` when there is none (`ENXIO`).
    fn seek(&self, offset: u64, whence: Whence) -> Result<Option<u64>, PartError>;

    /// Copies `len` bytes from `offset` to `target_offset` of `target`, inside the kernel where it
    /// can; returns how many there were, fewer only at the end of this file.
    fn copy_range_to(
        &self,
        offset: u64,
        target: &dyn DeviceFile,
        target_offset: u64,
        len: u64,
    ) -> Result<u64, PartError> {
        copy_through_memory(self, offset, target, target_offset, len)
    }

    /// The bytes as they are at one moment, to be read while this file goes on being written; they take
    /// no room but for what changes meanwhile, and go with the descriptor. `None` where the storage
    /// can not do that.
    fn snapshot(&self) -> Result<Option<OwnedFd>, PartError> {
        Ok(None)
    }

    /// A descriptor of its own for another process, readable and writable, with its own position and
    /// flags; `None` where there are no descriptors to give.
    fn descriptor(&self) -> Result<Option<OwnedFd>, PartError>;

    /// The same at less cost, where the one that this process has can be given away: it opens the part
    /// again when it needs it.
    fn give_descriptor(&self) -> Result<Option<OwnedFd>, PartError> {
        self.descriptor()
    }

    /// A descriptor that can neither read nor write (`O_PATH`), for a process that only tells the
    /// kernel which file it means; `None` where there are no descriptors to give. It keeps nobody
    /// from being quiescent.
    fn path_descriptor(&self) -> Result<Option<OwnedFd>, PartError>;

    /// As `read_at`, all of it, if that takes no waiting; else [`PartError::WouldWait`], also where
    /// nobody can tell.
    fn read_nowait(&self, offset: LocalOffset, buffer: &mut [u8]) -> Result<usize, PartError>;

    /// As `write_at`, if that takes no waiting; else [`PartError::WouldWait`], also where nobody can
    /// tell: some of the bytes may be written then, so write all of them again.
    fn write_nowait(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), PartError>;

    /// A descriptor past the page cache (`O_DIRECT`), for requests of a [`uring::Ring`] that are aligned to
    /// [`uring::DIRECT_ALIGN`]; `None` where there is none to give, or where such a `transfer`, which ends at `end`,
    /// would pass by pages that are in memory anyway. Nobody else may have the file open or mapped, as long as it is used.
    fn direct(&self, _transfer: uring::Transfer, _end: u64) -> Option<Arc<OwnedFd>> {
        None
    }

    /// Nobody but this device has the file open for writing or mapped so, in any process. The files
    /// own descriptors are closed for that, and opened again by the next call that needs one. A
    /// descriptor made by [`DeviceFile::descriptor`] counts as somebody.
    fn is_quiescent(&self) -> Result<bool, PartError>;
}

/// What a part knows about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartStat {
    /// Bytes.
    pub size: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Last write.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

/// A time as utimensat(2) sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The clock of the file system.
    Now,
    /// This.
    To(Time),
}

/// What [`DeviceFile::seek`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// Bytes that may have been written.
    Data,
    /// A gap, or the end of the file.
    Hole,
}

/// Bytes that [`DeviceFile::copy_range_to`] moves at once where the kernel does not do it.
const COPY_BYTES: usize = 256 * 1024;

/// Copies by reading and writing.
fn copy_through_memory<F: DeviceFile + ?Sized>(
    source: &F,
    offset: u64,
    target: &dyn DeviceFile,
    target_offset: u64,
    len: u64,
) -> Result<u64, PartError> {
    let mut buffer = vec![0; COPY_BYTES.min(usize::try_from(len).unwrap_or(COPY_BYTES))];
    let mut done = 0;
    while done < len {
        let want = buffer.len().min(usize::try_from(len - done).unwrap_or(usize::MAX));
        let got = source.read_at(LocalOffset(offset + done), &mut buffer[..want])?;
        if got == 0 {
            break;
        }
        target.write_at(LocalOffset(target_offset + done), &buffer[..got])?;
        done += got as u64;
    }
    Ok(done)
}
