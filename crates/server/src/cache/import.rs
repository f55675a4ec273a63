//! Names of the tier become inodes of the shard that holds the name, when somebody looks or lists.
//!
//! Nothing is read of a file but its attributes. Its home is the shard of its name, so homes of
//! imported files are spread over the servers.

use crate::refusals::unexpected;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::{InodeId, Layout, NodeId, ServerId};
use hayase_store::namespace::{EntryRecord, FileKind as StoredKind, Inode};
use hayase_store::{FileState, LedgerRecord, PendingXattrs, ops};
use hayase_tier::{EntryKind, Key, ListRequest, Marks, ObjectMeta, Tier, TierError, if_there};
use hayase_wire::message::{
    Binding, CacheRequest, FileKind, Imported, LinkRequest, PeerReply, Place, Refused,
};
use tokio::time::Instant;

use super::paths::join;
use super::{remember, version_of, wire_version};
use crate::cache::area::CacheArea;
use crate::convert::{meta_refused, stored_kind, stored_time};
use crate::limits::{CACHE_FRESH, IMPORT_ENTRIES_MAX};
use crate::node::Node;
use crate::refusals::libc_errno;

/// A directory whose rights the tier does not tell.
const DIRECTORY_MODE: u32 = 0o755;

impl Node {
    /// A name that is not bound here: what has the tier? Makes it an inode of this home.
    pub(crate) async fn import_name(
        self: &Rc<Self>,
        place: &Place,
    ) -> Result<Option<Binding>, Refused> {
        let cache = self.cache.need()?;
        let missed = cache.absent.borrow().get(place).copied();
        if missed.is_some_and(|at| at.elapsed() < CACHE_FRESH) {
            return Ok(None);
        }
        let path = self.tier_path_of(place).await?;
        // What no tier can name is in none.
        let Ok(key) = Key::new(&path) else { return Ok(None) };
        let (name, asked) = (place.name.clone(), Instant::now());
        let found = cache.ask_tier(move |tier| look(tier, &key, name)).await?;
        let Some(imported) = found else {
            remember(&cache.absent, place.clone(), Instant::now());
            return Ok(None);
        };
        self.meta.disk.have_numbers(1).await?;
        let _held = self.names.locks.lock(place.clone()).await;
        self.bind_imported(place, &path, &imported, Some(asked)).await
    }

    /// With the name held, as the tier told it when it was `asked`. A name that somebody made meanwhile stays;
    /// one that the job has removed, and that the tier only does not know of yet, is not made again.
    async fn bind_imported(
        self: &Rc<Self>,
        place: &Place,
        path: &[u8],
        imported: &Imported,
        asked: Option<Instant>,
    ) -> Result<Option<Binding>, Refused> {
        self.names.hold_dir(place.parent).await?;
        if let Some(found) = self.meta.bound(place)? {
            return Ok(Some(found));
        }
        let version = imported.version.map(super::stored_version);
        if version.is_some_and(|version| self.cache.get().is_some_and(|c| c.hides(path, &version)))
        {
            return Ok(None);
        }
        let inode = self.cache.imported_inode(place, imported)?;
        let (ino, kind) = (inode.ino, inode.kind);
        if let Some(version) = version {
            let (path, mode, bytes) = (path.to_vec(), version.mode, version.size);
            let (state, version) = (FileState::InTier, Some(version));
            let xattrs = PendingXattrs::default(); // As the tier has them.
            let new = LedgerRecord::new(ino, path, mode);
            let record = LedgerRecord { state, version, xattrs, ..new };
            let cache = self.cache.need()?;
            cache.put(LedgerRecord { bytes, ..record })?;
            cache.active(ino).checked.set(asked);
        }
        let mut txn = self.meta.begin();
        ops::create(&mut txn, &inode, None).map_err(meta_refused)?;
        let entry = EntryRecord { ino, kind };
        let inserted = ops::insert(&mut txn, place.parent, &place.name, entry);
        // The name is held, and was free just now.
        inserted.map_err(meta_refused)?.map_err(|_| Refused::new(libc_errno::EEXIST))?;
        txn.commit().map_err(meta_refused)?;
        Ok(Some(Binding { ino, kind: imported.kind }))
    }

