//! Opening, creating, releasing.

mod closing;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use hayase_layout::{InodeId, Layout};
use hayase_wire::message::{
    Access, Attr, Grants, HeldOpen, MetaChange, Name, NewNode, NodeReply, NodeRequest, OpenKind,
    Opened, Opening, Refused,
};

use super::closer::Closer;
use super::inodes::{Node, Shard};
use super::known::{Asked, Known, wall_clock};
use super::lost::LostFiles;
use super::requests::Requests;
use crate::link::LinkError;
use crate::made_names::MadeNames;
use crate::open_file::{Class, Linger, Plan, Serving, is_none};
use crate::volume::{Drops, FileOpen, Found, OpenWish};

/// Opens files, and gives opens back.
pub(super) struct Opens {
    known: Arc<Known>,
    requests: Requests,
    made: Arc<MadeNames>,
    lost: Arc<LostFiles>,
    closer: Closer,
    linger: Linger,
    /// Opens that the server was asked for: the last one's number.
    opens_asked: AtomicU64,
    /// Creates whose answer has not been booked: a recall may name their inode before.
    creating: AtomicUsize,
    /// Descriptors of class [`Class::Remote`].
    remote_handles: AtomicUsize,
}

/// What a recall left of an inode's opens.
pub(super) struct Recalled {
    pub(super) access: Access,
    /// The number of the last open that the server was asked for.
    pub(super) as_of: u64,
    pub(super) class: Option<Class>,
    /// Names of a directory that the kernel was given from here.
    pub(super) names: Vec<Name>,
}

impl Opens {
    /// Closed opens stay at their homes for `linger`.
    pub(super) fn new(
        known: Arc<Known>,
        requests: Requests,
        made: Arc<MadeNames>,
        lost: Arc<LostFiles>,
        linger: Linger,
    ) -> Self {
        Self {
            known,
            requests,
            made,
            lost,
            closer: Closer::default(),
            linger,
            opens_asked: AtomicU64::new(0),
            creating: AtomicUsize::new(0),
            remote_handles: AtomicUsize::new(0),
        }
    }

    /// Ends the threads that close and refresh.
    pub(super) fn stop(&self) {
        self.closer.stop();
    }

    /// Numbers an open; of an inode that is known, under its lock.
    fn opening(&self, access: Access, kind: OpenKind) -> Opening {
        Opening { access, kind, number: self.opens_asked.fetch_add(1, Ordering::SeqCst) + 1 }
    }

    /// Decided under the inode's lock; a message only when the home does not count it yet.
    pub(super) fn open(&self, ino: InodeId, wish: OpenWish) -> Result<FileOpen, Refused> {
        let opening = {
            let mut shard = self.known.table().lock(ino);
            loop {
                let node = shard.nodes.entry(ino).or_default();
                match node.open.plan(wish.access, wish.truncate, serving(wish)) {
                    Plan::Ready => return Ok(self.hand_out(node, wish)),
                    Plan::Wait => shard = self.known.table().wait(ino, shard),
                    Plan::Ask { access, kind } => {
                        node.open.ask(access, wish.access);
                        break self.opening(access, kind);
                    }
                }
            }
        };
        // Who opens for writing gives back by itself; the home recalls only the others.
        let writes = (opening.access.write || wish.truncate) && opening.kind == OpenKind::Remote;
        if writes && self.known.demote(ino) {
            self.known.invalidate(ino, Drops::Pages);
        }
        let asked = self.known.asked();
        let answer = self.ask_open(ino, opening, wish.truncate);
        self.book_open(ino, wish, opening.kind, asked, answer)
    }

