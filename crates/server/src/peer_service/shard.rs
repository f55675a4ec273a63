//! Names: the shard of an entry decides what the name is bound to.
//!
//! An entry is inserted only while this server holds a grant of the directory's home, so a name
//! never appears in a directory that is being removed.

use crate::meta::binding;
use crate::meta::record;
use crate::meta::removal_of_directory;
use std::rc::Rc;

use hayase_layout::{InodeId, NodeId, ServerId};
use hayase_store::namespace::Intent;
use hayase_store::ops;
use hayase_wire::message::{
    Binding, DirectoryRequest, FileKind, NameRequest, OnceId, PeerReply, Place, Refused,
};

use super::Answer;
use crate::convert::meta_refused;
use crate::keyed_lock::KeyGuard;
use crate::limits::{INVAL_NAME_WAIT, NAME_WAIT};
use crate::node::Node;
use crate::refusals::{check_name, libc_errno};

impl Node {
    /// Holds a name, once nobody else does.
    pub(crate) async fn hold_name(&self, place: &Place) -> Result<KeyGuard<Place>, Refused> {
        let held = tokio::time::timeout(NAME_WAIT, self.name_locks.lock(place.clone())).await;
        let why = "an operation has this name in its hands and does not come to its end";
        held.map_err(|_| Refused::because(libc_errno::EIO, why))
    }

    /// Waits for a rename that has this name in its hands.
    pub(crate) async fn wait_for_name(&self, place: &Place) -> Result<(), Refused> {
        if self.name_locks.is_locked(place) {
            drop(self.hold_name(place).await?);
        }
        Ok(())
    }

    pub(super) async fn shard_lookup(self: &Rc<Self>, from: NodeId, place: Place) -> Answer {
        self.wait_for_name(&place).await?;
        let found = match self.meta.bound(&place)? {
            None if place.parent.is_cached() => self.import_name(&place).await?,
            found => found,
        };
        let Some(found) = found else {
            return Err(Refused::new(libc_errno::ENOENT));
        };
        self.directories.looked_up(place, from);
        Ok(PeerReply::Bound(found))
    }

    /// Makes sure that entries of `dir` may be inserted here. True until the next `await`.
    pub(crate) async fn hold_dir(self: &Rc<Self>, dir: InodeId) -> Result<(), Refused> {
        loop {
            self.directories.wait_while_frozen(dir).await;
            if self.directories.holds(dir) {
                return Ok(());
            }
            let known = ops::has_dir_grant(&self.meta.begin(), dir).map_err(meta_refused)?;
            if known {
                self.directories.hold(dir);
                return Ok(());
            }
            let thaws = self.directories.thaws();
            self.rpc.ask(dir.home(), DirectoryRequest::Grant { dir }).await?;
            // A removal that came and went meanwhile took this grant along: ask again.
            if thaws == self.directories.thaws() {
                let mut txn = self.meta.begin();
                ops::grant_dir(&mut txn, dir).map_err(meta_refused)?;
                txn.commit().map_err(meta_refused)?;
                self.directories.hold(dir);
            }
        }
    }

    pub(super) async fn shard_insert(
        self: &Rc<Self>,
        from: NodeId,
        place: Place,
        (binding, op): (Binding, u64),
        once: Option<OnceId>,
    ) -> Answer {
        check_name(&place.name)?;
        self.may_change_names(place.parent, from).await?;
        let _held = self.hold_name(&place).await?;
        self.hold_dir(place.parent).await?;
        if self.given_up.contains(op) {
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
        self.directories.looked_up(place.clone(), from);
        self.is_there_now(&place);
        self.touch_dir(place.parent);
        Ok(reply)
    }

    pub(crate) async fn shard_remove(
        self: &Rc<Self>,
        from: NodeId,
        place: Place,
        directory: bool,
        once: Option<OnceId>,
    ) -> Answer {
        self.may_change_names(place.parent, from).await?;
        let held = self.hold_name(&place).await?;
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
        self.touch_dir(place.parent);
        self.inval_name(&place, from).await;
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

    /// Tells the nodes that looked a name up of its end, but not the one that ended it.
    pub(crate) async fn inval_name(self: &Rc<Self>, place: &Place, requester: NodeId) {
        let mut told = Vec::new();
        for node in self.directories.forget_name(place) {
            if node != requester {
                let request = NameRequest::InvalName(place.clone());
                told.push(tokio::task::spawn_local(self.rpc.ask(ServerId(node.0), request)));
            }
        }
        if told.is_empty() {
            return;
        }
        let all = async {
            for answer in told {
                if let Ok(Err(error)) = answer.await {
                    tracing::debug!(%error, "a node was not told of a name's end");
                }
            }
        };
        // Unbounded waiting could deadlock two kernels that hold a directory each.
        if tokio::time::timeout(INVAL_NAME_WAIT, all).await.is_err() {
            tracing::debug!("a name may be seen up to a second longer on a busy node");
        }
    }

    pub(super) async fn forget_name(self: &Rc<Self>, place: Place) -> PeerReply {
        self.clients.forget_name(place.parent, place.name).await;
        PeerReply::Done
    }

    /// As the home of a directory that was kept when the question was asked.
    pub(super) async fn list_all(&self, dir: InodeId, cookie: u64, bytes: u32) -> Answer {
        self.kept_names.settled(dir).await;
        match self.is_spread_here(dir)? {
            true => Ok(PeerReply::Spread),
            false => self.meta.list(dir, cookie, bytes),
        }
    }

    pub(super) async fn sync_names(self: &Rc<Self>, bound: Vec<(Place, InodeId)>) -> Answer {
        // While one is waited for another may begin.
        while let Some((place, _)) = bound.iter().find(|at| self.kept_names.is_moving(at.0.parent))
        {
            self.kept_names.settled(place.parent).await;
        }
        if bound.iter().any(|(place, _)| self.is_name_elsewhere(place)) {
            return Ok(PeerReply::Spread);
        }
        let mut are_bound = true;
        for (place, ino) in &bound {
            are_bound &= self.meta.bound(place)?.is_some_and(|found| found.ino == *ino)
                || self.meta.intents.all().iter().any(|intent| intent.what.speaks_of(*ino));
        }
        self.meta.durable().await?;
        Ok(PeerReply::Outcome(Some(are_bound)))
    }

    /// At its shard, since the names of its directory were spread from here.
    fn is_name_elsewhere(&self, place: &Place) -> bool {
        let dir = place.parent;
        self.may_be_kept(dir) && dir.home() == self.me && self.shard_of(dir, &place.name) != self.me
    }

    pub(super) async fn shard_freeze(self: &Rc<Self>, dir: InodeId) -> Answer {
        self.directories.freeze(dir);
        let empty = ops::is_empty(&self.meta.begin(), dir);
        match empty.map_err(meta_refused) {
            Ok(true) => Ok(PeerReply::Empty(true)),
            other => {
                self.directories.thaw(dir);
                other.map(PeerReply::Empty)
            }
        }
    }

    /// The removal is over, one way or the other: entries need a new grant of the home first.
    pub(super) fn shard_thaw(&self, dir: InodeId) -> Answer {
        let mut txn = self.meta.begin();
        ops::revoke_dir_grant(&mut txn, dir).map_err(meta_refused)?;
        txn.commit().map_err(meta_refused)?;
        self.directories.thaw(dir);
        Ok(PeerReply::Done)
    }
}
