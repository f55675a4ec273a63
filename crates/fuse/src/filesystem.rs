//! The library's trait, handed on to [`crate::ops`]. Requests that may wait for other nodes go
//! through [`crate::waiters`]; reads and writes never do, because recalls wait for them; nor do attributes, but where
//! pages stay until an open; nor do releases. But while small writes are gathered these two may wait for the home of a
//! file, which is to have the bytes first.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use hayase_wire::message::{FileKind, MetaChange};

use crate::attributes::{ino, kind_of_mode, set_time};
use crate::errno::errno;
use crate::handles::{access_of, is_direct};
use crate::limits::{BACKGROUND_MAX, NAME_BYTES_MAX};
use crate::ops::Shared;
use crate::ops::attr::Answer;
use crate::ops::create::NewInode;
use crate::ops::locks::LockWish;
use crate::ops::read_write::{Durable, WriteTo, is_append, reply_written};
use crate::passthrough::PassthroughState;
use crate::profile::{ACLS, KernelProfile};
use crate::set_ids::Caller;
use crate::waiters::Line;

/// A mount, as the library sees it.
pub(crate) struct Requests {
    pub(crate) shared: Arc<Shared>,
    pub(crate) profile: KernelProfile,
    pub(crate) map_remote: bool,
    pub(crate) pages_until_open: bool,
}

impl Requests {
    /// Here or on another thread, but never on the last threads that serve reads.
    fn may_wait(&self, inode: INodeNo, job: impl FnOnce(&Shared) + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        self.shared.waiters.run(Line::of(ino(inode)), move || job(&shared));
    }

    /// Whether what is otherwise answered here may wait for what was gathered.
    fn waits_for_gathered(&self) -> bool {
        self.shared.volume.gathers_now()
    }

    fn new_inode(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        kind: FileKind,
        (mode, umask): (u32, u32),
    ) -> NewInode {
        NewInode {
            parent: ino(parent),
            name: name.as_bytes().to_vec(),
            kind,
            mode: mode & 0o7777,
            umask,
            uid: request.uid(),
            gid: request.gid(),
            rdev: 0,
            target: None,
        }
    }
}

/// Answers `ENAMETOOLONG` and returns when the name is longer than any file system's.
macro_rules! check_name {
    ($reply:ident, $($name:expr),+) => {
        if false $(|| $name.len() > NAME_BYTES_MAX)+ {
            return $reply.error(Errno::ENAMETOOLONG);
        }
    };
}

