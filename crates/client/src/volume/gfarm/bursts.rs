//! Directories in which this mount makes file after file that stays without bytes.
//!
//! There the next file will stay without bytes too, and needs no place at a file server, which costs more than the
//! file itself. One that gets bytes all the same gets its place with the first of them, and the kernel can not write it
//! by itself until it is opened again; the files after it get theirs at once.
//! And it will be like the one before, but for number and times: its attributes need not be asked for.
//! Here: decisions, without a call to anybody.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hayase_layout::InodeId;
use hayase_tier::gfarm_lane::{Stat, Time};

/// Files that were made further apart are no burst.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// So many files without bytes in a row are followed by more of them.
const EMPTY_MIN: u32 = 8;
/// Attributes are those of a file that was asked about so lately.
const LIKE_MAX: Duration = Duration::from_secs(1);
/// Directories that are known at once.
const DIRECTORIES_MAX: usize = 32;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Bursts(Mutex<HashMap<InodeId, Burst>>);

#[derive(Debug)]
struct Burst {
    /// When a file was made last.
    last: Instant,
    /// Files without bytes that were closed, one after the other.
    empty: u32,
    like: Option<Like>,
}

/// A file that was made with this mode, as the metadata server told it just then.
#[derive(Debug)]
struct Like {
    mode: u32,
    stat: Stat,
    told: Instant,
}

impl Like {
    /// Of a file that is made now: times by the metadata server's clock, as far as this host knows it.
    fn now(&self, now: Instant) -> Stat {
        let time = later(self.stat.ctime, now.saturating_duration_since(self.told));
        Stat { atime: time, mtime: time, ctime: time, ..self.stat }
    }
}

fn later((seconds, nanos): Time, by: Duration) -> Time {
    let by = Duration::from_nanos(nanos.into()) + by;
    (seconds.saturating_add_unsigned(by.as_secs()), by.subsec_nanos())
}

/// How a file is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Making {
    /// It gets a place at a file server at once.
    pub(super) place: bool,
    /// Its attributes, but for number and generation.
    pub(super) like: Option<Stat>,
}

impl Making {
    const KNOWN_NOTHING: Self = Self { place: true, like: None };
}

impl Burst {
    fn is_on(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) <= PAUSE_MAX
    }
}

impl Bursts {
    fn lock(&self) -> MutexGuard<'_, HashMap<InodeId, Burst>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file is made in `dir` with this mode.
    pub(super) fn next(&self, dir: InodeId, mode: u32, now: Instant) -> Making {
        let mut bursts = self.lock();
        if bursts.len() >= DIRECTORIES_MAX && !bursts.contains_key(&dir) {
            bursts.retain(|_, burst| burst.is_on(now));
            if bursts.len() >= DIRECTORIES_MAX {
                return Making::KNOWN_NOTHING;
            }
        }
        let burst = bursts.entry(dir).or_insert(Burst { last: now, empty: 0, like: None });
        if !burst.is_on(now) {
            burst.empty = 0;
        }
        burst.last = now;
        if burst.empty < EMPTY_MIN {
            return Making::KNOWN_NOTHING;
        }
        let is_like = |like: &&Like| {
            like.mode == mode && now.saturating_duration_since(like.told) <= LIKE_MAX
        };
        Making { place: false, like: burst.like.as_ref().filter(is_like).map(|like| like.now(now)) }
    }

    /// The metadata server has told this of a new file in `dir`.
    pub(super) fn told(&self, dir: InodeId, mode: u32, stat: Stat, now: Instant) {
        if let Some(burst) = self.lock().get_mut(&dir) {
            burst.like = Some(Like { mode, stat, told: now });
        }
    }

    /// Who made a file in `dir` has closed it.
    pub(super) fn closed(&self, dir: InodeId, is_empty: bool) {
        if let Some(burst) = self.lock().get_mut(&dir) {
            burst.empty = if is_empty { burst.empty.saturating_add(1) } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use hayase_tier::gfarm_lane::Kind;

    use super::super::fake::stat;
    use super::*;

    const DIR: InodeId = InodeId(7);
    const MODE: u32 = 0o644;

    fn after_empty_ones(bursts: &Bursts, now: Instant) {
        for _ in 0..EMPTY_MIN {
            assert!(bursts.next(DIR, MODE, now).place);
            bursts.closed(DIR, true);
        }
    }

    #[test]
    fn the_next_stays_empty_when_eight_in_a_row_did() {
        let (bursts, now) = (Bursts::default(), Instant::now());
        after_empty_ones(&bursts, now);
        assert!(!bursts.next(DIR, MODE, now + PAUSE_MAX).place);
        assert!(bursts.next(InodeId(8), MODE, now).place);
        bursts.closed(DIR, false);
        assert!(bursts.next(DIR, MODE, now + PAUSE_MAX).place);
    }

    #[test]
    fn it_is_like_the_one_before_made_with_the_same_mode_for_a_second() {
        let (bursts, now) = (Bursts::default(), Instant::now());
        after_empty_ones(&bursts, now);
        assert_eq!(bursts.next(DIR, MODE, now).like, None, "nothing was told");
        let told = Stat { ctime: (10, 999_999_999), uid: 5, ..stat(70, Kind::File) };
        bursts.told(DIR, MODE, told, now);
        let at = now + Duration::from_nanos(2);
        let time = (11, 1);
        let like = Stat { atime: time, mtime: time, ctime: time, ..told };
        assert_eq!(bursts.next(DIR, MODE, at), Making { place: false, like: Some(like) });
        assert_eq!(bursts.next(DIR, 0o600, at), Making { place: false, like: None });
        let mut at = now;
        while at <= now + LIKE_MAX {
            assert!(bursts.next(DIR, MODE, at).like.is_some());
            at += PAUSE_MAX;
        }
        assert_eq!(bursts.next(DIR, MODE, at), Making { place: false, like: None });
    }

    #[test]
    fn files_that_come_seldom_are_no_burst() {
        let (bursts, now) = (Bursts::default(), Instant::now());
        for number in 0..100 {
            assert!(bursts.next(DIR, MODE, now + PAUSE_MAX * 2 * number).place);
            bursts.closed(DIR, true);
        }
    }

    #[test]
    fn few_directories_are_known() {
        let (bursts, now) = (Bursts::default(), Instant::now());
        (0..1000).for_each(|dir| assert!(bursts.next(InodeId(dir), MODE, now).place));
        assert_eq!(bursts.lock().len(), DIRECTORIES_MAX);
        bursts.next(InodeId(2000), MODE, now + 2 * PAUSE_MAX);
        assert_eq!(bursts.lock().len(), 1);
    }
}
