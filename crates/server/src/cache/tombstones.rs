//! Names that are gone here and not yet in the tier.
//!
//! A removed or renamed file goes from the tier behind the program's back, as written bytes come there:
//! after what was completed before it ([`super::order`]). Until then a *tombstone* at the shard of the
//! name hides what the tier shows there: a record of the ledger, so that neither the death of a server
//! nor a resume forgets it. It hides one version: what somebody else puts under the name is seen.
//!
//! Who may touch the tier under such a name is settled in one place: the shard removes what a tombstone
//! hides, under the lock `burying`; a new file of that name takes the tombstone over first, by
//! [`Node::replace_tombstones`]. Both ask the home of the file that had the name whether it has given
//! it up, which waits for what is on its way from there.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::rc::Rc;

use hayase_layout::{InodeId, ServerId};
use hayase_store::{Buried, FileState, LedgerRecord, TierVersion};
use hayase_tier::{Tier, TierError};
use hayase_wire::message::{CacheRequest, PeerReply, Place, Refused, Shown};
use tokio::time::Instant;

use super::order::is_waited_for;
use super::paths::key;
use super::{Cache, remember, stored_version, version_of, wire_version};
use crate::cache::area::CacheArea;
use crate::convert::{meta_refused, stored_time, time};
use crate::limits::{
    CACHE_HOLD, CLEAR_WAIT, FETCH_PAUSE, FETCH_WAIT, REMOVAL_STREAMS, SYNC_DEADLINE,
};
use crate::node::Node;
use crate::recovery::is_gone;
use crate::refusals::{libc_errno, unexpected};

/// The tombstones of a ledger, by what is asked for.
#[derive(Default)]
pub(crate) struct Tombstones {
    numbers: BTreeSet<InodeId>,
    by_path: HashMap<Vec<u8>, Vec<InodeId>>,
    /// By inode of the directory.
    by_directory: HashMap<InodeId, BTreeSet<InodeId>>,
}

impl Tombstones {
    /// Of a ledger that was read.
    pub(super) fn of<'a>(records: impl Iterator<Item = &'a LedgerRecord>) -> Self {
        let mut found = Self::default();
        records.filter(|record| record.state == FileState::Removed).for_each(|one| found.add(one));
        found
    }

    fn add(&mut self, tombstone: &LedgerRecord) {
        let number = tombstone.ino;
        self.numbers.insert(number);
        self.by_path.entry(tombstone.path.clone()).or_default().push(number);
        if let Some(buried) = tombstone.buried {
            self.by_directory.entry(buried.parent).or_default().insert(number);
        }
    }

    fn remove(&mut self, tombstone: &LedgerRecord) {
        self.numbers.remove(&tombstone.ino);
        if let Some(numbers) = self.by_path.get_mut(&tombstone.path) {
            numbers.retain(|number| *number != tombstone.ino);
            if numbers.is_empty() {
                self.by_path.remove(&tombstone.path);
            }
        }
        let parent = tombstone.buried.map(|buried| buried.parent);
        if let Some(numbers) = parent.and_then(|parent| self.by_directory.get_mut(&parent)) {
            numbers.remove(&tombstone.ino);
            if let Some(parent) = parent.filter(|_| numbers.is_empty()) {
                self.by_directory.remove(&parent);
            }
        }
    }

    pub(super) fn contains(&self, number: InodeId) -> bool {
        self.numbers.contains(&number)
    }

    /// The highest number; 0 when there is none.
    pub(super) fn last(&self) -> u64 {
        self.numbers.last().map_or(0, |number| number.0)
    }
}

impl Cache {
    pub(super) fn bury(&self, tombstone: &LedgerRecord) -> Result<(), Refused> {
        self.put(tombstone.clone())?;
        self.last_tombstone.set(tombstone.ino.0);
        self.tombstones.borrow_mut().add(tombstone);
        self.work.notify_one();
        Ok(())
    }

    /// The tier does not show this any more, or it is somebody's again.
    pub(crate) fn unbury(&self, tombstone: &LedgerRecord) {
        self.tombstones.borrow_mut().remove(tombstone);
        self.ended(tombstone.ino);
    }

    /// What was removed from the tier just now may still be in a listing that is on its way.
    pub(crate) fn removed_from_tier(&self, path: &[u8], identity: u64) {
        remember(&self.gone, (path.to_vec(), identity), Instant::now());
    }

    pub(crate) fn tombstones_of(&self, path: &[u8]) -> Vec<LedgerRecord> {
        let numbers = self.tombstones.borrow().by_path.get(path).cloned().unwrap_or_default();
        numbers.into_iter().filter_map(|number| self.record(number)).collect()
    }

