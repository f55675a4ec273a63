//! An area of a job as a volume: every question goes to the node's own server, unless a grant or
//! an open that the home already counts answers it here.
//!
//! Here: the shell around [`crate::grants`], [`crate::attributes`], [`crate::open_file`] and [`crate::gathered`].
//! Invariants: no lock is held during a call to the server or to the caches above (except the
//! short [`KernelCaches::release_descriptor`], and each file's own of [`gathering`]); locks of two shards are never
//! held together.

mod closer;
mod data;
mod gathering;
mod handed;
mod inodes;
mod locks;
mod lost;
mod names;
mod opens;
mod recalls;
mod validated;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use hayase_layout::acl::ACCESS_NAME;
use hayase_layout::{InodeId, Layout};
use hayase_wire::message::{
    Access, AreaUse, Attr, Explained, FileKind, Grants, Lock, LockHeld, LockRange, MetaChange,
    Name, NewNode, NodeReply, NodeRequest, OpenKind, Opening, RecordedStep, Refused, TimeSpec,
    XattrMode,
};

use super::{
    Awaited, Drops, FileOpen, Found, KernelCaches, Listed, LocalUse, LockTold, OpenWish, Volume,
};
use crate::grants::{Moments, Stamp};
use crate::limits::{NAMELESS_LINGER, READ_LINGER, TOUCH_ESTIMATE, WRITE_LINGER};
use crate::link::{Callbacks, Link, LinkError, Reply};
use crate::made_names::MadeNames;
use crate::open_file::{Class, Linger};
use closer::Closer;
use gathering::Gathering;
use handed::Removals;
use inodes::InodeTable;
use locks::AreaLocks;
use lost::LostFiles;

/// How an [`AreaVolume`] behaves.
#[derive(Clone, Copy, Debug)]
pub struct AreaSettings {
    /// How long closed opens are kept at the home. Only who answers recalls may let reads linger.
    pub linger: Linger,
    /// Whether small writes of a file that this node alone has open are gathered. Only who answers recalls may.
    pub gathers: bool,
}

impl AreaSettings {
    /// For a mount.
    pub fn mount() -> Self {
        let linger = Linger { read: READ_LINGER, write: WRITE_LINGER, nameless: NAMELESS_LINGER };
        Self { linger, gathers: true }
    }

    /// For a program: it is granted nothing and recalled nothing.
    pub fn program() -> Self {
        let linger = Linger { read: WRITE_LINGER, write: WRITE_LINGER, nameless: NAMELESS_LINGER };
        Self { linger, gathers: false }
    }
}

/// A [`Volume`] over a connection to the node's server.
pub struct AreaVolume {
    area: Arc<Area>,
    threads: Vec<JoinHandle<()>>,
}

/// What calls, callbacks and background threads share.
struct Area {
    me: Weak<Area>,
    link: Arc<dyn Link>,
    settings: AreaSettings,
    moments: Moments,
    inodes: InodeTable,
    made: MadeNames,
    removals: Removals,
    kernel: OnceLock<Arc<dyn KernelCaches>>,
    closer: Closer,
    gathering: Gathering,
    locks: AreaLocks,
    lost: LostFiles,
    /// Opens that the server was asked for: the last one's number.
    opens_asked: AtomicU64,
    /// Creates whose answer has not been booked: a recall may name their inode before.
    creating: AtomicUsize,
    /// Descriptors of class [`Class::Remote`].
    remote_handles: AtomicUsize,
}

/// When something was asked.
#[derive(Clone, Copy)]
struct Asked {
    stamp: Stamp,
    at: Instant,
}

