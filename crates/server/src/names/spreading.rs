//! Names of a directory leave its home for their shards, all at once.
//!
//! The home lets nobody come to the names, waits for who has them in hand, and for operations over several
//! servers that speak of them: their intents stay where they are. Then
//!
//! 1. it remembers, durably, which shards are going to have names: what a failed attempt left there is replaced by the
//!    next one, and is nobody's until then;
//! 2. each shard takes its names, durably (`TakeNames`);
//! 3. the commit: the names that went are not here any more, and the directory is spread. That is durable before
//!    anybody is told, else a power cut of the home would have it keep names that others have changed since.
//!
//! Where that fails, or what it has to wait for does not end soon, the names stay, and it is tried again later.

use std::collections::BTreeMap;
use std::rc::Rc;

use hayase_layout::{InodeId, ServerId};
use hayase_store::namespace::FileKind;
use hayase_store::ops;
use hayase_wire::message::{MovedName, NameRequest, PeerReply, Place, Refused};

use super::Names;
use crate::convert::meta_refused;
use crate::limits::{
    GIVEN_UP_TOLD_MAX, HAND_OVER_WAIT, MOVED_NAMES_BYTES, SPREAD_FAILED_PAUSE,
    SPREAD_INTENTS_PAUSE, SPREAD_PAUSE, SPREAD_WAIT,
};
use crate::meta::{binding, record};
use crate::refusals::Answer;
use crate::refusals::{libc_errno, unexpected};

/// How many of them fit a message; at least one.
fn names_at_once(names: &[MovedName]) -> usize {
    let mut bytes = 0;
    let fits = |moved: &&MovedName| {
        // An inode, a kind and two lengths in addition to the name, and three bytes for each node.
        bytes += moved.name.len() + 24 + 3 * moved.known_by.len();
        bytes <= MOVED_NAMES_BYTES
    };
    names.iter().take_while(fits).count().max(1).min(names.len())
}

impl Names {
    /// As the home of `dir`.
    pub(crate) async fn spread(self: &Rc<Self>, dir: InodeId) {
        let at_rest = self.rpc.grace.is_over()
            && !self.meta.intents.at(dir, true)
            && tokio::time::timeout(SPREAD_WAIT, self.names_at_rest(dir)).await == Ok(true);
        let (is_spread, rest) = match at_rest {
            false => (false, SPREAD_PAUSE),
            true => match self.move_names(dir).await {
                Ok(is_spread) => (is_spread, SPREAD_PAUSE),
                Err(error) => {
                    tracing::warn!(%dir, %error, "the names of a directory stay at its home for now");
                    (false, SPREAD_FAILED_PAUSE)
                }
            },
        };
        tracing::debug!(%dir, is_spread, "names of a directory");
        self.kept.end_move(dir, is_spread, rest);
    }

    /// Nobody has a name of it in hand, and nothing that an operation has begun at one is left to be done. False:
    /// that would take long.
    pub(crate) async fn names_at_rest(&self, dir: InodeId) -> bool {
        self.kept.begin_move(dir).await;
        while self.meta.intents.at(dir, false) {
            if self.meta.intents.at(dir, true) {
                return false;
            }
            tokio::time::sleep(SPREAD_INTENTS_PAUSE).await;
        }
        true
    }

    /// False: not now.
    pub(crate) async fn move_names(self: &Rc<Self>, dir: InodeId) -> Result<bool, Refused> {
        // Not while it is being removed.
        let _held = self.inode_locks.lock(dir).await;
        let found = ops::get_inode(&self.meta.begin(), dir).map_err(meta_refused)?;
        if found.is_none_or(|inode| inode.removed || inode.kind != FileKind::Directory) {
            return Ok(false);
        }
        let given_up = self.given_up.all();
        let leaving = self.leaving_names(dir, &given_up)?;
        let is_lost = |server: &ServerId| self.rpc.membership.is_server_lost(*server);
        if leaving.keys().any(is_lost) || given_up.len() > GIVEN_UP_TOLD_MAX {
            return Ok(false);
        }
        if !leaving.is_empty() {
            let handed = self.hand_names(dir, &leaving, &given_up);
            let late = || {
                let why = format!("a server did not take them within {HAND_OVER_WAIT:?}");
                Refused::because(libc_errno::EIO, why)
            };
            tokio::time::timeout(HAND_OVER_WAIT, handed).await.map_err(|_| late())??;
        }
        let mut txn = self.meta.begin();
        for moved in leaving.values().flatten() {
            ops::remove_entry(&mut txn, dir, &moved.name);
        }
        ops::spread_names(&mut txn, dir);
        txn.commit().map_err(meta_refused)?;
        if let Err(error) = self.meta.durable().await {
            tracing::error!(%dir, %error, "a power cut would undo that the names of a directory are spread");
        }
        Ok(true)
    }