    /// For a listing: all names that the tier has in `dir`, told to their shards. What was listed
    /// just now is not listed again.
    pub(crate) async fn import_directory(self: &Rc<Self>, dir: InodeId) -> Result<(), Refused> {
        let cache = self.cache.need()?;
        let listed = cache.listed.borrow().get(&dir).copied();
        if listed.is_some_and(|at| at.elapsed() < CACHE_FRESH) {
            return Ok(());
        }
        let path = self.directory_path(dir).await?;
        let mut prefix = path.to_vec();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let mut request = ListRequest::one_level(prefix);
        loop {
            let (page, asked) = (request.clone(), Instant::now());
            let (entries, next) = cache.ask_tier(move |tier| page_of(tier, &page)).await?;
            self.tell_shards(dir, entries, asked).await?;
            match next {
                Some(next) => request = request.continued(next),
                None => break,
            }
        }
        remember(&cache.listed, dir, Instant::now());
        Ok(())
    }

    async fn tell_shards(
        self: &Rc<Self>,
        dir: InodeId,
        entries: Vec<Imported>,
        asked: Instant,
    ) -> Result<(), Refused> {
        let mut by_shard: BTreeMap<ServerId, Vec<Imported>> = BTreeMap::new();
        for entry in entries {
            by_shard.entry(self.names.shard_of(dir, &entry.name)).or_default().push(entry);
        }
        for (shard, entries) in by_shard {
            for entries in entries.chunks(IMPORT_ENTRIES_MAX) {
                let (entries, age) = (entries.to_vec(), asked.elapsed());
                let request = CacheRequest::Import { dir, entries, age };
                self.rpc.ask(shard, request).await?;
            }
        }
        Ok(())
    }

    /// Shard: binds those names that are free. The tier was asked for them `age` ago.
    pub(crate) async fn import_entries(
        self: &Rc<Self>,
        dir: InodeId,
        entries: Vec<Imported>,
        age: Duration,
    ) -> Result<PeerReply, Refused> {
        let asked = Instant::now().checked_sub(age);
        let above = self.directory_path(dir).await?;
        self.meta.disk.have_numbers(entries.len()).await?;
        for entry in entries {
            let place = Place { parent: dir, name: entry.name.clone() };
            if self.meta.bound(&place)?.is_some() || self.names.locks.is_locked(&place) {
                continue; // There, or in the hands of somebody who knows better.
            }
            let _held = self.names.locks.lock(place.clone()).await;
            self.bind_imported(&place, &join(&above, &entry.name), &entry, asked).await?;
        }
        Ok(PeerReply::Done)
    }

    /// Shard: this name's file is not what the tier has any more. Whoever has it open goes on.
    pub(crate) async fn forget_imported(
        self: &Rc<Self>,
        from: NodeId,
        place: Place,
        ino: InodeId,
    ) -> Result<PeerReply, Refused> {
        let held = self.names.locks.lock(place.clone()).await;
        if self.meta.bound(&place)?.is_some_and(|found| found.ino == ino) {
            let mut txn = self.meta.begin();
            ops::remove_entry(&mut txn, place.parent, &place.name);
            txn.commit().map_err(meta_refused)?;
            let (requester, replaced) = (from, true);
            let place = place.clone();
            let unlink = LinkRequest::LinkDec { ino, place, requester, replaced };
            self.rpc.ask(ino.home(), unlink).await?;
        }
        if let Some(cache) = self.cache.get() {
            cache.absent.borrow_mut().remove(&place);
        }
        drop(held);
        self.names.inval_name(&place, from).await;
        Ok(PeerReply::Done)
    }

