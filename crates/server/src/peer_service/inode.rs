//! Homes of inodes: attributes, and their end.

use crate::convert::is_missing;
use crate::convert::whole_part;
use std::rc::Rc;

use hayase_layout::{InodeId, Layout, NodeId};
use hayase_store::namespace::{FileKind, Inode, Intent, IntentKind, NamespaceError, Txn};
use hayase_store::{SetTime as PartTime, ops};
use hayase_wire::message::{
    Attr, Binding, Entry, Grants, MetaChange, NewNode, OnceId, PartRef, PartRequest, PeerReply,
    Refused, SetTime, without_suidgid,
};

use super::Answer;
use crate::acl::{AclRoom, chmod};
use crate::convert::{self, meta_refused, part_refused, stored_time};
use crate::home::ATTR;
use crate::node::Node;
use crate::refusals::libc_errno;

impl Node {
    /// Attributes as they are now: of a `Whole` file its part is asked.
    pub(crate) fn attr_of(&self, inode: &Inode) -> Result<Attr, Refused> {
        let mut attr = convert::attr_of_record(inode);
        // What is not here, or not all of it, is as the tier says.
        if let Some(version) = self.cache.only_in_tier(inode.ino) {
            attr.size = version.size;
            attr.blocks = version.size.div_ceil(512);
            attr.mtime = convert::time(version.mtime);
        } else if inode.layout == Layout::Whole {
            let part = self.data.parts.get(whole_part(inode.ino, inode.layout_epoch));
            let stat = part.and_then(|part| part.stat()).map_err(part_refused)?;
            convert::add_part(&mut attr, &stat);
        }
        Ok(attr)
    }

    /// A living inode, or one that `from` still has open.
    fn visible_inode(&self, from: NodeId, ino: InodeId) -> Result<Inode, Refused> {
        let inode = self.meta.inode(ino)?;
        match inode.kind == FileKind::Directory || self.is_reachable(&inode, from) {
            true => Ok(inode),
            false => Err(Refused::new(libc_errno::ESTALE)),
        }
    }

    /// Whether `from` may still have to do with a file: it has a name, had one just now, or is open.
    pub(super) fn is_reachable(&self, inode: &Inode, from: NodeId) -> bool {
        inode.nlink > 0
            || self.homes.is_open_on(inode.ino, from)
            || self.replaced.borrow().contains(&inode.ino)
    }

    pub(super) fn get_attr(self: &Rc<Self>, from: NodeId, ino: InodeId) -> Answer {
        let inode = self.visible_inode(from, ino)?;
        // The grant first: what is written after it is told.
        let grants = self.home_attributes(ino, from);
        match self.attr_of(&inode) {
            Ok(attr) => Ok(PeerReply::Attr { attr, grants }),
            // Opening it is an error, but its name must be removable: lookups go on.
            Err(_) if self.is_lost(&inode) => {
                let (attr, grants) = (convert::attr_of_record(&inode), Grants::NONE);
                Ok(PeerReply::Attr { attr, grants })
            }
            Err(refused) => Err(refused),
        }
    }

    /// Its part was removed behind our back, and nobody reads it: nobody can take what is told for
    /// the end of the file.
    fn is_lost(&self, inode: &Inode) -> bool {
        let part = self.data.parts.get(whole_part(inode.ino, inode.layout_epoch));
        let stat = part.and_then(|part| part.stat());
        stat.is_err_and(|error| is_missing(&error)) && !self.homes.is_open(inode.ino)
    }

    pub(super) async fn get_attr_many(
        self: &Rc<Self>,
        from: NodeId,
        inos: &[InodeId],
    ) -> PeerReply {
        self.find_out_for(from, inos).await;
        let mut room = AclRoom::new();
        let entries = inos.iter().map(|ino| {
            let is_gathered = self.homes.is_gathered_elsewhere(*ino, from);
            let is_coming = self.handed_on.is_under_way(*ino);
            if is_gathered || is_coming || self.inode_locks.is_locked(ino) {
                return None; // Or in the middle of a truncate: asked for again by who needs it.
            }
            match self.get_attr(from, *ino) {
                Ok(PeerReply::Attr { attr, grants }) => {
                    room.takes(attr.acls.as_deref()).then_some(Entry { attr, grants })
                }
                _ => None,
            }
        });
        PeerReply::Attrs(entries.collect())
    }

    /// Makes the inode, and its part when it has one here. `named`: its name is bound in the same
    /// transaction, which records the answer; otherwise an intent remembers that it has none yet.
    pub(crate) fn store_inode(
        &self,
        node: &NewNode,
        inode: &Inode,
        named: Option<Option<OnceId>>,
    ) -> Result<(), Refused> {
        if inode.layout == Layout::Whole {
            self.data.parts.create(whole_part(inode.ino, 0)).map_err(part_refused)?;
        }
        self.cache.file_made(node, inode)?;
        let mut txn = self.meta.begin();
        let stored = self
            .store_inode_in(&mut txn, node, inode, named)
            .and_then(|()| txn.commit().map_err(meta_refused));
        if stored.is_err() && inode.layout == Layout::Whole {
            self.data.discard(whole_part(inode.ino, 0));
        }
        stored
    }

