//! Directories that are being listed, kept for the moments between two requests of the kernel.
//!
//! An entry's cookie is a hash of its name, so a listing goes on where it was whatever came or went meanwhile,
//! also when it has to be fetched again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hayase_layout::InodeId;
use hayase_tier::gfarm_lane::Stat;

/// Longer is old.
const KEPT: Duration = Duration::from_secs(1);
/// Directories that are kept at once.
const KEPT_MAX: usize = 32;
/// 0 is the start, 1 `.`, 2 `..`.
const COOKIE_MIN: u64 = 3;

/// Entries in the order of their cookies.
pub(super) type Entries = Arc<Vec<(u64, Vec<u8>, Stat)>>;

#[derive(Debug, Default)]
pub(super) struct Listings(Mutex<HashMap<InodeId, (Instant, Entries)>>);

impl Listings {
    /// A name in it came or went from here.
    pub(super) fn changed(&self, dir: InodeId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&dir);
    }

    /// Entries behind `cookie`; from the start it is always fetched.
    pub(super) fn get<E>(
        &self,
        dir: InodeId,
        cookie: u64,
        fetch: impl FnOnce() -> Result<Vec<(Vec<u8>, Stat)>, E>,
    ) -> Result<Entries, E> {
        if cookie != 0 {
            let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = kept.get(&dir).filter(|(at, _)| at.elapsed() < KEPT);
            if let Some((_, entries)) = kept {
                return Ok(Arc::clone(entries));
            }
        }
        let at = Instant::now();
        let fetched = fetch()?.into_iter();
        let mut entries: Vec<_> =
            fetched.map(|(name, stat)| (cookie_of(&name), name, stat)).collect();
        entries.sort_unstable_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let entries = Arc::new(entries);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, (at, _)| at.elapsed() < KEPT);
        if kept.len() < KEPT_MAX {
            kept.insert(dir, (at, Arc::clone(&entries)));
        }
        Ok(entries)
    }
}

fn cookie_of(name: &[u8]) -> u64 {
    // The kernel's offsets are signed.
    (xxhash_rust::xxh3::xxh3_64(name) >> 1).max(COOKIE_MIN)
}
