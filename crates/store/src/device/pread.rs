//! Parts as plain files below one directory, read and written with pread(2) and pwrite(2).
//!
//! Here: the directory with its 256 sub-directories, one open file. Rooms: [`name`] makes the path
//! of a part without allocating, [`pages`] knows whether its bytes may be in the page cache.
//! Not here: asking whether others write ([`crate::part::quiescence`]).
//!
//! Invariants:
//! * no file description is shared with another process: it gets one of its own, or ours for good, so
//!   it can change neither our position nor our flags (`O_APPEND` would redirect our pwrites);
//! * `handle` is locked for reading during every call on its descriptors, for writing while they
//!   are opened or closed; who holds `appending` may take `handle`, never the other way round.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use hayase_layout::LocalOffset;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::uring::Transfer;
use super::{Device, DeviceFile, PartStat, SetTime, Whence};
use crate::namespace::Time;
use crate::part::{PartError, PartId, quiescence};

mod name;
mod pages;
mod writeback;

use self::name::PartPath;
use self::pages::Pages;

/// Bytes that the kernel is asked to copy at once.
const COPY_BYTES_MAX: u64 = 1 << 30;
/// Parts are ours alone: other users reach them through the mount.
const PART_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A directory of parts.
pub struct PreadDevice {
    root: Arc<Root>,
}

struct Root {
    path: PathBuf,
    directory: OwnedFd,
    /// Until a file could not be opened with `O_DIRECT`.
    has_direct: AtomicBool,
}

impl PreadDevice {
    /// The parts below `path`; makes it and its sub-directories where they are missing.
    pub fn open(path: &Path) -> Result<Self, PartError> {
        let fail = |action, source: io::Error| PartError::Device {
            action,
            device: path.to_owned(),
            source,
        };
        std::fs::create_dir_all(path).map_err(|e| fail("make the directory of parts", e))?;
        let directory = rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| fail("open the directory of parts", e.into()))?;
        for fan in name::fans() {
            match rustix::fs::mkdirat(&directory, fan, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(fail("make the sub-directories of", errno.into())),
            }
        }
        // Once here, so that the sync of a part need not think of its directory's own name.
        rustix::fs::fsync(&directory).map_err(|e| fail("sync the directory of parts", e.into()))?;
        let has_direct = AtomicBool::new(true);
        Ok(Self { root: Arc::new(Root { path: path.to_owned(), directory, has_direct }) })
    }
}

impl Root {
    fn open(&self, path: &PartPath, flags: OFlags) -> Result<OwnedFd, Errno> {
        retry(|| {
            rustix::fs::openat(&self.directory, path.path(), flags | OFlags::CLOEXEC, PART_MODE)
        })
    }

