//! After a crash: whether a file still has the name that the ledger knows, and files that the ledger has lost.
//!
//! Names and ledger are two logs. A power cut may take the end of one and leave that of the other, and a server that
//! dies may not have heard who took a name. So a file whose name somebody had in hand, or that was there when the
//! server began, comes to the tier only after the shard of its name was asked. Where ledger and names differ, the
//! names are right: they are what programs see.

use std::rc::Rc;

use hayase_layout::{InodeId, ServerId};
use hayase_store::{EntryRecord, FileKind, FileState, LedgerRecord, PartId, TierVersion, ops};
use hayase_wire::message::{
    Binding, CacheRequest, InodeRequest, LinkRequest, OperationRequest, PeerReply, Place, Refused,
    Shown, TierVersion as WireVersion,
};
use tokio::time::Instant;

use super::area::is_flushed;
use super::paths::key;
use super::tombstones::{shown, version_at};
use super::{Cache, wire_version};
use crate::cache::area::CacheArea;
use crate::convert::meta_refused;
use crate::limits::TAKEN_WAIT;
use crate::node::Node;
use crate::refusals::unexpected;

/// What the shard of a file's name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameCheck {
    /// The name is this file's.
    Own,
    /// Somebody has it in hand: to be asked again.
    InHand,
    /// It is another file's, and nobody has said so here yet.
    Taken,
}

impl Node {
    /// Home: whether a file may come to the tier under its name. Costs nothing while nobody else had that in
    /// hand; else a message to its shard, and it waits while somebody has.
    pub(crate) async fn check_name_of(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
    ) -> Result<NameCheck, Refused> {
        let active = cache.active(ino);
        if active.is_name_known.get() {
            return Ok(NameCheck::Own);
        }
        let generation = active.generation.get();
        let name = self.meta.inode(ino).ok().and_then(|inode| inode.name);
        let Some((parent, name)) = name else { return Ok(NameCheck::Own) };
        let place = Place { parent, name };
        let found = self.binding(&place).await?;
        let path = self.tier_path_of(&place).await?;
        let other = cache.record(ino).map(|record| record.path).filter(|known| *known != path);
        let is_at = |found: Option<Binding>| found.is_some_and(|found| found.ino == ino);
        // A power cut can take the news of a rename from the home, and leave it at the shard and in the ledger.
        let known = match &other {
            Some(other) => self.place_at(other).await?,
            None => Some(place.clone()),
        };
        let holder = match (&known, &other) {
            (Some(known), Some(_)) => self.binding(known).await?,
            _ => found,
        };
        let has_other = other.is_some() && is_at(holder);
        if active.generation.get() != generation {
            return Ok(NameCheck::InHand);
        }
        let is_own = has_other || is_at(found) || found.is_none() && other.is_none();
        if is_own && !has_other && other.is_some() {
            cache.follow_names(ino, path)?;
        }
        // One that nobody has may be taken at any moment.
        active.is_name_known.set(has_other || is_at(found));
        let since = active.taken_since.get().unwrap_or_else(Instant::now);
        active.taken_since.set((!is_own).then_some(since));
        if is_own {
            return Ok(NameCheck::Own);
        }
        let may_be_told = since.elapsed() < TAKEN_WAIT;
        self.settle_taken(cache, ino, (place, known, holder), may_be_told).await?;
        Ok(NameCheck::Taken)
    }

    /// Home: another file, `holder`, has the name that this one has as `place`, or in the ledger as `known`.
    async fn settle_taken(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
        (place, known, holder): (Place, Option<Place>, Option<Binding>),
        may_be_told: bool,
    ) -> Result<(), Refused> {
        if self.is_spoken_of_anywhere(ino).await? {
            return Ok(()); // Told by that.
        }
        match (known, holder) {
            (Some(known), Some(holder)) if !self.counts_name(holder.ino, &known).await? => {
                // It is being made, or on its way out.
                if self.is_no_more(holder.ino).await? {
                    self.take_name_back(ino, known, holder.ino).await?;
                }
            }
            // Who renamed it, and has no answer yet, says so again; it may have its old name back until then.
            _ if may_be_told => {}
            _ => {
                if let Some(record) = cache.record(ino) {
                    self.end_nameless(&record, place, holder).await?;
                }
            }
        }
        Ok(())
    }