impl AreaVolume {
    /// Starts three threads (closing, refreshing, waiting for locks), and one more where small writes are gathered,
    /// that sleep while there is nothing to do.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn new(link: Arc<dyn Link>, settings: AreaSettings) -> std::io::Result<Self> {
        let area = Arc::new_cyclic(|me| Area {
            me: Weak::clone(me),
            link,
            settings,
            moments: Moments::default(),
            inodes: InodeTable::default(),
            made: MadeNames::default(),
            removals: Removals::default(),
            kernel: OnceLock::new(),
            closer: Closer::default(),
            gathering: Gathering::default(),
            locks: AreaLocks::default(),
            lost: LostFiles::default(),
            opens_asked: AtomicU64::new(0),
            creating: AtomicUsize::new(0),
            remote_handles: AtomicUsize::new(0),
        });
        let holder: Weak<dyn Callbacks> =
            Arc::downgrade(&(Arc::clone(&area) as Arc<dyn Callbacks>));
        area.link.held_by(holder);
        let mut volume = Self { area, threads: Vec::new() };
        volume.spawn("hayase-close", Area::close_lingering)?;
        volume.spawn("hayase-refresh", Area::refresh_mappings)?;
        volume.spawn("hayase-locks", Area::look_after_waiters)?;
        if settings.gathers {
            volume.spawn("hayase-gather", Area::hand_on_late)?;
        }
        Ok(volume)
    }

    /// Room on the one server that keeps a private tree.
    pub(super) fn usage_of(&self, tree: InodeId) -> Result<AreaUse, Refused> {
        self.usage_by(&NodeRequest::StatFsOf { tree })
    }

    fn usage_by(&self, question: &NodeRequest) -> Result<AreaUse, Refused> {
        match self.area.call(question)?.message {
            NodeReply::StatFs(usage) => Ok(usage),
            other => Err(LinkError::unexpected("StatFs", &other).into()),
        }
    }

    fn spawn(&mut self, name: &str, run: fn(&Area)) -> std::io::Result<()> {
        let area = Arc::clone(&self.area);
        let builder = std::thread::Builder::new().name(name.to_owned());
        self.threads.push(builder.spawn(move || run(&area))?);
        Ok(())
    }
}

impl Drop for AreaVolume {
    fn drop(&mut self) {
        self.area.hand_on_all();
        self.area.closer.stop();
        self.area.gathering.stop();
        self.area.locks.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread of the volume panicked");
            }
        }
    }
}

impl Area {
    fn asked(&self) -> Asked {
        Asked { stamp: self.moments.now(), at: Instant::now() }
    }

    /// Numbers an open; of an inode that is known, under its lock.
    fn opening(&self, access: Access, kind: OpenKind) -> Opening {
        Opening { access, kind, number: self.opens_asked.fetch_add(1, Ordering::SeqCst) + 1 }
    }

    fn call(&self, request: &NodeRequest) -> Result<Reply, Refused> {
        Ok(self.link.call(request)?)
    }

    fn call_done(&self, name: &'static str, request: &NodeRequest) -> Result<(), Refused> {
        match self.call(request)?.message {
            NodeReply::Done => Ok(()),
            other => Err(LinkError::unexpected(name, &other).into()),
        }
    }

