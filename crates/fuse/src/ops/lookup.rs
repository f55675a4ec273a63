//! Names to inodes, and back to nothing.

use std::ffi::OsStr;

use fuser::ReplyEntry;
use hayase_layout::InodeId;

use super::{Shared, checked_name};
use crate::errno::errno;

impl Shared {
    /// A miss is answered without a TTL: a name made by another node is found at once.
    pub(crate) fn lookup(&self, parent: InodeId, name: &OsStr, reply: ReplyEntry) {
        let found = checked_name(name).and_then(|name| self.volume.lookup(parent, &name));
        match found {
            Ok(found) => self.reply_entry(parent, &found, reply),
            Err(refused) => reply.error(errno(&refused)),
        }
    }

    pub(crate) fn forget(&self, ino: InodeId, lookups: u64) {
        if self.kernel.inodes.forget(ino, lookups) {
            self.kernel.set_ids.forget(ino);
            self.volume.forgotten(ino);
        }
    }
}
