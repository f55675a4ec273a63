//! Opening, and telling the metadata server at the end.
//!
//! Every open of the kernel is one of Gfarm: that is what makes a close on one host seen by the next open on
//! another. What the kernel keeps of the file is dropped when the open finds another version, or when a look does
//! ([`Opens::follow`]): what an open of Gfarm reads may be a copy that stays as it was.
//!
//! Several processes may use one open, and each close of one of them ends Gfarm's: it is taken out of its slot, which
//! the next call fills again ([`Opens::usable`]), and closed when those that found it there are done ([`Node::using`]).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock, PoisonError, RwLockReadGuard, TryLockError};
use std::time::{Instant, SystemTime};

use hayase_layout::InodeId;
use hayase_tier::gfarm_lane::{FileId, Kind, Opened, Request};
use hayase_wire::message::{Access, NewNode, Refused};

use super::bursts::{Bursts, Making};
use super::closer::Closer;
use super::metadata::Metadata;
use super::nodes::Node;
use super::open_file::{Leaving, Plain, Released, Slot, Telling, Usable, Version, version};
use super::refused;
use crate::open_file::{Class, Serving};
use crate::volume::{Drops, FileOpen, Found, KernelCaches, OpenWish};

/// What is open, and what is still to be closed.
pub(super) struct Opens {
    metadata: Arc<Metadata>,
    bursts: Bursts,
    closer: Arc<Closer>,
    kernel: OnceLock<Arc<dyn KernelCaches>>,
}

