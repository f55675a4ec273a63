//! What the job has removed goes from the tier, when what was written before is there.
//!
//! A shard removes what its tombstones hide ([`crate::cache::tombstones`]). The files that come first
//! may be of any server: each is asked once for the number that it has come to, and then again until
//! it has nothing earlier left in that directory. All removals of a directory so far share the answers,
//! so that a thousand of them cost no more questions than one.
//!
//! Order is given up where it would stand still for ever: what the tier has no room for is not waited
//! for, since removing is how room is made there; and what is open for writing is waited for only for a
//! while, in which a close of just before is known (close(2) returns before the server is told).

use std::rc::Rc;

use hayase_layout::{InodeId, ServerId};
use hayase_store::LedgerRecord;
use hayase_tier::TierError;
use hayase_wire::message::{CacheRequest, Moment, PeerReply, Place, Refused};
use tokio::time::Instant;

use crate::cache::Cache;
use crate::cache::order::{directory_of, is_waited_for};
use crate::cache::paths::key;
use crate::cache::tombstones::version_at;
use crate::limits::{CACHE_MEMO_MAX, CLOSE_GRACE, FLUSH_LOOK};
use crate::node::Node;
use crate::refusals::{libc_errno, unexpected};

/// How far the servers are with what comes before the removals of one directory.
#[derive(Clone, Default)]
pub(crate) struct Settling {
    /// Inode number of the last tombstone that the question covers, and of the last one for which the
    /// answer is yes: those made later have higher ones.
    asked: u64,
    settled: u64,
    /// Servers that are not so far, and what each of them must come to.
    waits_for: Vec<(ServerId, Moment)>,
    /// When that was asked first, and when last.
    asked_at: Option<Instant>,
    looked: Option<Instant>,
}

impl Node {
    /// One try to remove what a tombstone hides; true when the tombstone is not needed any more.
    /// `now`: without waiting for what comes first, but for the file itself under its new name.
    pub(crate) async fn remove_buried(
        self: &Rc<Self>,
        cache: &Cache,
        tombstone: &LedgerRecord,
        now: bool,
    ) -> Result<bool, Refused> {
        let Some(buried) = tombstone.buried else { return Ok(true) };
        let dir = directory_of(&tombstone.path);
        let name = tombstone.path[dir.len()..].strip_prefix(b"/");
        let name = name.unwrap_or(&tombstone.path[dir.len()..]).to_vec();
        let place = Place { parent: buried.parent, name };
        // Who is removing or renaming it has the name in hand, and comes to an end first.
        drop(self.names.hold_name(&place).await?);
        let Some(is_named) = self.has_name_again(tombstone, buried).await? else {
            // What is hidden may be the last version that the tier has of it.
            if now {
                let flush = CacheRequest::Flush { ino: buried.ino };
                self.rpc.ask(buried.ino.home(), flush).await?;
            }
            return Ok(false);
        };
        let bound = self.meta.bound(&place)?.map(|found| found.ino);
        if is_named && bound == Some(buried.ino) {
            cache.unbury(tombstone); // It was not removed after all, or came back.
            return Ok(true);
        }
        if is_named || bound == Some(buried.ino) {
            return Ok(false);
        }
        if !now && bound.is_none() && !self.is_settled(cache, dir, tombstone.ino).await? {
            return Ok(false);
        }
        let _held = cache.burying.lock(tombstone.path.clone()).await;
        if cache.record(tombstone.ino).is_none() {
            return Ok(true); // A new file has taken it over.
        }
        let path = key(&tombstone.path)?;
        let (ours, is_free) = (tombstone.clone(), bound.is_none());
        let remove = move |tier: &dyn hayase_tier::Tier| {
            let found = version_at(tier, &path)?;
            let found = found.filter(|at| ours.is_ours(at.identity, at.size, at.mtime));
            match found {
                Some(at) if is_free => match tier.delete_version(&path, at.identity) {
                    // Somebody else's, by now: nothing of ours is there.
                    Err(TierError::Changed { .. }) => Ok(None),
                    gone => gone.map(|()| found),
                },
                _ => Ok(found),
            }
        };
        let found = cache.ask_tier(remove).await?;
        if let Some(found) = found {
            if !is_free {
                return Ok(false); // The new file of this name replaces it.
            }
            cache.removed_from_tier(&tombstone.path, found.identity);
        } else if let Some(version) = tombstone.version {
            cache.removed_from_tier(&tombstone.path, version.identity);
        }
        cache.unbury(tombstone);
        Ok(true)
    }