    fn store_inode_in(
        &self,
        txn: &mut Txn<'_>,
        node: &NewNode,
        inode: &Inode,
        named: Option<Option<OnceId>>,
    ) -> Result<(), Refused> {
        let (parent, name) = (node.parent, node.name.clone());
        let intent = named.is_none().then_some(Intent {
            id: inode.ino.0,
            what: IntentKind::Create { ino: inode.ino, parent, name },
        });
        ops::create(txn, inode, intent.as_ref()).map_err(meta_refused)?;
        if let Some(once) = named {
            let bound = Binding { ino: inode.ino, kind: node.kind };
            self.meta.answers.record(txn, once, &PeerReply::Bound(bound))?;
            let record = hayase_store::namespace::EntryRecord { ino: inode.ino, kind: inode.kind };
            let inserted =
                ops::insert(txn, node.parent, &node.name, record).map_err(meta_refused)?;
            inserted.map_err(|_| Refused::new(libc_errno::EEXIST))?;
        }
        Ok(())
    }

    pub(super) fn create_inode(
        self: &Rc<Self>,
        node: &NewNode,
        layout: Layout,
        from: NodeId,
    ) -> Answer {
        let inode = self.meta.new_inode(node, layout)?;
        self.store_inode(node, &inode, None)?;
        if from != self.node {
            // Who asked may never say whether it was named.
            self.finish_later([inode.ino.0]);
        }
        let attr = self.attr_of(&inode)?;
        Ok(PeerReply::Attr { attr, grants: self.home_attributes(inode.ino, from) })
    }

    /// An inode whose name could not be bound.
    pub(crate) fn drop_inode(&self, ino: InodeId) -> Answer {
        let Ok(inode) = self.meta.inode(ino) else { return Ok(PeerReply::Done) };
        if let Some(cache) = self.cache.of(ino) {
            cache.ended(ino);
        }
        let mut txn = self.meta.begin();
        ops::remove_inode(&mut txn, ino).map_err(meta_refused)?;
        ops::drop_intent(&mut txn, ino.0).map_err(meta_refused)?;
        txn.commit().map_err(meta_refused)?;
        if inode.layout == Layout::Whole {
            self.data.discard(whole_part(ino, inode.layout_epoch));
        }
        Ok(PeerReply::Done)
    }

    pub(super) async fn set_attr(
        self: &Rc<Self>,
        from: NodeId,
        ino: InodeId,
        change: MetaChange,
    ) -> Answer {
        if change.size.is_some() && matches!(self.meta.inode(ino)?.layout, Layout::Recorded { .. })
        {
            return Ok(PeerReply::Stale);
        }
        if changes_nothing(&self.meta.inode(ino)?, &change) {
            return self.get_attr(from, ino);
        }
        let bits = if change.size.is_some() { Grants::ALL } else { ATTR };
        let guard = self.home_change(ino, from, bits).await;
        let inode = self.visible_inode(from, ino)?;
        self.before_set_attr(&inode, &change).await?;
        let _cutting = change.size.map(|_| self.cache.opening(ino));
        if let Some(size) = change.size {
            self.cache.before_change(ino, size == 0)?;
            // Where its bytes lie may have changed while others were asked.
            self.truncate(&self.meta.inode(ino)?, size).await?;
        }
        if inode.layout == Layout::Whole
            && self.cache.is_here(ino)
            && (change.atime.is_some() || change.mtime.is_some())
        {
            let part = self.data.parts.get(whole_part(ino, inode.layout_epoch));
            let (atime, mtime) = (part_time(change.atime), part_time(change.mtime));
            part.and_then(|part| part.set_times(atime, mtime)).map_err(part_refused)?;
        }
        // Another truncate's epoch must not be told before its parts are cut.
        self.settled(ino).await;
        let now = self.meta.now();
        let inode = self.meta.change_inode(ino, |inode| apply(inode, &change, now))?;
        if inode.kind == FileKind::Directory && change.mtime.is_some() {
            self.names.directories.time_is_set(ino, now);
        }
        drop(guard);
        let grants = self.home_attributes(ino, from);
        Ok(PeerReply::Attr { attr: self.attr_of(&inode)?, grants })
    }

