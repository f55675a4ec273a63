//! Attributes, kinds, times: the wire's and the kernel's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use hayase_layout::InodeId;
use hayase_wire::message::{Attr, FileKind, SetTime, TimeSpec};

/// As stat(2) shows it.
const BLOCK_BYTES: u32 = 4096;

pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.crtime),
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

pub(crate) fn ino(ino: INodeNo) -> InodeId {
    InodeId(ino.0)
}

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// Of `st_mode & S_IFMT`; nothing set means a regular file, as in mknod(2).
pub(crate) fn kind_of_mode(mode: u32) -> Option<FileKind> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Some(FileKind::Regular),
        libc::S_IFIFO => Some(FileKind::Fifo),
        libc::S_IFSOCK => Some(FileKind::Socket),
        libc::S_IFCHR => Some(FileKind::CharDevice),
        libc::S_IFBLK => Some(FileKind::BlockDevice),
        _ => None,
    }
}

pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(time_spec(time)),
    }
}

/// Times before 1970 count back from it; what no `SystemTime` can hold is 1970.
fn system_time(time: TimeSpec) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let base = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    base.and_then(|base| base.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

fn time_spec(time: SystemTime) -> TimeSpec {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => {
            TimeSpec { seconds: since.as_secs().cast_signed(), nanos: since.subsec_nanos() }
        }
        // fuser 0.18 takes the nanoseconds of a time before 1970 off instead of adding them: what it
        // took off is what was asked for.
        Err(before) => {
            let before = before.duration();
            TimeSpec { seconds: -before.as_secs().cast_signed(), nanos: before.subsec_nanos() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As fuser hands over what utimensat(2) was given.
    fn handed_over(seconds: i64, nanos: u32) -> SystemTime {
        let since = Duration::new(seconds.unsigned_abs(), nanos);
        if seconds < 0 { UNIX_EPOCH - since } else { UNIX_EPOCH + since }
    }

    #[test]
    fn times_are_those_that_were_asked_for() {
        for (seconds, nanos) in [(0, 0), (1, 999_999_999), (-1, 0), (-1, 1), (-6, 999_999_999)] {
            let asked = TimeSpec { seconds, nanos };
            assert_eq!(time_spec(handed_over(seconds, nanos)), asked);
            // What is shown is the true time: whole seconds down, nanoseconds up.
            let shown = UNIX_EPOCH - Duration::from_secs(10) + Duration::new(10, nanos);
            let shown = match u64::try_from(seconds) {
                Ok(seconds) => shown + Duration::from_secs(seconds),
                Err(_) => shown - Duration::from_secs(seconds.unsigned_abs()),
            };
            assert_eq!(system_time(asked), shown);
        }
    }

    #[test]
    fn kinds_of_mknod() {
        let check = |mode, kind| assert_eq!(kind_of_mode(mode | 0o644), kind);
        check(0, Some(FileKind::Regular));
        check(libc::S_IFIFO, Some(FileKind::Fifo));
        check(libc::S_IFSOCK, Some(FileKind::Socket));
        check(libc::S_IFDIR, None);
    }
}
