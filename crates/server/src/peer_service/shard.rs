//! Names: the shard of an entry decides what the name is bound to.
//!
//! An entry is inserted only while this server holds a grant of the directory's home, so a name
//! never appears in a directory that is being removed.

use crate::meta::binding;
use crate::meta::record;
use crate::meta::removal_of_directory;
use std::rc::Rc;

use hayase_layout::NodeId;
use hayase_store::namespace::Intent;
use hayase_store::ops;
use hayase_wire::message::{
    Binding, DirectoryRequest, FileKind, OnceId, PeerReply, Place, Refused,
};

use super::Answer;
use crate::convert::meta_refused;
use crate::node::Node;
use crate::refusals::{check_name, libc_errno};

impl Node {
    pub(super) async fn shard_lookup(self: &Rc<Self>, from: NodeId, place: Place) -> Answer {
        self.names.wait_for_name(&place).await?;
        let found = match self.meta.bound(&place)? {
            None if place.parent.is_cached() => self.import_name(&place).await?,
            found => found,
        };
        let Some(found) = found else {
            return Err(Refused::new(libc_errno::ENOENT));
        };
        self.names.directories.looked_up(place, from);
        Ok(PeerReply::Bound(found))
    }

    pub(super) async fn shard_insert(
        self: &Rc<Self>,
        from: NodeId,
        place: Place,
        (binding, op): (Binding, u64),
        once: Option<OnceId>,
    ) -> Answer {
        check_name(&place.name)?;
        self.names.may_change(place.parent, from).await?;
        let _held = self.names.hold_name(&place).await?;
        self.names.hold_dir(place.parent).await?;
        if self.names.given_up.contains(op) {
            return Ok(PeerReply::Stale);
        }
        let mut txn = self.meta.begin();
        let inserted = ops::insert(&mut txn, place.parent, &place.name, record(binding))
            .map_err(meta_refused)?;
        if let Err(exists) = inserted {
            return Ok(PeerReply::Exists(self::binding(&exists.0)));
        }
        let reply = PeerReply::Bound(binding);
        self.meta.answers.record(&mut txn, once, &reply)?;
        txn.commit().map_err(meta_refused)?;
        self.names.directories.looked_up(place.clone(), from);
        self.cache.is_there_now(&place);
        self.names.touch_dir(place.parent);
        Ok(reply)
    }

    pub(crate) async fn shard_remove(
        self: &Rc<Self>,
        from: NodeId,
        place: Place,
        directory: bool,
        once: Option<OnceId>,
    ) -> Answer {
        self.names.may_change(place.parent, from).await?;
        let held = self.names.hold_name(&place).await?;
        self.settle_name(&place).await?;
        let Some(found) = self.meta.bound(&place)? else {
            return Err(Refused::new(libc_errno::ENOENT));
        };
        match (directory, found.kind == FileKind::Directory) {
            (true, false) => return Err(Refused::new(libc_errno::ENOTDIR)),
            (false, true) => return Err(Refused::new(libc_errno::EISDIR)),
            _ => {}
        }
        if place.parent.is_cached() && found.kind == FileKind::Regular {
            self.bury_for_unlink(&place, found.ino).await?;
        }
        let reply = if directory {
            self.remove_directory(&place, found, once).await?
        } else if found.ino.home() == self.me {
            self.remove_entry_and_link(&place, found, from, once).await?
        } else {
            self.unbind_for_unlink(&place, found, from, once)?
        };
        drop(held);
        self.names.touch_dir(place.parent);
        self.names.inval_name(&place, from).await;
        Ok(reply)
    }

    /// The directory first, then its name. The intent tells a restart to look whether the first was
    /// done; it stays when the directory's home did not answer.
    async fn remove_directory(
        self: &Rc<Self>,
        place: &Place,
        found: Binding,
        once: Option<OnceId>,
    ) -> Result<PeerReply, Refused> {
        let op = self.meta.intents.operation_id();
        self.meta.intents.put(op, removal_of_directory(place, found, once))?;
        let removed =
            self.rpc.ask(found.ino.home(), DirectoryRequest::Remove { dir: found.ino }).await;
        if let Err(refused) = removed {
            if refused.errno == libc_errno::EIO {
                self.finish_later([op]);
            } else {
                self.drop_intents(&[op]).map_err(meta_refused)?;
            }
            return Err(refused);
        }
        let reply = PeerReply::Bound(found);
        let mut txn = self.meta.begin();
        ops::remove_entry(&mut txn, place.parent, &place.name);
        ops::drop_intent(&mut txn, op).map_err(meta_refused)?;
        self.meta.answers.record(&mut txn, once, &reply)?;
        txn.commit().map_err(meta_refused)?;
        Ok(reply)
    }

    /// The name goes; that the home still counts it is remembered until whoever asked has told the
    /// home so.
    fn unbind_for_unlink(
        self: &Rc<Self>,
        place: &Place,
        binding: Binding,
        requester: NodeId,
        once: Option<OnceId>,
    ) -> Result<PeerReply, Refused> {
        let op = self.meta.intents.operation_id();
        let reply = PeerReply::Unbound { binding, op };
        let mut txn = self.meta.begin();
        ops::remove_entry(&mut txn, place.parent, &place.name);
        let what = self.meta.removal_of(place, binding);
        ops::put_intent(&mut txn, &Intent { id: op, what }).map_err(meta_refused)?;
        self.meta.answers.record(&mut txn, once, &reply)?;
        txn.commit().map_err(meta_refused)?;
        self.takes_link(op, binding.ino, requester);
        // Who asked may never reach the home.
        self.finish_later([op]);
        Ok(reply)
    }

    /// Name and link of an inode whose home is here go in one transaction.
    async fn remove_entry_and_link(
        self: &Rc<Self>,
        place: &Place,
        found: Binding,
        requester: NodeId,
        once: Option<OnceId>,
    ) -> Result<PeerReply, Refused> {
        let _change = self.home_change(found.ino, requester, crate::home::ATTR).await;
        self.bury_what_came_since(found.ino, place).await?;
        let reply = PeerReply::Bound(found);
        let mut txn = self.meta.begin();
        ops::remove_entry(&mut txn, place.parent, &place.name);
        self.meta.answers.record(&mut txn, once, &reply)?;
        self.unlink_in(txn, found.ino, place, requester, false)?;
        Ok(reply)
    }

    pub(super) async fn forget_name(self: &Rc<Self>, place: Place) -> PeerReply {
        self.clients.forget_name(place.parent, place.name).await;
        PeerReply::Done
    }
}
