//! What can be mounted: files by inode number, with blocking calls from any number of threads.
//!
//! Here: the contract between a mount and what it shows. Rooms: the areas of a job ([`area`]), a
//! directory of containers ([`container`]), a directory of Gfarm ([`gfarm`]), the private tree of a node without storage
//! ([`private_tree`]), and what all have in common in which nothing changes ([`read_only`]). Not here:
//! FUSE (`hayase_fuse`).
//!
//! Errors are [`Refused`]: an errno that the kernel understands, and words for the log.

pub mod area;
pub mod container;
pub mod gfarm;
pub mod private_tree;
pub mod read_only;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use hayase_layout::InodeId;
use hayase_wire::message::{
    Access, AreaUse, Attr, DirEntry, Explained, Lock, LockHeld, LockRange, MetaChange, Name,
    NewNode, RecordedStep, Refused, XattrMode,
};

use crate::grants::Stamp;
use crate::open_file::{Class, Serving};

pub use read_only::ReadOnly;

/// Attributes, and until what they may be kept.
#[derive(Clone, Debug)]
pub struct Found {
    /// As they were at some moment during the call.
    pub attr: Attr,
    /// For [`Volume::may_keep`].
    pub stamp: Stamp,
}

/// One line of a listing, as [`DirEntry`], with what may be kept of it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The entry.
    pub entry: DirEntry,
    /// Of its attributes; [`Stamp::NEVER`] when it has none.
    pub stamp: Stamp,
}

/// Told what became of a lock.
pub type LockTold = Box<dyn FnOnce(Result<(), Refused>) + Send>;

/// What an open asks for.
#[derive(Clone, Copy, Debug)]
pub struct OpenWish {
    /// Read, write or both.
    pub access: Access,
    /// `O_TRUNC`.
    pub truncate: bool,
    /// What the asker can do with the part.
    pub serving: Serving,
    /// Not through pages, when it is served by messages: `O_APPEND`, and `O_DIRECT` where the kernel maps direct files.
    pub uncached: bool,
}

/// An open file: give it back with [`Volume::release`].
#[derive(Clone, Debug)]
pub struct FileOpen {
    /// By the part or by messages; the same for all opens of the inode until the last release.
    pub class: Class,
    /// Of the part, in class [`Class::Local`].
    pub descriptor: Option<Arc<OwnedFd>>,
    /// Class [`Class::Remote`]: the opener's kernel may cache pages of this open.
    pub cache: bool,
    /// Pages that the kernel has of this inode are as good as new.
    pub keep_pages: bool,
    /// Several parts: writes to different places need not wait for each other.
    pub striped: bool,
}

/// A request of the kernel, and who answers it if the server does not.
pub struct Awaited {
    /// The kernel's number of it.
    pub unique: u64,
    /// Called once, on any thread.
    pub answer: Box<dyn FnOnce(Told) + Send>,
}

/// What the kernel knows of a request that it waits for.
#[derive(Debug)]
pub enum Told {
    /// The server has told it of the success: there is nothing left to answer.
    ByServer,
    /// Nothing yet: this is the answer.
    Nothing(Result<(), Refused>),
    /// Nothing yet, and nothing has happened: [`Volume::remove`] does it.
    NotTaken,
}

/// How this node has a file open, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalUse {
    /// Class of the opens here.
    pub class: Option<Class>,
    /// Descriptors that read.
    pub readers: u32,
    /// Descriptors that write.
    pub writers: u32,
    /// CACHE is granted to this node.
    pub cache: bool,
}

