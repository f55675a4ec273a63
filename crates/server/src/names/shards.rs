//! Which server decides about a name, and asking it.
//!
//! Not here: when the names of a directory leave its home ([`super::kept_names`], [`super::spreading`]).

use std::collections::BTreeMap;
use std::rc::Rc;

use hayase_layout::{InodeId, NodeId, ServerId};
use hayase_store::namespace::{FileKind, Inode};
use hayase_store::ops;
use hayase_wire::message::{PeerReply, PeerRequest, Place, Refused};

use super::Names;
use super::kept_names::{Here, begins_kept};
use crate::convert::meta_refused;
use crate::limits::REPEATED_MAX;
use crate::refusals::Answer;
use crate::request::{Visit, once};

impl Names {
    /// Whether the names of `dir` may be at its home and go from there.
    pub(crate) fn may_be_kept(&self, dir: InodeId) -> bool {
        self.groups.count() > 1 && begins_kept(dir)
    }

    /// The server that decides about this name, as far as this one knows: [`Self::ask_shard`] learns better.
    pub(crate) fn shard_of(&self, parent: InodeId, name: &[u8]) -> ServerId {
        match self.is_known_kept(parent) {
            true => parent.home(),
            false => self.shard_by_hash(parent, name),
        }
    }

    pub(crate) fn shard_by_hash(&self, parent: InodeId, name: &[u8]) -> ServerId {
        self.groups.shard(parent, ops::cookie(name))
    }

    pub(crate) fn is_known_kept(&self, dir: InodeId) -> bool {
        self.may_be_kept(dir)
            && match dir.home() == self.me {
                // A store that can not be read says so when it is asked for the name.
                true => !self.is_spread_here(dir).unwrap_or(false),
                false => !self.kept.is_known_spread(dir),
            }
    }

    /// As the home of a directory that may be kept: whether its names are spread.
    pub(crate) fn is_spread_here(&self, dir: InodeId) -> Result<bool, Refused> {
        if self.kept.is_known_spread(dir) {
            return Ok(true);
        }
        if self.kept.is_known_here(dir) {
            return Ok(false);
        }
        let is_spread = ops::are_names_spread(&self.meta.begin(), dir).map_err(meta_refused)?;
        if is_spread {
            self.kept.know_spread(dir);
        }
        Ok(is_spread)
    }

    /// As the server that is asked for a name: whether it is here. Waits while the names of the directory are on their
    /// way; books the request, and sees to it that they are spread when it is time.
    pub(crate) async fn enter(
        self: &Rc<Self>,
        place: &Place,
        visit: Visit,
        from: NodeId,
    ) -> Result<Here, Refused> {
        let dir = place.parent;
        if !self.may_be_kept(dir) || dir.home() != self.me {
            return Ok(Here::Yes(None));
        }
        loop {
            let changed = self.kept.changed();
            if self.is_spread_here(dir)? {
                return Ok(match self.shard_by_hash(dir, &place.name) == self.me {
                    true => Here::Yes(None),
                    false => Here::No,
                });
            }
            let is_elsewhere = self.groups.server_of(from) != dir.home();
            if let Some((user, is_due)) = self.kept.visit(dir, visit, is_elsewhere) {
                if is_due {
                    let this = Rc::clone(self);
                    tokio::task::spawn_local(async move { this.spread(dir).await });
                }
                return Ok(Here::Yes(Some(user)));
            }
            changed.await;
        }
    }

    /// Asks the server that decides about this name; returns which that was.
    pub(crate) async fn ask_shard(
        self: &Rc<Self>,
        place: &Place,
        request: impl Into<PeerRequest>,
    ) -> Result<(ServerId, PeerReply), Refused> {
        let request = request.into();
        let shard = self.shard_of(place.parent, &place.name);
        if !self.may_be_kept(place.parent) {
            return Ok((shard, self.rpc.ask(shard, request).await?));
        }
        let home = place.parent.home();
        if let Some(once) = once(&request).filter(|_| shard != home) {
            // It may have happened at the home, and its name have gone to the shard since.
            if home == self.me
                && let Some(answered) = self.meta.answers.answered(Some(once))?
            {
                let answer = match self.finisher.get() {
                    Some(finisher) => finisher.nothing_left_of(answered).await,
                    None => answered,
                };
                return Ok((home, answer));
            }
            if self.incarnation > 1 && self.started.elapsed() < REPEATED_MAX {
                let asked = self.rpc.ask(home, request.clone()).await?;
                if asked != PeerReply::Spread {
                    return Ok((home, asked));
                }
            }
        }
        if shard != home {
            return Ok((shard, self.rpc.ask(shard, request).await?));
        }
        match self.rpc.ask(shard, request.clone()).await? {
            PeerReply::Spread => {
                self.kept.know_spread(place.parent);
                let shard = self.shard_by_hash(place.parent, &place.name);
                Ok((shard, self.rpc.ask(shard, request).await?))
            }
            reply => Ok((shard, reply)),
        }
    }

    pub(crate) fn shards_of(&self, dir: InodeId) -> Result<Vec<ServerId>, Refused> {
        if self.may_be_kept(dir) && !self.is_spread_here(dir)? {
            // Others have at most what was handed to them in vain.
            return Ok(vec![self.me]);
        }
        ops::dir_shards(&self.meta.begin(), dir).map_err(meta_refused)
    }

    /// Other servers that hold entries of this directory, or names of this inode, with those.
    pub(crate) fn names_elsewhere(
        &self,
        inode: &Inode,
    ) -> Result<BTreeMap<ServerId, Vec<Place>>, Refused> {
        let names = ops::names_of(&self.meta.begin(), inode.ino).map_err(meta_refused)?;
        let mut shards = BTreeMap::<_, Vec<Place>>::new();
        if inode.kind == FileKind::Directory {
            let holding = self.shards_of(inode.ino)?;
            shards.extend(holding.into_iter().map(|shard| (shard, Vec::new())));
        }
        for (parent, name) in names {
            let place = Place { parent, name };
            shards.entry(self.shard_of(place.parent, &place.name)).or_default().push(place);
        }
        shards.remove(&self.me);
        Ok(shards)
    }

    pub(crate) async fn dir_shards(&self, dir: InodeId) -> Answer {
        self.kept.settled(dir).await;
        self.meta.directory(dir)?;
        if self.may_be_kept(dir) && !self.is_spread_here(dir)? {
            return Ok(PeerReply::Kept);
        }
        let shards = self.shards_of(dir)?;
        Ok(PeerReply::Shards(shards.iter().map(|shard| shard.0).collect()))
    }

    /// As the home of a directory that was kept when the question was asked.
    pub(crate) async fn list_all(&self, dir: InodeId, cookie: u64, bytes: u32) -> Answer {
        self.kept.settled(dir).await;
        match self.is_spread_here(dir)? {
            true => Ok(PeerReply::Spread),
            false => self.meta.list(dir, cookie, bytes),
        }
    }

    pub(crate) async fn sync_names(&self, bound: Vec<(Place, InodeId)>) -> Answer {
        // While one is waited for another may begin.
        while let Some((place, _)) = bound.iter().find(|at| self.kept.is_moving(at.0.parent)) {
            self.kept.settled(place.parent).await;
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
    pub(crate) fn is_name_elsewhere(&self, place: &Place) -> bool {
        let dir = place.parent;
        self.may_be_kept(dir) && dir.home() == self.me && self.shard_of(dir, &place.name) != self.me
    }
}
