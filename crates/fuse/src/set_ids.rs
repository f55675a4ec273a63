//! Files that run as their owner or group (S_ISUID, S_ISGID), as far as the kernel has cached it.
//!
//! A process without CAP_FSETID that changes the bytes of such a file clears the bits. For files that it caches or passes through
//! the kernel looks itself, and asks with a SETATTR that sets nothing. Of writes that come to us it only says that their
//! caller lacks the capability, so it is looked up here which file has the bits: all others cost no message.
//! Of a truncation fuser 0.18 hands over less (neither `FATTR_KILL_SUIDGID` nor `FUSE_OPEN_KILL_SUIDGID`): there it goes by
//! the caller's user.
//! Source: `FUSE_HANDLE_KILLPRIV_V2` in include/uapi/linux/fuse.h.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hayase_layout::InodeId;
use hayase_wire::message::{Attr, FileKind, MetaChange, without_suidgid};

/// What takes the bits and nothing else.
pub(crate) const KILL: MetaChange = MetaChange {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: None,
    mtime: None,
    policy: None,
    kill_suidgid: true,
};

/// The process that makes a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// 0 where it is in another PID namespace.
    pub(crate) pid: u32,
}

impl Caller {
    /// Whether it may leave the set-group-id bit of a file of `group`: root, and the members of the group.
    pub(crate) fn keeps_group(self, group: u32) -> bool {
        let status = || std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        self.uid == 0
            || self.gid == group
            || self.pid != 0 && status().is_ok_and(|status| is_member(&status, group))
    }
}

/// By the further groups in `/proc/PID/status`.
fn is_member(status: &str, group: u32) -> bool {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().any(|member| member.parse() == Ok(group))
}

/// See the module. Bounded by what the kernel knows: an entry goes with its inode.
#[derive(Debug, Default)]
pub(crate) struct SetIds {
    /// As many as there are in the set, so that ordinary files take no lock.
    count: AtomicUsize,
    inodes: Mutex<HashSet<InodeId>>,
    /// The kernel does not mark such writes (before Linux 5.11): an open for writing by a user other than root clears the
    /// bits.
    at_open: AtomicBool,
}

impl SetIds {
    fn lock(&self) -> MutexGuard<'_, HashSet<InodeId>> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is about to be told these attributes.
    pub(crate) fn told(&self, attr: &Attr) {
        let has = attr.kind == FileKind::Regular && without_suidgid(attr.mode) != attr.mode;
        if !has {
            return self.forget(attr.ino);
        }
        let mut inodes = self.lock();
        inodes.insert(attr.ino);
        self.count.store(inodes.len(), Ordering::Release);
    }

    /// The kernel has dropped the inode, or learns that it has no such bits.
    pub(crate) fn forget(&self, ino: InodeId) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut inodes = self.lock();
        inodes.remove(&ino);
        self.count.store(inodes.len(), Ordering::Release);
    }

    /// From now on they go at an open for writing.
    pub(crate) fn go_at_open(&self) {
        self.at_open.store(true, Ordering::Relaxed);
    }

    /// Whether an open of this kind, by others than root, takes the bits of the file.
    pub(crate) fn go_with_open(&self, ino: InodeId, writes: bool, truncates: bool) -> bool {
        (truncates || writes && self.at_open.load(Ordering::Relaxed)) && self.has(ino)
    }

    pub(crate) fn has(&self, ino: InodeId) -> bool {
        self.count.load(Ordering::Acquire) != 0 && self.lock().contains(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_group_are_known_by_the_kernel() {
        let status = "Uid:\t1\t1\t1\t1\nGroups:\t4 27 1000 \nNStgid:\t5\n";
        assert!(is_member(status, 27) && is_member(status, 1000));
        assert!(!is_member(status, 100) && !is_member(status, 5) && !is_member("", 4));
        let caller = |uid, gid| Caller { uid, gid, pid: 0 };
        assert!(caller(0, 1).keeps_group(7) && caller(1, 7).keeps_group(7));
        assert!(!caller(1, 1).keeps_group(7));
    }

    #[test]
    fn only_files_with_such_bits_are_known() {
        let ids = SetIds::default();
        let mut attr = hayase_client::testing::attr(5);
        let mut told = |kind, mode| {
            (attr.kind, attr.mode) = (kind, mode);
            ids.told(&attr);
            ids.has(attr.ino)
        };
        assert!(!told(FileKind::Regular, 0o755));
        assert!(told(FileKind::Regular, 0o4600));
        assert!(told(FileKind::Regular, 0o2750));
        assert!(!told(FileKind::Regular, 0o2740), "without S_IXGRP it is no set-group-id");
        assert!(!told(FileKind::Directory, 0o2755));
        assert!(told(FileKind::Regular, 0o6711));
        assert!(ids.go_with_open(attr.ino, true, true) && !ids.go_with_open(attr.ino, true, false));
        ids.go_at_open();
        assert!(
            ids.go_with_open(attr.ino, true, false) && !ids.go_with_open(attr.ino, false, false)
        );
        ids.forget(InodeId(5));
        assert!(!ids.has(InodeId(5)));
    }
}
