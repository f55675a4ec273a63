//! Attributes.

use fuser::ReplyAttr;
use hayase_client::volume::{Drops, Found, KernelCaches};
use hayase_layout::InodeId;
use hayase_wire::message::{MetaChange, Refused};

use super::Shared;
use crate::attributes::file_attr;
use crate::errno::errno;
use crate::set_ids::KILL;

impl Shared {
    pub(crate) fn getattr(&self, ino: InodeId, reply: ReplyAttr) {
        self.reply_attr(self.volume.attributes(ino), reply);
    }

    /// A change that sets nothing is what a kernel sends before a caller without CAP_FSETID changes bytes of a file that
    /// has set-id bits (it leaves out the bits that we said we mind ourselves).
    pub(crate) fn setattr(&self, ino: InodeId, change: &MetaChange, reply: ReplyAttr) {
        let change = if *change == MetaChange::default() { &KILL } else { change };
        self.reply_attr(self.volume.set_attributes(ino, change), reply);
    }

    /// Takes the set-id bits, here and from the kernel, which uses its cached attributes when it runs the file. May wait for
    /// other nodes; never while the kernel waits with pages of the file locked.
    pub(crate) fn kill_suidgid(&self, ino: InodeId) -> Result<(), Refused> {
        let found = self.volume.set_attributes(ino, &KILL)?;
        self.kernel.set_ids.told(&found.attr);
        self.kernel.invalidate(ino, Drops::Attributes);
        Ok(())
    }

    fn reply_attr(&self, found: Result<Found, Refused>, reply: ReplyAttr) {
        match found {
            Ok(found) => {
                let _begun = self.kernel.replies.begin(found.attr.ino);
                self.kernel.set_ids.told(&found.attr);
                reply.attr(&self.ttl(&found), &file_attr(&found.attr));
            }
            Err(refused) => reply.error(errno(&refused)),
        }
    }
}