    fn ask_open(
        &self,
        ino: InodeId,
        open: Opening,
        truncate: bool,
    ) -> Result<(Opened, Option<OwnedFd>), Refused> {
        if is_none(open.access) {
            // Held already, only to be truncated.
            let change = MetaChange { size: Some(0), ..MetaChange::default() };
            return match self.requests.call(&NodeRequest::SetAttr { ino, change })?.message {
                NodeReply::Attr { attr, grants } => {
                    Ok((Opened { attr, grants, writing: true, descriptor: false }, None))
                }
                other => Err(LinkError::unexpected("SetAttr", &other).into()),
            };
        }
        let reply = self.requests.call(&NodeRequest::Open { ino, open, truncate })?;
        match reply.message {
            NodeReply::Opened(opened) => Ok((*opened, reply.descriptor)),
            other => Err(LinkError::unexpected("Open", &other).into()),
        }
    }

    fn book_open(
        &self,
        ino: InodeId,
        wish: OpenWish,
        kind: OpenKind,
        asked: Asked,
        answer: Result<(Opened, Option<OwnedFd>), Refused>,
    ) -> Result<FileOpen, Refused> {
        let answer = answer.map(|(opened, part)| (opened, part.map(Arc::new)));
        let mut shard = self.known.table().lock(ino);
        let keep = shard.stamps.may_keep(ino, asked.stamp);
        let node = shard.nodes.entry(ino).or_default();
        let result = match answer {
            Ok((opened, part)) => {
                let class = class_of(kind, part.is_some());
                node.open.agreed(class);
                let lost = settle_grants(node, &opened.attr, opened.grants, keep, part);
                Ok((self.hand_out(node, wish), opened, lost))
            }
            Err(refused) => {
                node.open.refused();
                if node.open.is_unused() {
                    shard.nodes.remove(&ino);
                } else {
                    // What a recall has left for its sake.
                    self.queue(&mut shard, ino);
                }
                Err(refused)
            }
        };
        self.known.table().answered(ino, shard);
        let (open, mut opened, lost) = result?;
        if lost {
            self.known.invalidate(ino, Drops::Pages);
        }
        if wish.truncate {
            self.known.learn_changed(asked, opened.attr, opened.grants);
        } else {
            self.known.learn(asked, &mut opened.attr, opened.grants);
        }
        Ok(open)
    }

    /// Counts a descriptor of the kernel (or program) and says how it is served.
    fn hand_out(&self, node: &mut Node, wish: OpenWish) -> FileOpen {
        node.open.add(wish.access);
        let class = node.open.class().expect("an open that the home counts has a class");
        match class {
            Class::Local => node.written |= wish.access.write,
            Class::Remote => {
                self.remote_handles.fetch_add(1, Ordering::Relaxed);
                self.closer.remote_opened();
            }
        }
        let cache = class == Class::Remote && node.cache && !wish.uncached;
        let keep_pages = cache && node.pages_valid;
        // An open that may cache and keeps nothing begins with no pages at all.
        node.pages_valid |= cache;
        node.validated.has_pages |= cache;
        FileOpen {
            class,
            descriptor: node.descriptor.clone(),
            cache,
            keep_pages,
            striped: node.striped,
        }
    }

    /// One message: the inode, its name and its first open. What is written here is often read here
    /// next, so a part on this node is held for reading too, as if it had been read and lingered.
    pub(super) fn create(
        &self,
        mut node: NewNode,
        wish: OpenWish,
    ) -> Result<(Found, FileOpen), Refused> {
        let kind = match serving(wish) {
            Serving::Descriptor => OpenKind::Local,
            Serving::CachedWriter if wish.access.write => OpenKind::RemoteCachedWriter,
            Serving::CachedWriter | Serving::Messages => OpenKind::Remote,
        };
        let parent = node.parent;
        node.exclusive = true;
        let held = Access { read: wish.access.read || kind == OpenKind::Local, ..wish.access };
        node.open = Some(self.opening(held, kind));
        self.creating.fetch_add(1, Ordering::SeqCst);
        let name = node.name.clone();
        self.made.add(parent, &name);
        let (asked, before) = (self.known.asked(), wall_clock());
        let reply = self.requests.call(&NodeRequest::Create(node));
        let booked = reply.and_then(|reply| match reply.message {
            NodeReply::Created(created) => match created.opened {
                Some(opened) => {
                    self.made.bound(parent, &name, opened.attr.ino);
                    let part = reply.descriptor.map(Arc::new);
                    Ok(self.book_created(asked, (held, kind), wish, opened, part))
                }
                None => Err(Refused::because(libc::EIO, "the server created but did not open")),
            },
            other => Err(LinkError::unexpected("Create", &other).into()),
        });
        self.creating.fetch_sub(1, Ordering::SeqCst);
        self.known.entries_changed(parent, before);
        booked
    }

