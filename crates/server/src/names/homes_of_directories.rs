//! Homes of directories: which servers hold entries, when they changed, and their removal.

use std::rc::Rc;

use hayase_layout::{InodeId, NodeId, ServerId};
use hayase_store::ops;
use hayase_wire::message::{DirectoryRequest, NameRequest, PeerReply, Place, Refused, TimeSpec};

use super::Names;
use crate::convert::{meta_refused, stored_time};
use crate::limits::{DIR_TOUCH_DELAY, INVAL_NAME_WAIT};
use crate::refusals::{Answer, libc_errno, unexpected};

impl Names {
    /// `from` is going to hold entries. Waits for a removal that is under way: it may fail.
    pub(crate) async fn dir_grant(&self, from: NodeId, dir: InodeId) -> Answer {
        if self.inode_locks.is_locked(&dir) {
            drop(self.inode_locks.lock(dir).await);
        }
        self.meta.directory(dir)?;
        let mut txn = self.meta.begin();
        ops::add_dir_shard(&mut txn, dir, ServerId(from.0)).map_err(meta_refused)?;
        txn.commit().map_err(meta_refused)?;
        Ok(PeerReply::Done)
    }

    pub(crate) fn dir_touch(&self, touched: &[(InodeId, TimeSpec)]) -> Answer {
        let mut txn = self.meta.begin();
        for (dir, at) in touched {
            let found = ops::get_inode(&txn, *dir).map_err(meta_refused)?;
            // Removed meanwhile: nobody will ask.
            let Some(mut inode) = found else { continue };
            if self.directories.is_before_set(*dir, *at) {
                continue;
            }
            let at = stored_time(*at);
            if at > inode.mtime {
                (inode.mtime, inode.ctime) = (at, at.max(inode.ctime));
                ops::put_inode(&mut txn, &inode).map_err(meta_refused)?;
            }
        }
        txn.commit().map_err(meta_refused)?;
        Ok(PeerReply::Done)
    }

    /// Entries of `dir` changed here: tells its home, in batches when that is elsewhere.
    pub(crate) fn touch_dir(self: &Rc<Self>, dir: InodeId) {
        let now = self.meta.now();
        if dir.home() == self.me {
            if let Err(error) = self.dir_touch(&[(dir, now)]) {
                tracing::warn!(%dir, %error, "a directory's time could not be kept");
            }
            return;
        }
        if self.directories.touch(dir, now) {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                tokio::time::sleep(DIR_TOUCH_DELAY).await;
                this.tell_touched().await;
            });
        }
    }

    pub(crate) async fn tell_touched(&self) {
        let mut by_home: std::collections::BTreeMap<ServerId, Vec<_>> = Default::default();
        for (dir, at) in self.directories.take_touched() {
            by_home.entry(dir.home()).or_default().push((dir, at));
        }
        for (home, touched) in by_home {
            if let Err(error) = self.rpc.ask(home, DirectoryRequest::Touch(touched)).await {
                tracing::warn!(%home, %error, "failed to update the times of directories");
            }
        }
    }

    /// Removes an empty directory: freezes every shard, and thaws them whatever comes of it.
    pub(crate) async fn dir_remove(self: &Rc<Self>, dir: InodeId) -> Answer {
        let _held = self.inode_locks.lock(dir).await;
        // Asked again by a shard that was started anew meanwhile.
        if self.meta.inode(dir).is_ok_and(|inode| inode.removed) {
            return Ok(PeerReply::Done);
        }
        self.meta.directory(dir)?;
        let shards = self.shards_of(dir)?;
        let mut handed = ops::dir_shards(&self.meta.begin(), dir).map_err(meta_refused)?;
        handed.retain(|server| !shards.contains(server));
        let empty = self.freeze_shards(dir, &shards).await;
        let removed = match empty {
            Ok(true) => self.meta.forget_directory(dir),
            Ok(false) => Err(Refused::new(libc_errno::ENOTEMPTY)),
            Err(error) => Err(error),
        };
        for shard in shards {
            if let Err(error) = self.rpc.ask(shard, NameRequest::DirThaw { dir }).await {
                tracing::warn!(%dir, %shard, %error, "failed to tell a shard that a removal is over");
            }
        }
        removed.map(|()| {
            self.sole_makers.forget(dir);
            self.kept.forget(dir);
            self.forget_handed_names(dir, handed);
            PeerReply::Done
        })
    }

    pub(crate) async fn freeze_shards(
        &self,
        dir: InodeId,
        shards: &[ServerId],
    ) -> Result<bool, Refused> {
        for shard in shards {
            match self.rpc.ask(*shard, NameRequest::DirFreeze { dir }).await? {
                PeerReply::Empty(true) => {}
                PeerReply::Empty(false) => return Ok(false),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(true)
    }

    /// Tells the nodes that looked a name up of its end, but not the one that ended it.
    pub(crate) async fn inval_name(&self, place: &Place, requester: NodeId) {
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
                    tracing::debug!(%error, "a node did not hear that a name ended");
                }
            }
        };
        // Unbounded waiting could deadlock two kernels that hold a directory each.
        if tokio::time::timeout(INVAL_NAME_WAIT, all).await.is_err() {
            tracing::debug!("a name may be seen up to a second longer on a busy node");
        }
    }
}
