//! Attributes that this node may answer from memory.
//!
//! Here: a bounded cache with leases. Not here: who grants ([`crate::grants`]), sizes of parts on
//! this node, which their descriptors tell ([`crate::volume::area`]).

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use hayase_layout::InodeId;
use hayase_wire::message::Attr;

/// Attributes by inode, at most so many.
#[derive(Debug)]
pub struct AttrCache {
    entries: HashMap<InodeId, Cached>,
    /// Clock of the second chance: inodes as they came, some of them gone or twice.
    order: VecDeque<InodeId>,
    max: usize,
}

#[derive(Debug)]
struct Cached {
    attr: Attr,
    until: Instant,
    /// A directory whose entries this node changed: size and times are old, the rest holds.
    outdated: bool,
    used: bool,
}

impl AttrCache {
    /// Keeps at most `max` inodes.
    pub fn new(max: usize) -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), max }
    }

    /// All of it is true at `now`.
    pub fn get(&mut self, ino: InodeId, now: Instant) -> Option<&Attr> {
        let cached = self.entries.get_mut(&ino).filter(|c| now < c.until && !c.outdated)?;
        cached.used = true;
        Some(&cached.attr)
    }

    /// Mode, owner, kind, layout and policy are true at `now`.
    pub fn get_lasting(&mut self, ino: InodeId, now: Instant) -> Option<&Attr> {
        let cached = self.entries.get_mut(&ino).filter(|c| now < c.until)?;
        cached.used = true;
        Some(&cached.attr)
    }

    /// Replaces what is known; it ends at `until`.
    pub fn insert(&mut self, attr: Attr, until: Instant) {
        let ino = attr.ino;
        let cached = Cached { attr, until, outdated: false, used: false };
        if self.entries.insert(ino, cached).is_none() {
            self.order.push_back(ino);
            self.evict();
        }
    }

    /// Forgets an inode.
    pub fn remove(&mut self, ino: InodeId) {
        self.entries.remove(&ino);
    }

    /// The entries of a directory changed: only what does not depend on them holds.
    pub fn outdate(&mut self, ino: InodeId) {
        if let Some(cached) = self.entries.get_mut(&ino) {
            cached.outdated = true;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }

    /// Inodes known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn evict(&mut self) {
        while self.entries.len() > self.max {
            let Some(ino) = self.order.pop_front() else { return };
            match self.entries.get_mut(&ino) {
                Some(cached) if cached.used => {
                    cached.used = false;
                    self.order.push_back(ino);
                }
                Some(_) => self.remove(ino),
                None => {}
            }
        }
        if self.order.len() > 2 * self.max {
            self.order = self.entries.keys().copied().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::attr;

    fn check(cache: &mut AttrCache, now: Instant, all: bool, lasting: bool) {
        assert_eq!(cache.get(InodeId(7), now).is_some(), all);
        assert_eq!(cache.get_lasting(InodeId(7), now).is_some(), lasting);
    }

    #[test]
    fn a_lease_ends() {
        let (mut cache, now) = (AttrCache::new(8), Instant::now());
        cache.insert(attr(7), now + Duration::from_secs(25));
        check(&mut cache, now, true, true);
        check(&mut cache, now + Duration::from_secs(25), false, false);
    }

    #[test]
    fn a_changed_directory_keeps_its_rights() {
        let (mut cache, now) = (AttrCache::new(8), Instant::now());
        cache.insert(attr(7), now + Duration::from_secs(25));
        cache.outdate(InodeId(7));
        check(&mut cache, now, false, true);
        cache.insert(attr(7), now + Duration::from_secs(25));
        check(&mut cache, now, true, true);
        cache.remove(InodeId(7));
        check(&mut cache, now, false, false);
    }

    #[test]
    fn what_was_used_is_evicted_later() {
        let (mut cache, now) = (AttrCache::new(2), Instant::now());
        let until = now + Duration::from_secs(1);
        cache.insert(attr(1), until);
        cache.insert(attr(2), until);
        assert!(cache.get(InodeId(1), now).is_some());
        cache.insert(attr(3), until);
        let known: Vec<bool> = (1..=3).map(|ino| cache.get(InodeId(ino), now).is_some()).collect();
        assert_eq!(known, [true, false, true]);
    }

    #[test]
    fn coming_and_going_leaves_nothing_behind() {
        let (mut cache, until) = (AttrCache::new(4), Instant::now());
        for round in 0..1000 {
            cache.insert(attr(round % 3), until);
            cache.remove(InodeId(round % 3));
        }
        assert!(cache.is_empty());
        assert!(cache.order.len() <= 2 * cache.max + 1, "{}", cache.order.len());
    }
}