    /// For a lookup: whether what the name is bound to is what the tier has, or newer. If not, the name
    /// is free again: look it up again.
    pub(crate) async fn is_as_in_tier(
        self: &Rc<Self>,
        place: &Place,
        found: Binding,
    ) -> Result<bool, Refused> {
        let ino = found.ino;
        if !ino.is_cached() || found.kind != FileKind::Regular {
            return Ok(true);
        }
        match self.rpc.ask(ino.home(), CacheRequest::Check { ino }).await? {
            PeerReply::Ready(true) => return Ok(true),
            PeerReply::Ready(false) => {}
            other => return Err(unexpected(&other)),
        }
        let shard = self.names.shard_of(place.parent, &place.name);
        let forget = CacheRequest::Forget { place: place.clone(), ino };
        self.rpc.ask(shard, forget).await?;
        Ok(false)
    }
}

/// What stands under `key`, as far as the area can show it.
fn look(tier: &dyn Tier, key: &Key, name: Vec<u8>) -> Result<Option<Imported>, TierError> {
    match tier.stat_as_written(key) {
        Ok(meta) => Ok(Some(file(name, &meta))),
        Err(TierError::Missing { .. }) => match tier.tree() {
            Some(_) => Ok(None),
            // Names are flat: a directory is there when something lies in it, or when it has a mark.
            None => {
                let mut below = key.as_bytes().to_vec();
                below.push(b'/');
                let request = ListRequest { limit: 1, ..ListRequest::one_level(below) };
                let is_there = !tier.list(&request)?.entries.is_empty();
                if is_there {
                    return Ok(Some(directory(name, DIRECTORY_MODE)));
                }
                let mode = tier.marks().map_or(Ok(None), |marks| mode_of_mark(marks, key))?;
                Ok(mode.map(|mode| directory(name, mode)))
            }
        },
        Err(TierError::NotObject { .. }) => no_file(tier, key, name),
        Err(error) => Err(error),
    }
}

/// Rights of a directory that has a mark. A tier that does not answer does not say that there is none.
fn mode_of_mark(marks: &dyn Marks, key: &Key) -> Result<Option<u32>, TierError> {
    let mark = if_there(marks.directory(key))?;
    Ok(mark.map(|mark| mark.mode.unwrap_or(DIRECTORY_MODE)))
}

