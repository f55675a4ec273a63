//! The mount of one node: what a kernel and the FUSE daemon would keep and ask, without either.
//!
//! It caches pages of files that it was granted, answers recalls, counts opens per inode, and sends
//! all else to its server. Class R only: bytes that a kernel writes past the servers
//! (passthrough) are not simulated.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use hayase_layout::{InodeId, StripePolicy};
use hayase_server::{AnswerCallback, LocalProcess, LocalServer, ServerGone};
use hayase_wire::Arena;
use hayase_wire::message::{
    Access, Callback, CallbackReply, Close, FileKind, HeldLock, Lock, LockAnswer, LockKind,
    LockRange, NewNode, NodeReply, NodeRequest, OpenKind, Opening, Refused, SlotRange, StillOpen,
};
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore, oneshot};

/// Bytes of one value; a file is an array of them, far apart.
pub(crate) const VALUE_BYTES: usize = 8;

/// Requests with bytes that are under way at once.
const SLOTS: usize = 16;

/// Why a call has no answer, or which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server said no. `EIO`: perhaps it happened all the same.
    Refused(i32),
    /// The server died meanwhile.
    Gone,
}

impl Failure {
    /// Whether the call may have happened.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Gone | Self::Refused(5))
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused.errno)
    }
}

impl From<ServerGone> for Failure {
    fn from(_: ServerGone) -> Self {
        Self::Gone
    }
}

/// One node's mount.
pub(crate) struct Mount {
    process: LocalProcess,
    arena: Arena,
    slots: Semaphore,
    kept: Rc<Kept>,
    /// Opens and closes of one inode go one after the other.
    orders: RefCell<HashMap<InodeId, Arc<Mutex<()>>>>,
}

/// What recalls look at.
#[derive(Default)]
struct Kept {
    files: RefCell<HashMap<InodeId, File>>,
    /// Opens that were asked for, the last one's number.
    asked: Cell<u64>,
    /// Waits for locks, by ticket.
    tickets: RefCell<HashMap<u64, oneshot::Sender<()>>>,
    /// What is held, by file and owner.
    locks: RefCell<BTreeMap<(InodeId, u64), Lock>>,
    ticket: Cell<u64>,
}

/// What is known of one inode.
#[derive(Default)]
struct File {
    readers: u32,
    writers: u32,
    /// Being asked for.
    coming: Access,
    /// Values at offsets; `None` without a grant.
    pages: Option<HashMap<u64, u64>>,
    /// Recalls and own writers so far: an answer asked for before one is not kept.
    recalls: u64,
}

impl File {
    fn access(&self) -> Access {
        Access {
            read: self.readers > 0 || self.coming.read,
            write: self.writers > 0 || self.coming.write,
        }
    }
}

/// An open file. To be closed by [`Mount::close`].
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) ino: InodeId,
    access: Access,
}

impl Kept {
    fn answer(&self, callback: &Callback) -> CallbackReply {
        match *callback {
            Callback::Recall { ino, bits } => {
                let mut files = self.files.borrow_mut();
                let file = files.entry(ino).or_default();
                if bits.cache {
                    file.pages = None;
                }
                file.recalls += 1;
                CallbackReply::Recalled(StillOpen {
                    access: file.access(),
                    as_of: self.asked.get(),
                })
            }
            Callback::InvalName { .. } => CallbackReply::Forgotten,
            Callback::LockGranted { ticket } => {
                if let Some(waiter) = self.tickets.borrow_mut().remove(&ticket) {
                    let _gave_up = waiter.send(());
                }
                CallbackReply::Told
            }
            Callback::HomeLost { home } => {
                self.forget(|ino| ino.home() == home);
                let held = self.locks.borrow();
                let there = held.iter().filter(|((ino, _), _)| ino.home() == home);
                let locks = there.map(|((ino, _), lock)| held_lock(*ino, *lock)).collect();
                CallbackReply::Holds { locks }
            }
            Callback::HomeDead { home } => {
                self.forget(|ino| ino.home() == home);
                CallbackReply::Told
            }
            Callback::Lost { ref inodes } => {
                self.forget(|ino| inodes.contains(&ino));
                CallbackReply::Told
            }
            Callback::Ping => CallbackReply::Pong,
        }
    }

    /// Keeps no pages of these, also none that are on their way.
    fn forget(&self, is_meant: impl Fn(InodeId) -> bool) {
        for (ino, file) in self.files.borrow_mut().iter_mut() {
            if is_meant(*ino) {
                file.pages = None;
                file.recalls += 1;
            }
        }
    }

    fn of<T>(&self, ino: InodeId, look: impl FnOnce(&mut File) -> T) -> T {
        look(self.files.borrow_mut().entry(ino).or_default())
    }

