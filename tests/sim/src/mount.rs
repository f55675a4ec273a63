//! The mount of one node: what a kernel and the FUSE daemon would keep and ask, without either.
//!
//! It caches pages of files that it was granted, answers recalls, counts opens per inode, gathers small writes where
//! the run lets it, and sends all else to its server. Class R only: bytes that a kernel writes past the servers
//! (passthrough) are not simulated.

mod gathering;
mod kept;
mod link;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use hayase_layout::{InodeId, Layout, StripePolicy};
use hayase_wire::Arena;
use hayase_wire::message::{
    Access, Callback, CallbackReply, Close, FileKind, Lock, LockAnswer, LockKind, LockRange,
    MetaChange, NewNode, NodeReply, NodeRequest, OpenKind, Opening, ParentPolicy, Refused,
    SlotRange,
};
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore, mpsc, oneshot};

use crate::job::Job;
use gathering::{Gathering, Taken};
use kept::{Kept, Wish};
use link::Link;

pub(crate) use gathering::{Fate, Outcome};

/// Bytes of one value; a file is an array of them, far apart.
pub(crate) const VALUE_BYTES: usize = 8;

/// Requests with bytes that are under way at once.
const SLOTS: usize = 16;

pub(crate) const EIO: i32 = 5;

/// Why a call has no answer, or which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server said no. `EIO`: perhaps it happened all the same.
    Refused(i32),
    /// The mount died meanwhile.
    Gone,
}

impl Failure {
    /// Whether the call may have happened.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Gone | Self::Refused(EIO))
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused.errno)
    }
}

/// Where a node's mount is: one after the other.
pub(crate) struct Seat {
    job: Rc<Job>,
    pub(crate) node: u16,
    mount: RefCell<Rc<Mount>>,
    mounted: Cell<u64>,
}

impl Seat {
    pub(crate) fn new(job: &Rc<Job>, node: u16) -> Rc<Self> {
        let mount = RefCell::new(Mount::new(job, node, u64::from(node) + 1));
        Rc::new(Self { job: Rc::clone(job), node, mount, mounted: Cell::new(1) })
    }

    /// The mount that is there now.
    pub(crate) fn mount(&self) -> Rc<Mount> {
        Rc::clone(&self.mount.borrow())
    }

    /// Kills the mount; its supervisor mounts anew.
    pub(crate) fn kill(&self) {
        self.mounted.set(self.mounted.get() + 1);
        let id = (self.mounted.get() << 16) + u64::from(self.node) + 1;
        let mount = Mount::new(&self.job, self.node, id);
        self.mount.replace(mount).die();
    }

    /// The node is gone for good, and its programs with it.
    pub(crate) fn is_gone(&self) -> bool {
        self.job.is_gone(self.node)
    }

    /// The node is gone: nothing answers any more.
    pub(crate) fn end(&self) {
        self.mount().die();
    }
}

/// What a mount does without a program that waits for it.
type Work = Pin<Box<dyn Future<Output = ()>>>;

/// One node's mount.
pub(crate) struct Mount {
    me: Weak<Self>,
    node: u16,
    link: Rc<Link>,
    /// Runs as long as the mount: a server that asks for it may end before.
    work: mpsc::UnboundedSender<Work>,
    slots: Semaphore,
    kept: Rc<Kept>,
    /// Opens and closes of one inode go one after the other.
    orders: RefCell<HashMap<InodeId, Arc<Mutex<()>>>>,
}

/// An open file. To be closed by [`Mount::close`].
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) ino: InodeId,
    access: Access,
}

