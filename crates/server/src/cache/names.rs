//! Names made, moved and removed in the area.
//!
//! A removed name is hidden here at once and goes from the tier behind the program's back
//! ([`super::tombstones`]). A renamed file that the tier has as it is here is renamed there before the
//! rename is answered, unless it would overtake what has to come there before; any other one is flushed
//! to the name that it has then. So writing a temporary file and renaming it over another shows the tier
//! the old version or the new one, never half of one.
//!
//! Directories are not renamed (`EXDEV`, as across mounts: mv(1) copies), hard links and special files
//! are refused (`EPERM`): the tier may not have them.

use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_store::namespace::Inode;
use hayase_store::{FileState, LedgerRecord, Succession};
use hayase_tier::{Attributes, Key, ListRequest, ObjectMeta, Tier, TierError, copy_object};
use hayase_wire::message::{
    Binding, CacheRequest, DirectoryRequest, FileKind, MetaChange, NameRequest, NewNode, PeerReply,
    Place, Refused, SetTime, Succession as WirePlace, TierVersion,
};
use tokio::time::Instant;

use super::convert::{stored_place, system_time, wire_place};
use super::object_moves::{Move, Moved, as_told_now, conflict_paths, gone_is_fine};
use super::paths::key;
use super::tombstones::{shown, version_at};
use super::{Cache, stored_version, tier_refused, version_of, wire_version};
use crate::acl::chmod;
use crate::cache::area::CacheArea;
use crate::convert::stored_time;
use crate::limits::{CACHE_HOLD, FETCH_PAUSE};
use crate::node::Node;
use crate::refusals::{libc_errno, unexpected};

