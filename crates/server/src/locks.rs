//! Byte-range locks of the inodes of this home: who holds what, who waits for whom.
//!
//! A pure state machine, as [`crate::home`]: no I/O, no clock, no connection. flock(2) is a lock of
//! the whole file in the same space as fcntl(2)'s, as on NFS.
//!
//! Invariants, checked by the tests after every step:
//! - L1: two owners never hold overlapping ranges of which one is exclusive.
//! - L2: an owner's ranges do not overlap, and touching ones of one kind are one.
//! - L3: every waiter waits for a range that another owner holds or waits for before it.
//! - L4: no owners wait for each other in a circle.
//!
//! Source: fcntl(2), flock(2); `docs/design/001-coherence.md`, "Locks".

use std::collections::{BTreeMap, HashMap, HashSet};

use hayase_layout::{InodeId, NodeId};
use hayase_wire::lock_ranges::{HeldRange as Held, LockRanges as Ranges};
use hayase_wire::message::{LockKind, LockRange};

/// Who holds a lock: a process, or an open file description (flock), on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LockOwner {
    pub(crate) node: NodeId,
    /// The mount or program of that node through which it asks.
    pub(crate) process: u64,
    /// As the kernel of that node calls it.
    pub(crate) id: u64,
}

/// Names a waiting request to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) node: NodeId,
    pub(crate) process: u64,
    pub(crate) number: u64,
}

/// A lock that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) owner: LockOwner,
    pub(crate) kind: LockKind,
    pub(crate) range: LockRange,
    /// For people and F_GETLK.
    pub(crate) pid: u32,
}

/// What became of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is held.
    Granted,
    /// Another holds it (`EAGAIN`).
    Held,
    /// It waits; [`Locks`] names its ticket when it is granted.
    Waits,
    /// Waiting would never end (`EDEADLK`).
    Deadlock,
    /// More ranges than a home keeps (`ENOLCK`).
    TooMany,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter {
    ticket: Ticket,
    wish: Wish,
}

/// Locks of one inode.
#[derive(Debug, Default)]
struct File {
    held: BTreeMap<LockOwner, Ranges>,
    /// In the order in which they came.
    waiting: Vec<Waiter>,
}

/// All inodes of a home with locks.
#[derive(Debug)]
pub(crate) struct Locks {
    files: HashMap<InodeId, File>,
    ranges: usize,
    ranges_max: usize,
}

impl File {
    fn is_idle(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    /// The first held range that stands against `wish`.
    fn conflict(&self, wish: &Wish) -> Option<(LockOwner, Held)> {
        self.held.iter().filter(|(owner, _)| **owner != wish.owner).find_map(|(owner, ranges)| {
            ranges.conflict(wish.range, wish.kind).map(|held| (*owner, held))
        })
    }

    /// The owners that `wish` waits for: holders, and those who wait for the same before it. Who
    /// holds something of this inode does not queue behind others, who may wait for just that.
    fn obstacles(&self, wish: &Wish, before: usize) -> impl Iterator<Item = LockOwner> {
        let holders = self.held.iter().filter(|(owner, ranges)| {
            **owner != wish.owner && ranges.conflict(wish.range, wish.kind).is_some()
        });
        let before = if self.held.contains_key(&wish.owner) { 0 } else { before };
        let earlier = self.waiting[..before].iter().map(|waiter| &waiter.wish).filter(|other| {
            other.owner != wish.owner
                && other.range.overlaps(wish.range)
                && other.kind.excludes(wish.kind)
        });
        holders.map(|(owner, _)| *owner).chain(earlier.map(|other| other.owner))
    }

    /// The first obstacle is enough: of a thousand who wait, most wait for one holder.
    fn must_wait(&self, wish: &Wish, before: usize) -> bool {
        self.obstacles(wish, before).next().is_some()
    }

    fn hold(&mut self, wish: &Wish) -> isize {
        let ranges = self.held.entry(wish.owner).or_default();
        let before = ranges.len();
        ranges.set(wish.range, wish.kind, wish.pid);
        ranges.len().cast_signed() - before.cast_signed()
    }

    fn give_up(&mut self, owner: LockOwner, range: LockRange) -> isize {
        let Some(ranges) = self.held.get_mut(&owner) else { return 0 };
        let before = ranges.len();
        ranges.clear(range);
        let change = ranges.len().cast_signed() - before.cast_signed();
        if ranges.is_empty() {
            self.held.remove(&owner);
        }
        change
    }

    /// Grants what can be granted now, in the order of the queue.
    fn settle(&mut self) -> (Vec<Ticket>, isize) {
        let (mut granted, mut change, mut at) = (Vec::new(), 0, 0);
        while at < self.waiting.len() {
            let Waiter { ticket, wish } = self.waiting[at];
            if !self.must_wait(&wish, at) {
                self.waiting.remove(at);
                change += self.hold(&wish);
                granted.push(ticket);
                // An owner that holds something now queues behind nobody.
                at = 0;
            } else {
                at += 1;
            }
        }
        (granted, change)
    }
}

impl Locks {
    /// No locks, and at most `ranges_max` ranges ever.
    pub(crate) fn new(ranges_max: usize) -> Self {
        Self { files: HashMap::new(), ranges: 0, ranges_max }
    }