    /// Tombstones of names in one directory.
    fn tombstones_in(&self, dir: InodeId) -> Vec<LedgerRecord> {
        let numbers = self.tombstones.borrow().by_directory.get(&dir).cloned().unwrap_or_default();
        numbers.into_iter().filter_map(|number| self.record(number)).collect()
    }

    /// Those after `after`, `most` at most, by number.
    pub(crate) fn tombstones_after(&self, after: InodeId, most: usize) -> Vec<InodeId> {
        let from = (Bound::Excluded(after), Bound::Unbounded);
        self.tombstones.borrow().numbers.range(from).take(most).copied().collect()
    }

    /// Whether the job has given up this version of the tier: nobody is to see it.
    pub(crate) fn hides(&self, path: &[u8], version: &TierVersion) -> bool {
        let TierVersion { identity, size, mtime, .. } = *version;
        let gone = self.gone.borrow().get(&(path.to_vec(), identity)).copied();
        let moved = self.moved_away.borrow().get(&(path.to_vec(), size, mtime)).copied();
        let is_recent = |at: Instant| at.elapsed() < SYNC_DEADLINE;
        gone.is_some_and(is_recent)
            || moved.is_some_and(is_recent)
            || self
                .tombstones_of(path)
                .iter()
                .any(|one| one.is_ours(identity, size, mtime) || one.may_be_on_its_way(size, mtime))
    }
}

/// What tombstones of one name hide.
#[derive(Default)]
pub(crate) struct Hidden {
    pub(crate) numbers: Vec<InodeId>,
    /// What the tier has there, if it is that.
    pub(crate) version: Option<TierVersion>,
}

/// What the tier may show of a file.
pub(crate) fn shown(record: &LedgerRecord) -> Shown {
    Shown {
        version: record.version.map(wire_version),
        sent: record.sent.map(|(size, at)| (size, time(at))),
    }
}

impl Node {
    /// Shard, with the name held: a file is about to lose it.
    pub(crate) async fn bury_for_unlink(
        self: &Rc<Self>,
        place: &Place,
        ino: InodeId,
    ) -> Result<(), Refused> {
        match self.rpc.ask(ino.home(), CacheRequest::Unlink { ino }).await? {
            PeerReply::Shown(shown) => self.bury(place, (ino, shown), false).await.map(drop),
            other => Err(unexpected(&other)),
        }
    }

    /// Shard: hides what the tier shows of a file under a name that it gives up, for another one if `is_renamed`. If the
    /// file is renamed in the tier then, it has both names there for a moment, and may be seen under this one with an
    /// identity that nobody knows.
    pub(crate) async fn bury(
        self: &Rc<Self>,
        place: &Place,
        (ino, shown): (InodeId, Shown),
        is_renamed: bool,
    ) -> Result<PeerReply, Refused> {
        if shown == Shown::default() {
            return Ok(PeerReply::Done); // The tier has never seen it.
        }
        let cache = self.cache.need()?;
        self.meta.disk.have_numbers(1).await?;
        let path = self.tier_path_of(place).await?;
        let version = shown.version.map(stored_version);
        if let Some(version) = version.filter(|_| is_renamed) {
            let looks = (path.clone(), version.size, version.mtime);
            remember(&cache.moved_away, looks, Instant::now());
        }
        let sent = shown.sent.map(|(size, at)| (size, stored_time(at)));
        let known = cache.tombstones_of(&path);
        if known.iter().any(|one| (one.version, one.sent) == (version, sent)) {
            return Ok(PeerReply::Done); // Said twice.
        }
        let number = self.meta.store().allocate().map_err(meta_refused)?.in_cache();
        let buried = Buried { parent: place.parent, ino, is_renamed };
        cache.bury(&LedgerRecord::tombstone(number, path, buried, version, sent))?;
        Ok(PeerReply::Done)
    }

