//! Attributes that this node may answer from memory.
//!
//! Here: a bounded cache with leases. Not here: who grants ([`crate::grants`]), sizes of parts on
//! this node, which their descriptors tell ([`crate::volume::area`]).

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use hayase_layout::InodeId;
use hayase_wire::message::{Attr, TimeSpec};

use crate::limits::ATTR_LEASE;

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
    /// A directory whose entries this node changed: until then its times are our estimate, and
    /// after it only the rest holds.
    touched: Option<Instant>,
    used: bool,
}

impl AttrCache {
    /// Keeps at most `max` inodes.
    pub fn new(max: usize) -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), max }
    }

    /// All of it is true at `now`.
    pub fn get(&mut self, ino: InodeId, now: Instant) -> Option<&Attr> {
        let is_true = |c: &&mut Cached| now < c.until && c.touched.is_none_or(|end| now < end);
        let cached = self.entries.get_mut(&ino).filter(is_true)?;
        cached.used = true;
        Some(&cached.attr)
    }

    /// Mode, owner, lists, kind, layout and policy are true at `now`.
    pub fn get_lasting(&mut self, ino: InodeId, now: Instant) -> Option<&Attr> {
        let cached = self.entries.get_mut(&ino).filter(|c| now < c.until)?;
        cached.used = true;
        Some(&cached.attr)
    }

    /// Replaces what is known; it ends at `until`. Times that the home can not know yet stay.
    pub fn insert(&mut self, mut attr: Attr, until: Instant, now: Instant) {
        let ino = attr.ino;
        let known = self.entries.get(&ino);
        let estimated = known.filter(|known| known.touched.is_some_and(|end| now < end));
        let touched = estimated.and_then(|known| {
            attr.mtime = attr.mtime.max(known.attr.mtime);
            attr.ctime = attr.ctime.max(known.attr.ctime);
            known.touched
        });
        let cached = Cached { attr, until, touched, used: false };
        if self.entries.insert(ino, cached).is_none() {
            self.order.push_back(ino);
            self.evict();
        }
    }

    /// Inserts what was asked for at `asked`, and gives it back as it is kept.
    pub fn keep(&mut self, attr: &mut Attr, asked: Instant) {
        self.insert(attr.clone(), asked + ATTR_LEASE, asked);
        if let Some(kept) = self.entries.get(&attr.ino) {
            (attr.mtime, attr.ctime) = (kept.attr.mtime, kept.attr.ctime);
        }
    }

    /// Forgets an inode.
    pub fn remove(&mut self, ino: InodeId) {
        self.entries.remove(&ino);
    }

    /// This node changed the entries of a directory at `time`. The home learns of it a little
    /// later (and by another clock), so until `end` our time stands for its times.
    pub fn touch(&mut self, ino: InodeId, time: TimeSpec, end: Instant) {
        if let Some(cached) = self.entries.get_mut(&ino) {
            cached.attr.mtime = cached.attr.mtime.max(time);
            cached.attr.ctime = cached.attr.ctime.max(time);
            cached.touched = Some(end);
        }
    }

    /// Forgets all but those.
    pub fn retain(&mut self, stays: impl Fn(InodeId) -> bool) {
        self.entries.retain(|ino, _| stays(*ino));
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

    const LEASE: Duration = Duration::from_secs(25);

    fn check(cache: &mut AttrCache, now: Instant, all: bool, lasting: bool) {
        assert_eq!(cache.get(InodeId(7), now).is_some(), all);
        assert_eq!(cache.get_lasting(InodeId(7), now).is_some(), lasting);
    }

    #[test]
    fn a_lease_ends() {
        let (mut cache, now) = (AttrCache::new(8), Instant::now());
        cache.insert(attr(7), now + LEASE, now);
        check(&mut cache, now, true, true);
        check(&mut cache, now + LEASE, false, false);
    }

    #[test]
    fn a_changed_directory_has_our_times_for_a_while_and_keeps_its_rights() {
        let (mut cache, now) = (AttrCache::new(8), Instant::now());
        let second = Duration::from_secs(1);
        let later = TimeSpec { seconds: attr(7).mtime.seconds + 5, nanos: 0 };
        cache.insert(attr(7), now + LEASE, now);
        cache.touch(InodeId(7), later, now + second);
        assert_eq!(cache.get(InodeId(7), now).unwrap().mtime, later);
        check(&mut cache, now + second, false, true);

        cache.insert(attr(7), now + LEASE, now);
        assert_eq!(cache.get(InodeId(7), now).unwrap().ctime, later, "the home knows it later");
        cache.insert(attr(7), now + LEASE, now + second);
        assert!(cache.get(InodeId(7), now + second).unwrap().ctime < later, "the home knows");
        cache.remove(InodeId(7));
        check(&mut cache, now, false, false);
    }

    #[test]
    fn what_was_used_is_evicted_later() {
        let (mut cache, now) = (AttrCache::new(2), Instant::now());
        cache.insert(attr(1), now + LEASE, now);
        cache.insert(attr(2), now + LEASE, now);
        assert!(cache.get(InodeId(1), now).is_some());
        cache.insert(attr(3), now + LEASE, now);
        let known: Vec<bool> = (1..=3).map(|ino| cache.get(InodeId(ino), now).is_some()).collect();
        assert_eq!(known, [true, false, true]);
    }

    #[test]
    fn coming_and_going_leaves_nothing_behind() {
        let (mut cache, now) = (AttrCache::new(4), Instant::now());
        for round in 0..1000 {
            cache.insert(attr(round % 3), now, now);
            cache.remove(InodeId(round % 3));
        }
        assert!(cache.is_empty());
        assert!(cache.order.len() <= 2 * cache.max + 1, "{}", cache.order.len());
    }
}
