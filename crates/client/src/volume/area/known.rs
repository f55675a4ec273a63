//! What this node knows of inodes, and what the kernel above was given of them.
//!
//! Here: which answers of the server may be kept, and what a change by this node makes of what is kept.
//! Not here: the table itself ([`super::inodes`]), asking the server ([`super::attributes`]).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use hayase_layout::{InodeId, Layout};
use hayase_wire::message::{Attr, Grants, TimeSpec};

use super::gathering::Windows;
use super::handed::Removals;
use super::inodes::{InodeTable, Shard};
use crate::grants::{Moments, Stamp};
use crate::limits::TOUCH_ESTIMATE;
use crate::open_file::Class;
use crate::volume::{Drops, Found, KernelCaches, LocalUse};

/// One for all parts of a volume.
pub(super) struct Known {
    table: InodeTable,
    moments: Moments,
    removals: Removals,
    windows: Arc<Windows>,
    kernel: OnceLock<Arc<dyn KernelCaches>>,
}

/// When something was asked.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) stamp: Stamp,
    pub(super) at: Instant,
}

impl Known {
    /// Of files whose small writes are gathered in `windows`.
    pub(super) fn new(windows: Arc<Windows>) -> Self {
        Self {
            table: InodeTable::default(),
            moments: Moments::default(),
            removals: Removals::default(),
            windows,
            kernel: OnceLock::new(),
        }
    }

    /// The caches above; false when there are some already.
    pub(super) fn attach(&self, kernel: Arc<dyn KernelCaches>) -> bool {
        self.kernel.set(kernel).is_ok()
    }

    /// The caches above, where there are some.
    pub(super) fn kernel(&self) -> Option<&Arc<dyn KernelCaches>> {
        self.kernel.get()
    }

    pub(super) fn table(&self) -> &InodeTable {
        &self.table
    }

    /// Removals whose end was not heard yet.
    pub(super) fn removals(&self) -> &Removals {
        &self.removals
    }

    pub(super) fn asked(&self) -> Asked {
        Asked { stamp: self.moments.now(), at: Instant::now() }
    }

    /// Nothing that was asked for before counts any more; under the inode's lock.
    pub(super) fn stamp(&self, shard: &mut Shard, ino: InodeId) -> Stamp {
        shard.stamps.stamp(ino, &self.moments)
    }

    /// The same for all inodes of a shard.
    pub(super) fn stamp_all(&self, shard: &mut Shard) {
        shard.stamps.stamp_all(&self.moments);
    }

    /// Attributes arrived: kept when granted and nothing happened since they were asked for.
    pub(super) fn learn(&self, asked: Asked, attr: &mut Attr, grants: Grants) -> Stamp {
        let mut shard = self.table.lock(attr.ino);
        let is_gathered = self.windows.is_any()
            && shard.nodes.get(&attr.ino).is_some_and(|node| node.gathering.is_some());
        if is_gathered
            || !shard.stamps.may_keep(attr.ino, asked.stamp)
            || self.removals.concern(attr.ino)
        {
            return Stamp::NEVER;
        }
        if !grants.attr {
            shard.attributes.remove(attr.ino);
            return Stamp::NEVER;
        }
        shard.attributes.keep(attr, asked.at);
        asked.stamp
    }

    pub(super) fn found(&self, asked: Asked, mut attr: Attr, grants: Grants) -> Found {
        let stamp = self.learn(asked, &mut attr, grants);
        Found { attr, stamp }
    }

    /// This node changed the inode, and these are its attributes after it.
    pub(super) fn learn_changed(&self, asked: Asked, mut attr: Attr, grants: Grants) -> Found {
        let mut shard = self.table.lock(attr.ino);
        let undisturbed =
            shard.stamps.may_keep(attr.ino, asked.stamp) && !self.removals.concern(attr.ino);
        if undisturbed
            && grants.cache
            && let Some(node) = shard.nodes.get_mut(&attr.ino)
        {
            // Its own change took nothing from it: the home says that it still holds it.
            node.cache |= node.open.class() == Some(Class::Remote);
        }
        let stamp = self.stamp(&mut shard, attr.ino);
        if undisturbed && grants.attr {
            shard.attributes.keep(&mut attr, asked.at);
            Found { attr, stamp }
        } else {
            shard.attributes.remove(attr.ino);
            Found { attr, stamp: Stamp::NEVER }
        }
    }

