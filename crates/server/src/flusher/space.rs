//! Room: copies of what the tier has give it back, and who fills the area faster than the tier
//! takes is slowed down.
//!
//! Between the marks nothing happens: below the high one nobody waits and nothing goes; above it
//! copies go, least recently opened first, until the low one is reached. Dirty bytes have marks of
//! their own: above the high one, making a file, opening one for writing, and writes that pass a server
//! wait, as long as something here can come to the tier. A write that passes a server finds ENOSPC only
//! when no copy is left to give up. What the kernel writes itself (passthrough) is as fast as the node
//! can, and finds the room that was free.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use hayase_layout::{InodeId, Layout};
use hayase_store::FileState;
use hayase_wire::message::{PeerReply, Refused};
use tokio::time::Instant;

use crate::cache::Cache;
use crate::convert::part_refused;
use crate::convert::whole_part;
use crate::limits::{
    DIRTY_COST, DIRTY_FRESH, DIRTY_HIGH_PERCENT, DIRTY_LOW_PERCENT, EVICT_AT_ONCE, FETCH_PAUSE,
    FILL_BYTES_PER_SECOND, FLUSH_LOOK_FILES, FLUSH_REST, ROOM_LEFT, ROOM_WAIT, SPACE_HIGH_PERCENT,
    SPACE_LOW_PERCENT, WRITE_WAIT,
};
use crate::node::Node;
use crate::refusals::libc_errno;

/// Above the high mark until the low one is reached.
#[derive(Default)]
pub(crate) struct Marked(Cell<bool>);

impl Marked {
    /// Whether `used` of `total` is too much now.
    pub(crate) fn is_full(&self, used: u64, total: u64, (low, high): (u64, u64)) -> bool {
        let percent = (u128::from(used) * 100).checked_div(u128::from(total)).unwrap_or(0) as u64;
        let limit = if self.0.get() { low } else { high };
        self.0.set(percent > limit);
        self.0.get()
    }
}

impl Node {
    /// Bytes that the tier does not have; of files being written as they were a moment ago.
    pub(crate) fn dirty_bytes(&self, cache: &Cache) -> u64 {
        if let Some((until, known)) = cache.dirty.get()
            && Instant::now() < until
        {
            return known;
        }
        let begin = Instant::now();
        // Of a file on several nodes what lies here, about: others have as much of it.
        let bytes_of = |ino: InodeId| match self.spread_here(cache, ino) {
            Some((size, width)) => size / width,
            None => {
                let part = self.data.parts.get(whole_part(ino, 0));
                part.and_then(|part| part.stat()).map_or(0, |stat| stat.size)
            }
        };
        let bytes = cache.not_durable().into_iter().map(bytes_of).sum();
        // Many files take long to look at: then they are looked at more rarely.
        let fresh = DIRTY_FRESH.max(begin.elapsed() * DIRTY_COST);
        cache.dirty.set(Some((Instant::now() + fresh, bytes)));
        bytes
    }

    /// Waits while too much here is not in the tier yet; not for ever.
    pub(crate) async fn wait_for_room(self: &Rc<Self>) -> Result<(), Refused> {
        let cache = self.cache.need()?;
        let until = Instant::now() + ROOM_WAIT;
        let marks = (DIRTY_LOW_PERCENT, DIRTY_HIGH_PERCENT);
        while Instant::now() < until {
            let total = self.data.usage.here().total;
            if !cache.dirty_mark.is_full(self.dirty_bytes(cache), total, marks) {
                break;
            }
            cache.work.notify_one();
            tokio::time::sleep(FETCH_PAUSE).await;
        }
        Ok(())
    }

    /// Before `len` bytes are written into a file of the area: copies make room where there is none, and
    /// who writes faster than the tier takes waits, for [`WRITE_WAIT`] at most.
    pub(crate) async fn room_for_write(self: &Rc<Self>, ino: InodeId, len: u64) {
        let Some(cache) = self.cache.of(ino) else { return };
        let until = Instant::now() + WRITE_WAIT;
        let marks = (DIRTY_LOW_PERCENT, DIRTY_HIGH_PERCENT);
        loop {
            // What was known a moment ago, a fast writer has filled since.
            let usage = self.data.usage.now();
            let is_tight = usage.free < len.saturating_add(usage.total / ROOM_LEFT);
            let is_behind = cache.dirty_mark.is_full(self.dirty_bytes(cache), usage.total, marks);
            if !is_tight && !is_behind || Instant::now() >= until {
                return;
            }
            let has_gone = is_tight && self.give_copies_up(cache).await > 0;
            // What of others lies here their homes flush.
            let is_drained_elsewhere = ino.home() != self.me;
            if !has_gone && !is_drained_elsewhere && !self.can_drain(cache) {
                return; // Waiting would not help: what is here is open, or the tier refuses it.
            }
            cache.work.notify_one();
            if !has_gone {
                tokio::time::sleep(FETCH_PAUSE).await;
            }
        }
    }