    fn book_created(
        &self,
        asked: Asked,
        (held, kind): (Access, OpenKind),
        wish: OpenWish,
        opened: Opened,
        part: Option<Arc<OwnedFd>>,
    ) -> (Found, FileOpen) {
        let ino = opened.attr.ino;
        let open = {
            let mut shard = self.known.table().lock(ino);
            let keep = shard.stamps.may_keep(ino, asked.stamp);
            let node = shard.nodes.entry(ino).or_default();
            node.open.made(held, class_of(kind, part.is_some()), Instant::now());
            settle_grants(node, &opened.attr, opened.grants, keep, part);
            self.hand_out(node, wish)
        };
        (self.known.found(asked, opened.attr, opened.grants), open)
    }

    /// The last release begins the lingering; nothing waits for the server.
    pub(super) fn release(&self, ino: InodeId, access: Access) {
        let mut shard = self.known.table().lock(ino);
        let Some(node) = shard.nodes.get_mut(&ino) else { return };
        node.open.release(access, Instant::now());
        if node.open.class() == Some(Class::Remote) {
            self.remote_handles.fetch_sub(1, Ordering::Relaxed);
        }
        if !node.open.is_open() {
            if self.lost.closed(ino) {
                // The server forgets the loss with the close that it is told of.
                node.open.end_lingering();
            }
            self.release_if_unheld(&mut shard, ino);
        }
        self.queue(&mut shard, ino);
    }

    /// Has the closer look at an inode when something of it has lingered long enough.
    pub(super) fn queue(&self, shard: &mut Shard, ino: InodeId) {
        let Some(node) = shard.nodes.get_mut(&ino) else { return };
        let Some(due) = node.open.due(self.linger) else { return };
        if node.queued.is_none_or(|queued| due < queued) {
            node.queued = Some(self.closer.push(due, ino));
        }
    }

    /// Drops what only opens need, and the inode itself when nothing is on its way either.
    pub(super) fn release_if_unheld(&self, shard: &mut Shard, ino: InodeId) {
        let Some(node) = shard.nodes.get_mut(&ino) else { return };
        if node.open.class().is_some() {
            return;
        }
        node.lose_cache();
        if node.descriptor.take().is_some()
            && let Some(kernel) = self.known.kernel()
        {
            kernel.release_descriptor(ino);
        }
        let written = std::mem::take(&mut node.written);
        if node.open.is_unused() {
            shard.nodes.remove(&ino);
        }
        if written {
            self.known.stamp(shard, ino);
            shard.attributes.remove(ino);
        }
    }

    /// What this process holds of these inodes, as their homes count it.
    pub(super) fn held_where(&self, is_meant: impl Fn(InodeId) -> bool) -> Vec<HeldOpen> {
        let mut opens = Vec::new();
        let number = self.opens_asked.load(Ordering::SeqCst);
        self.known.table().for_each(|shard| {
            for (ino, node) in shard.nodes.iter().filter(|(ino, _)| is_meant(**ino)) {
                let access = node.open.held();
                if !is_none(access) {
                    let kind = match node.open.class() {
                        Some(Class::Local) => OpenKind::Local,
                        _ => OpenKind::Remote,
                    };
                    opens.push(HeldOpen { ino: *ino, open: Opening { access, kind, number } });
                }
            }
        });
        opens
    }