    fn number(&self) -> u64 {
        self.asked.set(self.asked.get() + 1);
        self.asked.get()
    }
}

impl Mount {
    pub(crate) async fn new(server: &LocalServer, id: u64) -> Result<Rc<Self>, ServerGone> {
        let arena = Arena::create(SLOTS as u32).expect("memory for an arena");
        let descriptor = arena.descriptor().try_clone_to_owned().expect("a descriptor");
        let servers = Arena::open(descriptor, SLOTS as u32).expect("the same memory");
        let kept = Rc::new(Kept::default());
        let asked = Rc::clone(&kept);
        let answer: Rc<AnswerCallback> =
            Rc::new(move |callback| Box::pin(std::future::ready(asked.answer(&callback))));
        let process = server.join(id, servers, Some(answer)).await?;
        let slots = Semaphore::new(SLOTS);
        Ok(Rc::new(Self { process, arena, slots, kept, orders: RefCell::default() }))
    }

    async fn ask(&self, request: NodeRequest) -> Result<NodeReply, Failure> {
        match self.process.ask(request).await? {
            NodeReply::Refused(refused) => Err(refused.into()),
            reply => Ok(reply),
        }
    }

    async fn order(&self, ino: InodeId) -> OwnedMutexGuard<()> {
        let order = Arc::clone(self.orders.borrow_mut().entry(ino).or_default());
        order.lock_owned().await
    }

    // --- names, all of them in the root ---

    pub(crate) async fn lookup(&self, name: &str) -> Result<InodeId, Failure> {
        let request = NodeRequest::Lookup { parent: InodeId::ROOT, name: name.into() };
        match self.ask(request).await? {
            NodeReply::Entry(entry) => Ok(entry.attr.ino),
            other => panic!("{other:?} to a lookup"),
        }
    }

    /// A new regular file; `EEXIST` when the name is there.
    pub(crate) async fn create(
        &self,
        name: &str,
        policy: Option<StripePolicy>,
    ) -> Result<InodeId, Failure> {
        let node = NewNode {
            parent: InodeId::ROOT,
            name: name.into(),
            kind: FileKind::Regular,
            mode: 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: None,
            policy,
            exclusive: true,
            open: None,
        };
        match self.ask(NodeRequest::Create(node)).await? {
            NodeReply::Created(created) => Ok(created.entry.attr.ino),
            other => panic!("{other:?} to a create"),
        }
    }

    /// Whose name it was.
    pub(crate) async fn unlink(&self, name: &str) -> Result<InodeId, Failure> {
        let (parent, name) = (InodeId::ROOT, name.into());
        match self.ask(NodeRequest::Remove { parent, name, directory: false }).await? {
            NodeReply::Removed { ino } => Ok(ino),
            other => panic!("{other:?} to an unlink"),
        }
    }

    /// Who was moved, and who was replaced.
    pub(crate) async fn rename(
        &self,
        from: &str,
        to: &str,
    ) -> Result<(InodeId, Option<InodeId>), Failure> {
        let place = |name: &str| (InodeId::ROOT, name.into());
        let (from, to) = (place(from), place(to));
        let request = NodeRequest::Rename { from, to, no_replace: false, exchange: false };
        match self.ask(request).await? {
            NodeReply::Renamed { moved, replaced } => Ok((moved, replaced)),
            other => panic!("{other:?} to a rename"),
        }
    }

    // --- opens ---

    pub(crate) async fn open(&self, ino: InodeId, access: Access) -> Result<Handle, Failure> {
        let _one_at_a_time = self.order(ino).await;
        let recalls = self.kept.of(ino, |file| {
            file.coming = access;
            if access.write {
                // Who writes on this node keeps nothing, before the home is asked.
                file.pages = None;
                file.recalls += 1;
            }
            file.recalls
        });
        let open = Opening { access, kind: OpenKind::Remote, number: self.kept.number() };
        let answer = self.ask(NodeRequest::Open { ino, open, truncate: false }).await;
        self.kept.of(ino, |file| {
            file.coming = Access::default();
            let NodeReply::Opened(opened) = answer? else { panic!("not an answer to an open") };
            file.readers += u32::from(access.read);
            file.writers += u32::from(access.write);
            let may_keep = opened.grants.cache && file.recalls == recalls && file.writers == 0;
            if !may_keep {
                file.pages = None;
            } else if file.pages.is_none() {
                file.pages = Some(HashMap::new());
            }
            Ok(Handle { ino, access })
        })
    }

