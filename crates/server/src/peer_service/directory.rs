//! Homes of directories: which servers hold entries, when they changed, and their removal.

use std::rc::Rc;

use hayase_layout::{InodeId, NodeId, ServerId};
use hayase_store::ops;
use hayase_wire::message::{DirectoryRequest, NameRequest, PeerReply, Refused, TimeSpec};

use super::Answer;
use crate::convert::{meta_refused, stored_time};
use crate::limits::DIR_TOUCH_DELAY;
use crate::node::Node;
use crate::refusals::{libc_errno, unexpected};

impl Node {
    /// `from` is going to hold entries. Waits for a removal that is under way: it may fail.
    pub(super) async fn dir_grant(&self, from: NodeId, dir: InodeId) -> Answer {
        if self.inode_locks.is_locked(&dir) {
            drop(self.inode_locks.lock(dir).await);
        }
        self.meta.directory(dir)?;
        let mut txn = self.meta.begin();
        ops::add_dir_shard(&mut txn, dir, ServerId(from.0)).map_err(meta_refused)?;
        txn.commit().map_err(meta_refused)?;
        Ok(PeerReply::Done)
    }

    pub(super) async fn dir_shards(&self, dir: InodeId) -> Answer {
        self.kept_names.settled(dir).await;
        self.meta.directory(dir)?;
        if self.may_be_kept(dir) && !self.is_spread_here(dir)? {
            return Ok(PeerReply::Kept);
        }
        let shards = self.shards_of(dir)?;
        Ok(PeerReply::Shards(shards.iter().map(|shard| shard.0).collect()))
    }

    pub(super) fn shards_of(&self, dir: InodeId) -> Result<Vec<ServerId>, Refused> {
        if self.may_be_kept(dir) && !self.is_spread_here(dir)? {
            // Others have at most what was handed to them in vain.
            return Ok(vec![self.me]);
        }
        ops::dir_shards(&self.meta.begin(), dir).map_err(meta_refused)
    }

    pub(super) fn dir_touch(&self, touched: &[(InodeId, TimeSpec)]) -> Answer {
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

    async fn tell_touched(self: &Rc<Self>) {
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
    pub(super) async fn dir_remove(self: &Rc<Self>, dir: InodeId) -> Answer {
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
            self.kept_names.forget(dir);
            self.forget_handed_names(dir, handed);
            PeerReply::Done
        })
    }

    async fn freeze_shards(
        self: &Rc<Self>,
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
}
