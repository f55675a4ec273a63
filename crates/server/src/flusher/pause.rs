//! How long the flusher may sleep.
//!
//! While requests come, or something is under way, it looks each [`FLUSH_LOOK`]. Of a server that nobody asks it sleeps
//! until the next file can begin; and where none is left, until a request comes. Closes, renames and
//! removals are requests; what programs write by themselves (passthrough) is not, and can only fill the area.

use std::time::Duration;

use hayase_layout::InodeId;

use super::policy::{Candidate, next};
use crate::cache::Cache;
use crate::cache::area::CacheArea;
use crate::limits::{FLUSH_LOOK, FLUSH_LOOK_FILES, FLUSH_REST};

/// What one look at files that are left says of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    next: Option<Duration>,
}

impl Look {
    /// `window`: files that were looked at, of which `candidates` are in nobody's hands.
    pub(super) fn at(
        window: &[InodeId],
        candidates: &[Candidate],
        late_in: Option<Duration>,
    ) -> Self {
        let is_partial = candidates.len() < window.len() || window.len() >= FLUSH_LOOK_FILES;
        let next = match is_partial {
            true => Some(Duration::ZERO),
            // Looked at once in a while, whatever they wait for: a node that had one open may be lost.
            false if !window.is_empty() => next(candidates, late_in).or(Some(FLUSH_REST)),
            false => None,
        };
        Self { next }
    }

    /// Both of them.
    pub(super) fn join(&mut self, other: Self) {
        self.next = self.next.into_iter().chain(other.next).min();
    }

    /// How long nothing has to be looked at, where room can not become short before `room`; `None` is until
    /// somebody asks for something.
    pub(super) fn pause(self, room: Option<Duration>) -> Option<Duration> {
        let earliest = self.next.into_iter().chain(room).min();
        earliest.map(|wait| wait.clamp(FLUSH_LOOK, FLUSH_REST))
    }
}

impl Cache {
    /// Sleeps for so long, or until there is work; whether there is.
    pub(super) async fn sleep(&self, pause: Option<Duration>) -> bool {
        self.flusher_rests.set(pause.is_none_or(|pause| pause > FLUSH_LOOK));
        let work = self.work.notified();
        let is_woken = match pause {
            Some(pause) => tokio::time::timeout(pause, work).await.is_ok(),
            None => {
                work.await;
                true
            }
        };
        self.flusher_rests.set(false);
        is_woken
    }
}

impl CacheArea {
    /// Somebody asks for something: the flusher looks at least once after that.
    pub(crate) fn stir_flusher(&self) {
        if let Some(cache) = self.get().filter(|cache| cache.flusher_rests.get()) {
            cache.work.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn file(ino: u64, retry_in: Duration) -> Candidate {
        let complete_for = Some(Duration::ZERO);
        Candidate { ino: InodeId(ino), complete_for, in_vain_for: None, due_in: None, retry_in }
    }

    fn open(ino: u64) -> Candidate {
        Candidate { complete_for: None, ..file(ino, Duration::ZERO) }
    }

    fn check(window: &[u64], candidates: &[Candidate], expected: Option<Duration>) {
        let window: Vec<InodeId> = window.iter().map(|ino| InodeId(*ino)).collect();
        let found = Look::at(&window, candidates, None).pause(None);
        assert_eq!(found, expected, "{window:?} {candidates:?}");
    }

    #[test]
    fn it_sleeps_until_something_can_begin() {
        let second = Duration::from_secs(1);
        check(&[], &[], None);
        check(&[1], &[file(1, second)], Some(second));
        check(&[1, 2], &[file(1, second), file(2, MINUTE)], Some(second));
        check(&[1], &[file(1, MINUTE)], Some(FLUSH_REST));
        check(&[1], &[open(1)], Some(FLUSH_REST));
        check(&[1], &[file(1, Duration::ZERO)], Some(FLUSH_LOOK));
        // In somebody's hands: how long, nobody tells.
        check(&[1, 2], &[file(1, MINUTE)], Some(FLUSH_LOOK));
        let many: Vec<u64> = (1..=FLUSH_LOOK_FILES as u64).collect();
        let all: Vec<Candidate> = many.iter().map(|ino| open(*ino)).collect();
        check(&many, &all, Some(FLUSH_LOOK));
    }

    #[test]
    fn removals_and_room_count_too() {
        let second = Duration::from_secs(1);
        let mut look = Look::at(&[InodeId(1)], &[open(1)], None);
        look.join(Look::at(&[InodeId(2)], &[file(2, second)], None));
        assert_eq!(look.pause(None), Some(second));
        assert_eq!(look.pause(Some(second / 2)), Some(second / 2));
        let nothing = Look::at(&[], &[], Some(second));
        assert_eq!(nothing.pause(None), None);
        assert_eq!(nothing.pause(Some(Duration::ZERO)), Some(FLUSH_LOOK));
        assert_eq!(nothing.pause(Some(MINUTE)), Some(FLUSH_REST));
    }
}