    /// Nothing is granted any more when this returns; what the kernel has is dropped by the caller.
    pub(super) fn recall(&self, ino: InodeId, bits: Grants) -> Recalled {
        let mut names = Vec::new();
        let mut shard = self.known.table().lock(ino);
        self.known.stamp(&mut shard, ino);
        shard.attributes.remove(ino);
        if bits.cache {
            names = self.made.end(ino);
        }
        // Under the inode's lock: what it is asked for from now on has a higher number.
        let as_of = self.opens_asked.load(Ordering::SeqCst);
        let (access, class) = match shard.nodes.get_mut(&ino) {
            Some(node) => {
                if bits.cache {
                    node.lose_cache();
                }
                let class = node.open.class();
                let still_open = node.open.recall();
                self.release_if_unheld(&mut shard, ino);
                (still_open, class)
            }
            // Perhaps a file being created here, whose answer is on its way.
            None if self.creating.load(Ordering::SeqCst) > 0 => {
                (Access { read: true, write: true }, None)
            }
            None => (Access::default(), None),
        };
        Recalled { access, as_of, class, names }
    }
}

/// What the asker can do for this open: bytes at the end or around the cache are never cached.
fn serving(wish: OpenWish) -> Serving {
    match wish.serving {
        Serving::CachedWriter if wish.uncached => Serving::Messages,
        serving => serving,
    }
}

fn class_of(kind: OpenKind, has_descriptor: bool) -> Class {
    if kind == OpenKind::Local && has_descriptor { Class::Local } else { Class::Remote }
}

/// Takes over what the home granted; tells whether pages cached here must go.
fn settle_grants(
    node: &mut Node,
    attr: &Attr,
    grants: Grants,
    keep: bool,
    part: Option<Arc<OwnedFd>>,
) -> bool {
    node.striped = matches!(attr.layout, Layout::Striped { .. });
    if node.open.class() == Some(Class::Local) {
        if node.descriptor.is_none() {
            node.descriptor = part;
        }
        return false;
    }
    if grants.cache && keep {
        node.cache = true;
        return false;
    }
    node.lose_cache()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::server::Parts;
    use crate::testing::{FakeServer, new_file};
    use crate::volume::Volume;
    use crate::{AreaSettings, AreaVolume, Link};

    const READ: Access = Access { read: true, write: false };
    const WRITE: Access = Access { read: false, write: true };
    const BOTH: Access = Access { read: true, write: true };
    /// Longer than any test.
    const HOUR: Duration = Duration::from_secs(3600);

    fn wish(access: Access, truncate: bool) -> OpenWish {
        OpenWish { access, truncate, serving: Serving::Messages, uncached: false }
    }

    /// An open that takes over what lingers, while the home takes that back.
    #[test]
    fn an_open_on_its_way_keeps_what_lingers_when_it_is_recalled() {
        for (request, access, truncate) in
            [("Open", BOTH, false), ("Open", READ, false), ("SetAttr", WRITE, true)]
        {
            let parts = tempfile::tempdir().unwrap();
            let server = Arc::new(FakeServer::new(parts.path().to_owned(), Parts::Elsewhere));
            let link: Arc<dyn Link> = Arc::clone(&server) as _;
            let linger = Linger { read: HOUR, write: HOUR, nameless: HOUR };
            let volume = AreaVolume::new(link, AreaSettings { linger, gathers: false }).unwrap();
            volume.answer_callbacks();
            let ino = volume.create(new_file("file"), wish(WRITE, false)).unwrap().0.attr.ino;
            volume.release(ino, WRITE);

            server.hold_up(Some(request));
            let before = server.count(request);
            let (told, opened) = std::thread::scope(|scope| {
                let open = scope.spawn(|| volume.open(ino, wish(access, truncate)));
                let until = Instant::now() + Duration::from_secs(30);
                while server.count(request) == before && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let told = server.recall(ino, Grants::ALL);
                server.hold_up(None);
                (told, open.join().unwrap())
            });
            opened.unwrap();
            assert_eq!(told, access, "{request}");
            assert_eq!(server.opens(ino), access, "{request}: what the home counts");
        }
    }
}