/// Directories and links; devices and the like are not shown, nor directories that nobody may look into.
fn no_file(tier: &dyn Tier, key: &Key, name: Vec<u8>) -> Result<Option<Imported>, TierError> {
    let Some(tree) = tier.tree() else { return Ok(None) };
    match tree.directory(key) {
        Ok(meta) => return Ok(Some(directory(name, meta.mode))),
        Err(TierError::Missing { .. } | TierError::NotObject { .. } | TierError::Denied { .. }) => {
        }
        Err(error) => return Err(error),
    }
    match tree.link(key) {
        Ok(target) => {
            let (kind, target) = (FileKind::Symlink, Some(target));
            Ok(Some(Imported { name, kind, version: None, target, mode: 0o777 }))
        }
        Err(TierError::NotObject { .. } | TierError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn file(name: Vec<u8>, meta: &ObjectMeta) -> Imported {
    let version = Some(wire_version(version_of(meta)));
    Imported { name, kind: FileKind::Regular, version, target: None, mode: meta.mode }
}

fn directory(name: Vec<u8>, mode: u32) -> Imported {
    Imported { name, kind: FileKind::Directory, version: None, target: None, mode }
}

type Names = (Vec<Imported>, Option<Vec<u8>>);

/// One page of a directory, and where the next one begins.
fn page_of(tier: &dyn Tier, request: &ListRequest) -> Result<Names, TierError> {
    let page = match tier.list(request) {
        // Made here, and empty so far.
        Err(TierError::Missing { .. }) => return Ok((Vec::new(), None)),
        other => other?,
    };
    let mut entries = Vec::new();
    for entry in page.entries {
        let whole = entry.name.strip_suffix(b"/").unwrap_or(&entry.name);
        let name = whole[request.prefix.len().min(whole.len())..].to_vec();
        if name.is_empty() {
            continue;
        }
        match entry.kind {
            EntryKind::Object(meta) => entries.push(file(name, &meta)),
            EntryKind::Directory | EntryKind::Other(_) => {
                let Ok(key) = Key::new(whole) else { continue };
                match tier.tree() {
                    Some(_) => entries.extend(no_file(tier, &key, name)?),
                    None => entries.push(directory(name, DIRECTORY_MODE)),
                }
            }
        }
    }
    Ok((entries, page.next))
}

impl CacheArea {
    pub(crate) fn imported_inode(
        &self,
        place: &Place,
        imported: &Imported,
    ) -> Result<Inode, Refused> {
        let ino = self.meta.store().allocate().map_err(meta_refused)?.in_cache();
        let now = stored_time(self.meta.now());
        let kind = stored_kind(imported.kind);
        let (layout, mode) = match (kind, imported.version) {
            (StoredKind::Regular, Some(version)) => (Layout::Whole, version.mode),
            (StoredKind::Symlink, _) => (Layout::None, 0o777),
            _ => (Layout::None, imported.mode),
        };
        let acls = match kind {
            StoredKind::Symlink => None,
            _ => self.need()?.lists.unknown(),
        };
        let mut inode = Inode {
            mode,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            layout,
            acls,
            target: imported.target.clone(),
            size: imported.target.as_ref().map_or(0, |target| target.len() as u64),
            name: Some((place.parent, place.name.clone())),
            ..Inode::new(ino, kind, now)
        };
        if let Some(version) = imported.version {
            inode.size = version.size;
            (inode.mtime, inode.atime) = (stored_time(version.mtime), stored_time(version.mtime));
        }
        Ok(inode)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use hayase_tier::flaky::{Call, Fault};
    use hayase_tier::{Action, Attributes, Flaky, Memory};

    use super::*;

    /// Marks of a store that answers like this.
    struct Answers(fn(String) -> Result<Attributes, TierError>);

    impl Marks for Answers {
        fn directory(&self, key: &Key) -> Result<Attributes, TierError> {
            (self.0)(key.to_string())
        }
        fn mark_directory(&self, _: &Key, _: Attributes) -> Result<(), TierError> {
            Ok(())
        }
        fn unmark_directory(&self, _: &Key) -> Result<(), TierError> {
            Ok(())
        }
        fn mark_link(&self, _: &Key, _: &[u8], _: Attributes) -> Result<(), TierError> {
            Ok(())
        }
    }

    #[test]
    fn a_store_that_does_not_answer_does_not_say_that_there_is_no_name() {
        fn timeout() -> io::Error {
            io::ErrorKind::TimedOut.into()
        }
        const ACTION: Action = Action::Directory;
        let key = Key::new("d").unwrap();
        let mode = |answer| mode_of_mark(&Answers(answer), &key);
        assert_eq!(mode(|_| Ok(Attributes::default())).unwrap(), Some(DIRECTORY_MODE));
        assert_eq!(mode(|path| Err(TierError::Missing { action: ACTION, path })).unwrap(), None);
        let error = mode(|path| Err(TierError::Denied { action: ACTION, path, source: timeout() }));
        assert!(matches!(error, Err(TierError::Denied { .. })), "{error:?}");
        let error =
            mode(|path| Err(TierError::Unavailable { action: ACTION, path, source: timeout() }));
        assert!(matches!(error, Err(TierError::Unavailable { .. })), "{error:?}");
    }

    #[test]
    fn a_tree_that_does_not_answer_does_not_say_that_there_is_no_directory() {
        let key = Key::new("d").unwrap();
        let failing = |fault| {
            let plan = move |call| (call == Call::Begun(Action::Directory)).then_some(fault);
            let tier = Memory::new();
            tier.tree().unwrap().make_directory(&key).unwrap();
            look(&Flaky::new(tier, plan), &key, b"d".to_vec())
        };
        assert!(failing(Fault::Io).is_err() && failing(Fault::Unavailable).is_err());
        // Not ours to look into, and not to fail a listing of its directory either.
        assert_eq!(failing(Fault::Denied).unwrap(), None);
    }
}
