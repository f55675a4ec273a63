//! Names of an inode, counted by its home: one more, one less, another one.
//!
//! Invariant: each name takes from the count what it gave. A name may be linked, removed and linked again while an
//! older operation about it is still unfinished somewhere; so the end of a link is in one commit with its intent, and
//! what is left of a removal waits until no link of that name is under way.

use std::rc::Rc;

use hayase_layout::{InodeId, NodeId};
use hayase_store::namespace::{FileKind, Intent, IntentKind, Txn};
use hayase_store::ops;
use hayase_store::ops::Nameless;
use hayase_wire::message::{PeerReply, Place, Refused};

use super::Answer;
use crate::convert::{meta_refused, stored_time};
use crate::home::ATTR;
use crate::limits::REPLACED_GRACE;
use crate::node::Node;
use crate::refusals::libc_errno;

impl Node {
    pub(super) async fn link_inc(
        self: &Rc<Self>,
        ino: InodeId,
        place: Place,
        requester: NodeId,
        op: u64,
    ) -> Answer {
        let guard = self.home_change(ino, requester, ATTR).await;
        self.settled(ino).await;
        let inode = self.meta.inode(ino)?;
        if inode.kind == FileKind::Directory {
            return Err(Refused::new(libc_errno::EPERM));
        }
        if inode.nlink == 0 {
            return Err(Refused::new(libc_errno::ENOENT));
        }
        let former = self.meta.intents.links_under_way(ino, &place);
        let mut txn = self.meta.begin();
        let now = stored_time(self.meta.now());
        // A name that is counted already is there, or somebody else is making it.
        let is_mine = ops::intent(&txn, op).map_err(meta_refused)?.is_some();
        let names = ops::names_of(&txn, ino).map_err(meta_refused)?;
        if !is_mine && names.contains(&(place.parent, place.name.clone())) {
            return Err(Refused::new(libc_errno::EEXIST));
        }
        let inode =
            ops::link(&mut txn, ino, place.parent, &place.name, now).map_err(meta_refused)?;
        if !names.contains(&(place.parent, place.name.clone())) {
            // What those counted was taken since; they must not take this one.
            for former in former {
                ops::drop_intent(&mut txn, former).map_err(meta_refused)?;
            }
        }
        let what = IntentKind::Link { ino, parent: place.parent, name: place.name };
        ops::put_intent(&mut txn, &Intent { id: op, what }).map_err(meta_refused)?;
        txn.commit().map_err(meta_refused)?;
        // Who asked may never say whether the name was bound.
        self.finish_later([op]);
        drop(guard);
        let grants = self.home_attributes(ino, requester);
        Ok(PeerReply::Attr { attr: self.attr_of(&inode)?, grants })
    }

    /// The name that `op` counted and nobody bound is not counted, in the commit that ends `op`: of all
    /// who find it unfinished one takes the link. The next to make this name counts it under its own.
    pub(crate) async fn undo_link(
        self: &Rc<Self>,
        (ino, op): (InodeId, u64),
        place: &Place,
        requester: NodeId,
    ) -> Result<(), Refused> {
        let _change = self.home_change(ino, requester, ATTR).await;
        let mut txn = self.meta.begin();
        if ops::intent(&txn, op).map_err(meta_refused)?.is_none() {
            return Ok(());
        }
        ops::drop_intent(&mut txn, op).map_err(meta_refused)?;
        self.unlink_in(txn, ino, place, requester, false)
    }

    /// What is left of a removal. It must not take the count of a link that is under way: until the shard is asked
    /// nobody knows whether that one came before the removal or after it.
    pub(super) async fn link_dec_late(
        self: &Rc<Self>,
        ino: InodeId,
        place: Place,
        requester: NodeId,
    ) -> Answer {
        let _change = self.home_change(ino, requester, ATTR).await;
        self.bury_what_came_since(ino, &place).await?;
        if !self.meta.intents.links_under_way(ino, &place).is_empty() {
            return Ok(PeerReply::Stale);
        }
        self.unlink_in(self.meta.begin(), ino, &place, requester, false)?;
        Ok(PeerReply::Done)
    }