    /// Its names by shard, with the servers that have to know something all the same: those that a former attempt left
    /// names at, and all where there are operations that bind no names any more.
    pub(crate) fn leaving_names(
        &self,
        dir: InodeId,
        given_up: &[u64],
    ) -> Result<BTreeMap<ServerId, Vec<MovedName>>, Refused> {
        let mut leaving = BTreeMap::<_, Vec<_>>::new();
        let txn = self.meta.begin();
        for (_, name, entry) in ops::list(&txn, dir, 0, usize::MAX).map_err(meta_refused)? {
            let shard = self.shard_by_hash(dir, &name);
            if shard == self.me {
                continue;
            }
            let place = Place { parent: dir, name };
            let known_by = self.directories.known_by(&place);
            let moved = MovedName { name: place.name, binding: binding(&entry), known_by };
            leaving.entry(shard).or_default().push(moved);
        }
        for shard in ops::dir_shards(&txn, dir).map_err(meta_refused)? {
            leaving.entry(shard).or_default();
        }
        if !given_up.is_empty() {
            self.groups.servers().iter().for_each(|server| {
                leaving.entry(*server).or_default();
            });
        }
        leaving.remove(&self.me);
        Ok(leaving)
    }

    /// All at once, each server message by message; which they are is remembered before.
    pub(crate) async fn hand_names(
        self: &Rc<Self>,
        dir: InodeId,
        leaving: &BTreeMap<ServerId, Vec<MovedName>>,
        given_up: &[u64],
    ) -> Result<(), Refused> {
        let mut txn = self.meta.begin();
        for shard in leaving.keys() {
            ops::add_dir_shard(&mut txn, dir, *shard).map_err(meta_refused)?;
        }
        txn.commit().map_err(meta_refused)?;
        self.meta.durable().await?;
        let attempt = self.meta.intents.operation_id();
        // Dropped with this future: what was not taken by then is not sent.
        let mut handing = tokio::task::JoinSet::new();
        for (shard, names) in leaving {
            let (this, shard, mut rest) = (Rc::clone(self), *shard, names.clone());
            let mut given_up = given_up.to_vec();
            handing.spawn_local(async move {
                let mut first = true;
                while first || !rest.is_empty() {
                    let later = rest.split_off(names_at_once(&rest));
                    let names = std::mem::replace(&mut rest, later);
                    let given_up = std::mem::take(&mut given_up);
                    let take = NameRequest::TakeNames { dir, attempt, first, names, given_up };
                    match this.rpc.ask(shard, take).await? {
                        PeerReply::Done => first = false,
                        other => return Err(unexpected(&other)),
                    }
                }
                Ok(())
            });
        }
        while let Some(handed) = handing.join_next().await {
            handed.map_err(|_| Refused::new(libc_errno::EIO)).flatten()?;
        }
        Ok(())
    }

    /// A directory that was not spread is gone: what attempts have left at other servers, if any, is nobody's.
    pub(crate) fn forget_handed_names(self: &Rc<Self>, dir: InodeId, servers: Vec<ServerId>) {
        let attempt = self.meta.intents.operation_id();
        for server in servers.into_iter().filter(|server| *server != self.me) {
            let this = Rc::clone(self);
            tokio::task::spawn_local(async move {
                let (names, given_up) = (Vec::new(), Vec::new());
                let none = NameRequest::TakeNames { dir, attempt, first: true, names, given_up };
                for request in [none, NameRequest::DirThaw { dir }] {
                    if let Err(error) = this.rpc.ask(server, request).await {
                        tracing::debug!(%dir, %server, %error, "names of a removed directory stay");
                    }
                }
            });
        }
    }

    /// As a shard: names that are this one's once the home says to others that they are spread.
    pub(crate) async fn take_names(
        &self,
        dir: InodeId,
        (attempt, first): (u64, bool),
        names: Vec<MovedName>,
        given_up: &[u64],
    ) -> Answer {
        if !self.directories.is_latest_attempt(dir, attempt) {
            return Ok(PeerReply::Stale);
        }
        let mut txn = self.meta.begin();
        if first {
            let left = ops::list(&txn, dir, 0, usize::MAX).map_err(meta_refused)?;
            for (_, name, _) in left {
                ops::remove_entry(&mut txn, dir, &name);
            }
            ops::grant_dir(&mut txn, dir).map_err(meta_refused)?;
        }
        for moved in &names {
            let entry = record(moved.binding);
            ops::replace(&mut txn, dir, &moved.name, entry).map_err(meta_refused)?;
        }
        given_up.iter().for_each(|op| ops::give_up(&mut txn, *op));
        self.given_up.taken_over(given_up);
        txn.commit().map_err(meta_refused)?;
        self.meta.durable().await?;
        for MovedName { name, known_by, .. } in names {
            let place = Place { parent: dir, name };
            for node in known_by {
                self.directories.looked_up(place.clone(), node);
            }
        }
        Ok(PeerReply::Done)
    }
}