/// Files and directories that a mount can show.
pub trait Volume: Send + Sync + 'static {
    /// Who keeps caches above; called once, before anything is asked.
    fn attach(&self, kernel: Arc<dyn KernelCaches>);

    /// `ENOENT` when there is no such name. Never answered from a cache.
    fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Found, Refused>;

    /// `ESTALE` when the inode is gone and not open here.
    fn attributes(&self, ino: InodeId) -> Result<Found, Refused>;

    /// Mode, owner, lists, layout and policy; its size and times may be old. Lists that nobody has asked a tier for yet are
    /// asked for now.
    fn lasting_attributes(&self, ino: InodeId) -> Result<Attr, Refused>;

    /// Whether attributes of this stamp may still be handed to a cache. Ask it last, and hand
    /// them over before the next [`KernelCaches::invalidate`] of the inode begins its work.
    fn may_keep(&self, ino: InodeId, stamp: Stamp) -> bool;

    /// The kernel is about to be answered these attributes, for a thread `asker`, and compares them with what it knew. True
    /// when it may ignore the answer, since another one crosses it: then make it drop the pages and know the end first.
    fn answers(&self, attr: &Attr, asker: u32) -> bool {
        let _ = (attr, asker);
        false // nothing that is cached changes
    }

    /// The kernel has dropped the inode; so may the volume.
    fn forgotten(&self, ino: InodeId);

    /// chmod, chown, truncate, utimensat. May wait for other nodes.
    fn set_attributes(&self, ino: InodeId, change: &MetaChange) -> Result<Found, Refused>;

    /// A new name with a new inode, not opened. `EEXIST` when the name is taken.
    fn make(&self, node: NewNode) -> Result<Found, Refused>;

    /// A new regular file, opened. `EEXIST` when the name is taken.
    fn create(&self, node: NewNode, wish: OpenWish) -> Result<(Found, FileOpen), Refused>;

    /// A further name. May wait for other nodes.
    fn link(&self, ino: InodeId, parent: InodeId, name: &[u8]) -> Result<Found, Refused>;

    /// Takes a name away (`directory`: of an empty directory). May wait for other nodes.
    fn remove(&self, parent: InodeId, name: &[u8], directory: bool) -> Result<(), Refused>;

    /// Takes a file's name away, as the kernel asks for in its request `awaited`, without waiting: the
    /// server may tell the kernel itself.
    fn hand_over_removal(&self, _parent: InodeId, _name: &[u8], awaited: Awaited) {
        (awaited.answer)(Told::NotTaken);
    }

    /// `no_replace` and `exchange` as in renameat2(2). May wait for other nodes.
    fn rename(
        &self,
        from: (InodeId, Name),
        to: (InodeId, Name),
        no_replace: bool,
        exchange: bool,
    ) -> Result<(), Refused>;

    /// Target of a symbolic link.
    fn read_link(&self, ino: InodeId) -> Result<Vec<u8>, Refused>;

    /// Entries after `cookie` in cookie order, about `bytes` of names; empty at the end. Entries
    /// of equal cookie come together. `plus` asks for attributes where they are at hand.
    fn list(
        &self,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<Vec<Listed>, Refused>;

    /// May wait for other nodes.
    fn open(&self, ino: InodeId, wish: OpenWish) -> Result<FileOpen, Refused>;

    /// Ends an open that [`Volume::open`] or [`Volume::create`] gave for `access`. Waits only for what was gathered of
    /// small writes.
    fn release(&self, ino: InodeId, access: Access);

    /// Whether small writes of any file are being gathered: then [`Volume::attributes`] and [`Volume::release`] may wait
    /// for the home. Never waits.
    fn gathers_now(&self) -> bool {
        false
    }

    /// Whether it lays files out itself; what is said of layouts elsewhere is an attribute like any other.
    fn has_layouts(&self) -> bool {
        true
    }

    /// Whether the attributes of its inodes have their access control lists, so that the kernel can check them. Asked once.
    fn keeps_acls(&self) -> bool {
        false
    }

    /// Whether [`Volume::closed`] is told of each close of a descriptor that may write. Asked once.
    fn wants_closes(&self) -> bool {
        false
    }

    /// A descriptor that may write was closed; others of the same open may be left. The closer waits
    /// for it and is told of its errors.
    fn closed(&self, _ino: InodeId) -> Result<(), Refused> {
        Ok(())
    }

    /// At most [`Volume::transfer_bytes`]; short only at the end of the file. `sink` is called
    /// once, when the bytes are there.
    fn read(
        &self,
        ino: InodeId,
        offset: u64,
        len: u32,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refused>;

    /// Any length; the bytes written, all unless an error came after some.
    fn write(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<u32, Refused>;

    /// As [`Volume::write`] at the end of the file, wherever that is; at most
    /// [`Volume::transfer_bytes`] stay together. May wait.
    fn append(&self, ino: InodeId, data: &[u8]) -> Result<u32, Refused>;

    /// Largest read, and largest append that stays together.
    fn transfer_bytes(&self) -> usize;

    /// fcntl(2) with `F_SETLK` and `F_SETLKW`, flock(2): `told` is called once, when the lock is
    /// held or will not be, here or on another thread. Who waits ends with `EINTR` within a second
    /// or so when a signal is pending for the thread `waiter`.
    /// Volumes without locks refuse all of them: those of one host alone would be silently wrong.
    fn lock(&self, ino: InodeId, lock: Lock, waiter: Option<u32>, told: LockTold) {
        let _ = (ino, lock, waiter);
        told(no_locks());
    }

    /// Gives up what `owner` holds of `range`. May wait for other nodes.
    fn unlock(&self, ino: InodeId, owner: u64, range: LockRange) -> Result<(), Refused> {
        let _ = (ino, owner, range);
        Ok(()) // nobody holds any
    }

    /// `F_GETLK`: a lock in the way of this one. May wait for other nodes.
    fn test_lock(&self, ino: InodeId, lock: Lock) -> Result<Option<LockHeld>, Refused> {
        let _ = (ino, lock);
        no_locks()
    }

    /// Whether `owner` may hold locks of this inode. Never waits.
    fn may_hold_locks(&self, ino: InodeId, owner: u64) -> bool {
        let _ = (ino, owner);
        false
    }

    /// fallocate(2).
    fn allocate(&self, ino: InodeId, mode: i32, offset: u64, len: u64) -> Result<(), Refused>;

    /// `SEEK_DATA` (3) or `SEEK_HOLE` (4).
    fn seek(&self, ino: InodeId, offset: u64, whence: u8) -> Result<u64, Refused>;

    /// copy_file_range(2): how many bytes were copied.
    fn copy_range(
        &self,
        from: (InodeId, u64),
        to: (InodeId, u64),
        len: u64,
    ) -> Result<u32, Refused>;

    /// fsync(2), fdatasync(2); of directories too.
    fn sync(&self, ino: InodeId, data_only: bool) -> Result<(), Refused>;

    /// `ENODATA` when there is none.
    fn xattr(&self, ino: InodeId, name: &[u8]) -> Result<Vec<u8>, Refused>;

    /// `EEXIST`, `ENODATA` by `mode`.
    fn set_xattr(
        &self,
        ino: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Refused>;

    /// Names of xattrs.
    fn list_xattrs(&self, ino: InodeId) -> Result<Vec<Name>, Refused>;

    /// `ENODATA` when there is none.
    fn remove_xattr(&self, ino: InodeId, name: &[u8]) -> Result<(), Refused>;

    /// Room, for statfs(2).
    fn usage(&self) -> Result<AreaUse, Refused>;

    /// A step in the life of a file that MPI-IO keeps as one part per writer; `EOPNOTSUPP` where there
    /// are none. May wait for other nodes, and for as long as it takes to copy the file.
    fn recorded(&self, _ino: InodeId, _step: RecordedStep) -> Result<(), Refused> {
        Err(Refused::new(libc::EOPNOTSUPP))
    }

    /// How a file is served, as its home and this node see it.
    fn explain(&self, ino: InodeId) -> Result<(Explained, LocalUse), Refused>;
}

fn no_locks<T>() -> Result<T, Refused> {
    Err(Refused::because(libc::EOPNOTSUPP, "this mount has no locks"))
}

/// What an [`KernelCaches::invalidate`] drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drops {
    /// Attributes only.
    Attributes,
    /// Pages and attributes.
    Pages,
}

/// The caches above a volume, seen from it.
pub trait KernelCaches: Send + Sync + 'static {
    /// Returns when it is dropped, also from answers that were on their way when this began.
    /// Never called with a lock held that a read waits for, nor by a call that the kernel waits for
    /// with pages of this inode locked.
    fn invalidate(&self, ino: InodeId, drops: Drops);

    /// Returns when it knows that the file reaches to the end of `byte`, which is at `offset`. As
    /// [`KernelCaches::invalidate`] otherwise.
    fn reaches(&self, ino: InodeId, offset: u64, byte: u8) {
        let _ = (ino, offset, byte);
    }

    /// Returns when the name is dropped, or after `wait` while that still goes on.
    fn forget_name(&self, parent: InodeId, name: &[u8], wait: Duration);

    /// A copy of the descriptor by which the kernel asks, if others may answer there.
    fn device(&self) -> Option<OwnedFd> {
        None
    }

    /// No open of class [`Class::Local`] is left, and none can begin before this returns. Called
    /// under a lock: short, and calls nothing of the volume.
    fn release_descriptor(&self, ino: InodeId);
}
