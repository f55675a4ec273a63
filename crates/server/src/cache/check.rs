//! Opens of cached files, and whether what is here is still what the tier has.
//!
//! Close-to-open: a file that the job has not changed is compared with the tier when its name is
//! looked up, at most once in [`CACHE_FRESH`]. Another version there makes this inode retire: it
//! gets no new opens, its name is bound anew, and whoever has it open goes on with what it opened.

use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_store::FileState;
use hayase_tier::TierError;
use hayase_wire::message::{Access, PeerReply, Refused};
use tokio::time::Instant;

use super::paths::key;
use crate::cache::area::CacheArea;
use crate::limits::CACHE_FRESH;
use crate::refusals::libc_errno;

impl CacheArea {
    /// Home: whether the tier still has this version; asks the tier if nobody has just now.
    pub(crate) async fn check(&self, ino: InodeId) -> Result<PeerReply, Refused> {
        let cache = self.need()?;
        let active = cache.active(ino);
        if active.is_retired.get() {
            return Ok(PeerReply::Ready(false));
        }
        let is_fresh = active.checked.get().is_some_and(|at| at.elapsed() < CACHE_FRESH);
        if is_fresh || active.is_held() || cache.publishing.is_locked(&ino) {
            return Ok(PeerReply::Ready(true));
        }
        let Some(record) = cache.record(ino).filter(|record| record.state.is_safe()) else {
            return Ok(PeerReply::Ready(true)); // Ours is the newer one, or it is gone.
        };
        let (generation, key) = (active.generation.get(), key(&record.path)?);
        let found = cache.ask_tier(move |tier| match tier.stat(&key) {
            Ok(meta) => Ok(Some(meta.identity)),
            Err(TierError::Missing { .. } | TierError::NotObject { .. }) => Ok(None),
            Err(error) => Err(error),
        });
        let found = found.await?;
        let is_same = found.is_some() && found == record.version.map(|version| version.identity);
        if is_same {
            active.checked.set(Some(Instant::now()));
        }
        // Opened for writing, moved or flushed while the tier was asked: ask again next time.
        let is_current = active.generation.get() == generation
            && !active.is_held()
            && !cache.publishing.is_locked(&ino)
            && cache.record(ino).is_some_and(|now| now == record || now.state == FileState::Clean);
        if is_same || !is_current {
            return Ok(PeerReply::Ready(true));
        }
        tracing::info!(%ino, path = %String::from_utf8_lossy(&record.path), "changed in the tier");
        active.is_retired.set(true);
        Ok(PeerReply::Ready(false))
    }

    /// Home, before an open is booked: what is wanted is here, or on its way. `EAGAIN` when it has to
    /// be fetched first.
    pub(crate) async fn before_open(
        self: &Rc<Self>,
        ino: InodeId,
        access: Access,
        truncate: bool,
    ) -> Result<(), Refused> {
        let Some(cache) = self.of(ino) else { return Ok(()) };
        let Some(state) = cache.state(ino) else { return Ok(()) };
        let active = cache.active(ino);
        if active.is_retired.get() {
            return Err(Refused::new(libc_errno::ESTALE));
        }
        active.used.set(Instant::now());
        if self.has_half_a_copy(ino) {
            return Err(Refused::because(libc_errno::EAGAIN, "half a copy of it is here"));
        }
        if !access.write && !truncate {
            if state == FileState::InTier {
                self.begin_fetch(ino).await?;
                self.fetch_small(ino).await;
            }
            return Ok(());
        }
        let was_synced = cache.is_known_synced(ino);
        self.before_change(ino, truncate)?;
        match was_synced {
            // What is written next may be on storage before its time is.
            true => cache.ledger_durable().await,
            false => Ok(()),
        }
    }

    /// Home: the bytes of a file are about to change. `EAGAIN` when it has to be fetched first.
    pub(crate) fn before_change(&self, ino: InodeId, truncate: bool) -> Result<(), Refused> {
        let Some(cache) = self.of(ino) else { return Ok(()) };
        match cache.state(ino) {
            None => return Ok(()),
            Some(FileState::InTier) if !truncate => {
                return Err(Refused::because(libc_errno::EAGAIN, "it is not fetched yet"));
            }
            Some(FileState::InTier) if self.has_half_a_copy(ino) => {
                return Err(Refused::because(libc_errno::EAGAIN, "half a copy of it is here"));
            }
            Some(FileState::InTier) => {
                // Pieces on their way would come after the truncate.
                if cache.active(ino).fetch.borrow().is_some() {
                    return Err(Refused::because(libc_errno::EAGAIN, "it is being fetched"));
                }
                self.data.empty_part(ino)?;
            }
            Some(_) => {}
        }
        // Without a name it goes nowhere.
        if self.meta.inode(ino)?.nlink == 0 {
            return Ok(());
        }
        if truncate {
            cache.update(ino, |record| record.is_broken = false)?;
        }
        cache.becomes_dirty(ino)
    }
}