impl Filesystem for Requests {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let mut wanted = self.profile.asks(config.capabilities());
        if !self.shared.volume.keeps_acls() {
            wanted.remove(ACLS);
        }
        if !self.map_remote {
            wanted.remove(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        }
        // Dropped while a write of another process is on its way, a page may come back as it was before.
        let explicit = InitFlags::FUSE_EXPLICIT_INVAL_DATA;
        if self.pages_until_open && config.capabilities().contains(explicit) {
            wanted.remove(InitFlags::FUSE_AUTO_INVAL_DATA);
            wanted.insert(explicit);
        }
        self.shared.granted.begins(wanted);
        if !wanted.contains(InitFlags::FUSE_HANDLE_KILLPRIV_V2) {
            self.shared.kernel.set_ids.go_at_open();
        }
        let unoffered = |_| std::io::Error::other("the kernel took back a capability");
        config.add_capabilities(wanted).map_err(unoffered)?;
        let bytes = u32::try_from(self.profile.request_bytes().get())
            .expect("requests are at most a few MiB");
        // A kernel that allows less names what it allows.
        if let Err(nearest) = config.set_max_write(bytes) {
            let _ = config.set_max_write(nearest);
        }
        if let Err(nearest) = config.set_max_readahead(bytes) {
            let _ = config.set_max_readahead(nearest);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        if wanted.contains(InitFlags::FUSE_PASSTHROUGH) && config.set_max_stack_depth(1).is_ok() {
            self.shared.kernel.backings.set_state(PassthroughState::Used);
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.may_wait(parent, move |shared| shared.lookup(ino(parent), &name, reply));
    }

    fn forget(&self, _req: &Request, inode: INodeNo, lookups: u64) {
        self.shared.forget(ino(inode), lookups);
    }

    fn getattr(&self, asked: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let asker = asked.pid();
        // Pages may have to be dropped before another size is told, which waits for reads.
        if self.pages_until_open {
            return self.may_wait(inode, move |shared| shared.getattr(ino(inode), asker, reply));
        }
        if self.waits_for_gathered() {
            let (inode, shared) = (ino(inode), Arc::clone(&self.shared));
            let job = move || shared.getattr(inode, asker, reply);
            return self.shared.waiters.run_surely(Line::of(inode), job);
        }
        let answer = Answer::of(&*self.shared.volume, ino(inode), asker);
        if answer.may_be_ignored {
            return self.may_wait(inode, move |shared| {
                answer.make_known(&*shared.volume, &shared.kernel);
                shared.reply_attr(answer.found, reply);
            });
        }
        self.shared.reply_attr(answer.found, reply);
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = MetaChange {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            policy: None,
            kill_suidgid: size.is_some() && request.uid() != 0,
        };
        self.may_wait(inode, move |shared| shared.setattr(ino(inode), &change, reply));
    }

    fn readlink(&self, _req: &Request, inode: INodeNo, reply: ReplyData) {
        self.may_wait(inode, move |shared| shared.readlink(ino(inode), reply));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        check_name!(reply, name);
        let Some(kind) = kind_of_mode(mode) else { return reply.error(Errno::EINVAL) };
        let mut new = self.new_inode(request, parent, name, kind, (mode, umask));
        new.rdev = rdev;
        let busy = self.shared.kernel.busy.enter(new.parent);
        self.may_wait(parent, move |shared| {
            let _busy = busy;
            shared.make(new, reply);
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        check_name!(reply, name);
        let new = self.new_inode(request, parent, name, FileKind::Directory, (mode, umask));
        let busy = self.shared.kernel.busy.enter(new.parent);
        self.may_wait(parent, move |shared| {
            let _busy = busy;
            shared.make(new, reply);
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        check_name!(reply, name);
        let name = name.as_bytes().to_vec();
        Shared::unlink(&self.shared, request.unique().0, ino(parent), &name, reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        check_name!(reply, name);
        let name = name.as_bytes().to_vec();
        let busy = self.shared.kernel.busy.enter(ino(parent));
        self.may_wait(parent, move |shared| {
            let _busy = busy;
            shared.remove(ino(parent), &name, true, reply);
        });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        check_name!(reply, name);
        let mut new = self.new_inode(request, parent, name, FileKind::Symlink, (0o777, 0));
        new.target = Some(target.as_os_str().as_bytes().to_vec());
        let busy = self.shared.kernel.busy.enter(new.parent);
        self.may_wait(parent, move |shared| {
            let _busy = busy;
            shared.make(new, reply);
        });
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        check_name!(reply, name, new_name);
        let from = (ino(parent), name.as_bytes().to_vec());
        let to = (ino(new_parent), new_name.as_bytes().to_vec());
        let directories = &self.shared.kernel.busy;
        let busy = (directories.enter(from.0), directories.enter(to.0));
        self.may_wait(parent, move |shared| {
            let _busy = busy;
            shared.rename(from, to, flags, reply);
        });
    }

    fn link(
        &self,
        _req: &Request,
        inode: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        check_name!(reply, name);
        let name = name.as_bytes().to_vec();
        let busy = self.shared.kernel.busy.enter(ino(parent));
        self.may_wait(parent, move |shared| {
            let _busy = busy;
            shared.link(ino(inode), ino(parent), &name, reply);
        });
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let user = request.uid();
        self.may_wait(inode, move |shared| shared.open(ino(inode), flags, user, reply));
    }

    fn read(
        &self,
        _req: &Request,
        inode: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if !ino(inode).is_cached() {
            return self.shared.read(ino(inode), offset, size, reply);
        }
        // Perhaps its bytes are still on their way from the tier, for as long as that takes.
        let shared = Arc::clone(&self.shared);
        let read = move || shared.read(ino(inode), offset, size, reply);
        self.shared.waiters.run(Line::TierReads, read);
    }

    fn write(
        &self,
        _req: &Request,
        inode: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let write = WriteTo { ino: ino(inode), offset, append: is_append(flags, write_flags) };
        let durable = Durable::of(flags);
        // Pages are locked during the write of a file that the kernel caches, which looked at the bits itself before.
        let kills = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) && is_direct(fh);
        if kills && self.shared.kernel.set_ids.has(write.ino) {
            let data = data.to_vec();
            return self.may_wait(inode, move |shared| {
                let written = shared.kill_suidgid(write.ino);
                let written = written.and_then(|()| write.done(&*shared.volume, &data));
                reply_written(write.synced(&*shared.volume, durable, written), reply);
            });
        }
        // Not one that waits for another kernel: the open for writing has recalled them.
        match (durable, write.done(&*self.shared.volume, data)) {
            (Durable::Later, written) | (_, written @ Err(_)) => reply_written(written, reply),
            (durable, written) => self.may_wait(inode, move |shared| {
                reply_written(write.synced(&*shared.volume, durable, written), reply);
            }),
        }
    }

    /// Nothing is written later; the closer's locks end.
    fn flush(
        &self,
        _req: &Request,
        inode: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let ino = ino(inode);
        self.shared.closes.closed(ino, lock_owner);
        if self.shared.wants_closes && access_of(fh).write {
            return self.may_wait(inode, move |shared| shared.closed(ino, lock_owner, reply));
        }
        if !self.shared.volume.may_hold_locks(ino, lock_owner.0) {
            return reply.ok();
        }
        self.may_wait(inode, move |shared| shared.locks.unlock_all(ino, lock_owner, reply));
    }

    fn release(
        &self,
        _req: &Request,
        inode: INodeNo,
        fh: FileHandle,
        flags: OpenFlags,
        _flock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let (inode, shared) = (ino(inode), Arc::clone(&self.shared));
        // Nobody waits for the answer, but the number of these under way at a time is bounded.
        let end_locks = move |shared: &Shared, owners: Vec<LockOwner>| {
            for owner in owners {
                shared.locks.give_up(inode, owner);
            }
        };
        // An open, or a lock, that is never given up would stay for good: not even a full line drops it.
        if access_of(fh).write && self.waits_for_gathered() {
            return self.shared.waiters.run_surely(Line::of(inode), move || {
                let owners = shared.release(inode, fh, flags);
                reply.ok();
                end_locks(&shared, owners);
            });
        }
        let owners = self.shared.release(inode, fh, flags);
        reply.ok();
        if !owners.is_empty() {
            let end = move || end_locks(&shared, owners);
            self.shared.waiters.run_surely(Line::of(inode), end);
        }
    }

    fn fsync(
        &self,
        _req: &Request,
        inode: INodeNo,
        _fh: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.may_wait(inode, move |shared| shared.space.fsync(ino(inode), data_only, reply));
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(self.shared.directories.open(), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _req: &Request,
        inode: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.may_wait(inode, move |shared| shared.readdir(ino(inode), fh, offset, reply));
    }

    fn readdirplus(
        &self,
        _req: &Request,
        inode: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.may_wait(inode, move |shared| shared.readdirplus(ino(inode), fh, offset, reply));
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.shared.directories.release(fh);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        inode: INodeNo,
        _fh: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.may_wait(inode, move |shared| shared.space.fsync(ino(inode), data_only, reply));
    }

    fn statfs(&self, _req: &Request, inode: INodeNo, reply: ReplyStatfs) {
        self.may_wait(inode, move |shared| shared.space.statfs(reply));
    }

    fn setxattr(
        &self,
        request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
        let caller = Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() };
        self.may_wait(inode, move |shared| {
            shared.xattrs.setxattr(ino(inode), (&name, &value), flags, caller, reply);
        });
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.as_bytes().to_vec();
        self.may_wait(inode, move |shared| shared.xattrs.getxattr(ino(inode), &name, size, reply));
    }

    fn listxattr(&self, _req: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        self.may_wait(inode, move |shared| shared.xattrs.listxattr(ino(inode), size, reply));
    }

    fn removexattr(&self, _req: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.may_wait(inode, move |shared| shared.xattrs.removexattr(ino(inode), &name, reply));
    }

    /// The kernel checks rights itself (`default_permissions`) and does not ask.
    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        check_name!(reply, name);
        let new = self.new_inode(request, parent, name, FileKind::Regular, (mode, umask));
        let busy = self.shared.kernel.busy.enter(new.parent);
        self.may_wait(parent, move |shared| {
            let _busy = busy;
            shared.create(new, OpenFlags(flags), reply);
        });
    }

    fn getlk(
        &self,
        _req: &Request,
        inode: INodeNo,
        _fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let wish = LockWish { owner: lock_owner, start, end, typ, pid };
        self.may_wait(inode, move |shared| shared.locks.getlk(ino(inode), &wish, reply));
    }

    fn setlk(
        &self,
        request: &Request,
        inode: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let wish = LockWish { owner: lock_owner, start, end, typ, pid };
        let waiter = (request.pid(), sleep);
        self.may_wait(inode, move |shared| {
            shared.locks.setlk(ino(inode), fh, &wish, waiter, reply);
        });
    }

    /// Not a terminal, and nothing else that has controls.
    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        request: &Request,
        inode: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // The kernel looks itself since Linux 6.2.
        let kills = request.uid() != 0 && self.shared.kernel.set_ids.has(ino(inode));
        self.may_wait(inode, move |shared| {
            if kills && let Err(refused) = shared.kill_suidgid(ino(inode)) {
                return reply.error(errno(&refused));
            }
            shared.space.fallocate(ino(inode), mode, offset, length, reply);
        });
    }

    fn lseek(
        &self,
        _req: &Request,
        inode: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.may_wait(inode, move |shared| shared.space.lseek(ino(inode), offset, whence, reply));
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to) = ((ino(ino_in), offset_in), (ino(ino_out), offset_out));
        let slower = if from.0.is_cached() { ino_in } else { ino_out };
        self.may_wait(slower, move |shared| shared.space.copy_file_range(from, to, len, reply));
    }
}