    /// Never fails: what the home does not hear of, it recalls.
    pub(crate) async fn close(&self, handle: Handle) -> Result<(), Failure> {
        let Handle { ino, access } = handle;
        let _one_at_a_time = self.order(ino).await;
        let access = self.kept.of(ino, |file| {
            file.readers -= u32::from(access.read);
            file.writers -= u32::from(access.write);
            let read = access.read && file.readers == 0;
            let write = access.write && file.writers == 0;
            Access { read, write }
        });
        if access != Access::default() {
            let as_of = self.kept.asked.get();
            self.ask(NodeRequest::Close(vec![Close { ino, access, as_of }])).await?;
        }
        Ok(())
    }

    // --- bytes ---

    /// The value at an offset; 0 past the end of the file.
    pub(crate) async fn read(&self, handle: &Handle, offset: u64) -> Result<u64, Failure> {
        let ino = handle.ino;
        let (known, recalls) = self.kept.of(ino, |file| {
            let known = file.pages.as_ref().and_then(|pages| pages.get(&offset).copied());
            (known, file.recalls)
        });
        if let Some(value) = known {
            return Ok(value);
        }
        let _permit = self.slots.acquire().await.expect("never closed");
        let mut slot = self.arena.take();
        slot.as_mut()[..VALUE_BYTES].fill(0);
        let into = SlotRange { slot: slot.index(), len: VALUE_BYTES as u32 };
        self.ask(NodeRequest::Read { ino, offset, into }).await?;
        let value = value_of(&slot.as_ref()[..VALUE_BYTES]);
        self.kept.of(ino, |file| {
            if let Some(pages) = &mut file.pages
                && file.recalls == recalls
            {
                pages.insert(offset, value);
            }
        });
        Ok(value)
    }

    pub(crate) async fn write(
        &self,
        handle: &Handle,
        offset: u64,
        value: u64,
    ) -> Result<(), Failure> {
        let ino = handle.ino;
        let with = |from| NodeRequest::Write { ino, offset, from };
        self.send_value(value, with).await.map(drop)
    }

    /// Where the value landed.
    pub(crate) async fn append(&self, handle: &Handle, value: u64) -> Result<u64, Failure> {
        let ino = handle.ino;
        match self.send_value(value, |from| NodeRequest::Append { ino, from }).await? {
            NodeReply::Offset(offset) => Ok(offset),
            other => panic!("{other:?} to an append"),
        }
    }

    async fn send_value(
        &self,
        value: u64,
        request: impl FnOnce(SlotRange) -> NodeRequest,
    ) -> Result<NodeReply, Failure> {
        let _permit = self.slots.acquire().await.expect("never closed");
        let mut slot = self.arena.take();
        slot.as_mut()[..VALUE_BYTES].copy_from_slice(&value.to_le_bytes());
        let from = SlotRange { slot: slot.index(), len: VALUE_BYTES as u32 };
        self.ask(request(from)).await
    }

    // --- locks ---

    /// A number for a wish.
    pub(crate) fn ticket(&self) -> u64 {
        self.kept.ticket.set(self.kept.ticket.get() + 1);
        self.kept.ticket.get()
    }

    /// Waits until the whole file is `owner`'s alone. A wish whose answer was lost may wait on: to be
    /// [cancelled](Self::cancel).
    pub(crate) async fn lock(&self, ino: InodeId, owner: u64, ticket: u64) -> Result<(), Failure> {
        let (granted, told) = oneshot::channel();
        self.kept.tickets.borrow_mut().insert(ticket, granted);
        let lock = Lock { owner, kind: LockKind::Exclusive, range: LockRange::ALL, pid: 1 };
        let request = NodeRequest::Lock { ino, lock, ticket: Some(ticket) };
        let result = match self.ask(request).await {
            Ok(NodeReply::Locked(LockAnswer::Waits)) => told.await.map_err(|_| Failure::Gone),
            Ok(NodeReply::Locked(LockAnswer::Granted)) => Ok(()),
            Ok(other) => panic!("{other:?} to a lock"),
            Err(failure) => Err(failure),
        };
        self.kept.tickets.borrow_mut().remove(&ticket);
        if result.is_ok() {
            self.kept.locks.borrow_mut().insert((ino, owner), lock);
        }
        result
    }

    /// Ends a wish, whether or not it is there.
    pub(crate) async fn cancel(&self, ino: InodeId, ticket: u64) -> Result<(), Failure> {
        self.ask(NodeRequest::CancelLock { ino, ticket }).await.map(drop)
    }

    pub(crate) async fn unlock(&self, ino: InodeId, owner: u64) -> Result<(), Failure> {
        self.kept.locks.borrow_mut().remove(&(ino, owner));
        self.ask(NodeRequest::Unlock { ino, owner, range: LockRange::ALL }).await.map(drop)
    }
}

fn held_lock(ino: InodeId, lock: Lock) -> HeldLock {
    HeldLock { ino, process: 0, lock, ticket: None }
}

fn value_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}