    /// Takes a lock, or says why not. An owner's own locks in the range become of this kind; that
    /// may let others go on: their tickets.
    pub(crate) fn lock(
        &mut self,
        ino: InodeId,
        wish: Wish,
        wait: Option<Ticket>,
    ) -> (Outcome, Vec<Ticket>) {
        // A range may become three, and the bound must hold then too.
        if self.ranges + 2 >= self.ranges_max {
            return (Outcome::TooMany, Vec::new());
        }
        let file = self.files.entry(ino).or_default();
        let blocked = match wait {
            Some(_) => file.must_wait(&wish, file.waiting.len()),
            None => file.conflict(&wish).is_some(),
        };
        if !blocked {
            let change = file.hold(&wish);
            self.count(change);
            return (Outcome::Granted, self.settle(ino));
        }
        let Some(ticket) = wait else {
            self.forget_if_idle(ino);
            return (Outcome::Held, Vec::new());
        };
        let repeated = file.waiting.iter().any(|waiter| waiter.ticket == ticket);
        if !repeated {
            file.waiting.push(Waiter { ticket, wish });
            if self.is_in_a_circle(wish.owner) {
                let file = self.files.get_mut(&ino).expect("it waits there");
                file.waiting.retain(|waiter| waiter.ticket != ticket);
                self.forget_if_idle(ino);
                return (Outcome::Deadlock, Vec::new());
            }
        }
        (Outcome::Waits, Vec::new())
    }

    /// Gives up a range; returns who goes on.
    pub(crate) fn unlock(
        &mut self,
        ino: InodeId,
        owner: LockOwner,
        range: LockRange,
    ) -> Vec<Ticket> {
        let Some(file) = self.files.get_mut(&ino) else { return Vec::new() };
        let change = file.give_up(owner, range);
        self.count(change);
        self.settle(ino)
    }

    /// A wish is no longer wanted; false when it was granted before (or never waited).
    pub(crate) fn cancel(&mut self, ino: InodeId, ticket: Ticket) -> (bool, Vec<Ticket>) {
        let Some(file) = self.files.get_mut(&ino) else { return (false, Vec::new()) };
        let before = file.waiting.len();
        file.waiting.retain(|waiter| waiter.ticket != ticket);
        let waited = file.waiting.len() < before;
        (waited, self.settle(ino))
    }

    /// What stands against a wish, for F_GETLK.
    pub(crate) fn test(&self, ino: InodeId, wish: &Wish) -> Option<(LockOwner, Held)> {
        self.files.get(&ino).and_then(|file| file.conflict(wish))
    }

    /// Whether the owner holds all of this, at least so.
    pub(crate) fn holds(&self, ino: InodeId, wish: &Wish) -> bool {
        let ranges = self.files.get(&ino).and_then(|file| file.held.get(&wish.owner));
        ranges.is_some_and(|ranges| ranges.covers(wish.range, wish.kind))
    }

    /// All that the owners named by `is_gone` hold or wait for ends; returns who goes on.
    pub(crate) fn release(&mut self, is_gone: impl Fn(&LockOwner) -> bool) -> Vec<Ticket> {
        let mut inos: Vec<_> = self.files.keys().copied().collect();
        inos.sort_unstable();
        let mut granted = Vec::new();
        for ino in inos {
            let file = self.files.get_mut(&ino).expect("listed just now");
            file.waiting.retain(|waiter| !is_gone(&waiter.wish.owner));
            let gone: Vec<_> = file.held.keys().filter(|owner| is_gone(owner)).copied().collect();
            let mut change = 0;
            for owner in gone {
                change += file.give_up(owner, LockRange::ALL);
            }
            self.count(change);
            granted.extend(self.settle(ino));
        }
        granted
    }

    /// Nobody holds or waits for anything.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.files.is_empty()
    }

    /// Ranges held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.ranges
    }

    fn count(&mut self, change: isize) {
        self.ranges = self.ranges.saturating_add_signed(change);
    }

    fn settle(&mut self, ino: InodeId) -> Vec<Ticket> {
        let Some(file) = self.files.get_mut(&ino) else { return Vec::new() };
        let (granted, change) = file.settle();
        self.count(change);
        self.forget_if_idle(ino);
        granted
    }

    fn forget_if_idle(&mut self, ino: InodeId) {
        if self.files.get(&ino).is_some_and(File::is_idle) {
            self.files.remove(&ino);
        }
    }

    /// Whether `start` waits, over others, for itself. Nobody waits for who holds nothing and asked
    /// last.
    fn is_in_a_circle(&self, start: LockOwner) -> bool {
        if !self.files.values().any(|file| file.held.contains_key(&start)) {
            return false;
        }
        let mut waits: HashMap<LockOwner, HashSet<LockOwner>> = HashMap::new();
        for file in self.files.values() {
            for (at, waiter) in file.waiting.iter().enumerate() {
                let owners = file.obstacles(&waiter.wish, at);
                waits.entry(waiter.wish.owner).or_default().extend(owners);
            }
        }
        let (mut seen, mut next) = (HashSet::new(), vec![start]);
        while let Some(owner) = next.pop() {
            for other in waits.get(&owner).into_iter().flatten() {
                if *other == start {
                    return true;
                }
                if seen.insert(*other) {
                    next.push(*other);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
