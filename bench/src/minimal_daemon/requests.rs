//! Requests of the kernel, each with the fewest system calls.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyEmpty, ReplyEntry, ReplyOpen,
    Request,
};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, openat, statat, unlinkat};

use super::inodes::Inodes;

/// For names and attributes, as libfuse has it.
const TTL: Duration = Duration::from_secs(1);

/// The mount, as the library sees it.
#[derive(Debug)]
pub(super) struct Requests {
    inodes: Inodes,
}

impl Requests {
    /// Shows the directory `source`.
    pub(super) fn new(source: &Path) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, source, flags, Mode::empty())?;
        Ok(Self { inodes: Inodes::new(root) })
    }

    fn find(&self, inode: INodeNo) -> Result<std::sync::Arc<OwnedFd>, Errno> {
        self.inodes.descriptor(inode.0).ok_or(Errno::ESTALE)
    }

    /// A descriptor of a name, and what it names.
    fn look(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let parent = self.find(parent)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat(&*parent, name, flags, Mode::empty()).map_err(errno)?;
        let attr = attributes(&found)?;
        self.inodes.remember(attr.ino.0, found);
        Ok(attr)
    }

    fn make(&self, parent: INodeNo, name: &OsStr, mode: u32) -> Result<(FileAttr, OwnedFd), Errno> {
        let directory = self.find(parent)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = openat(&*directory, name, flags, Mode::from_raw_mode(mode)).map_err(errno)?;
        Ok((self.look(parent, name)?, made))
    }
}

impl Filesystem for Requests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let wanted = InitFlags::FUSE_PASSTHROUGH
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_PARALLEL_DIROPS;
        let lacks = || std::io::Error::other("the kernel has no FUSE passthrough");
        config.add_capabilities(wanted).map_err(|_| lacks())?;
        config.set_max_stack_depth(1).map_err(|_| lacks())?;
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look(parent, name) {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: &Request, inode: INodeNo, lookups: u64) {
        self.inodes.forget(inode.0, lookups);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.find(inode).and_then(|found| attributes(&*found)) {
            Ok(attr) => reply.attr(&TTL, &FileAttr { ino: inode, ..attr }),
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
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let (attr, made) = match self.make(parent, name, mode) {
            Ok(made) => made,
            Err(error) => return reply.error(error),
        };
        match self.inodes.open(attr.ino.0, |_| reply.open_backing(&made)) {
            Ok((handle, backing)) => reply.created_passthrough(
                &TTL,
                &attr,
                Generation(0),
                FileHandle(handle),
                FopenFlags::empty(),
                &backing,
            ),
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.inodes.open(inode.0, |found| reply.open_backing(found)) {
            Ok((handle, backing)) => {
                reply.opened_passthrough(FileHandle(handle), FopenFlags::empty(), &backing);
            }
            Err(error) => reply.error(error.into()),
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
        self.inodes.release(handle.0);
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Said once, the kernel asks no more.
        reply.error(Errno::ENOSYS);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self
            .find(parent)
            .and_then(|parent| unlinkat(&*parent, name, AtFlags::empty()).map_err(errno));
        match removed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    std::io::Error::from(error).into()
}

pub(crate) fn attributes(descriptor: &impl AsFd) -> Result<FileAttr, Errno> {
    let stat = statat(descriptor, "", AtFlags::EMPTY_PATH).map_err(errno)?;
    let kind = match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::RegularFile => FileType::RegularFile,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    Ok(attributes_of(&stat, kind))
}

fn attributes_of(stat: &Stat, kind: FileType) -> FileAttr {
    FileAttr {
        ino: INodeNo(stat.st_ino),
        size: stat.st_size.cast_unsigned(),
        blocks: stat.st_blocks.cast_unsigned(),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind,
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

fn time(seconds: i64, nanos: u64) -> SystemTime {
    UNIX_EPOCH + Duration::new(seconds.cast_unsigned(), nanos as u32)
}
