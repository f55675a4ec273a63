//! Attributes.

use fuser::ReplyAttr;
use hayase_client::volume::{Drops, Found, KernelCaches, Volume};
use hayase_layout::InodeId;
use hayase_wire::message::{MetaChange, Refused};

use super::Shared;
use crate::attributes::file_attr;
use crate::errno::errno;
use crate::notify::Kernel;
use crate::set_ids::KILL;

impl Shared {
    /// May wait for reads.
    pub(crate) fn getattr(&self, ino: InodeId, asker: u32, reply: ReplyAttr) {
        let answer = Answer::of(&*self.volume, ino, asker);
        answer.make_known(&*self.volume, &self.kernel);
        self.reply_attr(answer.found, reply);
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

    pub(crate) fn reply_attr(&self, found: Result<Found, Refused>, reply: ReplyAttr) {
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

/// What a thread is about to be answered that has asked for attributes.
pub(crate) struct Answer {
    pub(crate) found: Result<Found, Refused>,
    /// By the kernel, since another answer crosses it.
    pub(crate) may_be_ignored: bool,
}

impl Answer {
    pub(crate) fn of(volume: &dyn Volume, ino: InodeId, asker: u32) -> Self {
        let found = volume.attributes(ino);
        let may_be_ignored = found.as_ref().is_ok_and(|found| volume.answers(&found.attr, asker));
        Self { found, may_be_ignored }
    }

    /// Of what the kernel may ignore it knows the end before it is answered, and has no pages. That waits for reads.
    pub(crate) fn make_known(&self, volume: &dyn Volume, kernel: &Kernel) {
        let Ok(Found { attr, .. }) = &self.found else { return };
        if !self.may_be_ignored {
            return;
        }
        kernel.invalidate(attr.ino, Drops::Pages);
        let Some(last) = attr.size.checked_sub(1) else { return };
        let mut byte = None;
        let read = volume.read(attr.ino, last, 1, &mut |bytes| byte = bytes.first().copied());
        // Where it can not be read, or the file is shorter by now, the answer is all that is left.
        if let (Ok(()), Some(byte)) = (read, byte) {
            kernel.reaches(attr.ino, last, byte);
        }
    }
}