    async fn counts_name(self: &Rc<Self>, ino: InodeId, place: &Place) -> Result<bool, Refused> {
        let asked = OperationRequest::HasName { ino, place: place.clone() };
        match self.rpc.ask(ino.home(), asked).await? {
            PeerReply::Outcome(has) => Ok(has == Some(true)),
            other => Err(unexpected(&other)),
        }
    }

    /// The name of a path of the tier here, if its directory is.
    async fn place_at(self: &Rc<Self>, path: &[u8]) -> Result<Option<Place>, Refused> {
        let mut place: Option<Place> = None;
        for name in path.split(|byte| *byte == b'/') {
            let parent = match &place {
                None => InodeId::CACHE_ROOT,
                Some(above) => match self.binding(above).await? {
                    Some(above) => above.ino,
                    None => return Ok(None),
                },
            };
            place = Some(Place { parent, name: name.into() });
        }
        Ok(place)
    }

    pub(super) async fn is_no_more(self: &Rc<Self>, ino: InodeId) -> Result<bool, Refused> {
        match self.rpc.ask(ino.home(), InodeRequest::WhichAreGone(vec![ino])).await? {
            PeerReply::Gone(gone) => Ok(gone.contains(&ino)),
            other => Err(unexpected(&other)),
        }
    }