impl Mount {
    fn new(job: &Rc<Job>, node: u16, id: u64) -> Rc<Self> {
        let arena = Arena::create(SLOTS as u32).expect("memory for an arena");
        let link = Link::new(Rc::clone(job), node, id, arena);
        let kept = Rc::new(Kept::new(Gathering::new(job.gathers())));
        let slots = Semaphore::new(SLOTS);
        let (work, mut begun) = mpsc::unbounded_channel();
        let mount = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            node,
            link: Rc::clone(&link),
            work,
            slots,
            kept,
            orders: RefCell::default(),
        });
        tokio::task::spawn_local(link.stay_connected(Rc::clone(&mount)));
        tokio::task::spawn_local(async move {
            while let Some(work) = begun.recv().await {
                tokio::task::spawn_local(work);
            }
        });
        mount
    }

    /// Begins something that nobody waits for.
    fn begin(&self, work: impl Future<Output = ()> + 'static) {
        // The other end is dropped when the run is over.
        let _over = self.work.send(Box::pin(work));
    }

    /// The process is killed.
    fn die(&self) {
        self.link.die();
        self.kept.gathering.dies();
    }

    pub(crate) fn node(&self) -> u16 {
        self.node
    }

    /// What was gathered is handed on, then what was granted is given back.
    async fn answer(&self, callback: Callback) -> CallbackReply {
        let gave_back = match callback {
            Callback::Recall { ino, bits } if bits.cache => self.hand_on_recalled(ino).await,
            _ => true,
        };
        self.kept.answer(&callback, gave_back)
    }

    async fn ask(&self, request: NodeRequest) -> Result<NodeReply, Failure> {
        self.link.ask(request).await
    }

    async fn order(&self, ino: InodeId) -> OwnedMutexGuard<()> {
        let order = Arc::clone(self.orders.borrow_mut().entry(ino).or_default());
        order.lock_owned().await
    }

    /// The process was killed: all its calls fail.
    pub(crate) fn is_dead(&self) -> bool {
        self.link.is_dead()
    }

    /// Whether a program here may take a lock for its own: nobody has told it otherwise, and its node
    /// was not cut off since it was `cuts` times.
    pub(crate) fn holds(&self, ino: InodeId, owner: u64, cuts: u64) -> bool {
        !self.is_dead()
            && self.cuts() == cuts
            && !self.kept.is_lost(ino)
            && self.kept.locks.borrow().contains_key(&(ino, owner))
    }

    /// How often the node was cut off.
    pub(crate) fn cuts(&self) -> u64 {
        self.link.job().network.cuts(self.link.node())
    }

    /// Whether the node may be taken for lost just now without knowing it.
    pub(crate) fn is_in_trouble(&self) -> bool {
        self.link.job().network.is_in_trouble(self.link.node())
    }

    fn top(&self) -> InodeId {
        self.link.job().top()
    }

    /// A new directory in the root.
    pub(crate) async fn make_directory(&self, name: &str) -> Result<InodeId, Failure> {
        self.make(InodeId::ROOT, name, FileKind::Directory, None).await
    }

    // --- names, all of them where the job's programs work ---

    pub(crate) async fn lookup(&self, name: &str) -> Result<InodeId, Failure> {
        self.lookup_in(self.top(), name).await
    }

    /// The same in a directory.
    pub(crate) async fn lookup_in(&self, parent: InodeId, name: &str) -> Result<InodeId, Failure> {
        match self.ask(NodeRequest::Lookup { parent, name: name.into() }).await? {
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
        self.create_in(self.top(), name, policy).await
    }

    /// The same in a directory.
    pub(crate) async fn create_in(
        &self,
        parent: InodeId,
        name: &str,
        policy: Option<StripePolicy>,
    ) -> Result<InodeId, Failure> {
        self.make(parent, name, FileKind::Regular, policy).await
    }

    async fn make(
        &self,
        parent: InodeId,
        name: &str,
        kind: FileKind,
        policy: Option<StripePolicy>,
    ) -> Result<InodeId, Failure> {
        let node = NewNode {
            parent,
            name: name.into(),
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: None,
            policy: ParentPolicy::Known(policy),
            acls: None,
            exclusive: true,
            open: None,
        };
        match self.ask(NodeRequest::Create(node)).await? {
            NodeReply::Created(created) => Ok(created.entry.attr.ino),
            other => panic!("{other:?} to a create"),
        }
    }

    /// One more name.
    pub(crate) async fn link(
        &self,
        ino: InodeId,
        parent: InodeId,
        name: &str,
    ) -> Result<(), Failure> {
        self.hand_on_untold(ino).await;
        match self.ask(NodeRequest::Link { ino, parent, name: name.into() }).await? {
            NodeReply::Entry(_) => Ok(()),
            other => panic!("{other:?} to a link"),
        }
    }

    /// Whose name it was.
    pub(crate) async fn unlink(&self, name: &str) -> Result<InodeId, Failure> {
        let (parent, name) = (self.top(), name.into());
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
        self.rename_in(self.top(), from, to).await
    }

    /// The same in a directory.
    pub(crate) async fn rename_in(
        &self,
        dir: InodeId,
        from: &str,
        to: &str,
    ) -> Result<(InodeId, Option<InodeId>), Failure> {
        let place = |name: &str| (dir, name.into());
        let (from, to) = (place(from), place(to));
        let request = NodeRequest::Rename { from, to, no_replace: false, exchange: false };
        match self.ask(request).await? {
            NodeReply::Renamed { moved, replaced } => Ok((moved, replaced)),
            other => panic!("{other:?} to a rename"),
        }
    }

    // --- opens ---

    pub(crate) async fn open(&self, ino: InodeId, access: Access) -> Result<Handle, Failure> {
        self.hand_on_untold(ino).await;
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
            file.is_striped = matches!(opened.attr.layout, Layout::Striped { .. });
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
        if access.write {
            self.hand_on_untold(ino).await;
        }
        let _one_at_a_time = self.order(ino).await;
        let access = self.kept.of(ino, |file| {
            file.readers -= u32::from(access.read);
            file.writers -= u32::from(access.write);
            let read = access.read && file.readers == 0;
            let write = access.write && file.writers == 0;
            Access { read, write }
        });
        if self.kept.of(ino, |file| file.open() == Access::default()) {
            self.kept.closed(ino);
        }
        if access != Access::default() {
            let as_of = self.kept.asked.get();
            self.ask(NodeRequest::Close(vec![Close { ino, access, as_of }])).await?;
        }
        Ok(())
    }

    // --- bytes ---

    /// A dead process touches nothing that its server may still be sending.
    fn take_slot(&self) -> Result<hayase_wire::Slot, Failure> {
        match self.is_dead() {
            true => Err(Failure::Gone),
            false => Ok(self.link.arena().take()),
        }
    }

    /// The value at an offset; 0 past the end of the file.
    pub(crate) async fn read(&self, handle: &Handle, offset: u64) -> Result<u64, Failure> {
        let ino = handle.ino;
        self.hand_on(ino).await?;
        self.kept.check(ino)?;
        let (known, keeps, recalls) = self.kept.of(ino, |file| {
            let known = file.pages.as_ref().and_then(|pages| pages.get(&offset).copied());
            (known, file.pages.is_some(), file.recalls)
        });
        if let Some(value) = known {
            return Ok(value);
        }
        let _permit = self.slots.acquire().await.expect("never closed");
        let mut slot = self.take_slot()?;
        slot.as_mut()[..VALUE_BYTES].fill(0);
        let into = SlotRange { slot: slot.index(), len: VALUE_BYTES as u32 };
        self.ask(NodeRequest::Read { ino, offset, into }).await?;
        let value = value_of(&slot.as_ref()[..VALUE_BYTES]);
        self.kept.of(ino, |file| {
            // A kernel keeps what it asked for in order to keep it.
            if let Some(pages) = &mut file.pages
                && keeps
                && file.recalls == recalls
            {
                pages.insert(offset, value);
            }
        });
        Ok(value)
    }

    /// Tells what becomes of it: perhaps its home does not have it yet.
    pub(crate) async fn write(
        &self,
        handle: &Handle,
        offset: u64,
        value: u64,
    ) -> Result<Fate, Failure> {
        let ino = handle.ino;
        self.kept.check(ino)?;
        let _moves_end = match self.gather(ino, Some(offset), value).await? {
            Taken::All(fate, _) => return Ok(fate),
            Taken::ToSend(moves_end) => moves_end,
        };
        let with = |from| NodeRequest::Write { ino, offset, from };
        self.send_values(&[value], with).await?;
        Ok(Fate::new(Outcome::Written))
    }

    /// Where the value landed, or will, and what becomes of it.
    pub(crate) async fn append(&self, handle: &Handle, value: u64) -> Result<(u64, Fate), Failure> {
        let ino = handle.ino;
        self.kept.check(ino)?;
        let _moves_end = match self.gather(ino, None, value).await? {
            Taken::All(fate, offset) => return Ok((offset, fate)),
            Taken::ToSend(moves_end) => moves_end,
        };
        match self.send_values(&[value], |from| NodeRequest::Append { ino, from }).await? {
            NodeReply::Offset(offset) => Ok((offset, Fate::new(Outcome::Written))),
            other => panic!("{other:?} to an append"),
        }
    }

    async fn send_values(
        &self,
        values: &[u64],
        request: impl FnOnce(SlotRange) -> NodeRequest,
    ) -> Result<NodeReply, Failure> {
        let _permit = self.slots.acquire().await.expect("never closed");
        let mut slot = self.take_slot()?;
        for (place, value) in slot.as_mut().chunks_exact_mut(VALUE_BYTES).zip(values) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        let from = SlotRange { slot: slot.index(), len: (values.len() * VALUE_BYTES) as u32 };
        self.ask(request(from)).await
    }

    // --- locks ---

    /// A number for a wish.
    pub(crate) fn ticket(&self) -> u64 {
        self.kept.ticket()
    }

    /// Waits until the whole file is `owner`'s alone. A wish whose answer was lost may wait on: to be
    /// [cancelled](Self::cancel).
    pub(crate) async fn lock(&self, ino: InodeId, owner: u64, ticket: u64) -> Result<(), Failure> {
        let (told, waits) = oneshot::channel();
        let lock = Lock { owner, kind: LockKind::Exclusive, range: LockRange::ALL, pid: 1 };
        self.kept.wishes.borrow_mut().insert(ticket, Wish { ino, lock, told });
        let request = NodeRequest::Lock { ino, lock, ticket: Some(ticket) };
        let result = match self.ask(request).await {
            Ok(NodeReply::Locked(LockAnswer::Waits)) => tokio::select! {
                biased;
                told = waits => told.unwrap_or(Err(Failure::Gone)),
                () = self.link.until_dead() => Err(Failure::Gone),
            },
            Ok(NodeReply::Locked(LockAnswer::Granted)) => {
                self.kept.granted(ticket);
                Ok(())
            }
            Ok(other) => panic!("{other:?} to a lock"),
            Err(failure) => Err(failure),
        };
        self.kept.wishes.borrow_mut().remove(&ticket);
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

    /// Cuts a file to no bytes.
    pub(crate) async fn empty(&self, ino: InodeId) -> Result<(), Failure> {
        let _cuts = self.kept.gathering.cuts();
        self.hand_on(ino).await?;
        let change = MetaChange { size: Some(0), ..MetaChange::default() };
        self.ask(NodeRequest::SetAttr { ino, change }).await.map(drop)
    }

    /// How long a file is.
    pub(crate) async fn size(&self, ino: InodeId) -> Result<u64, Failure> {
        self.hand_on_untold(ino).await;
        match self.ask(NodeRequest::GetAttr { ino }).await? {
            NodeReply::Attr { attr, .. } => Ok(attr.size),
            other => panic!("{other:?} to a wish for attributes"),
        }
    }

    /// Makes a file and its names durable.
    pub(crate) async fn fsync(&self, ino: InodeId) -> Result<(), Failure> {
        self.hand_on(ino).await?;
        self.kept.check(ino)?;
        self.ask(NodeRequest::Fsync { ino, data_only: false }).await.map(drop)
    }
}

fn value_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}