    fn fail(&self, action: &'static str, part: PartId, errno: Errno) -> PartError {
        match (action, errno) {
            ("create", Errno::EXIST) => PartError::Exists { part, device: self.path.clone() },
            ("open", Errno::NOENT) => PartError::Missing { part, device: self.path.clone() },
            _ => PartError::from_io(action, part, &self.path, errno.into()),
        }
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

impl Device for PreadDevice {
    fn create(&self, id: PartId) -> Result<Arc<dyn DeviceFile>, PartError> {
        let path = PartPath::new(id);
        let file = self
            .root
            .open(&path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
            .map_err(|e| self.root.fail("create", id, e))?;
        Ok(Arc::new(PreadFile::new(self.root.clone(), id, path, file)))
    }

    fn open(&self, id: PartId) -> Result<Arc<dyn DeviceFile>, PartError> {
        let path = PartPath::new(id);
        let file =
            self.root.open(&path, OFlags::RDWR).map_err(|e| self.root.fail("open", id, e))?;
        Ok(Arc::new(PreadFile::new(self.root.clone(), id, path, file)))
    }

    fn remove(&self, id: PartId) -> Result<(), PartError> {
        let path = PartPath::new(id);
        match rustix::fs::unlinkat(&self.root.directory, path.path(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.root.fail("remove", id, errno)),
        }
    }

    fn list(&self) -> Result<Vec<PartId>, PartError> {
        let fail = |source| PartError::Device {
            action: "list the parts in",
            device: self.root.path.clone(),
            source,
        };
        let mut parts = Vec::new();
        for fan in name::fans() {
            let directory = self.root.path.join(fan);
            for entry in std::fs::read_dir(directory).map_err(fail)? {
                let name = entry.map_err(fail)?.file_name();
                // What is no part's name is not ours; `list` is no check of the directory.
                parts.extend(name.to_str().and_then(PartId::parse));
            }
        }
        Ok(parts)
    }

    fn place(&self, id: PartId) -> PathBuf {
        let path = PartPath::new(id);
        self.root.path.join(path.path().to_str().expect("digits and dots"))
    }
}

struct PreadFile {
    root: Arc<Root>,
    id: PartId,
    path: PartPath,
    handle: RwLock<Handle>,
    appending: Mutex<()>,
    pages: Pages,
    /// The directory entry is on storage.
    name_synced: AtomicBool,
    /// `handle.file` is as open(2) gave it: its position was never moved.
    is_fresh: AtomicBool,
}

#[derive(Default)]
struct Handle {
    /// Read and write at a position; `None` after a probe, or given away.
    file: Option<OwnedFd>,
    /// `O_APPEND`; made by the first append.
    append: Option<OwnedFd>,
    /// `O_DIRECT`; made by the first transfer past the page cache.
    direct: Option<Arc<OwnedFd>>,
}

impl PreadFile {
    fn new(root: Arc<Root>, id: PartId, path: PartPath, file: OwnedFd) -> Self {
        Self {
            root,
            id,
            path,
            handle: RwLock::new(Handle { file: Some(file), ..Handle::default() }),
            appending: Mutex::new(()),
            pages: Pages::default(),
            name_synced: AtomicBool::new(false),
            is_fresh: AtomicBool::new(true),
        }
    }

    fn fail(&self, action: &'static str, errno: Errno) -> PartError {
        self.root.fail(action, self.id, errno)
    }

    /// Calls `call` with the descriptor, opened again when a probe has closed it or it was given away.
    fn with<T>(
        &self,
        action: &'static str,
        mut call: impl FnMut(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, PartError> {
        loop {
            let handle = self.handle.read().expect("no holder of this lock panics");
            if let Some(file) = &handle.file {
                return retry(|| call(file.as_fd())).map_err(|e| self.fail(action, e));
            }
            drop(handle);
            let mut handle = self.handle.write().expect("no holder of this lock panics");
            if handle.file.is_none() {
                let file = self.root.open(&self.path, OFlags::RDWR);
                handle.file = Some(file.map_err(|e| self.fail("open", e))?);
            }
        }
    }

    /// As [`PreadFile::with`], for the descriptor that appends. Call it under `appending`.
    fn with_append<T>(
        &self,
        mut call: impl FnMut(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, PartError> {
        loop {
            let handle = self.handle.read().expect("no holder of this lock panics");
            if let Some(file) = &handle.append {
                return retry(|| call(file.as_fd())).map_err(|e| self.fail("append to", e));
            }
            drop(handle);
            let mut handle = self.handle.write().expect("no holder of this lock panics");
            let file = self.root.open(&self.path, OFlags::WRONLY | OFlags::APPEND);
            handle.append = Some(file.map_err(|e| self.fail("open", e))?);
        }
    }

    /// The descriptor past the page cache; `None` where the file system has no such thing.
    fn direct_descriptor(&self) -> Option<Arc<OwnedFd>> {
        if let Some(direct) = &self.handle.read().expect("no holder of this lock panics").direct {
            return Some(Arc::clone(direct));
        }
        let mut handle = self.handle.write().expect("no holder of this lock panics");
        if handle.direct.is_none() {
            handle.direct = match self.root.open(&self.path, OFlags::RDWR | OFlags::DIRECT) {
                Ok(file) => Some(Arc::new(file)),
                Err(errno) => {
                    tracing::debug!(part = %self.id, %errno, "not to be used past the page cache");
                    // Anything else is about this part, or this moment.
                    if matches!(errno, Errno::INVAL | Errno::OPNOTSUPP) {
                        self.root.has_direct.store(false, Ordering::Relaxed);
                    }
                    None
                }
            };
        }
        handle.direct.clone()
    }

    fn sync_name(&self) -> Result<(), PartError> {
        if self.name_synced.load(Ordering::Acquire) {
            return Ok(());
        }
        let directory = rustix::fs::openat(
            &self.root.directory,
            self.path.fan(),
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        directory
            .and_then(|directory| retry(|| rustix::fs::fsync(&directory)))
            .map_err(|e| self.fail("sync the name of", e))?;
        self.name_synced.store(true, Ordering::Release);
        Ok(())
    }
}

impl DeviceFile for PreadFile {
    fn read_at(&self, offset: LocalOffset, buffer: &mut [u8]) -> Result<usize, PartError> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset.0 + done as u64;
            match self.with("read", |file| rustix::io::pread(file, &mut buffer[done..], at))? {
                0 => break,
                got => done += got,
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), PartError> {
        self.pages.written(bytes.len());
        let mut done = 0;
        while done < bytes.len() {
            let at = offset.0 + done as u64;
            match self.with("write", |file| rustix::io::pwrite(file, &bytes[done..], at))? {
                0 => return Err(self.fail("write", Errno::IO)),
                put => done += put,
            }
        }
        Ok(())
    }

    fn append(&self, bytes: &[u8]) -> Result<LocalOffset, PartError> {
        self.pages.written(bytes.len());
        // RWF_APPEND does not tell the place, so: a descriptor of its own, whose position nobody
        // else moves. The kernel holds the inode's lock from finding the end to writing there.
        let _alone = self.appending.lock().expect("no holder of this lock panics");
        let mut start = None;
        let mut done = 0;
        while done < bytes.len() {
            // Both of one descriptor: a probe may close it in between.
            let (put, end) = self.with_append(|file| {
                let put = rustix::io::write(file, &bytes[done..])?;
                Ok((put, rustix::fs::tell(file)?))
            })?;
            let here = end - put as u64;
            let begin = *start.get_or_insert(here);
            if put == 0 || here != begin + done as u64 {
                // Cut short by the kernel, and another appender came between.
                return Err(self.fail("append to", Errno::IO));
            }
            done += put;
        }
        match start {
            Some(start) => Ok(LocalOffset(start)),
            None => Ok(LocalOffset(self.stat()?.size)),
        }
    }

    fn truncate(&self, len: u64) -> Result<(), PartError> {
        self.with("truncate", |file| rustix::fs::ftruncate(file, len))
    }

    fn sync(&self, data_only: bool) -> Result<(), PartError> {
        self.with("sync", |file| match data_only {
            true => rustix::fs::fdatasync(file),
            false => rustix::fs::fsync(file),
        })?;
        self.sync_name()
    }

    fn check_writeback(&self) -> Result<(), PartError> {
        self.with("write back", |file| writeback::check(file.as_fd()))
    }

    fn begin_writeback(&self, offset: LocalOffset, len: u64) -> Result<(), PartError> {
        self.with("write back", |file| writeback::begin(file.as_fd(), offset.0, len))
    }

    fn stat(&self) -> Result<PartStat, PartError> {
        let stat = self.with("stat", |file| rustix::fs::fstat(file))?;
        if stat.st_nlink == 0 {
            return Err(PartError::Missing { part: self.id, device: self.root.path.clone() });
        }
        let time = |seconds, nanos| Time { seconds, nanos: u32::try_from(nanos).unwrap_or(0) };
        Ok(PartStat {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
            atime: time(stat.st_atime, stat.st_atime_nsec),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        })
    }

    fn set_times(&self, atime: Option<SetTime>, mtime: Option<SetTime>) -> Result<(), PartError> {
        let times = rustix::fs::Timestamps {
            last_access: timespec(atime),
            last_modification: timespec(mtime),
        };
        self.with("set the times of", |file| rustix::fs::futimens(file, &times))
    }

    fn allocate(&self, mode: i32, offset: u64, len: u64) -> Result<(), PartError> {
        let flags = rustix::fs::FallocateFlags::from_bits_retain(mode.cast_unsigned());
        self.with("allocate", |file| rustix::fs::fallocate(file, flags, offset, len))
    }

    fn seek(&self, offset: u64, whence: Whence) -> Result<Option<u64>, PartError> {
        let to = match whence {
            Whence::Data => rustix::fs::SeekFrom::Data(offset),
            Whence::Hole => rustix::fs::SeekFrom::Hole(offset),
        };
        // Our position is used by nothing else, as long as it stays ours.
        self.is_fresh.store(false, Ordering::Relaxed);
        self.with("seek in", |file| match rustix::fs::seek(file, to) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(errno),
        })
    }

    fn copy_range_to(
        &self,
        offset: u64,
        target: &dyn DeviceFile,
        target_offset: u64,
        len: u64,
    ) -> Result<u64, PartError> {
        let Some(into) = target.descriptor()? else {
            return super::copy_through_memory(self, offset, target, target_offset, len);
        };
        let mut done = 0;
        while done < len {
            let (mut from, mut to) = (offset + done, target_offset + done);
            let want = usize::try_from((len - done).min(COPY_BYTES_MAX)).unwrap_or(usize::MAX);
            let copied = self.with("copy", |file| {
                match rustix::fs::copy_file_range(file, Some(&mut from), &into, Some(&mut to), want)
                {
                    Ok(copied) => Ok(Some(copied as u64)),
                    Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
                    Err(errno) => Err(errno),
                }
            })?;
            match copied {
                Some(0) => break,
                Some(copied) => done += copied,
                None => {
                    let (from, to) = (offset + done, target_offset + done);
                    return super::copy_through_memory(self, from, target, to, len - done)
                        .map(|rest| done + rest);
                }
            }
        }
        Ok(done)
    }

    /// A file without a name that shares its blocks: a reflink.
    fn snapshot(&self) -> Result<Option<OwnedFd>, PartError> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        // Where it can not be done is an answer, not an error.
        self.with("snapshot", |file| {
            let cloned = rustix::fs::openat(&self.root.directory, ".", flags, PART_MODE)
                .and_then(|copy| rustix::fs::ioctl_ficlone(&copy, file).map(|()| copy));
            match cloned {
                Ok(copy) => Ok(Some(copy)),
                Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY) => Ok(None),
                Err(errno) => Err(errno),
            }
        })
    }

    fn descriptor(&self) -> Result<Option<OwnedFd>, PartError> {
        self.pages.handed_out();
        let file = self.root.open(&self.path, OFlags::RDWR).map_err(|e| self.fail("open", e))?;
        Ok(Some(file))
    }

    fn give_descriptor(&self) -> Result<Option<OwnedFd>, PartError> {
        let mut handle = self.handle.write().expect("no holder of this lock panics");
        let given = handle.file.take_if(|_| self.is_fresh.load(Ordering::Relaxed));
        drop(handle);
        if given.is_none() {
            return self.descriptor();
        }
        self.pages.handed_out();
        Ok(given)
    }

    fn path_descriptor(&self) -> Result<Option<OwnedFd>, PartError> {
        self.pages.handed_out();
        let file = self.root.open(&self.path, OFlags::PATH).map_err(|e| self.fail("open", e))?;
        Ok(Some(file))
    }

    fn read_nowait(&self, offset: LocalOffset, buffer: &mut [u8]) -> Result<usize, PartError> {
        // A short answer may be the end of the file or of what is in memory: only zero is the end.
        let mut done = 0;
        while done < buffer.len() {
            let at = offset.0 + done as u64;
            let got = self.with("read", |file| {
                let mut slices = [io::IoSliceMut::new(&mut buffer[done..])];
                let result = rustix::io::preadv2(file, &mut slices, at, ReadWriteFlags::NOWAIT);
                unless_waiting(result)
            })?;
            match got.ok_or(PartError::WouldWait { part: self.id })? {
                0 => break,
                got => done += got,
            }
        }
        Ok(done)
    }

    fn write_nowait(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), PartError> {
        let written = self.with("write", |file| {
            let slices = [io::IoSlice::new(bytes)];
            let flags = ReadWriteFlags::NOWAIT;
            unless_waiting(rustix::io::pwritev2(file, &slices, offset.0, flags))
        })?;
        match written {
            Some(written) if written == bytes.len() => {
                self.pages.written(written);
                Ok(())
            }
            _ => Err(PartError::WouldWait { part: self.id }),
        }
    }

    fn direct(&self, transfer: Transfer, end: u64) -> Option<Arc<OwnedFd>> {
        if !self.root.has_direct.load(Ordering::Relaxed) {
            return None;
        }
        match transfer {
            Transfer::Read if self.pages.hold_most() => None,
            Transfer::Read => self.direct_descriptor(),
            Transfer::Write if self.pages.hold_what_is_written_over(end) => None,
            Transfer::Write => {
                let direct = self.direct_descriptor()?;
                self.pages.passed_by();
                Some(direct)
            }
        }
    }

    fn is_quiescent(&self) -> Result<bool, PartError> {
        let mut handle = self.handle.write().expect("no holder of this lock panics");
        *handle = Handle::default();
        let file = self.root.open(&self.path, OFlags::RDONLY).map_err(|e| self.fail("open", e))?;
        let quiescent = quiescence::is_quiescent(file.as_fd())
            .map_err(|e| PartError::from_io("probe", self.id, &self.root.path, e))?;
        if quiescent {
            let stat = rustix::fs::fstat(&file).map_err(|e| self.fail("stat", e))?;
            self.pages.given_back(stat.st_size.try_into().unwrap_or(0));
        }
        Ok(quiescent)
    }
}

/// `EAGAIN` would wait; the others are what file systems without such I/O answer.
fn unless_waiting(result: Result<usize, Errno>) -> Result<Option<usize>, Errno> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn timespec(time: Option<SetTime>) -> rustix::fs::Timespec {
    let (tv_sec, tv_nsec) = match time {
        None => (0, rustix::fs::UTIME_OMIT),
        Some(SetTime::Now) => (0, rustix::fs::UTIME_NOW),
        Some(SetTime::To(time)) => (time.seconds, time.nanos.into()),
    };
    rustix::fs::Timespec { tv_sec, tv_nsec }
}

#[cfg(test)]
mod tests;