impl Opens {
    /// Starts the threads that close.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(metadata: Arc<Metadata>) -> io::Result<Arc<Self>> {
        let (bursts, closer) = (Bursts::default(), Arc::<Closer>::default());
        let this = Arc::new(Self { metadata, bursts, closer, kernel: OnceLock::new() });
        let opens = Arc::downgrade(&this);
        let finish = move |node: &Arc<Node>, leaving: &Leaving| {
            if let Some(opens) = opens.upgrade() {
                opens.finish(node, leaving);
            }
        };
        Closer::start(&this.closer, &finish)?;
        Ok(this)
    }

    /// The kernel whose caches follow what is found here.
    pub(super) fn attach(&self, kernel: Arc<dyn KernelCaches>) {
        // Once per mount.
        let _ = self.kernel.set(kernel);
    }

    /// Returns when everything that was released is closed.
    pub(super) fn drain(&self) {
        self.closer.drain();
    }

    pub(super) fn open(&self, ino: InodeId, wish: OpenWish) -> Result<FileOpen, Refused> {
        let node = self.metadata.nodes().get(ino)?;
        let path = self.metadata.nodes().path(ino)?;
        // Who may not write may not empty it either.
        let (write, truncate) = (wish.access.write || wish.truncate, wish.truncate);
        let told_before = node.lock().file.told_here;
        let opened = self.metadata.lanes().open(&Request::Open { path, write, truncate });
        let opened = opened.map_err(|lost| self.metadata.gone(refused(lost)))?;
        if opened.stat.ino != node.gfarm || opened.stat.kind != Kind::File {
            self.close_quietly(opened.file);
            return Err(self.metadata.replaced("another host put something else there"));
        }
        if write || truncate {
            self.metadata.look_ahead().changed();
        }
        self.admit(&node, wish, opened, told_before)
    }

    pub(super) fn create(
        &self,
        new: &NewNode,
        wish: OpenWish,
    ) -> Result<(Found, FileOpen), Refused> {
        let path = self.metadata.nodes().path_in(new.parent, &new.name)?;
        let Making { place, like } = self.bursts.next(new.parent, new.mode, Instant::now());
        let request = Request::Create { path, mode: new.mode, place, like };
        let opened = self.metadata.lanes().open(&request).map_err(refused)?;
        let stat = opened.stat;
        self.metadata.file_was_made(new.parent, stat.ctime);
        if like.is_none() {
            self.bursts.told(new.parent, new.mode, stat, Instant::now());
        }
        let node = self.metadata.nodes().seen(new.parent, &new.name, stat);
        let told_before = node.lock().file.told_here;
        let open = self.admit(&node, wish, opened, told_before)?;
        node.lock().file.made(new.parent, place);
        Ok((self.metadata.found(&node), open))
    }

    /// The open joins those that are there.
    fn admit(
        &self,
        node: &Arc<Node>,
        wish: OpenWish,
        opened: Opened,
        told_before: u64,
    ) -> Result<FileOpen, Refused> {
        let _alone = node.joining.lock().unwrap_or_else(PoisonError::into_inner);
        let Opened { file, stat, descriptor } = self.renewed(node, wish, opened, told_before)?;
        let version = version(&stat);
        let descriptor = descriptor.map(Arc::new);
        let plain = match descriptor.as_ref().map(Plain::of).transpose() {
            Ok(plain) => plain,
            Err(error) => {
                self.close_quietly(file);
                return Err(system(&error));
            }
        };
        self.leave_behind(node, version);
        let mut state = node.lock();
        let class = match state.file.class {
            Some(class) => class,
            None if plain.is_some() && wish.serving == Serving::Descriptor => Class::Local,
            None => Class::Remote,
        };
        let others = state.file.reads.as_ref().and_then(|file| Plain::of(file).ok());
        let moved =
            others.is_some_and(|others| !plain.is_some_and(|now| now.is_same_file(&others)));
        if class == Class::Local && moved {
            drop(state);
            self.metadata.nodes().retire(node);
            self.close_quietly(file);
            return Err(Refused::new(libc::ESTALE));
        }
        let is_new_version = self::version(&state.seen) != version;
        state.seen = stat;
        state.file.newest = state.file.newest.max(stat.generation);
        let keep_pages = state.file.pages.replace(version) == Some(version);
        let open = &mut state.file;
        let readers = match class == Class::Remote && wish.access.write {
            true => open.take_readers(),
            false => Vec::new(),
        };
        open.class = Some(class);
        // What this one writes goes past what the others have open.
        open.untouched = false;
        open.slots.push(Slot { access: wish.access, file: Some(file) });
        if wish.access.write {
            match (&descriptor, plain) {
                (Some(here), Some(plain)) => {
                    open.writes = Some(Arc::clone(here));
                    open.told = Some((plain, SystemTime::now()));
                }
                _ => open.size = Some(open.size.unwrap_or(0).max(stat.size)),
            }
            // Its pages are written through: what others see at the next open is another version.
            open.pages = None;
        }
        if wish.truncate {
            open.size = open.size.map(|_| 0);
        }
        if moved && descriptor.is_none() {
            open.reads = None; // the copy on this host is of an older version
        }
        // One that may write may also read.
        if descriptor.is_some() && (moved || open.reads.is_none() || wish.access.write) {
            open.reads.clone_from(&descriptor);
        }
        drop(state);
        self.close_later(node, readers);
        if is_new_version && let Some(kernel) = self.kernel.get() {
            kernel.invalidate(node.ino, Drops::Attributes);
        }
        let cache = class == Class::Remote && !wish.uncached;
        let descriptor = descriptor.filter(|_| class == Class::Local);
        Ok(FileOpen { class, descriptor, cache, keep_pages: cache && keep_pages, striped: false })
    }

    /// An open's answer may have been on its way while a look told of a newer version, or while what was written here was
    /// closed (`told_before` is `told_here` of the file when the open was asked for). The kernel would be told of a smaller
    /// file then, and put zeros behind its end under whoever reads it: the open is made again. Below [`Node::joining`], so that nothing newer is told meanwhile.
    fn renewed(
        &self,
        node: &Node,
        wish: OpenWish,
        opened: Opened,
        told_before: u64,
    ) -> Result<Opened, Refused> {
        let is_true = {
            let file = &node.lock().file;
            opened.stat.generation >= file.newest && file.told_here == told_before
        };
        if wish.truncate || is_true {
            return Ok(opened);
        }
        self.close_quietly(opened.file);
        self.reopen(node, wish.access.write).map_err(|why| self.metadata.gone(why))
    }

    /// An open found this version: readers of another one get this one from now on, and the kernel drops their pages
    /// before it is told of the new size.
    fn leave_behind(&self, node: &Arc<Node>, version: Version) {
        let readers = {
            let file = &mut node.lock().file;
            if !file.is_behind(version) {
                return;
            }
            file.reads = None;
            file.take_readers()
        };
        self.drop_pages(node);
        self.close_later(node, readers);
    }

    /// The metadata server was asked, and may have told of another version than the one that is read here: that one is
    /// read from now on. When it can not be opened, the file stays as it was for those who have it open.
    /// Waits for reads.
    pub(super) fn follow(&self, node: &Arc<Node>) {
        let is_behind = || {
            let state = node.lock();
            state.file.is_behind(version(&state.seen))
        };
        if !is_behind() {
            return;
        }
        let _alone = match node.joining.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            Err(TryLockError::WouldBlock) => return, // it follows already
        };
        if is_behind()
            && let Err(why) = self.follow_alone(node)
        {
            tracing::debug!(ino = node.gfarm, %why, "another version can not be opened");
        }
    }

    fn follow_alone(&self, node: &Arc<Node>) -> Result<(), Refused> {
        let opened = self.reopen(node, false)?;
        let readers = {
            let mut state = node.lock();
            if !state.file.is_only_read() {
                drop(state);
                self.close_quietly(opened.file);
                return Ok(());
            }
            state.seen = opened.stat;
            state.file.newest = state.file.newest.max(opened.stat.generation);
            let readers = state.file.take_readers();
            state.file.refill(opened.file, false);
            state.file.reads = opened.descriptor.map(Arc::new);
            readers
        };
        self.drop_pages(node);
        self.close_later(node, readers);
        let file = &mut node.lock().file;
        if file.is_only_read() {
            file.pages = Some(version(&opened.stat));
        }
        Ok(())
    }

    fn drop_pages(&self, node: &Node) {
        if let Some(kernel) = self.kernel.get() {
            kernel.invalidate(node.ino, Drops::Pages);
        }
    }

    /// Opens that only read, when those that use them are done.
    fn close_later(&self, node: &Arc<Node>, readers: Vec<FileId>) {
        for file in readers {
            let leaving = Leaving { file: Some(file), writes: None, told: None };
            self.closer.submit(Arc::clone(node), leaving);
        }
    }

    /// An open of Gfarm for what the kernel has open, made again when it was closed. Below [`Node::using`].
    pub(super) fn usable(&self, node: &Node, write: bool) -> Result<FileId, Refused> {
        if write {
            node.lock().file.untouched = false;
        }
        loop {
            let for_writing = match node.lock().file.usable(write) {
                None => return Err(Refused::new(libc::EBADF)),
                Some(Usable::Open(file)) => return Ok(file),
                Some(Usable::Closed { write }) => write,
            };
            let file = self.reopen(node, for_writing)?.file;
            if node.lock().file.refill(file, for_writing) {
                return Ok(file);
            }
            self.close_quietly(file); // another thread was faster
        }
    }

    /// A name of it is about to go, perhaps the last: what the kernel has open must be open with Gfarm until then, or
    /// Gfarm forgets the bytes. A close during that waits for the end of what is returned, and gives its open back.
    pub(super) fn hold<'a>(&self, node: &'a Node) -> RwLockReadGuard<'a, ()> {
        let using = node.using();
        let (is_elsewhere, write) = {
            let file = &node.lock().file;
            (file.reads.is_none() && !file.slots.is_empty(), file.has_writers())
        };
        if is_elsewhere && let Err(why) = self.usable(node, write) {
            tracing::debug!(ino = node.gfarm, %why, "it is lost when this was its last name");
        }
        using
    }

    fn reopen(&self, node: &Node, write: bool) -> Result<Opened, Refused> {
        let path = self.metadata.nodes().path(node.ino)?;
        let opened = self.metadata.lanes().open(&Request::Open { path, write, truncate: false });
        let opened = opened.map_err(refused)?;
        if opened.stat.ino != node.gfarm {
            self.close_quietly(opened.file);
            return Err(Refused::because(libc::ESTALE, "the file was replaced while it was open"));
        }
        Ok(opened)
    }

    /// This open failed: the next call opens another one, perhaps on another host.
    pub(super) fn give_up(&self, node: &Node, file: FileId) {
        let mut state = node.lock();
        let slot = state.file.slots.iter_mut().find(|slot| slot.file == Some(file));
        let had = slot.and_then(|slot| slot.file.take());
        drop(state);
        if had.is_some() {
            node.wait_for_users();
            self.close_quietly(file);
        }
    }

    /// A descriptor that may write was closed.
    pub(super) fn closed(&self, ino: InodeId) -> Result<(), Refused> {
        let node = self.metadata.nodes().get(ino)?;
        let (leaving, failed) = {
            let mut state = node.lock();
            if state.file.is_as_made() && self.closer.has_room() {
                return Ok(());
            }
            (state.file.writer_closes(), state.file.failed.take())
        };
        let told = leaving.map_or(Ok(()), |leaving| self.tell(&node, &leaving));
        match failed {
            Some(errno) => Err(Refused::because(errno, "bytes that were written are lost")),
            None => told,
        }
    }

    /// The kernel gives an open back; the rest is done by another thread.
    pub(super) fn release(&self, ino: InodeId, access: Access) {
        let Ok(node) = self.metadata.nodes().get(ino) else { return };
        let mut state = node.lock();
        let made = access.write.then(|| state.file.maker_closes()).flatten();
        let Some(Released { leaving, readers, is_last }) = state.file.release(access) else {
            return;
        };
        if is_last && let Some(kernel) = self.kernel.get() {
            kernel.release_descriptor(ino);
        }
        drop(state);
        if let Some((dir, is_empty)) = made {
            self.bursts.closed(dir, is_empty);
        }
        self.close_later(&node, readers);
        if leaving.file.is_some() || leaving.writes.is_some() {
            self.closer.submit(node, leaving);
        }
    }

    /// What the closer does with it.
    fn finish(&self, node: &Arc<Node>, leaving: &Leaving) {
        let told = match (&leaving.writes, leaving.file) {
            (None, Some(file)) => {
                node.wait_for_users();
                self.metadata.lanes().close(file, None).map_err(refused)
            }
            _ => self.tell(node, leaving),
        };
        if let Err(why) = told {
            tracing::error!(ino = node.gfarm, %why, "failed to tell Gfarm that a file was closed");
        }
    }

    /// Lets the metadata server know what was written, before it returns.
    fn tell(&self, node: &Arc<Node>, leaving: &Leaving) -> Result<(), Refused> {
        node.wait_for_users();
        let told = self.tell_alone(node, leaving);
        self.metadata.look_ahead().changed();
        told
    }

    fn tell_alone(&self, node: &Arc<Node>, leaving: &Leaving) -> Result<(), Refused> {
        if leaving.file.is_some_and(|file| node.lock().file.takes_back(file)) {
            return Ok(()); // its last name went meanwhile: there is nobody to be told
        }
        let writes = leaving.writes.as_deref();
        let now = writes.map(Plain::of).transpose().map_err(|error| system(&error))?;
        let mut telling = leaving.telling(now.as_ref());
        let mut file = leaving.file;
        loop {
            if telling == Telling::Reopen {
                file = Some(self.reopen_same(node, now.as_ref())?);
            }
            let Some(file) = file.filter(|_| telling != Telling::Nothing) else { break };
            let mark = matches!(telling, Telling::MarkAndClose | Telling::Reopen);
            let len =
                writes.zip(now).filter(|_| mark).and_then(|(writes, now)| touch(writes, &now));
            match self.metadata.lanes().close(file, len) {
                Ok(()) => break,
                // Lost with its process; the bytes are here.
                Err(lost) if lost.broken && now.is_some() && telling != Telling::Reopen => {
                    telling = Telling::Reopen;
                }
                Err(lost) => return Err(refused(lost)),
            }
        }
        let after = writes.and_then(|writes| Plain::of(writes).ok());
        let times = {
            let mut state = node.lock();
            state.file.told_here += 1;
            if let Some(after) = after {
                state.file.told = Some((after, SystemTime::now()));
            }
            // When it was written since, the times that were set are old.
            state.file.times.take().filter(|times| times.plain == now)
        };
        let Some(times) = times else { return Ok(()) };
        let path = match self.metadata.own_path(node) {
            Ok(path) => path,
            // It has no name any more that this host knows of: nobody here sees its times.
            Err(why) if why.errno == libc::ESTALE => return Ok(()),
            Err(why) => return Err(why),
        };
        self.metadata.done(&Request::SetTimes { path, atime: times.atime, mtime: times.mtime })
    }

    fn reopen_same(&self, node: &Node, now: Option<&Plain>) -> Result<FileId, Refused> {
        let Opened { file, descriptor, .. } = self.reopen(node, true)?;
        let plain = descriptor.and_then(|descriptor| Plain::of(descriptor).ok());
        if plain.zip(now).is_some_and(|(plain, now)| plain.is_same_file(now)) {
            return Ok(file);
        }
        self.close_quietly(file);
        let why = "the file was moved to another host while it was written here";
        Err(Refused::because(libc::EIO, why))
    }

    /// What nobody waits for.
    pub(super) fn close_quietly(&self, file: FileId) {
        if let Err(lost) = self.metadata.lanes().close(file, None) {
            tracing::debug!(%lost, "close");
        }
    }
}

/// Gives the plain file another time, so that Gfarm's server sees a change. Where that is not allowed: the
/// length that, when it is set again, is a change too.
fn touch(writes: &OwnedFd, now: &Plain) -> Option<u64> {
    let time = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    for _ in 0..TOUCHES_MAX {
        if rustix::fs::futimens(writes, &times).is_err() {
            break;
        }
        if Plain::of(writes).is_ok_and(|after| after.mtime != now.mtime) {
            return None;
        }
        std::thread::sleep(TOUCH_PAUSE);
    }
    Some(now.size)
}

/// The clock of files goes in steps of a few milliseconds.
const TOUCHES_MAX: usize = 20;
const TOUCH_PAUSE: std::time::Duration = std::time::Duration::from_millis(2);

pub(super) fn system(error: &io::Error) -> Refused {
    Refused::because(error.raw_os_error().unwrap_or(libc::EIO), error.to_string())
}