    /// Whether the tier has all that was completed in `dir` before the tombstone `number` was made.
    async fn is_settled(
        self: &Rc<Self>,
        cache: &Cache,
        dir: &[u8],
        number: InodeId,
    ) -> Result<bool, Refused> {
        let _held = cache.settling_locks.lock(dir.to_vec()).await;
        let known = cache.settling.borrow().get(dir).cloned().unwrap_or_default();
        if known.settled >= number.0 {
            return Ok(true);
        }
        let is_fresh = known.looked.is_some_and(|at| at.elapsed() < FLUSH_LOOK);
        let mut asked = known.clone();
        if known.waits_for.is_empty() {
            asked = self.ask_anew(cache, dir, number, known).await?;
        } else if is_fresh {
            return Ok(false);
        } else {
            let some = known.waits_for.iter().map(|(server, at)| (*server, Some(*at))).collect();
            let with_open = known.asked_at.is_some_and(|at| at.elapsed() < CLOSE_GRACE);
            match self.not_settled(dir, some, with_open).await? {
                Some(left) => asked.waits_for = left,
                None => asked = self.ask_anew(cache, dir, number, known).await?,
            }
        }
        let is_over = asked.waits_for.is_empty();
        let settled = if is_over { asked.asked } else { asked.settled };
        let is_settled = settled >= number.0;
        let mut settling = cache.settling.borrow_mut();
        if settling.len() >= CACHE_MEMO_MAX {
            settling.clear(); // Asked again then.
        }
        settling.insert(dir.to_vec(), Settling { settled, looked: Some(Instant::now()), ..asked });
        Ok(is_settled)
    }

    /// As of now, for all tombstones so far.
    async fn ask_anew(
        self: &Rc<Self>,
        cache: &Cache,
        dir: &[u8],
        number: InodeId,
        known: Settling,
    ) -> Result<Settling, Refused> {
        let asked = cache.last_tombstone.get().max(number.0);
        let asked_at = Some(Instant::now());
        let all = self.rpc.all().map(|server| (server, None)).collect();
        let waits_for = self.not_settled(dir, all, true).await?.unwrap_or_default();
        Ok(Settling { asked, asked_at, waits_for, ..known })
    }

    /// Those of `servers` that are not so far, with the moment they must come to; `None` when one of the
    /// files that are waited for was removed, or its server started anew, so that the question has to be
    /// asked anew.
    async fn not_settled(
        self: &Rc<Self>,
        dir: &[u8],
        servers: Vec<(ServerId, Option<Moment>)>,
        with_open: bool,
    ) -> Result<Option<Vec<(ServerId, Moment)>>, Refused> {
        let mut asked = Vec::new();
        for (server, before) in servers {
            let request = CacheRequest::Settled { path: dir.to_vec(), before, with_open };
            asked.push((server, tokio::task::spawn_local(self.rpc.ask(server, request))));
        }
        let mut left = Vec::new();
        for (server, answer) in asked {
            match answer.await.map_err(|_| Refused::new(libc_errno::EIO))?? {
                PeerReply::Settled { has_lost: true, .. } => return Ok(None),
                PeerReply::Settled { is_settled: true, .. } => {}
                PeerReply::Settled { at, .. } => left.push((server, at)),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(Some(left))
    }

    /// Home: whether the tier has what was here, in the directory at `path`, `before` this moment of the
    /// server; as of now, if it is not told. `with_open`: also what is open for writing.
    pub(crate) fn has_settled(
        &self,
        path: &[u8],
        before: Option<Moment>,
        with_open: bool,
    ) -> Result<PeerReply, Refused> {
        let cache = self.cache.need()?;
        let at = before.unwrap_or_else(|| self.moment(cache));
        let order = cache.order.borrow();
        // Of an earlier start nobody knows what was removed since.
        let has_lost = at.start != self.incarnation || order.has_lost(path, at.number);
        let mut files = order.before(path, at.number);
        let is_settled = !has_lost && !files.any(|ino| self.holds_back(cache, ino, with_open));
        Ok(PeerReply::Settled { at, is_settled, has_lost })
    }

    fn moment(&self, cache: &Cache) -> Moment {
        Moment { start: self.incarnation, number: cache.order.borrow_mut().next() }
    }

    /// Whether a file that was renamed over another has to wait for its turn.
    pub(crate) fn waits_for_turn(&self, cache: &Cache, record: &LedgerRecord) -> bool {
        if record.after == 0 {
            return false;
        }
        let renamed = cache.active(record.ino).renamed.get();
        let with_open = renamed.is_some_and(|at| at.elapsed() < CLOSE_GRACE);
        let order = cache.order.borrow();
        let mut ahead = order.ahead(directory_of(&record.path), record.after);
        ahead.any(|ino| ino != record.ino && self.holds_back(cache, ino, with_open))
    }

    fn holds_back(&self, cache: &Cache, ino: InodeId, with_open: bool) -> bool {
        let is_on_its_way = cache
            .record(ino)
            .is_some_and(|record| !record.state.is_safe() && is_waited_for(record.errno));
        is_on_its_way
            && cache.active(ino).taken_since.get().is_none()
            && (with_open || !self.has_writers(ino))
    }

    /// Whether some node has it open for writing, or some program by MPI-IO.
    pub(crate) fn has_writers(&self, ino: InodeId) -> bool {
        let is_open_by_mpi = |cache: &Cache| cache.is_open_by_mpi(ino);
        self.homes.has_writers(ino) || self.cache.of(ino).is_some_and(is_open_by_mpi)
    }
}
