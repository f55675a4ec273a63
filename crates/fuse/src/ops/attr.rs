//! Attributes.

use fuser::ReplyAttr;
use hayase_client::volume::{Drops, Found, KernelCaches};
use hayase_layout::InodeId;
use hayase_wire::message::{Attr, MetaChange, Refused};

use super::Shared;
use crate::attributes::file_attr;
use crate::errno::errno;
use crate::set_ids::KILL;

impl Shared {
    /// May wait for reads.
    pub(crate) fn getattr(&self, ino: InodeId, asker: u32, reply: ReplyAttr) {
        self.answer_attributes(self.attributes(ino, asker), reply);
    }

    /// As a thread `asker` is answered, and whether the kernel may ignore that.
    pub(crate) fn attributes(&self, ino: InodeId, asker: u32) -> Result<(Found, bool), Refused> {
        let found = self.volume.attributes(ino)?;
        let may_be_ignored = self.volume.answers(&found.attr, asker);
        Ok((found, may_be_ignored))
    }

    /// What the kernel may ignore it knows before it is answered. That waits for reads.
    pub(crate) fn answer_attributes(
        &self,
        found: Result<(Found, bool), Refused>,
        reply: ReplyAttr,
    ) {
        if let Ok((found, true)) = &found {
            self.make_known(&found.attr);
        }
        self.reply_attr(found.map(|(found, _)| found), reply);
    }

    fn make_known(&self, attr: &Attr) {
        self.kernel.invalidate(attr.ino, Drops::Pages);
        let Some(last) = attr.size.checked_sub(1) else { return };
        let mut byte = None;
        let read = self.volume.read(attr.ino, last, 1, &mut |bytes| byte = bytes.first().copied());
        // Where it can not be read, or the file is shorter by now, the answer is all that is left.
        if let (Ok(()), Some(byte)) = (read, byte) {
            self.kernel.reaches(attr.ino, last, byte);
        }
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
