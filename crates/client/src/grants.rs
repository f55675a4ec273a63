//! Grants: whether an answer that was on its way may still be cached when it arrives.
//!
//! A recall and the answer to an earlier request travel on different connections, so the recall
//! may overtake the grant it takes back. Therefore every request notes the count of changes before
//! it is sent, every recall and every change by this node stamps its inode with a new count, and
//! an answer is kept only when its inode was not stamped since.
//!
//! Invariant: a kept answer was true at a moment after which neither a recall nor a change of this
//! node ended.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::STAMPS_PER_SHARD;
use hayase_layout::InodeId;

/// A moment, in changes and recalls that this process has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

impl Stamp {
    /// Of an answer that must not be kept.
    pub const NEVER: Self = Self(0);
}

/// Counts changes and recalls of the whole process.
#[derive(Debug)]
pub struct Moments(AtomicU64);

impl Default for Moments {
    fn default() -> Self {
        Self(AtomicU64::new(1))
    }
}

impl Moments {
    /// Taken before a request is sent.
    pub fn now(&self) -> Stamp {
        Stamp(self.0.load(Ordering::SeqCst))
    }

    fn next(&self) -> Stamp {
        Stamp(self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

/// When the inodes of one shard were last recalled or changed; several share a place.
#[derive(Debug)]
pub struct Stamps(Box<[Stamp; STAMPS_PER_SHARD]>);

impl Default for Stamps {
    fn default() -> Self {
        Self(Box::new([Stamp::NEVER; STAMPS_PER_SHARD]))
    }
}

impl Stamps {
    /// A recall or a change of `ino` happens now; answers asked for before are not kept.
    pub fn stamp(&mut self, ino: InodeId, moments: &Moments) -> Stamp {
        let now = moments.next();
        self.0[place(ino)] = now;
        now
    }

    /// Nothing of the shard is kept that was asked for before.
    pub fn stamp_all(&mut self, moments: &Moments) {
        let now = moments.next();
        self.0.fill(now);
    }

    /// Whether an answer about `ino` that was asked for at `asked` may be kept.
    pub fn may_keep(&self, ino: InodeId, asked: Stamp) -> bool {
        asked != Stamp::NEVER && self.0[place(ino)] <= asked
    }
}

/// Fibonacci hashing; shards use the upper bits, so this takes others.
fn place(ino: InodeId) -> usize {
    (ino.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize % STAMPS_PER_SHARD
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: InodeId = InodeId(42);

    #[test]
    fn an_answer_is_kept_unless_a_recall_overtook_it() {
        let (moments, mut stamps) = (Moments::default(), Stamps::default());
        let early = moments.now();
        assert!(stamps.may_keep(INO, early));
        stamps.stamp(INO, &moments);
        assert!(!stamps.may_keep(INO, early), "asked before the recall");
        assert!(stamps.may_keep(INO, moments.now()), "asked after it");
    }

    #[test]
    fn the_answer_to_a_change_is_kept_unless_another_change_ended_meanwhile() {
        let (moments, mut stamps) = (Moments::default(), Stamps::default());
        let (first, second) = (moments.now(), moments.now());
        assert!(stamps.may_keep(INO, second));
        let after_second = stamps.stamp(INO, &moments);
        assert!(stamps.may_keep(INO, after_second));
        assert!(!stamps.may_keep(INO, first), "its attributes may be older than the second's");
    }

    #[test]
    fn all_and_never() {
        let (moments, mut stamps) = (Moments::default(), Stamps::default());
        let early = moments.now();
        stamps.stamp_all(&moments);
        assert!(!stamps.may_keep(INO, early));
        assert!(!stamps.may_keep(INO, Stamp::NEVER));
    }
}