    pub(super) async fn link_dec(
        self: &Rc<Self>,
        ino: InodeId,
        place: Place,
        requester: NodeId,
        replaced: bool,
    ) -> Answer {
        let _change = self.home_change(ino, requester, ATTR).await;
        // What is on its way to the tier under this name arrives before the name is another's. A
        // removed name is nobody's: who takes it asks for that by `CacheStillNamed`.
        let _published = match self.cache.of(ino).filter(|_| replaced) {
            Some(cache) => Some(cache.publishing.lock(ino).await),
            None => None,
        };
        if !replaced {
            self.bury_what_came_since(ino, &place).await?;
        }
        self.unlink_in(self.meta.begin(), ino, &place, requester, replaced)?;
        Ok(PeerReply::Done)
    }

    /// One link less, in the caller's transaction; without links and opens the inode ends here.
    /// A file that was replaced ends [`REPLACED_GRACE`] later: an open by its name, looked up just
    /// before, still finds the old version whole.
    pub(crate) fn unlink_in(
        self: &Rc<Self>,
        mut txn: Txn<'_>,
        ino: InodeId,
        place: &Place,
        requester: NodeId,
        replaced: bool,
    ) -> Result<(), Refused> {
        let now = stored_time(self.meta.now());
        // Before the end of the grace period it is not known who has it open.
        let may_be_open = self.homes.is_open(ino) || !self.rpc.grace.is_over();
        let nameless = match replaced || may_be_open {
            true => Nameless::Orphan,
            false => Nameless::Removed,
        };
        let inode = ops::unlink(&mut txn, ino, place.parent, &place.name, now, nameless)
            .map_err(meta_refused)?;
        txn.commit().map_err(meta_refused)?;
        if inode.nlink == 0
            && let Some(cache) = self.cache.of(ino)
        {
            cache.lost_its_name(ino)?;
        }
        match nameless {
            _ if inode.nlink > 0 => {}
            Nameless::Removed => self.ended(&inode),
            Nameless::Orphan => self.end_soon(ino, requester, replaced),
        }
        Ok(())
    }

    /// An inode without a name that is open, or was replaced: what nodes keep of it only for the
    /// next open is given back, then it ends with its last close.
    fn end_soon(self: &Rc<Self>, ino: InodeId, requester: NodeId, replaced: bool) {
        let nodes = self.homes.open_on(ino).into_iter();
        self.ask_to_let_go(ino, nodes.filter(|node| *node != requester).collect());
        if replaced {
            self.replaced.borrow_mut().insert(ino);
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                tokio::time::sleep(REPLACED_GRACE).await;
                this.replaced.borrow_mut().remove(&ino);
                this.reap_orphans([ino]);
            });
        }
    }

    /// Waits while the inode's size changes in several steps: what is told of it before the end
    /// would be taken for the state after. True until the next `await`: a next holder has not run.
    pub(crate) async fn settled(&self, ino: InodeId) {
        if self.inode_locks.is_locked(&ino) {
            drop(self.inode_locks.lock(ino).await);
        }
    }

    pub(super) async fn relink(
        self: &Rc<Self>,
        (ino, op): (InodeId, u64),
        from: Place,
        to: Place,
        requester: NodeId,
    ) -> Answer {
        let _change = self.home_change(ino, requester, ATTR).await;
        self.cached_file_moved(ino, &from, &to).await?;
        let mut txn = self.meta.begin();
        let now = stored_time(self.meta.now());
        let (old, new) = ((from.parent, from.name.as_slice()), (to.parent, to.name.as_slice()));
        ops::relink(&mut txn, (ino, op), old, new, now).map_err(meta_refused)?;
        txn.commit().map_err(meta_refused)?;
        Ok(PeerReply::Done)
    }
}