impl Node {
    /// What a name is bound to; names of the tier are taken in.
    pub(crate) async fn binding(
        self: &Rc<Self>,
        place: &Place,
    ) -> Result<Option<Binding>, Refused> {
        let shard = self.names.shard_of(place.parent, &place.name);
        match self.rpc.ask(shard, NameRequest::Lookup(place.clone())).await {
            Ok(PeerReply::Bound(found)) => Ok(Some(found)),
            Ok(other) => Err(unexpected(&other)),
            Err(refused) if refused.errno == libc_errno::ENOENT => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// Before a name is made: in the tier, directories and links at once. `Some` when the name is
    /// there already.
    pub(crate) async fn before_create(
        self: &Rc<Self>,
        node: &NewNode,
    ) -> Result<Option<Binding>, Refused> {
        let place = Place { parent: node.parent, name: node.name.clone() };
        if let Some(found) = self.binding(&place).await? {
            return Ok(Some(found));
        }
        let cache = self.cache.need()?;
        let path = self.tier_path_of(&place).await?;
        let key = key(&path)?;
        match node.kind {
            FileKind::Regular => self.wait_for_room().await?,
            FileKind::Directory => {
                let mode = cache.lists.mode(node.mode, node.acls.as_deref());
                let attributes = Attributes { mode: Some(mode), mtime: None };
                let lists = cache.lists.of_new(node.acls.as_deref());
                let make = move |tier: &dyn Tier| match tier.tree() {
                    Some(tree) => tree
                        .make_directory(&key)
                        .and_then(|()| tree.set_directory(&key, attributes))
                        .and_then(|()| match lists.is_empty() {
                            true => Ok(()),
                            false => tier.change_user_xattrs(&key, &lists),
                        }),
                    None => match tier.marks() {
                        Some(marks) => marks.mark_directory(&key, attributes),
                        None => Ok(()), // It is there when something lies in it.
                    },
                };
                cache.ask_tier(make).await?;
            }
            FileKind::Symlink => {
                let target = node.target.clone().unwrap_or_default();
                let make = move |tier: &dyn Tier| match tier.tree() {
                    Some(tree) => tree.make_link(&key, &target).map_err(|e| tier_refused(&e)),
                    None => Err(Refused::because(libc_errno::EPERM, "this tier has no links")),
                };
                cache.tier_work(make).await?;
            }
            _ => return Err(Refused::because(libc_errno::EPERM, "the cache area has plain files")),
        }
        Ok(None)
    }

    /// Before a name goes: directories and links go from the tier.
    pub(crate) async fn before_remove(
        self: &Rc<Self>,
        place: &Place,
        directory: bool,
    ) -> Result<(), Refused> {
        let Some(found) = self.binding(place).await? else { return Ok(()) };
        if directory != (found.kind == FileKind::Directory) {
            return Ok(()); // Refused by the shard.
        }
        let cache = self.cache.need()?;
        let ino = found.ino;
        match found.kind {
            FileKind::Regular => {} // Its shard hides it.
            FileKind::Directory => {
                let shards =
                    match self.rpc.ask(ino.home(), DirectoryRequest::Shards { dir: ino }).await? {
                        PeerReply::Shards(shards) => shards,
                        other => return Err(unexpected(&other)),
                    };
                if !self.is_empty_here(ino, &shards).await? {
                    return Err(Refused::new(libc_errno::ENOTEMPTY));
                }
                self.clear_tombstones(ino, &shards).await?;
                let key = key(&self.tier_path_of(place).await?)?;
                cache.tier_work(move |tier| remove_directory(tier, &key)).await?;
            }
            _ => {
                let key = key(&self.tier_path_of(place).await?)?;
                let remove = move |tier: &dyn Tier| match tier.tree() {
                    Some(tree) => gone_is_fine(tree.remove_link(&key)),
                    None => Ok(()),
                };
                cache.ask_tier(remove).await?;
            }
        }
        Ok(())
    }

    async fn is_empty_here(self: &Rc<Self>, dir: InodeId, shards: &[u16]) -> Result<bool, Refused> {
        for shard in shards {
            let list = NameRequest::List { dir, cookie: 0, bytes: 1, all: false };
            match self.rpc.ask(hayase_layout::ServerId(*shard), list).await? {
                PeerReply::Listing { entries, .. } if entries.is_empty() => {}
                PeerReply::Listing { .. } => return Ok(false),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(true)
    }

    /// What the area does not rename, or not over that. Directories of the tier cannot be renamed with all
    /// that is on its way into them, and a link is renamed there before it is here.
    pub(crate) fn refuse_in_cache(moved: Binding, victim: Option<Binding>) -> Result<(), Refused> {
        if moved.kind == FileKind::Directory {
            let why = "directories of the cache area are not renamed: copy them";
            return Err(Refused::because(libc_errno::EXDEV, why));
        }
        match victim {
            Some(victim) if victim.kind == FileKind::Directory => {
                Err(Refused::new(libc_errno::EISDIR))
            }
            Some(victim) if victim.kind != moved.kind => {
                let why =
                    "a link of the cache area is not replaced by a file, nor a file by a link";
                Err(Refused::because(libc_errno::EXDEV, why))
            }
            _ => Ok(()),
        }
    }

    /// Before the commit of a rename inside the area, with both names held: neither file is flushed until
    /// it is over. What to say when it does not take place.
    pub(crate) async fn before_rename(
        self: &Rc<Self>,
        moved: Binding,
        victim: Option<Binding>,
        from: &Place,
        to: &Place,
    ) -> Result<Option<CacheRequest>, Refused> {
        if moved.kind == FileKind::Symlink {
            self.move_link(from, to).await?;
            return Ok(None);
        }
        let (mut over, mut follows) = (None, None);
        if let Some(victim) = victim {
            (over, follows) = match self.rpc.ask(victim.ino.home(), hold(victim.ino)).await? {
                PeerReply::Held { version, place } => (version, Some(place)),
                other => return Err(unexpected(&other)),
            };
            if over.is_none() && self.is_no_more(victim.ino).await? {
                over = self.claimed_at(to, moved.ino).await?;
            }
        }
        let (ino, is_over) = (moved.ino, victim.is_some());
        let moves = CacheRequest::Move { ino, is_over, over, follows, undo: false };
        self.rpc.ask(ino.home(), moves).await?;
        let (is_over, over, follows) = (false, None, None);
        Ok(Some(CacheRequest::Move { ino, is_over, over, follows, undo: true }))
    }

    /// It did not take place, or nobody knows: then the hold ends by itself.
    pub(crate) async fn undo_rename(self: &Rc<Self>, undo: CacheRequest) {
        if let CacheRequest::Move { ino, .. } = undo
            && let Err(error) = self.rpc.ask(ino.home(), undo).await
        {
            tracing::warn!(%ino, %error, "a file is not flushed for a while");
        }
    }

    async fn move_link(self: &Rc<Self>, from: &Place, to: &Place) -> Result<(), Refused> {
        let (old, new) =
            (key(&self.tier_path_of(from).await?)?, key(&self.tier_path_of(to).await?)?);
        let work = move |tier: &dyn Tier| match tier.tree() {
            Some(tree) => {
                let target = tree.link(&old)?;
                tree.make_link(&new, &target)?;
                gone_is_fine(tree.remove_link(&old))
            }
            None => Ok(()),
        };
        self.cache.need()?.ask_tier(work).await
    }

    /// Home: the file is about to be renamed, over another one or not, to where the tier has `over`. It
    /// is not flushed before that is done, or `undo`ne. `follows`: the place of the other one among the files of that name.
    pub(crate) async fn move_cached(
        self: &Rc<Self>,
        ino: InodeId,
        (is_over, over, follows): (bool, Option<TierVersion>, Option<WirePlace>),
        undo: bool,
    ) -> Result<PeerReply, Refused> {
        let cache = self.cache.need()?;
        // Or what it is about to replace would be said to nobody.
        self.recover_record(cache, ino).await?;
        let _held = cache.publishing.lock(ino).await;
        let active = cache.active(ino);
        active.changed();
        active.held_until.set((!undo).then(|| Instant::now() + CACHE_HOLD));
        active.is_name_known.set(false);
        let over = over.map(stored_version);
        if !undo && !cache.state(ino).is_none_or(FileState::is_safe) {
            self.cache.detach_xattrs(cache, ino).await?;
        }
        let follows = follows.map(|place| stored_place(place).next());
        cache.update(ino, |record| {
            (record.is_over, record.over, record.follows) = (is_over, over, follows);
        })?;
        if over.is_some() {
            // Or a name that was bound since would be known, and not what the tier has under it, which would
            // look like somebody else's version.
            cache.ledger_durable().await?;
        }
        Ok(PeerReply::Done)
    }

    /// Home: the file has its new name. What the tier has as it is here is renamed there, in one step;
    /// everything else comes there with its next flush, and a tombstone hides the old name until then.
    pub(crate) async fn cached_file_moved(
        self: &Rc<Self>,
        ino: InodeId,
        from: &Place,
        to: &Place,
    ) -> Result<(), Refused> {
        let Some(cache) = self.cache.of(ino) else { return Ok(()) };
        let path = self.tier_path_of(to).await?;
        let mut held = cache.publishing.lock(ino).await;
        if self.cache.may_find_hidden(cache, ino, &path) {
            drop(held);
            self.take_hidden_over(cache, ino, to).await?;
            held = cache.publishing.lock(ino).await;
        }
        let active = cache.active(ino);
        active.changed();
        let Some(record) = cache.record(ino) else { return Ok(()) };
        if record.path == path {
            // Said twice; or a power cut took it from the names, and they were told anew.
            return self.cache.is_there_already(cache, &record);
        }
        let bury = CacheRequest::Bury { place: from.clone(), ino, shown: shown(&record) };
        self.rpc.ask(self.names.shard_of(from.parent, &from.name), bury).await?;
        let overtakes = record.state.is_here() && record.is_over && self.would_overtake(&path);
        let is_in_tier = record.version.is_some() && record.state.is_safe();
        // What its flush could not bring it is not to lose.
        let moves_there = match is_in_tier {
            true => !overtakes || self.cache.detach_xattrs(cache, ino).await.is_err(),
            false => self.cache.detach_xattrs(cache, ino).await.map(|()| false)?,
        };
        let (version, is_as_known) = match moves_there {
            true => self.move_in_tier(cache, &record, to, &path).await?,
            false => (record.over, false),
        };
        let is_over = record.is_over;
        let sent = record.sent.filter(|_| !moves_there);
        cache.update(ino, |record| {
            match version.filter(|_| is_as_known) {
                Some(version) => record.same_bytes_in(version),
                None => record.version = version,
            }
            (record.path, record.over) = (path.clone(), None);
            (record.is_over, record.sent) = (false, sent);
            // Durable before the rename is answered, as the path is.
            record.succession = record.follows.take();
            record.xattrs.are_all |= !moves_there;
            if !moves_there && record.state.is_here() && record.state != FileState::Failed {
                record.state = FileState::Dirty;
            }
        })?;
        if !moves_there && record.state.is_here() {
            self.cache.place_in_order(cache, ino, &path, is_over)?;
        }
        // Before the names say so: where they kept that and the ledger did not, nobody would say it again.
        cache.ledger_durable().await?;
        active.held_until.set(None);
        active.is_name_known.set(true);
        active.taken_since.set(None);
        drop(held);
        cache.work.notify_one();
        Ok(())
    }

    /// What a removed file left at the new name is this one's to replace. Without the lock `publishing`,
    /// as [`Self::replace_tombstones`] says.
    async fn take_hidden_over(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
        to: &Place,
    ) -> Result<(), Refused> {
        let hidden = self.hidden_at(cache, to, ino).await?;
        if hidden.numbers.is_empty() {
            return Ok(());
        }
        // First: without the tombstones nothing else knows what is there.
        cache.update(ino, |record| {
            (record.is_over, record.over) = (true, record.over.or(hidden.version));
        })?;
        cache.ledger_durable().await?;
        self.replaced(to, hidden.numbers).await
    }

    /// Something in the directory of `path` has to come to the tier first.
    fn would_overtake(&self, path: &[u8]) -> bool {
        let settled = self.has_settled(super::order::directory_of(path), None, true);
        !matches!(settled, Ok(PeerReply::Settled { is_settled: true, .. }))
    }

    /// What the tier has under the new name, and whether those are the bytes of the version that is known.
    async fn move_in_tier(
        self: &Rc<Self>,
        cache: &Cache,
        record: &LedgerRecord,
        to: &Place,
        path: &[u8],
    ) -> Result<(Option<hayase_store::TierVersion>, bool), Refused> {
        if let Some(version) = record.version {
            // An answer that is lost, or a crash, may hide that it was moved.
            cache.update(record.ino, |now| now.sent = Some((version.size, version.mtime)))?;
            cache.ledger_durable().await?;
        }
        // Names that are too long for the tier are none.
        let beside = conflict_paths(path, record.ino).filter_map(|path| key(&path).ok());
        let mut wanted = Move {
            from: key(&record.path)?,
            to: key(path)?,
            aside: beside.collect(),
            expected: match record.over {
                Some(over) => Some(over.identity),
                None => self.claimed_if_there(cache, to, path, record.ino).await?,
            },
            put_aside: Vec::new(),
        };
        let work = move |tier: &dyn Tier| Ok((wanted.done(tier), wanted.put_aside));
        let (moved, put_aside) = cache.ask_tier(work).await?;
        for beside in put_aside {
            cache.traffic.conflict(beside.as_bytes().to_vec());
        }
        let Moved { version, moved } = moved.map_err(|error| tier_refused(&error))?;
        // Where it was moved before, in part or as a whole, and no answer came, it has another identity since.
        let is_as_known = version.zip(record.version).is_some_and(|(now, known)| {
            moved == Some(known.identity) || (now.size, now.mtime) == (known.size, known.mtime)
        });
        Ok((version, is_as_known))
    }

    /// Home: rights and times of what the tier has change there first; of what it does not have yet
    /// with the next flush.
    pub(crate) async fn before_set_attr(
        self: &Rc<Self>,
        inode: &Inode,
        change: &MetaChange,
    ) -> Result<(), Refused> {
        let Some(cache) = self.cache.of(inode.ino) else { return Ok(()) };
        let is_other = |asked: Option<u32>, has: u32| asked.is_some_and(|asked| asked != has);
        if is_other(change.uid, inode.uid) || is_other(change.gid, inode.gid) {
            let why = "files of the cache area belong to the owner of the job";
            return Err(Refused::because(libc_errno::EPERM, why));
        }
        if change.policy.is_some() && inode.kind != hayase_store::FileKind::Directory {
            let why = "how a file of the cache area lies is said by its directory when it is made";
            return Err(Refused::because(libc_errno::EOPNOTSUPP, why));
        }
        let mtime = change.mtime.map(|time| match time {
            SetTime::Now => system_time(stored_time(self.meta.now())),
            SetTime::To(time) => system_time(stored_time(time)),
        });
        let mode = change.mode.map(|mode| {
            let mut after = inode.clone();
            chmod(&mut after, mode);
            cache.lists.mode(after.mode, after.acls.as_deref())
        });
        let attributes = Attributes { mode, mtime };
        if inode.kind == hayase_store::FileKind::Directory {
            return self.set_directory(inode, attributes).await;
        }
        let _held = cache.publishing.lock(inode.ino).await;
        let active = cache.active(inode.ino);
        active.changed();
        let Some(record) = cache.record(inode.ino) else { return Ok(()) };
        let mut changed = None;
        // What lies under the name of one that has lost it is for its tombstone to know again.
        if record.state.is_safe()
            && !record.is_nameless
            && attributes != Attributes::default()
            && let Some(version) = record.version
        {
            let key = key(&record.path)?;
            let set = move |tier: &dyn Tier| set_object(tier, &key, attributes, version.identity);
            changed = Some(cache.tier_work(set).await?);
        }
        cache.update(inode.ino, |record| {
            if let Some(version) = changed {
                record.same_bytes_in(version);
            }
            record.mode = mode.unwrap_or(record.mode);
        })
    }

    async fn set_directory(
        self: &Rc<Self>,
        inode: &Inode,
        attributes: Attributes,
    ) -> Result<(), Refused> {
        let path = self.directory_path(inode.ino).await?;
        if path.is_empty() || attributes == Attributes::default() {
            return Ok(()); // The tier's own root is not ours to change.
        }
        let key = key(&path)?;
        let set = move |tier: &dyn Tier| match (tier.tree(), tier.marks()) {
            (Some(tree), _) => tree.set_directory(&key, attributes),
            (None, Some(marks)) => {
                let told = match marks.directory(&key) {
                    Err(TierError::Missing { .. }) => Attributes::default(),
                    told => told?,
                };
                let (mode, mtime) =
                    (attributes.mode.or(told.mode), attributes.mtime.or(told.mtime));
                marks.mark_directory(&key, Attributes { mode, mtime })
            }
            (None, None) => Ok(()),
        };
        self.cache.need()?.ask_tier(set).await
    }

    /// A file is about to be written: all of it is fetched first, however long that takes.
    pub(crate) async fn fetch_for_writing(self: &Rc<Self>, ino: InodeId) -> Result<(), Refused> {
        loop {
            match self.rpc.ask(ino.home(), CacheRequest::Fetch { ino }).await? {
                PeerReply::Ready(true) => return Ok(()),
                PeerReply::Ready(false) => tokio::time::sleep(FETCH_PAUSE).await,
                other => return Err(unexpected(&other)),
            }
        }
    }
}

fn hold(ino: InodeId) -> CacheRequest {
    CacheRequest::Hold { ino }
}

/// What is not empty there is not removed: `ENOTEMPTY`.
fn remove_directory(tier: &dyn Tier, key: &Key) -> Result<(), Refused> {
    let Some(tree) = tier.tree() else {
        let below = [key.as_bytes(), b"/"].concat();
        let request = ListRequest { limit: 1, ..ListRequest::one_level(below) };
        let listed = tier.list(&request).map_err(|error| tier_refused(&error))?;
        if !listed.entries.is_empty() {
            return Err(Refused::new(libc_errno::ENOTEMPTY));
        }
        let unmarked = tier.marks().map_or(Ok(()), |marks| marks.unmark_directory(key));
        return gone_is_fine(unmarked).map_err(|error| tier_refused(&error));
    };
    match tree.remove_directory(key) {
        Ok(()) | Err(TierError::Missing { .. }) => Ok(()),
        Err(TierError::NotObject { .. }) => Err(Refused::new(libc_errno::ENOTEMPTY)),
        Err(error) => Err(tier_refused(&error)),
    }
}

/// Sets attributes and answers the version as it is then; one that somebody else has changed stays as
/// it is known, so that it is found out.
fn set_object(
    tier: &dyn Tier,
    key: &Key,
    attributes: Attributes,
    expected: u64,
) -> Result<hayase_store::TierVersion, Refused> {
    let has_changed = || Refused::because(libc_errno::ESTALE, "it has changed in the tier");
    let before = tier.stat_as_written(key).map_err(|error| tier_refused(&error))?;
    if before.identity != expected {
        return Err(has_changed());
    }
    let set = match tier.capabilities().attributes {
        true => tier.set_attributes(key, attributes).map(|()| before),
        // They are kept beside the bytes, and change with them only.
        false => copy_object(tier, (key, expected), (key, Some(expected)), attributes),
    };
    let mtime = attributes.mtime.unwrap_or(before.mtime);
    let after = set.and_then(|ours| as_told_now(tier, key, ObjectMeta { mtime, ..ours }));
    after.map(|after| version_of(&after)).map_err(|error| match error {
        TierError::Changed { .. } => has_changed(),
        error => tier_refused(&error),
    })
}

impl CacheArea {
    /// Home: the name of this file becomes another's; what is on its way to the tier has arrived.
    pub(crate) async fn hold(&self, ino: InodeId) -> Result<PeerReply, Refused> {
        let cache = self.need()?;
        let _held = cache.publishing.lock(ino).await;
        let active = cache.active(ino);
        active.changed();
        active.held_until.set(Some(Instant::now() + CACHE_HOLD));
        active.is_name_known.set(false);
        let adopted = self.adopt_sent(cache, ino).await?;
        let record = cache.record(ino);
        let version = adopted.or_else(|| record.as_ref().and_then(|record| record.version));
        let place = record.map_or(Succession { first: ino, number: 0 }, |record| record.place());
        Ok(PeerReply::Held { version: version.map(wire_version), place: wire_place(place) })
    }
}

impl CacheArea {
    /// A crash, or an answer that was lost, has hidden whether the last version that was sent arrived: if
    /// the tier shows it, it is the one that the ledger knows from here on, and the answer. With
    /// `publishing` held.
    pub(crate) async fn adopt_sent(
        &self,
        cache: &Cache,
        ino: InodeId,
    ) -> Result<Option<hayase_store::TierVersion>, Refused> {
        let Some(record) = cache.record(ino).filter(|record| record.sent.is_some()) else {
            return Ok(None);
        };
        let key = key(&record.path)?;
        let found = cache.ask_tier(move |tier| version_at(tier, &key)).await?;
        let is_ours = |found: &hayase_store::TierVersion| {
            record.is_ours(found.identity, found.size, found.mtime)
        };
        let ours = found.filter(is_ours);
        cache.update(ino, |now| {
            now.version = ours.or(now.version);
            now.sent = None;
        })?;
        Ok(ours)
    }

    pub(crate) fn is_there_already(
        &self,
        cache: &Cache,
        record: &LedgerRecord,
    ) -> Result<(), Refused> {
        cache.active(record.ino).held_until.set(None);
        if !record.is_over {
            return Ok(());
        }
        cache.update(record.ino, |record| {
            record.xattrs.are_all |= record.version.is_none();
            record.version = record.version.or(record.over.take());
            (record.is_over, record.over) = (false, None);
            record.succession = record.follows.take().or(record.succession);
        })
    }

    /// Whether the file is going to be renamed in the tier to where nothing is known to be. What comes
    /// there with its next flush is looked for then.
    pub(crate) fn may_find_hidden(&self, cache: &Cache, ino: InodeId, path: &[u8]) -> bool {
        cache.record(ino).is_some_and(|record| {
            let moves = record.state.is_safe() && record.version.is_some();
            moves && record.path != path && record.over.is_none()
        })
    }

    pub(crate) fn place_in_order(
        &self,
        cache: &Cache,
        ino: InodeId,
        path: &[u8],
        is_over: bool,
    ) -> Result<(), Refused> {
        if !is_over {
            return Ok(()); // In its old place, in the directory that it has now.
        }
        cache.active(ino).renamed.set(Some(Instant::now()));
        let after = cache.order.borrow_mut().renamed_over(ino, path);
        cache.update(ino, |record| record.after = after)
    }
}

#[cfg(test)]
mod tests {
    use hayase_tier::flaky::Call;
    use hayase_tier::{Action, Flaky, Memory, Precondition};

    use super::*;

    /// The checksum of what was sent would be told of other bytes.
    #[test]
    fn what_replaces_a_version_whose_attributes_change_is_not_taken_for_it() {
        let check = |below: Memory, call| {
            let (key, any) = (Key::new("f").unwrap(), Precondition::Any);
            let put = |bytes: &[u8]| below.put(&key, Attributes::default(), bytes, any).unwrap();
            let (before, theirs) = (put(b"ours").identity, below.clone());
            let tier = Flaky::new(below.clone(), move |at| {
                if at == call {
                    let key = Key::new("f").unwrap();
                    theirs.put(&key, Attributes::default(), b"theirs", any).unwrap();
                }
                None
            });
            let change = Attributes { mode: Some(0o600), mtime: None };
            let after = set_object(&tier, &key, change, before).unwrap();
            assert_ne!(after.identity, below.stat(&key).unwrap().identity, "{call:?}");
            let (before, alone) = (below.stat(&key).unwrap().identity, below.clone());
            let after = set_object(&alone, &key, change, before).unwrap();
            assert_eq!(after.identity, below.stat(&key).unwrap().identity, "{call:?}");
        };
        check(Memory::new(), Call::Done(Action::SetAttributes));
    }
}
