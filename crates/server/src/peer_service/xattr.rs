//! Extended attributes, at the home of their inode.

use std::rc::Rc;

use hayase_layout::{InodeId, NodeId};
use hayase_store::ops;
use hayase_wire::message::{Name, OnceId, PeerReply, Refused, XattrMode};

use super::Answer;
use super::inode::ATTR;
use crate::convert::{meta_refused, stored_time};
use crate::node::{Node, libc_errno};

impl Node {
    pub(super) fn get_xattr(&self, ino: InodeId, name: &Name) -> Answer {
        self.inode(ino)?;
        let value = ops::get_xattr(&self.names.begin(), ino, name);
        match value.map_err(meta_refused)? {
            Some(value) => Ok(PeerReply::Value(value)),
            None => Err(Refused::new(libc_errno::ENODATA)),
        }
    }

    pub(super) async fn set_xattr(
        self: &Rc<Self>,
        from: NodeId,
        ino: InodeId,
        name: &Name,
        (value, mode): (&[u8], XattrMode),
        once: Option<OnceId>,
    ) -> Answer {
        let _change = self.home_change(ino, from, ATTR).await;
        self.inode(ino)?;
        let now = stored_time(self.now());
        let mut txn = self.names.begin();
        let mode = match mode {
            XattrMode::Set => ops::XattrMode::Set,
            XattrMode::Create => ops::XattrMode::Create,
            XattrMode::Replace => ops::XattrMode::Replace,
        };
        ops::set_xattr(&mut txn, ino, name, value, mode, now).map_err(meta_refused_quietly)?;
        self.record(&mut txn, once, &PeerReply::Done)?;
        txn.commit().map_err(meta_refused)?;
        Ok(PeerReply::Done)
    }

    pub(super) fn list_xattr(&self, ino: InodeId) -> Answer {
        self.inode(ino)?;
        let names = ops::list_xattr(&self.names.begin(), ino);
        Ok(PeerReply::Names(names.map_err(meta_refused)?))
    }

    pub(super) async fn remove_xattr(
        self: &Rc<Self>,
        from: NodeId,
        ino: InodeId,
        name: &Name,
        once: Option<OnceId>,
    ) -> Answer {
        let _change = self.home_change(ino, from, ATTR).await;
        self.inode(ino)?;
        let now = stored_time(self.now());
        let mut txn = self.names.begin();
        ops::remove_xattr(&mut txn, ino, name, now).map_err(meta_refused_quietly)?;
        self.record(&mut txn, once, &PeerReply::Done)?;
        txn.commit().map_err(meta_refused)?;
        Ok(PeerReply::Done)
    }
}

/// An xattr that is not there is no news for the log.
#[expect(clippy::needless_pass_by_value, reason = "used as it is in `map_err`")]
fn meta_refused_quietly(error: hayase_store::NamespaceError) -> Refused {
    Refused::new(error.errno())
}