    /// Removes those inodes that have no name and that nobody has open any more, all of them in one
    /// transaction.
    pub(crate) fn reap_orphans(self: &Rc<Self>, inos: impl IntoIterator<Item = InodeId>) {
        let is_kept =
            |ino: &InodeId| self.homes.is_open(*ino) || self.replaced.borrow().contains(ino);
        let mut txn = self.meta.begin();
        let mut reaped = Vec::new();
        for ino in inos.into_iter().filter(|ino| !is_kept(ino)) {
            match reap_in(&mut txn, ino) {
                Ok(inode) => reaped.extend(inode),
                Err(error) => tracing::error!(%ino, %error, "an orphan could not be removed"),
            }
        }
        match txn.commit() {
            Ok(()) => reaped.iter().for_each(|inode| self.ended(inode)),
            Err(error) => tracing::error!(%error, "orphans could not be removed"),
        }
    }

    /// The record of an inode is gone: so is what belongs to it.
    pub(super) fn ended(self: &Rc<Self>, inode: &Inode) {
        self.homes.ended(inode.ino);
        self.data.kept_room.ended(inode.ino);
        self.files.forget(inode.ino);
        self.turns.forget(inode.ino);
        if let Some(cache) = self.cache.of(inode.ino) {
            cache.ended(inode.ino);
        }
        self.remove_parts(inode);
    }

    /// Gives the space of a removed inode back.
    fn remove_parts(self: &Rc<Self>, inode: &Inode) {
        match &inode.layout {
            Layout::None => {}
            Layout::Whole => self.data.remove_later(whole_part(inode.ino, inode.layout_epoch)),
            Layout::Striped { servers, .. } => {
                let (ino, layout_epoch) = (inode.ino, inode.layout_epoch);
                let parts = servers
                    .iter()
                    .zip(0..)
                    .map(|(server, index)| (*server, PartRef { ino, layout_epoch, index }));
                let (this, parts) = (Rc::clone(self), parts.collect::<Vec<_>>());
                tokio::task::spawn_local(async move { this.remove_striped(parts).await });
            }
            Layout::Recorded { container } => {
                self.recorded.forget(inode.ino);
                self.remove_container_later(*container);
            }
            other => tracing::error!(?other, "a layout that no file here can have"),
        }
        self.data.usage.changed();
    }
}

impl Node {
    async fn remove_striped(self: &Rc<Self>, parts: Vec<(hayase_layout::ServerId, PartRef)>) {
        if let Err(error) = self.meta.durable().await {
            tracing::error!(%error, "parts stay until the next start");
            return;
        }
        for (server, part) in parts {
            if let Err(error) = self.rpc.ask(server, PartRequest::Remove { part }).await {
                tracing::warn!(%server, %error, "a part could not be removed");
            }
        }
        self.data.usage.changed();
    }
}

/// The inode, removed in the caller's transaction if it is an orphan.
fn reap_in(txn: &mut Txn<'_>, ino: InodeId) -> Result<Option<Inode>, NamespaceError> {
    let orphan = ops::get_inode(txn, ino)?
        .filter(|inode| inode.nlink == 0 && inode.kind != FileKind::Directory);
    if orphan.is_some() {
        ops::remove_inode(txn, ino)?;
    }
    Ok(orphan)
}

/// The rules of chmod, chown and utimensat for a record.
fn apply(inode: &mut Inode, change: &MetaChange, now: hayase_wire::message::TimeSpec) {
    if let Some(mode) = change.mode {
        chmod(inode, mode);
    }
    if change.uid.is_some() || change.gid.is_some() {
        inode.uid = change.uid.unwrap_or(inode.uid);
        inode.gid = change.gid.unwrap_or(inode.gid);
        if inode.kind == FileKind::Regular && change.mode.is_none() {
            inode.mode = without_suidgid(inode.mode);
        }
    }
    if inode.kind == FileKind::Regular && change.kill_suidgid {
        inode.mode = without_suidgid(inode.mode);
    }
    if let Some(policy) = change.policy {
        inode.policy = policy;
    }
    let set = |time| match time {
        SetTime::Now => stored_time(now),
        SetTime::To(time) => stored_time(time),
    };
    if let Some(time) = change.atime {
        inode.atime = set(time);
    }
    if let Some(time) = change.mtime {
        inode.mtime = set(time);
    }
    inode.ctime = stored_time(now);
}

/// Whether only the right to run as the owner is to be taken, from a file that has none.
fn changes_nothing(inode: &Inode, change: &MetaChange) -> bool {
    let only_kills = MetaChange { kill_suidgid: true, ..MetaChange::default() };
    let has_none = inode.kind != FileKind::Regular || without_suidgid(inode.mode) == inode.mode;
    *change == only_kills && has_none
}

fn part_time(time: Option<SetTime>) -> Option<PartTime> {
    time.map(|time| match time {
        SetTime::Now => PartTime::Now,
        SetTime::To(time) => PartTime::To(stored_time(time)),
    })
}