    /// Attributes arrived: kept when granted and nothing happened since they were asked for.
    fn learn(&self, asked: Asked, attr: &mut Attr, grants: Grants) -> Stamp {
        let mut shard = self.inodes.lock(attr.ino);
        let is_gathered = self.gathering.is_any()
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

    fn found(&self, asked: Asked, mut attr: Attr, grants: Grants) -> Found {
        let stamp = self.learn(asked, &mut attr, grants);
        Found { attr, stamp }
    }

    /// This node changed the inode, and these are its attributes after it.
    fn learn_changed(&self, asked: Asked, mut attr: Attr, grants: Grants) -> Found {
        let mut shard = self.inodes.lock(attr.ino);
        let undisturbed =
            shard.stamps.may_keep(attr.ino, asked.stamp) && !self.removals.concern(attr.ino);
        if undisturbed
            && grants.cache
            && let Some(node) = shard.nodes.get_mut(&attr.ino)
        {
            // Its own change took nothing from it: the home says that it still holds it.
            node.cache |= node.open.class() == Some(Class::Remote);
        }
        let stamp = shard.stamps.stamp(attr.ino, &self.moments);
        if undisturbed && grants.attr {
            shard.attributes.keep(&mut attr, asked.at);
            Found { attr, stamp }
        } else {
            shard.attributes.remove(attr.ino);
            Found { attr, stamp: Stamp::NEVER }
        }
    }

    /// This node changed the inode; what it looks like now must be asked.
    fn changed(&self, ino: InodeId) {
        let mut shard = self.inodes.lock(ino);
        shard.stamps.stamp(ino, &self.moments);
        shard.attributes.remove(ino);
    }

    /// This node changed what is in a directory; `before`, by the clock, it had not yet.
    fn entries_changed(&self, dir: InodeId, before: TimeSpec) {
        let mut shard = self.inodes.lock(dir);
        shard.stamps.stamp(dir, &self.moments);
        shard.attributes.touch(dir, before, Instant::now() + TOUCH_ESTIMATE);
    }

    fn attributes(&self, ino: InodeId) -> Result<Found, Refused> {
        self.hand_on_untold(ino)?;
        let concerns_files = self.removals.concern_files();
        if let Some(found) = self.remembered(ino)
            && (!concerns_files || found.attr.kind == FileKind::Directory)
        {
            return Ok(found);
        }
        self.told_of_file(concerns_files, || self.ask_attributes(ino))
    }

    /// What the server says of a file. One that was started anew may not have heard of removals whose
    /// success the one before told the kernel: then it is asked once more when it has.
    fn told_of_file<T>(
        &self,
        concerns_files: bool,
        ask: impl Fn() -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let told = ask()?;
        if concerns_files && self.link.until_asked_again() { ask() } else { Ok(told) }
    }

    /// Of an inode that has a name which nobody is taking away: if it has no other, it lost none.
    fn attributes_of_named(&self, ino: InodeId) -> Result<Found, Refused> {
        match self.remembered(ino) {
            Some(found) if found.attr.nlink == 1 => Ok(found),
            _ => self.attributes(ino),
        }
    }

    fn ask_attributes(&self, ino: InodeId) -> Result<Found, Refused> {
        let asked = self.asked();
        match self.call(&NodeRequest::GetAttr { ino })?.message {
            NodeReply::Attr { attr, grants } => Ok(self.found(asked, attr, grants)),
            other => Err(LinkError::unexpected("GetAttr", &other).into()),
        }
    }

    /// Attributes from memory; what the kernel changes without us is read from the part.
    fn remembered(&self, ino: InodeId) -> Option<Found> {
        let (mut attr, stamp, part) = {
            let mut shard = self.inodes.lock(ino);
            let attr = shard.attributes.get(ino, Instant::now())?.clone();
            let part = shard.nodes.get(&ino).and_then(|node| node.descriptor.clone());
            (attr, self.moments.now(), part)
        };
        if let (Some(part), Layout::Whole) = (part, &attr.layout) {
            overlay(&mut attr, &part)?;
        }
        Some(Found { attr, stamp })
    }

    fn set_attributes(&self, ino: InodeId, change: &MetaChange) -> Result<Found, Refused> {
        let _cuts = change.size.map(|_| self.gathering.cuts());
        self.hand_on(ino)?;
        if change.size.is_some() {
            self.demote(ino);
        }
        if change.mtime.is_some() {
            // What this node estimates of a directory was before it.
            self.inodes.lock(ino).attributes.remove(ino);
        }
        let asked = self.asked();
        match self.call(&NodeRequest::SetAttr { ino, change: *change })?.message {
            NodeReply::Attr { attr, grants } => Ok(self.learn_changed(asked, attr, grants)),
            other => Err(LinkError::unexpected("SetAttr", &other).into()),
        }
    }

    /// CACHE ends on this node by its own deed; opens that cache revalidate from now on. Tells
    /// whether there was something to end.
    fn demote(&self, ino: InodeId) -> bool {
        let mut shard = self.inodes.lock(ino);
        let Some(node) = shard.nodes.get_mut(&ino) else { return false };
        node.lose_cache()
    }

    fn invalidate(&self, ino: InodeId, drops: Drops) {
        if let Some(kernel) = self.kernel.get() {
            kernel.invalidate(ino, drops);
        }
    }

    fn local_use(&self, ino: InodeId) -> LocalUse {
        let shard = self.inodes.lock(ino);
        let Some(node) = shard.nodes.get(&ino) else { return LocalUse::default() };
        let (readers, writers) = node.open.handles();
        LocalUse { class: node.open.class(), readers, writers, cache: node.cache }
    }
}

/// The clock by which servers stamp directories: of a change it shows before what they show later.
fn wall_clock() -> TimeSpec {
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

impl Volume for AreaVolume {
    fn attach(&self, kernel: Arc<dyn KernelCaches>) {
        if self.area.kernel.set(kernel).is_ok() {
            let area: Weak<Area> = Arc::downgrade(&self.area);
            self.area.link.answer(area);
            if let Some(device) = self.area.kernel.get().and_then(|kernel| kernel.device()) {
                self.area.link.answer_kernel_at(device);
            }
        }
    }

    fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        self.area.lookup(parent, name)
    }

    fn attributes(&self, ino: InodeId) -> Result<Found, Refused> {
        self.area.attributes(ino)
    }

    fn keeps_acls(&self) -> bool {
        true
    }

    fn lasting_attributes(&self, ino: InodeId) -> Result<Attr, Refused> {
        let known = {
            let mut shard = self.area.inodes.lock(ino);
            shard.attributes.get_lasting(ino, Instant::now()).cloned()
        };
        let attr = match known {
            Some(attr) => attr,
            None => self.area.attributes(ino)?.attr,
        };
        if !attr.acls.as_ref().is_some_and(|acls| acls.in_tier) {
            return Ok(attr);
        }
        // The home asks the tier for both lists, and knows them from then on.
        match self.xattr(ino, ACCESS_NAME) {
            Err(refused) if refused.errno != libc::ENODATA => return Err(refused),
            _ => self.area.changed(ino),
        }
        Ok(self.area.attributes(ino)?.attr)
    }

    fn may_keep(&self, ino: InodeId, stamp: Stamp) -> bool {
        stamp != Stamp::NEVER && self.area.inodes.lock(ino).stamps.may_keep(ino, stamp)
    }

    fn answers(&self, attr: &Attr, asker: u32) -> bool {
        let mut shard = self.area.inodes.lock(attr.ino);
        let node = shard.nodes.get_mut(&attr.ino);
        let node = node.filter(|node| node.open.class() == Some(Class::Remote) && !node.cache);
        node.is_some_and(|node| {
            node.validated.answer((attr.mtime, attr.size), asker, Instant::now())
        })
    }

    fn forgotten(&self, ino: InodeId) {
        self.area.inodes.lock(ino).attributes.remove(ino);
    }

    fn set_attributes(&self, ino: InodeId, change: &MetaChange) -> Result<Found, Refused> {
        self.area.set_attributes(ino, change)
    }

    fn make(&self, node: NewNode) -> Result<Found, Refused> {
        self.area.make(node)
    }

    fn create(&self, node: NewNode, wish: OpenWish) -> Result<(Found, FileOpen), Refused> {
        self.area.create(node, wish)
    }

    fn link(&self, ino: InodeId, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        self.area.link_name(ino, parent, name)
    }

    fn remove(&self, parent: InodeId, name: &[u8], directory: bool) -> Result<(), Refused> {
        self.area.remove(parent, name, directory)
    }

    fn hand_over_removal(&self, parent: InodeId, name: &[u8], awaited: Awaited) {
        self.area.hand_over_removal(parent, name, awaited);
    }

    fn rename(
        &self,
        from: (InodeId, Name),
        to: (InodeId, Name),
        no_replace: bool,
        exchange: bool,
    ) -> Result<(), Refused> {
        self.area.rename(from, to, no_replace, exchange)
    }

    fn read_link(&self, ino: InodeId) -> Result<Vec<u8>, Refused> {
        match self.area.call(&NodeRequest::ReadLink { ino })?.message {
            NodeReply::Target(target) => Ok(target),
            other => Err(LinkError::unexpected("ReadLink", &other).into()),
        }
    }

    fn list(
        &self,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<Vec<Listed>, Refused> {
        self.area.list(dir, cookie, bytes, plus)
    }

    fn open(&self, ino: InodeId, wish: OpenWish) -> Result<FileOpen, Refused> {
        self.area.open(ino, wish)
    }

    fn release(&self, ino: InodeId, access: Access) {
        self.area.release(ino, access);
    }

    fn gathers_now(&self) -> bool {
        self.area.gathering.is_any()
    }

    fn read(
        &self,
        ino: InodeId,
        offset: u64,
        len: u32,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refused> {
        self.area.read(ino, offset, len, sink)
    }

    fn write(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<u32, Refused> {
        self.area.write(ino, offset, data)
    }

    fn append(&self, ino: InodeId, data: &[u8]) -> Result<u32, Refused> {
        self.area.append(ino, data)
    }

    fn transfer_bytes(&self) -> usize {
        self.area.link.slot_bytes()
    }

    fn lock(&self, ino: InodeId, lock: Lock, waiter: Option<u32>, told: LockTold) {
        self.area.lock(ino, lock, waiter, told);
    }

    fn unlock(&self, ino: InodeId, owner: u64, range: LockRange) -> Result<(), Refused> {
        self.area.unlock(ino, owner, range)
    }

    fn test_lock(&self, ino: InodeId, lock: Lock) -> Result<Option<LockHeld>, Refused> {
        match self.area.call(&NodeRequest::TestLock { ino, lock })?.message {
            NodeReply::LockHeld(held) => Ok(held),
            other => Err(LinkError::unexpected("TestLock", &other).into()),
        }
    }

    fn may_hold_locks(&self, ino: InodeId, owner: u64) -> bool {
        self.area.locks.may_hold(ino, owner)
    }

    fn allocate(&self, ino: InodeId, mode: i32, offset: u64, len: u64) -> Result<(), Refused> {
        let _cuts = self.area.gathering.cuts();
        self.area.hand_on(ino)?;
        let request = NodeRequest::Allocate { ino, mode, offset, len };
        let result = self.area.call_done("Allocate", &request);
        self.area.changed(ino);
        result
    }

    fn seek(&self, ino: InodeId, offset: u64, whence: u8) -> Result<u64, Refused> {
        self.area.hand_on(ino)?;
        match self.area.call(&NodeRequest::Seek { ino, offset, whence })?.message {
            NodeReply::Offset(found) => Ok(found),
            other => Err(LinkError::unexpected("Seek", &other).into()),
        }
    }

    fn copy_range(
        &self,
        from: (InodeId, u64),
        to: (InodeId, u64),
        len: u64,
    ) -> Result<u32, Refused> {
        self.area.copy_range(from, to, len)
    }

    fn sync(&self, ino: InodeId, data_only: bool) -> Result<(), Refused> {
        self.area.hand_on(ino)?;
        self.area.lost.check(ino)?;
        self.area.call_done("Fsync", &NodeRequest::Fsync { ino, data_only })
    }

    fn xattr(&self, ino: InodeId, name: &[u8]) -> Result<Vec<u8>, Refused> {
        match self.area.call(&NodeRequest::GetXattr { ino, name: name.to_vec() })?.message {
            NodeReply::Value(value) => Ok(value),
            other => Err(LinkError::unexpected("GetXattr", &other).into()),
        }
    }

    fn set_xattr(
        &self,
        ino: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Refused> {
        let (name, value) = (name.to_vec(), value.to_vec());
        let request = NodeRequest::SetXattr { ino, name, value, mode };
        let result = self.area.call_done("SetXattr", &request);
        self.area.changed(ino);
        result
    }

    fn list_xattrs(&self, ino: InodeId) -> Result<Vec<Name>, Refused> {
        match self.area.call(&NodeRequest::ListXattr { ino })?.message {
            NodeReply::Names(names) => Ok(names),
            other => Err(LinkError::unexpected("ListXattr", &other).into()),
        }
    }

    fn remove_xattr(&self, ino: InodeId, name: &[u8]) -> Result<(), Refused> {
        let request = NodeRequest::RemoveXattr { ino, name: name.to_vec() };
        let result = self.area.call_done("RemoveXattr", &request);
        self.area.changed(ino);
        result
    }

    fn usage(&self) -> Result<AreaUse, Refused> {
        self.usage_by(&NodeRequest::StatFs)
    }

    fn recorded(&self, ino: InodeId, step: RecordedStep) -> Result<(), Refused> {
        self.area.hand_on(ino)?;
        let request = NodeRequest::Recorded { ino, step };
        let result = self.area.call_done("Recorded", &request);
        self.area.changed(ino);
        result
    }

    fn explain(&self, ino: InodeId) -> Result<(Explained, LocalUse), Refused> {
        let _kept = self.area.hand_on_untold(ino);
        match self.area.call(&NodeRequest::Explain { ino })?.message {
            NodeReply::Explained(explained) => Ok((*explained, self.area.local_use(ino))),
            other => Err(LinkError::unexpected("Explain", &other).into()),
        }
    }
}
