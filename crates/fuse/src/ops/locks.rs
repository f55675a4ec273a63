//! fcntl(2) and flock(2): one space of locks, since the library does not say which of the two it is.
//! When a close ends locks: [`crate::closes`].

use std::sync::Arc;

use fuser::{Errno, FileHandle, LockOwner, ReplyEmpty, ReplyLock};
use hayase_client::volume::Volume;
use hayase_layout::InodeId;
use hayase_wire::message::{Lock, LockKind, LockRange};

use crate::closes::Closes;
use crate::errno::errno;

/// The last byte of a range without an end, as the kernel says it (`OFFSET_MAX`).
const LAST: u64 = i64::MAX as u64;

/// What a process asks for.
#[derive(Debug)]
pub(crate) struct LockWish {
    pub(crate) owner: LockOwner,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub(crate) typ: i32,
    pub(crate) pid: u32,
}

impl LockWish {
    fn range(&self) -> LockRange {
        let last = if self.end >= LAST { u64::MAX } else { self.end };
        LockRange { start: self.start, last }
    }

    /// `None` when it is an unlock.
    fn lock(&self) -> Result<Option<Lock>, Errno> {
        let kind = match self.typ {
            libc::F_RDLCK => LockKind::Shared,
            libc::F_WRLCK => LockKind::Exclusive,
            libc::F_UNLCK => return Ok(None),
            _ => return Err(Errno::EINVAL),
        };
        let (owner, range, pid) = (self.owner.0, self.range(), self.pid);
        Ok(Some(Lock { owner, kind, range, pid }))
    }
}

/// Locks of processes, and which end with a close.
pub(crate) struct Locks {
    volume: Arc<dyn Volume>,
    closes: Arc<Closes>,
}

impl Locks {
    pub(crate) fn new(volume: Arc<dyn Volume>, closes: Arc<Closes>) -> Self {
        Self { volume, closes }
    }

    pub(crate) fn setlk(
        &self,
        ino: InodeId,
        handle: FileHandle,
        wish: &LockWish,
        (thread, waits): (u32, bool),
        reply: ReplyEmpty,
    ) {
        let lock = match wish.lock() {
            Ok(lock) => lock,
            Err(error) => return reply.error(error),
        };
        let Some(lock) = lock else {
            return match self.volume.unlock(ino, wish.owner.0, wish.range()) {
                Ok(()) => reply.ok(),
                Err(refused) => reply.error(errno(&refused)),
            };
        };
        let volume = Arc::clone(&self.volume);
        self.closes.locks(ino, handle, (wish.owner, wish.pid, thread), move |holder| {
            give_up(&*volume, holder.ino, holder.owner);
        });
        let told = move |result| match result {
            Ok(()) => reply.ok(),
            Err(refused) => reply.error(errno(&refused)),
        };
        self.volume.lock(ino, lock, waits.then_some(thread), Box::new(told));
    }

    pub(crate) fn getlk(&self, ino: InodeId, wish: &LockWish, reply: ReplyLock) {
        let lock = match wish.lock() {
            Ok(Some(lock)) => lock,
            Ok(None) => return reply.error(Errno::EINVAL),
            Err(error) => return reply.error(error),
        };
        match self.volume.test_lock(ino, lock) {
            Ok(None) => reply.locked(wish.start, wish.end, libc::F_UNLCK, 0),
            Ok(Some(held)) => {
                let typ = match held.kind {
                    LockKind::Shared => libc::F_RDLCK,
                    LockKind::Exclusive => libc::F_WRLCK,
                };
                reply.locked(held.range.start, held.range.last.min(LAST), typ, held.pid);
            }
            Err(refused) => reply.error(errno(&refused)),
        }
    }

    /// A process has closed a descriptor of the file, or a locked open file is closed for good.
    pub(crate) fn unlock_all(&self, ino: InodeId, owner: LockOwner, reply: ReplyEmpty) {
        self.give_up(ino, owner);
        reply.ok();
    }

    /// The locks of `owner` end.
    pub(crate) fn give_up(&self, ino: InodeId, owner: LockOwner) {
        give_up(&*self.volume, ino, owner);
        self.closes.ended(ino, owner);
    }
}

fn give_up(volume: &dyn Volume, ino: InodeId, owner: LockOwner) {
    if let Err(error) = volume.unlock(ino, owner.0, LockRange::ALL) {
        tracing::warn!(%ino, %error, "locks were not given up at a close");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_without_an_end_has_none() {
        let wish = |end, typ| LockWish { owner: LockOwner(1), start: 5, end, typ, pid: 7 };
        assert_eq!(wish(LAST, libc::F_RDLCK).range(), LockRange { start: 5, last: u64::MAX });
        assert_eq!(wish(9, libc::F_RDLCK).range(), LockRange { start: 5, last: 9 });
        assert!(matches!(wish(9, libc::F_UNLCK).lock(), Ok(None)));
        assert!(matches!(wish(9, 77).lock(), Err(Errno::EINVAL)));
        let lock = wish(9, libc::F_WRLCK).lock();
        assert!(matches!(lock, Ok(Some(Lock { kind: LockKind::Exclusive, pid: 7, .. }))));
    }
}
