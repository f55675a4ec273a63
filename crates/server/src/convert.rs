//! Between the records of the store and the messages of the wire, which do not know each other.

use hayase_layout::InodeId;
use hayase_store::namespace::{FileKind as StoredKind, Inode, Time};
use hayase_store::{AreaUsage, NamespaceError, PartError, PartId, PartStat};
use hayase_wire::message::{AreaMoved, AreaUse, Attr, FileKind, PartRef, Refused, TimeSpec};

pub(crate) fn kind(stored: StoredKind) -> FileKind {
    match stored {
        StoredKind::Regular => FileKind::Regular,
        StoredKind::Directory => FileKind::Directory,
        StoredKind::Symlink => FileKind::Symlink,
        StoredKind::Fifo => FileKind::Fifo,
        StoredKind::Socket => FileKind::Socket,
        StoredKind::CharDevice => FileKind::CharDevice,
        StoredKind::BlockDevice => FileKind::BlockDevice,
    }
}

pub(crate) fn stored_kind(kind: FileKind) -> StoredKind {
    match kind {
        FileKind::Regular => StoredKind::Regular,
        FileKind::Directory => StoredKind::Directory,
        FileKind::Symlink => StoredKind::Symlink,
        FileKind::Fifo => StoredKind::Fifo,
        FileKind::Socket => StoredKind::Socket,
        FileKind::CharDevice => StoredKind::CharDevice,
        FileKind::BlockDevice => StoredKind::BlockDevice,
    }
}

pub(crate) fn time(stored: Time) -> TimeSpec {
    TimeSpec { seconds: stored.seconds, nanos: stored.nanos }
}

pub(crate) fn stored_time(time: TimeSpec) -> Time {
    Time { seconds: time.seconds, nanos: time.nanos }
}

pub(crate) fn part_id(part: PartRef) -> hayase_store::PartId {
    hayase_store::PartId { ino: part.ino, epoch: part.layout_epoch, index: part.index }
}

pub(crate) fn area_use(usage: &AreaUsage) -> AreaUse {
    AreaUse {
        total: usage.total,
        free: usage.free,
        inodes: usage.inodes,
        inodes_free: usage.inodes_free,
    }
}

/// The attributes that the record alone tells; of a `Whole` file the part knows the rest.
pub(crate) fn attr_of_record(inode: &Inode) -> Attr {
    Attr {
        ino: inode.ino,
        kind: kind(inode.kind),
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        nlink: inode.nlink,
        size: inode.size,
        blocks: inode.size.div_ceil(512),
        atime: time(inode.atime),
        mtime: time(inode.mtime),
        ctime: time(inode.ctime),
        crtime: time(inode.crtime),
        layout: inode.layout.clone(),
        layout_epoch: inode.layout_epoch,
        trunc_epoch: inode.trunc_epoch,
        policy: inode.policy,
        acls: inode.acls.clone(),
    }
}

/// Lets the part tell what it knows better.
pub(crate) fn add_part(attr: &mut Attr, part: &PartStat) {
    attr.size = part.size;
    attr.blocks = part.blocks;
    attr.atime = time(part.atime);
    attr.mtime = time(part.mtime);
    attr.ctime = attr.ctime.max(time(part.ctime));
}

/// A part's error as the caller of the file system sees it; its errno is kept.
#[expect(clippy::needless_pass_by_value, reason = "used as it is in `map_err`")]
pub(crate) fn part_refused(error: PartError) -> Refused {
    Refused::because(error.errno(), error.to_string())
}

/// The same for names.
#[expect(clippy::needless_pass_by_value, reason = "used as it is in `map_err`")]
pub(crate) fn meta_refused(error: NamespaceError) -> Refused {
    tracing::error!(%error, "the name space could not be read or written");
    Refused::because(error.errno(), error.to_string())
}
/// What an area has moved.
pub(crate) fn area_moved(moved: hayase_store::area::AreaMoved) -> AreaMoved {
    AreaMoved { read: moved.read, written: moved.written }
}

/// The only part of a `Whole` file.
pub(crate) fn whole_part(ino: InodeId, layout_epoch: u32) -> PartId {
    PartId { ino, epoch: layout_epoch, index: 0 }
}

/// Whether a part's error means that it is not there.
pub(crate) fn is_missing(error: &PartError) -> bool {
    matches!(error, PartError::Missing { .. })
}
