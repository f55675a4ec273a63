//! Names of inodes that exist.

use std::sync::Arc;

use fuser::{RenameFlags, ReplyData, ReplyEmpty, ReplyEntry};
use hayase_client::volume::{Awaited, Told};
use hayase_layout::InodeId;
use hayase_wire::message::{Name, Refused};

use super::Shared;
use crate::errno::errno;
use crate::waiters::Line;

impl Shared {
    pub(crate) fn link(&self, ino: InodeId, parent: InodeId, name: &Name, reply: ReplyEntry) {
        match self.volume.link(ino, parent, name) {
            Ok(found) => self.reply_entry(parent, &found, reply),
            Err(refused) => reply.error(errno(&refused)),
        }
    }

    /// `unique` is the kernel's number of the request. Waits for nothing.
    pub(crate) fn unlink(
        shared: &Arc<Self>,
        unique: u64,
        parent: InodeId,
        name: &Name,
        reply: ReplyEmpty,
    ) {
        let (later, asked) = (Arc::clone(shared), name.clone());
        let answer = move |told| match told {
            Told::ByServer => leave_unanswered(reply),
            Told::Nothing(result) => reply_empty(result, reply),
            Told::NotTaken => {
                let busy = later.kernel.busy.enter(parent);
                let this = Arc::clone(&later);
                later.waiters.run(Line::of(parent), move || {
                    let _busy = busy;
                    this.remove(parent, &asked, false, reply);
                });
            }
        };
        let awaited = Awaited { unique, answer: Box::new(answer) };
        shared.volume.hand_over_removal(parent, name, awaited);
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

/// The kernel has its answer. The library answers what is dropped, so this one is forgotten: that costs a
/// count of references to the session's descriptor, which then lives as long as the process.
fn leave_unanswered(reply: ReplyEmpty) {
    std::mem::forget(reply);
}

pub(super) fn reply_empty(result: Result<(), Refused>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(refused) => reply.error(errno(&refused)),
    }
}