    /// This node changed the inode; what it looks like now must be asked.
    pub(super) fn changed(&self, ino: InodeId) {
        let mut shard = self.table.lock(ino);
        self.stamp(&mut shard, ino);
        shard.attributes.remove(ino);
    }

    /// This node changed what is in a directory; `before`, by the clock, it had not yet.
    pub(super) fn entries_changed(&self, dir: InodeId, before: TimeSpec) {
        let mut shard = self.table.lock(dir);
        self.stamp(&mut shard, dir);
        shard.attributes.touch(dir, before, Instant::now() + TOUCH_ESTIMATE);
    }

    /// Attributes from memory; what the kernel changes without us is read from the part.
    pub(super) fn remembered(&self, ino: InodeId) -> Option<Found> {
        let (mut attr, stamp, part) = {
            let mut shard = self.table.lock(ino);
            let attr = shard.attributes.get(ino, Instant::now())?.clone();
            let part = shard.nodes.get(&ino).and_then(|node| node.descriptor.clone());
            (attr, self.moments.now(), part)
        };
        if let (Some(part), Layout::Whole) = (part, &attr.layout) {
            overlay(&mut attr, &part)?;
        }
        Some(Found { attr, stamp })
    }

    /// CACHE ends on this node by its own deed; opens that cache revalidate from now on. Tells
    /// whether there was something to end.
    pub(super) fn demote(&self, ino: InodeId) -> bool {
        let mut shard = self.table.lock(ino);
        let Some(node) = shard.nodes.get_mut(&ino) else { return false };
        node.lose_cache()
    }

    pub(super) fn invalidate(&self, ino: InodeId, drops: Drops) {
        if let Some(kernel) = self.kernel.get() {
            kernel.invalidate(ino, drops);
        }
    }

    pub(super) fn local_use(&self, ino: InodeId) -> LocalUse {
        let shard = self.table.lock(ino);
        let Some(node) = shard.nodes.get(&ino) else { return LocalUse::default() };
        let (readers, writers) = node.open.handles();
        LocalUse { class: node.open.class(), readers, writers, cache: node.cache }
    }

    /// Whether what was asked for at `stamp` may still be kept.
    pub(super) fn may_keep(&self, ino: InodeId, stamp: Stamp) -> bool {
        stamp != Stamp::NEVER && self.table.lock(ino).stamps.may_keep(ino, stamp)
    }

    /// What of the attributes lasts, where it is known.
    pub(super) fn lasting(&self, ino: InodeId) -> Option<Attr> {
        let mut shard = self.table.lock(ino);
        shard.attributes.get_lasting(ino, Instant::now()).cloned()
    }

    /// As [`crate::Volume::answers`].
    pub(super) fn answers(&self, attr: &Attr, asker: u32) -> bool {
        let mut shard = self.table.lock(attr.ino);
        let node = shard.nodes.get_mut(&attr.ino);
        let node = node.filter(|node| node.open.class() == Some(Class::Remote) && !node.cache);
        node.is_some_and(|node| {
            node.validated.answer((attr.mtime, attr.size), asker, Instant::now())
        })
    }

    /// What is kept of an inode must be asked for again.
    pub(super) fn forget(&self, ino: InodeId) {
        self.table.lock(ino).attributes.remove(ino);
    }
}

/// The clock by which servers stamp directories: of a change it shows before what they show later.
pub(super) fn wall_clock() -> TimeSpec {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    TimeSpec { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// Size, blocks and times as the part has them now. `None` when it can not be asked.
fn overlay(attr: &mut Attr, part: &OwnedFd) -> Option<()> {
    let stat = rustix::fs::fstat(part.as_fd()).ok()?;
    let time = |seconds, nanos| TimeSpec { seconds, nanos: u32::try_from(nanos).unwrap_or(0) };
    attr.size = u64::try_from(stat.st_size).ok()?;
    attr.blocks = u64::try_from(stat.st_blocks).ok()?;
    attr.atime = time(stat.st_atime, stat.st_atime_nsec);
    attr.mtime = time(stat.st_mtime, stat.st_mtime_nsec);
    attr.ctime = attr.ctime.max(time(stat.st_ctime, stat.st_ctime_nsec));
    Some(())
}
