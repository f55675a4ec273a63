//! The metadata store of one server: inodes, directory entries and what else must survive a restart, in one
//! transactional key-value store.
//!
//! Here: the store as a room, with what needs nothing but its records. [`entries`]: names of directories. [`intents`]: the
//! log of operations over several servers. [`answers`]: the replies of requests that execute at most once.
//! [`names_disk`]: waits for its storage.
//! Not here: who decides about a name or an inode, and who must be asked before (the roles of `peer_service`).

mod answers;
mod entries;
mod intents;
mod names_disk;

use std::rc::Rc;
use std::sync::Arc;

use hayase_container::area;
use hayase_layout::{InodeId, Layout, ServerId};
use hayase_store::namespace::{FileKind, Inode, Txn};
use hayase_store::{Namespace, PartId, ops};
use hayase_wire::message::{MembersNow, NewNode, PartRef, PeerReply, Place, Refused, TimeSpec};

pub(crate) use self::answers::Answers;
pub(crate) use self::entries::{binding, record};
pub(crate) use self::intents::{Intents, removal_of_directory};
pub(crate) use self::names_disk::NamesDisk;
use crate::boxed::Local;
use crate::convert::{meta_refused, stored_kind, stored_time};
use crate::ground::Clock;
use crate::refusals::{Answer, libc_errno};

/// What must be durable before the end of a name is: tombstones, which hide in the tier what was removed here.
pub(crate) trait Tombstones {
    /// The number of the last one that was made.
    fn last(&self) -> u64;
    /// All that were made until now survive a power cut when this returns.
    fn durable(self: Rc<Self>) -> Local<Result<(), Refused>>;
}

/// See the module.
pub(crate) struct Meta {
    me: ServerId,
    store: Arc<Namespace>,
    pub(crate) clock: Clock,
    /// Where the store waits for its storage.
    pub(crate) disk: Rc<NamesDisk>,
    /// Of a job with a tier.
    tombstones: Option<Rc<dyn Tombstones>>,
    pub(crate) answers: Answers,
    pub(crate) intents: Intents,
}

/// Whether what is made is the container of a file of the cache area, which is named by it, or lies in one.
fn belongs_to_cached_container(node: &NewNode) -> bool {
    let names_cached = || {
        let file = std::str::from_utf8(&node.name).ok().and_then(area::inode_of);
        node.parent.owner().is_none() && file.is_some_and(|file| InodeId(file).is_cached())
    };
    node.parent.is_in_cached_container() || names_cached()
}

impl Meta {
    pub(crate) fn new(
        (me, incarnation): (ServerId, u64),
        (store, disk): (Arc<Namespace>, Rc<NamesDisk>),
        clock: Clock,
        answers: Answers,
        tombstones: Option<Rc<dyn Tombstones>>,
    ) -> Rc<Self> {
        let intents = Intents::of(me, incarnation, &store);
        Rc::new(Self { me, store, clock, disk, tombstones, answers, intents })
    }

