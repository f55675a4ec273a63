//! Names of inodes that exist.

use fuser::{RenameFlags, ReplyData, ReplyEmpty, ReplyEntry};
use hayase_layout::InodeId;
use hayase_wire::message::{Name, Refused};

use super::Shared;
use crate::errno::errno;

impl Shared {
    pub(crate) fn link(&self, ino: InodeId, parent: InodeId, name: &Name, reply: ReplyEntry) {
        match self.volume.link(ino, parent, name) {
            Ok(found) => self.reply_entry(parent, &found, reply),
            Err(refused) => reply.error(errno(&refused)),
        }
    }

    pub(crate) fn remove(&self, parent: InodeId, name: &Name, directory: bool, reply: ReplyEmpty) {
        reply_empty(self.volume.remove(parent, name, directory), reply);
    }

    pub(crate) fn rename(
        &self,
        from: (InodeId, Name),
        to: (InodeId, Name),
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let known = RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_EXCHANGE;
        if !known.contains(flags) {
            return reply.error(fuser::Errno::EINVAL);
        }
        let no_replace = flags.contains(RenameFlags::RENAME_NOREPLACE);
        let exchange = flags.contains(RenameFlags::RENAME_EXCHANGE);
        reply_empty(self.volume.rename(from, to, no_replace, exchange), reply);
    }

    pub(crate) fn readlink(&self, ino: InodeId, reply: ReplyData) {
        match self.volume.read_link(ino) {
            Ok(target) => reply.data(&target),
            Err(refused) => reply.error(errno(&refused)),
        }
    }
}

pub(super) fn reply_empty(result: Result<(), Refused>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(refused) => reply.error(errno(&refused)),
    }
}
