//! Opening and releasing files.

use fuser::{Errno, FileHandle, LockOwner, OpenFlags, ReplyEmpty, ReplyOpen};
use hayase_layout::InodeId;

use super::Shared;
use crate::errno::errno;
use crate::handles::access_of;
use crate::open_class::OpenClass;

impl Shared {
    /// `user`: the caller's.
    pub(crate) fn open(&self, ino: InodeId, flags: OpenFlags, user: u32, reply: ReplyOpen) {
        if self.running.forbids(ino, flags) {
            return reply.error(Errno::ETXTBSY);
        }
        let wish = self.wish(flags);
        let open = match self.volume.open(ino, wish) {
            Ok(open) => open,
            Err(refused) => return reply.error(errno(&refused)),
        };
        if user != 0
            && self.kernel.set_ids.go_with_open(ino, wish.access.write, wish.truncate)
            && let Err(refused) = self.kill_suidgid(ino)
        {
            self.volume.release(ino, wish.access);
            return reply.error(errno(&refused));
        }
        self.running.opened(ino, flags);
        let backing = self.backing(ino, &open, |part| reply.open_backing(part));
        let class = OpenClass::of(&open, backing.is_some());
        let (handle, closes) = self.closes.open(wish.access);
        let (handle, flags) = (class.handle(handle), class.flags() | closes);
        match backing.filter(|_| class == OpenClass::Passthrough) {
            Some(id) => reply.opened_passthrough(handle, flags, &id),
            None => reply.opened(handle, flags),
        }
    }

    /// A descriptor that may write was closed: the volume's errors are those of close(2).
    pub(crate) fn closed(&self, ino: InodeId, owner: LockOwner, reply: ReplyEmpty) {
        match self.volume.closed(ino) {
            Ok(()) if self.volume.may_hold_locks(ino, owner.0) => {
                self.locks.unlock_all(ino, owner, reply);
            }
            Ok(()) => reply.ok(),
            Err(refused) => {
                self.locks.give_up(ino, owner);
                reply.error(errno(&refused));
            }
        }
    }

    /// The home is notified later, with others; it is waited for only to have what was gathered. Gives back whose locks end
    /// with it, for [`crate::ops::locks::Locks::give_up`].
    pub(crate) fn release(
        &self,
        ino: InodeId,
        handle: FileHandle,
        flags: OpenFlags,
    ) -> Vec<LockOwner> {
        self.running.released(ino, flags);
        self.volume.release(ino, access_of(handle));
        let holders = self.closes.released(ino, handle).into_iter();
        let (owners, others): (Vec<_>, Vec<_>) = holders
            .map(|holder| holder.owner)
            .partition(|owner| self.volume.may_hold_locks(ino, owner.0));
        others.into_iter().for_each(|owner| self.closes.ended(ino, owner));
        owners
    }
}
