//! Extended attributes, at the home of their inode; those of the cache area are with its tier ([`crate::cache::xattrs`]).

use std::rc::Rc;

use hayase_layout::{InodeId, NodeId};
use hayase_store::{Inode, ops};
use hayase_wire::message::{Name, OnceId, PeerReply, Refused, XattrMode};

use super::Answer;
use crate::acl::{AclChange, acl_names, acl_value};
use crate::cache::xattrs::{Bearer, XattrChange};
use crate::convert::{meta_refused, stored_time};
use crate::home::ATTR;
use crate::node::Node;
use crate::refusals::libc_errno;

impl Node {
    pub(super) async fn get_xattr(self: &Rc<Self>, ino: InodeId, name: &Name) -> Answer {
        let inode = self.meta.inode(ino)?;
        if let Some(cache) = self.cache.of(ino) {
            let bearer = Bearer { node: self, cache, inode: &inode };
            return bearer.value(name).await.map(PeerReply::Value);
        }
        if let Some(value) = acl_value(&inode, name) {
            return Ok(PeerReply::Value(value));
        }
        let value = ops::get_xattr(&self.meta.begin(), ino, name);
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
        (value, mode): (Vec<u8>, XattrMode),
        once: Option<OnceId>,
    ) -> Answer {
        let _change = self.home_change(ino, from, ATTR).await;
        if ino.is_cached() {
            let change = XattrChange { name: name.clone(), value: Some(value), mode, rights: None };
            return self.change_in_cache(ino, change, once).await;
        }
        let acl = AclChange::of(name, Some(&value)).transpose()?;
        self.meta.inode(ino)?;
        let now = stored_time(self.meta.now());
        let mut txn = self.meta.begin();
        let mode = match mode {
            XattrMode::Set => ops::XattrMode::Set,
            XattrMode::Create => ops::XattrMode::Create,
            XattrMode::Replace => ops::XattrMode::Replace,
        };
        match acl {
            Some(change) => change.store(&mut txn, ino, now)?,
            None => ops::set_xattr(&mut txn, ino, name, &value, mode, now)
                .map_err(meta_refused_quietly)?,
        }
        self.meta.answers.record(&mut txn, once, &PeerReply::Done)?;
        txn.commit().map_err(meta_refused)?;
        Ok(PeerReply::Done)
    }

    pub(super) async fn list_xattr(self: &Rc<Self>, ino: InodeId) -> Answer {
        let inode = self.meta.inode(ino)?;
        if let Some(cache) = self.cache.of(ino) {
            let bearer = Bearer { node: self, cache, inode: &inode };
            return bearer.names().await.map(PeerReply::Names);
        }
        let mut names = ops::list_xattr(&self.meta.begin(), ino).map_err(meta_refused)?;
        names.extend(acl_names(&inode));
        Ok(PeerReply::Names(names))
    }

    pub(super) async fn remove_xattr(
        self: &Rc<Self>,
        from: NodeId,
        ino: InodeId,
        name: &Name,
        once: Option<OnceId>,
    ) -> Answer {
        let _change = self.home_change(ino, from, ATTR).await;
        if ino.is_cached() {
            let (name, mode, rights) = (name.clone(), XattrMode::Set, None);
            let change = XattrChange { name, value: None, mode, rights };
            return self.change_in_cache(ino, change, once).await;
        }
        let acl = AclChange::of(name, None).transpose()?;
        self.meta.inode(ino)?;
        let now = stored_time(self.meta.now());
        let mut txn = self.meta.begin();
        match acl {
            Some(change) => change.store(&mut txn, ino, now)?,
            None => ops::remove_xattr(&mut txn, ino, name, now).map_err(meta_refused_quietly)?,
        }
        self.meta.answers.record(&mut txn, once, &PeerReply::Done)?;
        txn.commit().map_err(meta_refused)?;
        Ok(PeerReply::Done)
    }

    async fn change_in_cache(
        self: &Rc<Self>,
        ino: InodeId,
        change: XattrChange,
        once: Option<OnceId>,
    ) -> Answer {
        let acl = AclChange::of(&change.name, change.value.as_deref()).transpose()?;
        let inode = self.meta.inode(ino)?;
        let bearer = Bearer { node: self, cache: self.cache.need()?, inode: &inode };
        match &acl {
            Some(list) => bearer.before_list(&change.name, list).await?,
            None => bearer.change(change).await?,
        }
        let mut txn = self.meta.begin();
        let now = stored_time(self.meta.now());
        match (acl, ops::get_inode(&txn, ino).map_err(meta_refused)?) {
            (Some(list), _) => list.store(&mut txn, ino, now)?,
            (None, Some(inode)) => {
                ops::put_inode(&mut txn, &Inode { ctime: now, ..inode }).map_err(meta_refused)?;
            }
            (None, None) => {}
        }
        self.meta.answers.record(&mut txn, once, &PeerReply::Done)?;
        txn.commit().map_err(meta_refused)?;
        Ok(PeerReply::Done)
    }
}

/// An xattr that is not there is no news for the log.
#[expect(clippy::needless_pass_by_value, reason = "used as it is in `map_err`")]
fn meta_refused_quietly(error: hayase_store::NamespaceError) -> Refused {
    Refused::new(error.errno())
}