    /// What the tier has at a name that a power cut gave back to a file that is no more: the file that had the name
    /// after that one may be at any home, and safe, so that nothing has asked for its name since.
    pub(crate) async fn claimed_at(
        self: &Rc<Self>,
        place: &Place,
        except: InodeId,
    ) -> Result<Option<WireVersion>, Refused> {
        let path = self.tier_path_of(place).await?;
        let lost = self.rpc.membership.lost();
        for server in (0..self.servers).map(ServerId).filter(|server| !lost.contains(server)) {
            let claims = CacheRequest::Claims { path: path.clone(), except };
            match self.rpc.ask(server, claims).await? {
                PeerReply::InTier(None) => {}
                PeerReply::InTier(version) => return Ok(version),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(None)
    }

    /// The identity of what the tier has at a path, if it is the job's own.
    pub(super) async fn claimed_if_there(
        self: &Rc<Self>,
        cache: &Cache,
        place: &Place,
        path: &[u8],
        except: InodeId,
    ) -> Result<Option<u64>, Refused> {
        let wanted = key(path)?;
        match cache.ask_tier(move |tier| version_at(tier, &wanted)).await? {
            None => Ok(None),
            Some(_) => Ok(self.claimed_at(place, except).await?.map(|version| version.identity)),
        }
    }

    /// Home: a power cut took the shard back to a file that this one had replaced, and that is no more. The name is
    /// this file's again.
    async fn take_name_back(
        self: &Rc<Self>,
        ino: InodeId,
        place: Place,
        gone: InodeId,
    ) -> Result<(), Refused> {
        tracing::info!(%ino, %gone, "removed a name that a power cut had given back to a removed file");
        let shard = self.names.shard_of(place.parent, &place.name);
        self.rpc.ask(shard, CacheRequest::TakeBack { place, gone, ino }).await.map(drop)
    }

    /// Shard: the name, if it is still that of a file that is `gone`, is that of `ino`.
    pub(crate) async fn give_name_back(
        self: &Rc<Self>,
        place: &Place,
        gone: InodeId,
        ino: InodeId,
    ) -> Result<PeerReply, Refused> {
        let _held = self.names.hold_name(place).await?;
        self.settle_name(place).await?;
        self.names.hold_dir(place.parent).await?;
        if self.meta.bound(place)?.is_some_and(|found| found.ino == gone) {
            let mut txn = self.meta.begin();
            let entry = EntryRecord { ino, kind: FileKind::Regular };
            ops::replace(&mut txn, place.parent, &place.name, entry).map_err(meta_refused)?;
            txn.commit().map_err(meta_refused)?;
            self.names.directories.forget_name(place);
        }
        Ok(PeerReply::Done)
    }

    /// Home: whether a file was renamed since it was made as `place`, and a power cut has taken that from the names.
    pub(crate) async fn was_renamed(
        self: &Rc<Self>,
        ino: InodeId,
        place: &Place,
    ) -> Result<bool, Refused> {
        let Some(record) = self.cache.of(ino).and_then(|cache| cache.record(ino)) else {
            return Ok(false);
        };
        Ok(record.path != self.tier_path_of(place).await?)
    }

    /// Whether an operation that is not finished, of whichever server, will say more of this file.
    pub(crate) async fn is_spoken_of_anywhere(
        self: &Rc<Self>,
        ino: InodeId,
    ) -> Result<bool, Refused> {
        Ok(self.meta.intents.is_spoken_of(ino, false)
            || self.is_spoken_of_elsewhere(ino, false).await?)
    }

    /// The same of the other servers.
    pub(crate) async fn is_spoken_of_elsewhere(
        self: &Rc<Self>,
        ino: InodeId,
        by_renames: bool,
    ) -> Result<bool, Refused> {
        let lost = self.rpc.membership.lost();
        let asked = |server: &ServerId| *server != self.me && !lost.contains(server);
        for server in (0..self.servers).map(ServerId).filter(asked) {
            match self.rpc.ask(server, OperationRequest::IsSpokenOf { ino, by_renames }).await? {
                PeerReply::Outcome(Some(false)) => {}
                PeerReply::Outcome(_) => return Ok(true),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(false)
    }

    /// Home: a power cut took the name of a file away, at its shard, and nobody is going to say so. What the tier
    /// has of it is for `holder`, the file that has the name now, to replace.
    async fn end_nameless(
        self: &Rc<Self>,
        record: &LedgerRecord,
        place: Place,
        holder: Option<Binding>,
    ) -> Result<(), Refused> {
        let (ino, path) = (record.ino, record.path.clone());
        let name = String::from_utf8_lossy(&path).into_owned();
        tracing::warn!(%ino, name, "a power cut took this name before fsync(2), and the file goes with it");
        let shown = shown(record);
        if let Some(Binding { ino, .. }) = holder.filter(|_| shown != Shown::default()) {
            self.rpc.ask(ino.home(), CacheRequest::StillNamed { ino, path, shown }).await?;
        }
        let (requester, replaced) = (self.node, true);
        let unlink = LinkRequest::LinkDec { ino, place, requester, replaced };
        self.rpc.ask(self.me, unlink).await.map(drop)
    }

    /// Home, after a restart: files whose parts are there and of which the ledger knows nothing, since a power cut
    /// took the end of it, come to the tier like others.
    pub(crate) async fn recover_records(self: &Rc<Self>, parts: &[PartId]) -> Result<(), Refused> {
        for ino in parts.iter().map(|part| part.ino) {
            if let Some(cache) = self.cache.of(ino) {
                self.recover_record(cache, ino).await?;
            }
        }
        Ok(())
    }

    /// Home: the ledger knows of the file, if that has bytes of its own: a power cut may have taken the record, and
    /// what is to be written into it would be lost.
    pub(super) async fn recover_record(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
    ) -> Result<(), Refused> {
        if cache.record(ino).is_some() {
            return Ok(());
        }
        let inode = ops::get_inode(&self.meta.begin(), ino).map_err(meta_refused)?;
        let Some(inode) = inode.filter(|inode| is_flushed(&inode.layout)) else { return Ok(()) };
        let Some((parent, name)) = inode.name.clone() else { return Ok(()) };
        let path = self.tier_path_of(&Place { parent, name }).await?;
        if cache.record(ino).is_none() && self.meta.inode(ino).is_ok() {
            cache.put(cache.lists.record(&inode, path))?;
            cache.work.notify_one();
        }
        Ok(())
    }
}

/// Whether what the tier shows at `path` is the job's own to replace, as this file knows: it has sent it; or it is to
/// replace it, and was kept from that until a power cut took its name. What replaced the file itself would have been
/// told of that version, and nobody else may know of it any more: who had sent it has ended. A file that is as the
/// tier has it tells nothing: it may have been taken in from there.
fn claims(record: &LedgerRecord, path: &[u8], found: &TierVersion) -> bool {
    let is_known = record.version.is_some_and(|version| version.identity == found.identity);
    record.path == path
        && record.buried.is_none()
        && (record.checksum.is_some_and(|(identity, _)| identity == found.identity)
            || record.sent == Some((found.size, found.mtime))
            || is_known && !record.state.is_safe())
}

impl Cache {
    /// A server was started anew: a power cut may have taken names from it.
    pub(crate) fn names_may_be_gone(&self) {
        for active in self.active.borrow().values() {
            active.is_name_known.set(false);
        }
    }

    /// The names say that the file is at `path`, and the ledger does not: what the tier has there is unknown.
    fn follow_names(&self, ino: InodeId, path: Vec<u8>) -> Result<(), Refused> {
        self.update(ino, |record| {
            (record.path, record.is_over, record.over) = (path, false, None);
            record.succession = record.follows.take();
            (record.version, record.sent) = (None, None);
            if record.state.is_here() {
                record.state = FileState::Dirty;
            }
        })
    }
}

impl CacheArea {
    /// Any: what the tier shows at `path`, if a file of that name here [`claims`] it. The mark of what `except` is
    /// sending just now tells nothing: somebody may have written as many bytes in the same tick. Looks at all records.
    pub(crate) async fn claims(&self, path: &[u8], except: InodeId) -> Result<PeerReply, Refused> {
        let cache = self.need()?;
        let wanted = key(path)?;
        let Some(found) = cache.ask_tier(move |tier| version_at(tier, &wanted)).await? else {
            return Ok(PeerReply::InTier(None));
        };
        let is_ours = |record: &&LedgerRecord| record.ino != except && claims(record, path, &found);
        let is_claimed = cache.ledger.borrow().records().find(is_ours).is_some();
        Ok(PeerReply::InTier(is_claimed.then(|| wire_version(found))))
    }
}

#[cfg(test)]
mod tests {
    use hayase_store::Time;

    use super::*;

    const PATH: &[u8] = b"d/f";

    fn version(identity: u64) -> TierVersion {
        let mtime = Time { seconds: 1, nanos: identity as u32 };
        TierVersion { identity, size: 16, mtime, mode: 0o644 }
    }

    fn record(state: FileState, known: Option<u64>) -> LedgerRecord {
        let record = LedgerRecord::new(InodeId(7), PATH.to_vec(), 0o644);
        LedgerRecord { state, version: known.map(version), ..record }
    }

    /// `f` was sent as version 4 and its file ended; the next one was renamed over it, and a power cut took its
    /// name before it came to the tier. The third one must not take version 4 for somebody else's.
    #[test]
    fn what_a_file_was_to_replace_is_the_jobs_own_and_nothing_else() {
        for state in [FileState::Dirty, FileState::Flushing, FileState::Failed] {
            let waits = record(state, Some(4));
            assert!(claims(&waits, PATH, &version(4)), "{state:?}");
            assert!(!claims(&waits, PATH, &version(5)), "somebody wrote it since: {state:?}");
            assert!(!claims(&waits, b"d/g", &version(4)), "another name: {state:?}");
            assert!(!claims(&record(state, None), PATH, &version(4)), "{state:?}");
        }
    }

    #[test]
    fn what_was_taken_in_from_the_tier_is_claimed_by_nobody() {
        for state in [FileState::InTier, FileState::Clean] {
            assert!(!claims(&record(state, Some(4)), PATH, &version(4)), "{state:?}");
        }
        let sent = LedgerRecord { checksum: Some((4, 0)), ..record(FileState::Durable, Some(4)) };
        assert!(claims(&sent, PATH, &version(4)) && !claims(&sent, PATH, &version(5)));
        let mark = Some((version(4).size, version(4).mtime));
        let is_sending = LedgerRecord { sent: mark, ..record(FileState::Flushing, None) };
        assert!(claims(&is_sending, PATH, &version(4)) && !claims(&is_sending, PATH, &version(5)));
    }
}
