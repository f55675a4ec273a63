//! Directories in which this mount makes file after file that stays without bytes.
//!
//! There the next file will stay without bytes too, and needs no place at a file server, which costs more than the
//! file itself. One that gets bytes all the same gets its place with the first of them, and the kernel can not write it
//! by itself until it is opened again; the files after it get theirs at once.
//! Here: decisions, without a call to anybody.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hayase_layout::InodeId;

/// Files that were made further apart are no burst.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// So many files without bytes in a row are followed by more of them.
const EMPTY_MIN: u32 = 8;
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

    /// A file is made in `dir`; whether it will stay without bytes.
    pub(super) fn makes_empty(&self, dir: InodeId, now: Instant) -> bool {
        let mut bursts = self.lock();
        if bursts.len() >= DIRECTORIES_MAX && !bursts.contains_key(&dir) {
            bursts.retain(|_, burst| burst.is_on(now));
            if bursts.len() >= DIRECTORIES_MAX {
                return false;
            }
        }
        let burst = bursts.entry(dir).or_insert(Burst { last: now, empty: 0 });
        if !burst.is_on(now) {
            burst.empty = 0;
        }
        burst.last = now;
        burst.empty >= EMPTY_MIN
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
    use super::*;

    const DIR: InodeId = InodeId(7);

    #[test]
    fn the_next_stays_empty_when_eight_in_a_row_did() {
        let (bursts, now) = (Bursts::default(), Instant::now());
        for _ in 0..EMPTY_MIN {
            assert!(!bursts.makes_empty(DIR, now));
            bursts.closed(DIR, true);
        }
        assert!(bursts.makes_empty(DIR, now + PAUSE_MAX));
        assert!(!bursts.makes_empty(InodeId(8), now));
        bursts.closed(DIR, false);
        assert!(!bursts.makes_empty(DIR, now + PAUSE_MAX));
    }

    #[test]
    fn files_that_come_seldom_are_no_burst() {
        let (bursts, now) = (Bursts::default(), Instant::now());
        for number in 0..100 {
            assert!(!bursts.makes_empty(DIR, now + PAUSE_MAX * 2 * number));
            bursts.closed(DIR, true);
        }
    }

    #[test]
    fn few_directories_are_known() {
        let (bursts, now) = (Bursts::default(), Instant::now());
        (0..1000).for_each(|dir| assert!(!bursts.makes_empty(InodeId(dir), now)));
        assert_eq!(bursts.lock().len(), DIRECTORIES_MAX);
        bursts.makes_empty(InodeId(2000), now + 2 * PAUSE_MAX);
        assert_eq!(bursts.lock().len(), 1);
    }
}
