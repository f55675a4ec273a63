//! Flushes that somebody waits for: `hayase flush`, and fsync(2) where it promises the tier.

use std::rc::Rc;

use hayase_layout::InodeId;
use hayase_store::FileState;
use hayase_wire::message::{Flushed, PeerReply, Refused};
use tokio::time::Instant;

use crate::cache::{Active, Cache};
use crate::limits::{FETCH_PAUSE, FETCH_WAIT};
use crate::node::Node;

impl Node {
    /// Home: flushes one file now, unless somebody has it open for writing; how far it is.
    pub(crate) async fn flush_now(self: &Rc<Self>, ino: InodeId) -> Result<Flushed, Refused> {
        let cache = self.cache.need()?;
        if cache.state(ino).is_none_or(FileState::is_safe) {
            return Ok(Flushed::Durable);
        }
        // What was seen of it may be a second old.
        if self.has_writers(ino) && (self.look_for_mpi(cache, ino).await? || self.has_writers(ino))
        {
            return Ok(Flushed::Open);
        }
        Ok(self.begin_if_free(cache, ino, false).unwrap_or(Flushed::Pending))
    }

    /// Home: what was written so far comes to the tier, also of a file that stays open. Only a flush
    /// that began after this counts, or with an earlier answer: not before `round`.
    pub(crate) async fn sync_now(
        self: &Rc<Self>,
        ino: InodeId,
        round: Option<u64>,
    ) -> Result<PeerReply, Refused> {
        let cache = self.cache.need()?;
        let active = cache.active(ino);
        let round = round.unwrap_or_else(|| active.round.get() + 1);
        let until = Instant::now() + FETCH_WAIT;
        loop {
            let is_safe = cache.state(ino).is_none_or(FileState::is_safe);
            if is_safe || active.arrived_round.get() >= round {
                return Ok(PeerReply::Flushed(Flushed::Durable));
            }
            if let Some(failed) = self.begin_if_free(cache, ino, true) {
                return Ok(PeerReply::Flushed(failed));
            }
            if Instant::now() > until {
                return Ok(PeerReply::Flushing { round });
            }
            tokio::time::sleep(FETCH_PAUSE).await;
        }
    }

    /// Begins a flush where nothing stands against it. `Some` when the last one failed a moment ago.
    fn begin_if_free(
        self: &Rc<Self>,
        cache: &Cache,
        ino: InodeId,
        as_it_stands: bool,
    ) -> Option<Flushed> {
        let active = cache.active(ino);
        if active.is_flushing.get() || active.is_held() {
            return None;
        }
        if must_wait(&active) {
            let record = cache.record(ino).filter(|record| record.state == FileState::Failed)?;
            return Some(Flushed::Failed { errno: record.errno, attempts: record.attempts });
        }
        self.begin_flush(cache, ino, as_it_stands);
        None
    }
}

fn must_wait(active: &Active) -> bool {
    active.retry_at.get().is_some_and(|at| at > Instant::now())
}
