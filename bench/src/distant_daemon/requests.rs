//! Requests of the kernel: each waits, then does what it asks for in the directory that is shown.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::fs::{Dir, openat, unlinkat};

use super::WRITE_BYTES_MAX;
use super::open_files::{OpenFiles, Opened};
use super::writes::Writes;
use crate::minimal_daemon::inodes::Inodes;
use crate::minimal_daemon::requests::attributes;

/// For names and attributes, as distant file systems have it.
const TTL: Duration = Duration::from_secs(1);

/// Of requests that nobody waits for, such as reading ahead.
const BACKGROUND: u16 = 256;

/// The mount, as the library sees it.
#[derive(Debug)]
pub(super) struct Requests {
    inodes: Inodes,
    open: OpenFiles,
    delay: Duration,
    writes: Arc<Writes>,
}

impl Requests {
    /// Shows the directory `source`; every answer comes `delay` later.
    pub(super) fn new(
        source: &Path,
        delay: Duration,
        writes: Arc<Writes>,
    ) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, source, flags, Mode::empty())?;
        Ok(Self { inodes: Inodes::new(root), open: OpenFiles::default(), delay, writes })
    }

    fn wait(&self) {
        std::thread::sleep(self.delay);
    }

    fn find(&self, inode: INodeNo) -> Result<Arc<OwnedFd>, Errno> {
        self.inodes.descriptor(inode.0).ok_or(Errno::ESTALE)
    }

    fn file(&self, handle: FileHandle) -> Result<Arc<File>, Errno> {
        self.open.file(handle.0).ok_or(Errno::EBADF)
    }

    fn look(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let parent = self.find(parent)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat(&*parent, name, flags, Mode::empty()).map_err(errno)?;
        let attr = attributes(&found)?;
        self.inodes.remember(attr.ino.0, found);
        Ok(attr)
    }

    fn open_again(&self, inode: INodeNo, flags: OFlags) -> Result<OwnedFd, Errno> {
        let found = self.find(inode)?;
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(errno)
    }

    fn names(&self, inode: INodeNo) -> Result<Opened, Errno> {
        let directory = self.open_again(inode, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(directory).map_err(errno)? {
            let name = entry.map_err(errno)?.file_name().to_bytes().to_vec();
            if !matches!(&*name, b"." | b"..") {
                names.push(OsStr::from_bytes(&name).to_owned());
            }
        }
        Ok(Opened::Names(Arc::new(names)))
    }

    fn make(&self, parent: INodeNo, name: &OsStr, mode: u32, flags: i32) -> Made {
        let directory = self.find(parent)?;
        let flags = OFlags::from_bits_retain(flags.cast_unsigned()) - OFlags::NOFOLLOW;
        let flags = flags | OFlags::CREATE | OFlags::CLOEXEC;
        let made = openat(&*directory, name, flags, Mode::from_raw_mode(mode)).map_err(errno)?;
        Ok((self.look(parent, name)?, self.open.add(Opened::File(Arc::new(File::from(made))))))
    }

    fn move_name(
        &self,
        (parent, name): (INodeNo, &OsStr),
        (new_parent, new_name): (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let (from, to) = (self.find(parent)?, self.find(new_parent)?);
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        rustix::fs::renameat_with(&*from, name, &*to, new_name, flags).map_err(errno)
    }

    fn change(&self, inode: INodeNo, change: &Change) -> Result<FileAttr, Errno> {
        let file = self.open_again(inode, OFlags::RDONLY)?;
        if let Some(mode) = change.mode {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o7777)).map_err(errno)?;
        }
        if let Some(size) = change.size {
            let file = self.open_again(inode, OFlags::WRONLY)?;
            rustix::fs::ftruncate(&file, size).map_err(errno)?;
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let (last_access, last_modification) = (moment(change.atime), moment(change.mtime));
            let times = Timestamps { last_access, last_modification };
            rustix::fs::futimens(&file, &times).map_err(errno)?;
        }
        attributes(&file)
    }
}

type Made = Result<(FileAttr, u64), Errno>;

/// What a setattr asks for, as far as it is there.
struct Change {
    mode: Option<u32>,
    size: Option<u64>,
    atime: Option<TimeOrNow>,
    mtime: Option<TimeOrNow>,
}

impl Filesystem for Requests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_MAX_PAGES;
        // What an older kernel lacks makes it slower for all who are measured.
        let _ = config.add_capabilities(wanted);
        let lacks = |most| std::io::Error::other(format!("no more than {most} can be had"));
        config.set_max_write(WRITE_BYTES_MAX).map_err(lacks)?;
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.wait();
        match self.look(parent, name) {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: &Request, inode: INodeNo, lookups: u64) {
        self.inodes.forget(inode.0, lookups);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.wait();
        match self.find(inode).and_then(|found| attributes(&*found)) {
            Ok(attr) => reply.attr(&TTL, &FileAttr { ino: inode, ..attr }),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.wait();
        match self.change(inode, &Change { mode, size, atime, mtime }) {
            Ok(attr) => reply.attr(&TTL, &FileAttr { ino: inode, ..attr }),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        self.wait();
        let made = self.find(parent).and_then(|parent| {
            rustix::fs::mkdirat(&*parent, name, Mode::from_raw_mode(mode)).map_err(errno)
        });
        match made.and_then(|()| self.look(parent, name)) {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.wait();
        match self.make(parent, name, mode, flags) {
            Ok((attr, handle)) => {
                let (handle, flags) = (FileHandle(handle), FopenFlags::empty());
                reply.created(&TTL, &attr, Generation(0), handle, flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.wait();
        let wanted = OFlags::from_bits_retain(flags.0.cast_unsigned());
        let wanted = wanted - OFlags::NOFOLLOW - OFlags::CREATE - OFlags::EXCL;
        match self.open_again(inode, wanted) {
            Ok(file) => {
                let handle = self.open.add(Opened::File(Arc::new(File::from(file))));
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.wait();
        let mut buffer = vec![0; size as usize];
        let read = |file: Arc<File>| Ok(file.read_at(&mut buffer, offset)?);
        match self.file(handle).and_then(read) {
            Ok(count) => reply.data(&buffer[..count]),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.wait();
        self.writes.came(data.len() as u64);
        match self.file(handle).and_then(|file| Ok(file.write_all_at(data, offset)?)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.open.remove(handle.0);
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Said once, the kernel asks no more.
        reply.error(Errno::ENOSYS);
    }

    /// Late, and no more: this storage need not survive anything.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.wait();
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.wait();
        reply.ok();
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.wait();
        match self.names(inode) {
            Ok(names) => reply.opened(FileHandle(self.open.add(names)), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.wait();
        let Some(names) = self.open.names(handle.0) else { return reply.error(Errno::EBADF) };
        for (index, name) in names.iter().enumerate().skip(offset as usize) {
            let Ok(attr) = self.look(inode, name) else { continue };
            let next = index as u64 + 1;
            if reply.add(attr.ino, next, name, &TTL, &attr, Generation(0)) {
                self.inodes.forget(attr.ino.0, 1);
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.open.remove(handle.0);
        reply.ok();
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.wait();
        let removed = self
            .find(parent)
            .and_then(|parent| unlinkat(&*parent, name, AtFlags::empty()).map_err(errno));
        answer(removed, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.wait();
        answer(self.move_name((parent, name), (new_parent, new_name), flags), reply);
    }
}

fn answer(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    std::io::Error::from(error).into()
}

fn moment(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(at)) => {
            let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Timespec { tv_sec: since.as_secs().cast_signed(), tv_nsec: since.subsec_nanos().into() }
        }
    }
}