    /// Something is on its way to the tier, or about to be.
    fn can_drain(&self, cache: &Cache) -> bool {
        let files = cache.not_durable_after(InodeId(0), FLUSH_LOOK_FILES);
        let may_go = |ino: InodeId| {
            let record = cache.record(ino).filter(|record| record.errno == 0);
            let is_free = !self.has_writers(ino) && !cache.active(ino).is_held();
            is_free && record.is_some_and(|record| !self.waits_for_turn(cache, &record))
        };
        files.into_iter().any(may_go)
    }

    /// Lets copies go while the area is fuller than it should be; whether some did.
    pub(crate) async fn give_room_back(self: &Rc<Self>) -> bool {
        let Some(cache) = self.cache.get() else { return false };
        let usage = self.data.usage.here();
        let used = usage.total - usage.free.min(usage.total);
        let marks = (SPACE_LOW_PERCENT, SPACE_HIGH_PERCENT);
        cache.space_mark.is_full(used, usage.total, marks) && self.give_copies_up(cache).await > 0
    }

    /// How long room can not become short, unless a request comes; `None` when none can: programs that have
    /// nothing open for writing write nothing past the server.
    pub(super) fn look_for_room(&self, cache: &Cache) -> Option<Duration> {
        if cache.space_mark.0.get() {
            return Some(FLUSH_REST); // What is in use now may go then.
        }
        if !self.homes.is_written() {
            return None;
        }
        let usage = self.data.usage.here();
        let used = usage.total - usage.free.min(usage.total);
        let left = (usage.total / 100 * SPACE_HIGH_PERCENT).saturating_sub(used);
        Some(Duration::from_secs_f64(left as f64 / FILL_BYTES_PER_SECOND))
    }

    /// The least recently opened copies go; how many did. All who ask meanwhile share one look at the
    /// ledger.
    async fn give_copies_up(self: &Rc<Self>, cache: &Cache) -> u64 {
        let (before, had_gone) = cache.evicted.get();
        let _one = cache.evicting.lock().await;
        let (rounds, gone) = cache.evicted.get();
        if rounds != before {
            return gone - had_gone;
        }
        let now = self.evict_oldest(cache).await;
        cache.evicted.set((rounds + 1, gone + now));
        now
    }

    async fn evict_oldest(self: &Rc<Self>, cache: &Cache) -> u64 {
        let is_copy = |state| matches!(state, FileState::Clean | FileState::Durable);
        let mut copies = cache.records_where(|record| is_copy(record.state));
        copies.sort_by_key(|record| cache.active(record.ino).used.get());
        let mut gone = 0;
        for record in copies.into_iter().take(EVICT_AT_ONCE) {
            match self.evict(record.ino).await {
                Ok(PeerReply::Ready(true)) => gone += 1,
                Ok(_) => {}
                Err(error) => tracing::debug!(ino = %record.ino, %error, "a copy stays"),
            }
        }
        gone
    }

    /// Home: gives the room of a file back that the tier has and nobody has open. `EALREADY` where it has none.
    pub(crate) async fn evict(self: &Rc<Self>, ino: InodeId) -> Result<PeerReply, Refused> {
        let cache = self.cache.need()?;
        let Some(state) = cache.state(ino) else { return Ok(PeerReply::Ready(true)) };
        if !state.is_safe() {
            return Err(Refused::because(libc_errno::EAGAIN, "the tier does not have it yet"));
        }
        if state == FileState::InTier {
            return Err(Refused::because(libc_errno::EALREADY, "only the tier has it"));
        }
        self.ask_to_let_go(ino, self.homes.open_on(ino));
        let _held = cache.publishing.lock(ino).await;
        let is_quiet = self.probe_part(ino).await;
        let is_free = is_quiet
            && !self.homes.is_open(ino)
            && cache.active(ino).openings.get() == 0
            && !self.recorded.is_flattening(ino)
            && cache.record(ino).is_some_and(|record| {
                record.state.is_here() && record.state.is_safe() && record.version.is_some()
            });
        if !is_free {
            return Ok(PeerReply::Ready(false));
        }
        if matches!(self.meta.inode(ino)?.layout, Layout::Striped { .. } | Layout::Recorded { .. })
        {
            self.evict_spread(cache, ino).await?;
            return Ok(PeerReply::Ready(true));
        }
        // In this order: a part that the ledger does not speak of is thrown away at the next start.
        cache.update(ino, |record| record.state = FileState::InTier)?;
        self.data.parts.remove(whole_part(ino, 0)).map_err(part_refused)?;
        self.data.usage.changed();
        Ok(PeerReply::Ready(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_lasts_from_the_high_mark_to_the_low_one() {
        let marked = Marked::default();
        let full: Vec<bool> =
            [10, 80, 81, 70, 61, 60, 70].map(|used| marked.is_full(used, 100, (60, 80))).into();
        assert_eq!(full, [false, false, true, true, true, false, false]);
        assert!(!Marked::default().is_full(5, 0, (60, 80)));
    }
}