    /// Home, before it takes the link of a name that is gone: what came to the tier under the name after
    /// [`Self::unlink_cached`] is hidden too. This server may have been started anew since, or the hold
    /// have been over. Nothing more comes there from the return of this to the next `await`.
    pub(crate) async fn bury_what_came_since(
        self: &Rc<Self>,
        ino: InodeId,
        place: &Place,
    ) -> Result<(), Refused> {
        let Some(cache) = self.cache.of(ino) else { return Ok(()) };
        let told = cache.active(ino).told.get();
        let PeerReply::Shown(shown) = self.cache.unlink(ino)? else { return Ok(()) };
        if shown == Shown::default() || told == Some(shown) {
            return Ok(());
        }
        let bury = CacheRequest::Bury { place: place.clone(), ino, shown };
        match self.rpc.ask(self.names.shard_of(place.parent, &place.name), bury).await {
            // The directory is gone, and what was in it.
            Err(refused) if is_gone(&refused) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Asks the home of the file that had the name of a tombstone, as [`Self::still_named`] says.
    pub(crate) async fn has_name_again(
        self: &Rc<Self>,
        tombstone: &LedgerRecord,
        buried: Buried,
    ) -> Result<Option<bool>, Refused> {
        let (ino, path, shown) = (buried.ino, tombstone.path.clone(), shown(tombstone));
        match self.rpc.ask(ino.home(), CacheRequest::StillNamed { ino, path, shown }).await? {
            PeerReply::Outcome(is_named) => Ok(is_named),
            other => Err(unexpected(&other)),
        }
    }

    /// Shard: what is hidden under a name that the file `ino` is about to take in the tier.
    pub(crate) async fn tombstones(
        self: &Rc<Self>,
        place: &Place,
        ino: InodeId,
    ) -> Result<PeerReply, Refused> {
        let cache = self.cache.need()?;
        let path = self.tier_path_of(place).await?;
        let _held = cache.burying.lock(path.clone()).await;
        let mut hidden = Vec::new();
        for tombstone in cache.tombstones_of(&path) {
            let buried = tombstone.buried.filter(|buried| buried.ino != ino);
            if let Some(buried) = buried
                && self.has_name_again(&tombstone, buried).await? == Some(true)
            {
                let why = "the name is on its way from one file to another";
                return Err(Refused::because(libc_errno::EAGAIN, why));
            }
            hidden.push((tombstone.ino, shown(&tombstone)));
        }
        Ok(PeerReply::Tombstones(hidden))
    }

    /// Shard: who has the name now knows what to replace in the tier.
    pub(crate) async fn tombstones_replaced(
        self: &Rc<Self>,
        place: &Place,
        numbers: &[InodeId],
    ) -> Result<PeerReply, Refused> {
        let cache = self.cache.need()?;
        let path = self.tier_path_of(place).await?;
        let _held = cache.burying.lock(path.clone()).await;
        for tombstone in cache.tombstones_of(&path) {
            if numbers.contains(&tombstone.ino) {
                cache.unbury(&tombstone);
            }
        }
        Ok(PeerReply::Done)
    }

    /// Home, before a file that the tier has never seen comes there: what an earlier file of this name
    /// left is its to replace, unless it has changed since `generation`. Not with `publishing` held: two
    /// files that have swapped their names would wait for each other.
    pub(crate) async fn replace_tombstones(
        self: &Rc<Self>,
        ino: InodeId,
        generation: u64,
    ) -> Result<(), Refused> {
        let cache = self.cache.need()?;
        let Some((parent, name)) = self.meta.inode(ino)?.name else { return Ok(()) };
        let place = Place { parent, name };
        let hidden = self.hidden_at(cache, &place, ino).await?;
        if hidden.numbers.is_empty() {
            return Ok(());
        }
        if let Some(version) = hidden.version {
            let _held = cache.publishing.lock(ino).await;
            if cache.active(ino).generation.get() != generation {
                return Ok(()); // Who changed it may have given the name up.
            }
            cache.update(ino, |record| {
                (record.version, record.xattrs.are_all) = (Some(version), true);
            })?;
        }
        self.replaced(&place, hidden.numbers).await
    }

    /// Home: what tombstones hide at a name that `ino` is about to take in the tier.
    pub(crate) async fn hidden_at(
        self: &Rc<Self>,
        cache: &Cache,
        place: &Place,
        ino: InodeId,
    ) -> Result<Hidden, Refused> {
        let request = CacheRequest::Tombstones { place: place.clone(), ino };
        let shard = self.names.shard_of(place.parent, &place.name);
        let hidden = match self.rpc.ask(shard, request).await? {
            PeerReply::Tombstones(hidden) if hidden.is_empty() => return Ok(Hidden::default()),
            PeerReply::Tombstones(hidden) => hidden,
            other => return Err(unexpected(&other)),
        };
        let key = key(&self.tier_path_of(place).await?)?;
        let found = cache.ask_tier(move |tier| version_at(tier, &key)).await?;
        let is_hidden = |found: &TierVersion| {
            hidden.iter().any(|(_, shown)| {
                let known = shown.version.is_some_and(|known| known.identity == found.identity);
                known || shown.sent == Some((found.size, time(found.mtime)))
            })
        };
        let version = found.filter(is_hidden);
        Ok(Hidden { numbers: hidden.into_iter().map(|(number, _)| number).collect(), version })
    }

    /// Home: the ledger knows what these tombstones hid.
    pub(crate) async fn replaced(
        self: &Rc<Self>,
        place: &Place,
        tombstones: Vec<InodeId>,
    ) -> Result<(), Refused> {
        let (place, shard) = (place.clone(), self.names.shard_of(place.parent, &place.name));
        self.rpc.ask(shard, CacheRequest::Replaced { place, tombstones }).await.map(drop)
    }

    /// Before a directory is removed in the tier: what is hidden in it goes.
    pub(crate) async fn clear_tombstones(
        self: &Rc<Self>,
        dir: InodeId,
        shards: &[u16],
    ) -> Result<(), Refused> {
        let until = Instant::now() + CLEAR_WAIT;
        for shard in shards {
            loop {
                match self.rpc.ask(ServerId(*shard), CacheRequest::Clear { dir }).await? {
                    PeerReply::Ready(true) => break,
                    PeerReply::Ready(false) if Instant::now() < until => {
                        tokio::time::sleep(FETCH_PAUSE).await;
                    }
                    PeerReply::Ready(false) => {
                        let why = "a file that was in it is not in the tier yet: try again";
                        return Err(Refused::because(libc_errno::EBUSY, why));
                    }
                    other => return Err(unexpected(&other)),
                }
            }
        }
        Ok(())
    }

    /// Shard: removes what is hidden in a directory now; `Ready(false)` when that takes longer than a
    /// message may, or waits for a file that was moved out of it and is on its way: ask again.
    pub(crate) async fn clear_directory(
        self: &Rc<Self>,
        dir: InodeId,
    ) -> Result<PeerReply, Refused> {
        let until = Instant::now() + FETCH_WAIT;
        let mut is_clear = true;
        for some in self.cache.need()?.tombstones_in(dir).chunks(REMOVAL_STREAMS) {
            if Instant::now() > until {
                return Ok(PeerReply::Ready(false));
            }
            let mut removals = Vec::new();
            for one in some {
                let (this, tombstone) = (Rc::clone(self), one.clone());
                removals.push(tokio::task::spawn_local(async move {
                    this.remove_buried(this.cache.need()?, &tombstone, true).await
                }));
            }
            for removal in removals {
                is_clear &= removal.await.map_err(|_| Refused::new(libc_errno::EIO))??;
            }
        }
        Ok(PeerReply::Ready(is_clear))
    }
}

/// What the tier has there.
pub(crate) fn version_at(
    tier: &dyn Tier,
    key: &hayase_tier::Key,
) -> Result<Option<TierVersion>, TierError> {
    match tier.stat_as_written(key) {
        Ok(meta) => Ok(Some(version_of(&meta))),
        Err(TierError::Missing { .. } | TierError::NotObject { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl CacheArea {
    /// Home: the name is about to go. Nothing is flushed to it until that is done, or a while has
    /// passed. A version that is being committed just now is the one that was sent.
    pub(crate) fn unlink(&self, ino: InodeId) -> Result<PeerReply, Refused> {
        let cache = self.need()?;
        let active = cache.active(ino);
        active.changed();
        active.held_until.set(Some(Instant::now() + CACHE_HOLD));
        let record = cache.record(ino).filter(|record| !record.is_nameless);
        let shown = record.as_ref().map(shown).unwrap_or_default();
        active.told.set(Some(shown));
        Ok(PeerReply::Shown(shown))
    }

    /// Home: whether the file has this name, `None` when it has another one now under which the tier does
    /// not have it yet; what the tier has under it is the file's own then. Waits
    /// for what is on its way to the tier.
    pub(crate) async fn still_named(
        &self,
        ino: InodeId,
        path: &[u8],
        shown: Shown,
    ) -> Result<PeerReply, Refused> {
        let cache = self.need()?;
        let _held = cache.publishing.lock(ino).await;
        let is_named = self.meta.inode(ino).is_ok_and(|inode| inode.nlink > 0)
            && cache.record(ino).is_some_and(|record| record.path == path);
        if is_named {
            cache.update(ino, |record| {
                if record.version.is_none() {
                    record.version = shown.version.map(stored_version);
                    let sent = shown.sent.map(|(size, at)| (size, stored_time(at)));
                    record.sent = record.sent.or(sent);
                }
            })?;
        }
        // Under another name, in whichever directory, it has to be in the tier before this one goes.
        let is_coming = cache
            .record(ino)
            .is_some_and(|record| !record.state.is_safe() && is_waited_for(record.errno));
        Ok(PeerReply::Outcome(if !is_named && is_coming { None } else { Some(is_named) }))
    }
}