    /// A transaction: reads see its writes, others see them when it is committed.
    pub(crate) fn begin(&self) -> Txn<'_> {
        self.store.begin()
    }

    /// For what takes the store itself.
    pub(crate) fn store(&self) -> &Arc<Namespace> {
        &self.store
    }

    /// Everything that the store has acknowledged survives a power cut from here on.
    pub(crate) async fn durable(&self) -> Result<(), Refused> {
        // Tombstones first: a name must not be gone without the one that hides it in the tier.
        let buried = self.tombstones_durable().await?;
        self.disk.sync().await?;
        // Names may have gone with that whose tombstones came after the first sync.
        if self.tombstones.as_ref().is_some_and(|tombstones| tombstones.last() != buried) {
            self.tombstones_durable().await?;
        }
        Ok(())
    }

    /// The last one that is durable then; 0 without a tier.
    async fn tombstones_durable(&self) -> Result<u64, Refused> {
        let Some(tombstones) = &self.tombstones else { return Ok(0) };
        let buried = tombstones.last();
        Rc::clone(tombstones).durable().await?;
        Ok(buried)
    }

    /// The clock that the local file system stamps its files with, so that times compare.
    pub(crate) fn now(&self) -> TimeSpec {
        self.clock.now()
    }

    /// The record of an inode of this home; `ESTALE` when there is none (any more).
    pub(crate) fn inode(&self, ino: InodeId) -> Result<Inode, Refused> {
        let found = ops::get_inode(&self.store.begin(), ino);
        let gone = || Refused::new(libc_errno::ESTALE);
        found.map_err(meta_refused)?.ok_or_else(gone)
    }

    /// Changes the record in one transaction.
    pub(crate) fn change_inode(
        &self,
        ino: InodeId,
        change: impl FnOnce(&mut Inode),
    ) -> Result<Inode, Refused> {
        let mut txn = self.store.begin();
        let found = ops::get_inode(&txn, ino).map_err(meta_refused)?;
        let mut inode = found.ok_or_else(|| Refused::new(libc_errno::ESTALE))?;
        change(&mut inode);
        ops::put_inode(&mut txn, &inode).map_err(meta_refused)?;
        txn.commit().map_err(meta_refused)?;
        Ok(inode)
    }

    /// A new inode of this home, not named yet.
    pub(crate) fn new_inode(&self, node: &NewNode, layout: Layout) -> Result<Inode, Refused> {
        let ino = match node.parent.owner() {
            None => self.store.allocate(),
            Some(owner) => self.store.allocate_private(owner),
        };
        let ino = ino.map_err(meta_refused)?;
        let ino = match node.parent {
            parent if parent.is_cached() => ino.in_cache(),
            _ if belongs_to_cached_container(node) => ino.in_cached_container(),
            _ => ino,
        };
        Ok(self.new_record(node, layout, ino))
    }

    /// The record of such an inode, made now.
    pub(crate) fn new_record(&self, node: &NewNode, layout: Layout, ino: InodeId) -> Inode {
        let now = stored_time(self.now());
        let kind = stored_kind(node.kind);
        Inode {
            mode: node.mode & 0o7777,
            uid: node.uid,
            gid: node.gid,
            rdev: node.rdev,
            size: node.target.as_ref().map_or(0, |target| target.len() as u64),
            layout,
            target: node.target.clone(),
            name: Some((node.parent, node.name.clone())),
            policy: node.policy.known().filter(|_| kind == FileKind::Directory),
            acls: node.acls.clone(),
            ..Inode::new(ino, kind, now)
        }
    }

    pub(crate) fn read_link(&self, ino: InodeId) -> Answer {
        match self.inode(ino)?.target {
            Some(target) => Ok(PeerReply::Target(target)),
            None => Err(Refused::new(libc_errno::EINVAL)),
        }
    }

    pub(crate) fn has_name(&self, ino: InodeId, place: &Place) -> Answer {
        let names = ops::names_of(&self.store.begin(), ino).map_err(meta_refused)?;
        let has = names.iter().any(|(dir, name)| *dir == place.parent && *name == place.name);
        Ok(PeerReply::Outcome(Some(has)))
    }

    /// The ledger outlives a power cut that took the file itself, which nobody had synced.
    pub(crate) fn spread_inode(&self, ino: InodeId) -> Result<Inode, Refused> {
        self.inode(ino).map_err(|refused| match refused.errno {
            libc_errno::ESTALE => {
                let why = "it was lost with the power of the node, before fsync(2)";
                Refused::because(libc_errno::ENODATA, why)
            }
            _ => refused,
        })
    }

    pub(crate) fn is_noted(&self, id: PartId) -> Result<bool, Refused> {
        // The only part of a `Whole` file was made with the inode.
        if id.ino.home() == self.me && self.inode(id.ino)?.layout == Layout::Whole {
            return Ok(true);
        }
        let noted = hayase_store::ops::has_part(&self.store.begin(), id);
        noted.map_err(crate::convert::meta_refused)
    }

    pub(crate) fn note(&self, id: PartId) -> Result<(), Refused> {
        let mut txn = self.store.begin();
        hayase_store::ops::note_part(&mut txn, id);
        txn.commit().map_err(crate::convert::meta_refused)
    }

    pub(crate) fn is_striped(&self, part: PartRef) -> bool {
        // The only part of a `Whole` file lies at its home.
        part.index > 0
            || part.ino.home() != self.me
            || self.inode(part.ino).is_ok_and(|inode| inode.layout != Layout::Whole)
    }

    /// Home: its bytes lie elsewhere than the caller knows.
    pub(crate) fn is_of_another_layout(&self, part: PartRef) -> bool {
        let is_home = part.ino.home() == self.me;
        is_home && self.inode(part.ino).is_ok_and(|inode| inode.layout_epoch != part.layout_epoch)
    }

    /// Survives a power cut when this returns; a slow disk holds up nobody else.
    pub(crate) async fn keep_members(&self, members: &MembersNow) {
        let kept = hayase_wire::encode(members)
            .map_err(|error| Refused::because(libc_errno::EIO, error.to_string()))
            .and_then(|bytes| self.store.keep_members(bytes).map_err(meta_refused));
        let kept = match kept {
            Ok(()) => self.disk.sync().await,
            refused => refused,
        };
        if let Err(error) = kept {
            tracing::error!(%error, "failed to persist the list of lost nodes");
        }
    }

    /// As their home: those of which there is no record, durably.
    pub(crate) async fn which_are_gone(&self, asked: Vec<InodeId>) -> Result<PeerReply, Refused> {
        let mut gone = Vec::new();
        for ino in asked {
            let found = ops::get_inode(&self.begin(), ino).map_err(meta_refused)?;
            if ino.home() == self.me && found.is_none() {
                gone.push(ino);
            }
        }
        if !gone.is_empty() {
            self.disk.sync().await?;
        }
        Ok(PeerReply::Gone(gone))
    }
}
