//! Attributes.

use fuser::ReplyAttr;
use hayase_client::volume::Found;
use hayase_layout::InodeId;
use hayase_wire::message::{MetaChange, Refused};

use super::Shared;
use crate::attributes::file_attr;
use crate::errno::errno;

impl Shared {
    pub(crate) fn getattr(&self, ino: InodeId, reply: ReplyAttr) {
        self.reply_attr(self.volume.attributes(ino), reply);
    }

    pub(crate) fn setattr(&self, ino: InodeId, change: &MetaChange, reply: ReplyAttr) {
        let found = if *change == MetaChange::default() {
            self.volume.attributes(ino)
        } else {
            self.volume.set_attributes(ino, change)
        };
        self.reply_attr(found, reply);
    }

    fn reply_attr(&self, found: Result<Found, Refused>, reply: ReplyAttr) {
        match found {
            Ok(found) => {
                let _begun = self.kernel.replies.begin(found.attr.ino);
                reply.attr(&self.ttl(&found), &file_attr(&found.attr));
            }
            Err(refused) => reply.error(errno(&refused)),
        }
    }
}
