//! A server in memory: one node, names in maps, parts as files of a temporary directory.
//!
//! It follows the contract of `hayase_wire::message`, grants like a home with one node, and lets
//! a test play the other nodes ([`FakeServer::recall`], [`FakeServer::write_elsewhere`]).

mod names;
mod parts;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};

use hayase_layout::{ByteCount, InodeId, Layout, NodeId, ServerId};
use hayase_wire::message::{
    Access, AreaUse, Attr, Callback, CallbackReply, Close, Created, Entry, Explained, FileKind,
    Grants, Lock, LockAnswer, LockHeld, NewNode, NodeReply, NodeRequest, OpenKind, Opened, Opening,
    Refused, SlotRange, TimeSpec, XattrMode,
};

use crate::link::{Callbacks, Link, LinkError, Reply};
use crate::testing::{attr, now};

/// What the parts are to the asking process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// On its node: opens of kind [`OpenKind::Local`] get a descriptor.
    Here,
    /// On another node.
    Elsewhere,
}

/// See the module.
pub struct FakeServer {
    state: Mutex<State>,
    unlocked: Condvar,
    callbacks: Mutex<Option<Weak<dyn Callbacks>>>,
    slot: Mutex<Vec<u8>>,
}

struct State {
    inodes: HashMap<InodeId, Inode>,
    next: u64,
    directory: PathBuf,
    parts: Parts,
    grants: Grants,
    /// Requests so far, by name of the variant.
    counts: BTreeMap<&'static str, u64>,
    /// Requests of this kind wait until it is lifted.
    held_up: Option<&'static str>,
    /// What was gathered waits where this is the home.
    hanging: Option<ServerId>,
    /// Requests of this kind are done, and their answers lost.
    lost: Option<&'static str>,
    lets_gather: bool,
    /// What it answers to what was gathered, if it does not take it.
    gathered_refused: Option<i32>,
}

struct Inode {
    attr: Attr,
    part: Option<File>,
    entries: BTreeMap<u64, (Vec<u8>, InodeId)>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    opens: Access,
    /// Held, of the whole file each: nobody waits here.
    locks: Vec<Lock>,
    /// Another node has it open for writing.
    written_elsewhere: bool,
}

/// What a request does to the bytes beside it.
enum Bulk<'a> {
    None,
    From(&'a [u8]),
    Into(&'a mut [u8]),
}

impl FakeServer {
    /// Parts go to `directory`.
    pub fn new(directory: PathBuf, parts: Parts) -> Self {
        let mut root = Inode::new(attr(InodeId::ROOT.0));
        root.attr.kind = FileKind::Directory;
        root.attr.mode = 0o755;
        root.attr.layout = Layout::None;
        let state = State {
            inodes: HashMap::from([(InodeId::ROOT, root)]),
            next: 2,
            directory,
            parts,
            grants: Grants::ALL,
            counts: BTreeMap::new(),
            held_up: None,
            hanging: None,
            lost: None,
            lets_gather: true,
            gathered_refused: None,
        };
        Self {
            state: Mutex::new(state),
            unlocked: Condvar::new(),
            callbacks: Mutex::new(None),
            slot: Mutex::new(Vec::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests of a kind so far.
    pub fn count(&self, request: &'static str) -> u64 {
        self.lock().counts.get(request).copied().unwrap_or(0)
    }

    /// All requests so far.
    pub fn count_all(&self) -> u64 {
        self.lock().counts.values().sum()
    }

    /// Whether the process may gather small writes from now on, and with which errno what it has gathered is refused.
    pub fn set_gathering(&self, lets_gather: bool, refused: Option<i32>) {
        let mut state = self.lock();
        (state.lets_gather, state.gathered_refused) = (lets_gather, refused);
    }

    /// What is granted from now on.
    pub fn set_grants(&self, grants: Grants) {
        self.lock().grants = grants;
    }

    /// Requests of this kind wait from now on; `None` lets them go on.
    pub fn hold_up(&self, request: Option<&'static str>) {
        self.lock().held_up = request;
        self.unlocked.notify_all();
    }

    /// Files made from now on have this home.
    pub fn make_at(&self, home: ServerId) {
        let mut state = self.lock();
        let counter = InodeId(state.next).counter();
        state.next = InodeId::new(home, counter).expect("a small number").0;
    }

    /// What was gathered of files of this home waits from now on; `None` lets it go on.
    pub fn hang(&self, home: Option<ServerId>) {
        self.lock().hanging = home;
        self.unlocked.notify_all();
    }

    /// Answers to requests of this kind are lost from now on, though they are done.
    pub fn lose_answers(&self, request: Option<&'static str>) {
        self.lock().lost = request;
    }

    /// As another node's open for writing would: takes everything back, then lets it write.
    pub fn open_elsewhere(&self, ino: InodeId) {
        self.recall(ino, Grants::ALL);
        if let Some(inode) = self.lock().inodes.get_mut(&ino) {
            inode.written_elsewhere = true;
        }
    }

    /// The other node closes.
    pub fn close_elsewhere(&self, ino: InodeId) {
        if let Some(inode) = self.lock().inodes.get_mut(&ino) {
            inode.written_elsewhere = false;
        }
    }

    /// Bytes written by another node (after [`FakeServer::open_elsewhere`]).
    pub fn write_elsewhere(&self, ino: InodeId, offset: u64, data: &[u8]) {
        let mut state = self.lock();
        if let Some(inode) = state.inodes.get_mut(&ino) {
            inode.write(offset, data).expect("the part takes the bytes");
        }
    }

    /// Asks the process to give back, and books its answer.
    pub fn recall(&self, ino: InodeId, bits: Grants) -> Access {
        let answer = self.ask(Callback::Recall { ino, bits });
        let Some(CallbackReply::Recalled { still_open, .. }) = answer else {
            return Access::default();
        };
        if let Some(inode) = self.lock().inodes.get_mut(&ino) {
            inode.opens.read &= still_open.access.read;
            inode.opens.write &= still_open.access.write;
        }
        still_open.access
    }

    /// Asks the process anything; `None` when nobody answers callbacks.
    pub fn ask(&self, callback: Callback) -> Option<CallbackReply> {
        let callbacks = self.callbacks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        callbacks.and_then(|weak| weak.upgrade()).map(|callbacks| callbacks.answer(callback))
    }

    /// What the process has open of an inode, as this server counts it.
    pub fn opens(&self, ino: InodeId) -> Access {
        self.lock().inodes.get(&ino).map(|inode| inode.opens).unwrap_or_default()
    }

    /// How many owners hold a lock of an inode.
    pub fn locks(&self, ino: InodeId) -> usize {
        self.lock().inodes.get(&ino).map_or(0, |inode| inode.locks.len())
    }

    /// The inode of a name in the root directory.
    pub fn inode_of(&self, name: &str) -> Option<InodeId> {
        self.lock().find(InodeId::ROOT, name.as_bytes()).ok()
    }

    fn serve(&self, request: &NodeRequest, bulk: Bulk<'_>) -> Result<Reply, LinkError> {
        let mut state = self.lock();
        let name = variant(request);
        *state.counts.entry(name).or_default() += 1;
        let gathered_at = match request {
            NodeRequest::WriteGathered { ino, .. } => Some(ino.home()),
            _ => None,
        };
        let hangs = |state: &State| gathered_at.is_some() && state.hanging == gathered_at;
        while state.held_up == Some(name) || hangs(&state) {
            state = self.unlocked.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let reply = state.serve(request, bulk)?;
        match state.lost == Some(name) {
            true => Err(Refused::because(libc::EIO, "no answer").into()),
            false => Ok(reply),
        }
    }
}

impl Link for FakeServer {
    fn call(&self, request: &NodeRequest) -> Result<Reply, LinkError> {
        self.serve(request, Bulk::None)
    }

    fn call_with(
        &self,
        data: &[u8],
        request: &mut dyn FnMut(SlotRange) -> NodeRequest,
    ) -> Result<Reply, LinkError> {
        let len = u32::try_from(data.len()).expect("callers keep to slot_bytes");
        self.serve(&request(SlotRange { slot: 0, len }), Bulk::From(data))
    }

    fn call_into(
        &self,
        len: u32,
        request: &mut dyn FnMut(SlotRange) -> NodeRequest,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), LinkError> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        slot.resize(len as usize, 0);
        let reply = self.serve(&request(SlotRange { slot: 0, len }), Bulk::Into(&mut slot))?;
        match reply.message {
            NodeReply::Count(count) => sink(&slot[..count as usize]),
            other => return Err(LinkError::unexpected("a read", &other)),
        }
        Ok(())
    }

    fn slot_bytes(&self) -> usize {
        1 << 20
    }

    fn answer(&self, callbacks: Weak<dyn Callbacks>) {
        *self.callbacks.lock().unwrap_or_else(PoisonError::into_inner) = Some(callbacks);
    }
}

impl State {
    fn serve(&mut self, request: &NodeRequest, bulk: Bulk<'_>) -> Result<Reply, Refused> {
        let message = match request {
            NodeRequest::Hello { .. } => NodeReply::Welcome {
                node: NodeId(0),
                nodes: 1,
                slot: ByteCount::mib(1),
                start_id: 1,
            },
            NodeRequest::Once { request, .. } => return self.serve(request, bulk),
            NodeRequest::Create(node) => return self.create(node),
            NodeRequest::Open { ino, open, truncate } => {
                return self.open(*ino, *open, *truncate);
            }
            NodeRequest::Close(closes) => self.close(closes),
            NodeRequest::Lookup { .. }
            | NodeRequest::Link { .. }
            | NodeRequest::Remove { .. }
            | NodeRequest::Rename { .. }
            | NodeRequest::ReadLink { .. }
            | NodeRequest::ReadDir { .. } => self.serve_names(request)?,
            NodeRequest::GetXattr { .. }
            | NodeRequest::SetXattr { .. }
            | NodeRequest::ListXattr { .. }
            | NodeRequest::RemoveXattr { .. } => self.serve_xattrs(request)?,
            NodeRequest::Lock { ino, lock, .. } => self.lock_file(*ino, *lock)?,
            NodeRequest::Unlock { ino, owner, .. } => {
                self.inode(*ino)?.locks.retain(|held| held.owner != *owner);
                NodeReply::Done
            }
            NodeRequest::TestLock { ino, lock } => self.test_lock(*ino, lock)?,
            NodeRequest::StatFs | NodeRequest::StatFsOf { .. } => {
                let (total, free) = (1 << 30, 1 << 29);
                NodeReply::StatFs(AreaUse { total, free, inodes: 0, inodes_free: 0 })
            }
            NodeRequest::Explain { ino } => NodeReply::Explained(Box::new(Explained {
                attr: self.inode(*ino)?.current(),
                state: "idle".to_owned(),
                opens: Vec::new(),
                parts: Vec::new(),
                cache: None,
            })),
            NodeRequest::Status | NodeRequest::History => {
                return Err(Refused::new(libc::EOPNOTSUPP));
            }
            _ => self.serve_parts(request, bulk)?,
        };
        Ok(Reply { message, descriptor: None })
    }

    fn inode(&mut self, ino: InodeId) -> Result<&mut Inode, Refused> {
        self.inodes.get_mut(&ino).ok_or_else(|| Refused::new(libc::ESTALE))
    }

    fn lock_file(&mut self, ino: InodeId, lock: Lock) -> Result<NodeReply, Refused> {
        let locks = &mut self.inode(ino)?.locks;
        if locks.iter().any(|held| held.owner != lock.owner && held.kind.excludes(lock.kind)) {
            return Err(Refused::new(libc::EAGAIN));
        }
        locks.retain(|held| held.owner != lock.owner);
        locks.push(lock);
        Ok(NodeReply::Locked(LockAnswer::Granted))
    }

    fn test_lock(&mut self, ino: InodeId, lock: &Lock) -> Result<NodeReply, Refused> {
        let excludes = |held: &&Lock| held.owner != lock.owner && held.kind.excludes(lock.kind);
        let held = self.inode(ino)?.locks.iter().find(excludes);
        Ok(NodeReply::LockHeld(held.map(|held| {
            let Lock { kind, range, pid, .. } = *held;
            LockHeld { node: NodeId(0), kind, range, pid }
        })))
    }

    fn entry(&mut self, ino: InodeId) -> Result<Entry, Refused> {
        let granted = self.grants.attr;
        let inode = self.inode(ino)?;
        let grants = Grants { cache: false, attr: granted && !inode.written_elsewhere };
        Ok(Entry { attr: inode.current(), grants })
    }

    fn create(&mut self, node: &NewNode) -> Result<Reply, Refused> {
        if let Ok(ino) = self.find(node.parent, &node.name) {
            if node.exclusive {
                return Err(Refused::new(libc::EEXIST));
            }
            let entry = self.entry(ino)?;
            let created = Created { entry, new: false, opened: None };
            return Ok(Reply { message: NodeReply::Created(Box::new(created)), descriptor: None });
        }
        let ino = self.make(node)?;
        let entry = self.entry(ino)?;
        let mut created = Created { entry, new: true, opened: None };
        let mut descriptor = None;
        if let Some(open) = node.open {
            let reply = self.open(ino, open, false)?;
            if let NodeReply::Opened(opened) = reply.message {
                created.opened = Some(*opened);
            }
            descriptor = reply.descriptor;
        }
        Ok(Reply { message: NodeReply::Created(Box::new(created)), descriptor })
    }

    fn open(
        &mut self,
        ino: InodeId,
        Opening { access, kind, .. }: Opening,
        truncate: bool,
    ) -> Result<Reply, Refused> {
        let (here, granted) = (self.parts == Parts::Here, self.grants);
        let inode = self.inode(ino)?;
        if truncate {
            inode.truncate(0)?;
        }
        inode.opens.read |= access.read;
        inode.opens.write |= access.write;
        let may_cache = !inode.opens.write || kind == OpenKind::RemoteCachedWriter;
        let grants = Grants {
            cache: granted.cache && !inode.written_elsewhere && may_cache,
            attr: granted.attr && !inode.written_elsewhere,
        };
        let descriptor = match (&inode.part, kind) {
            (Some(part), OpenKind::Local) if here => Some(duplicate(part)?),
            _ => None,
        };
        let opened = Opened {
            attr: inode.current(),
            grants,
            writing: inode.written_elsewhere || inode.opens.write,
            descriptor: descriptor.is_some(),
        };
        Ok(Reply { message: NodeReply::Opened(Box::new(opened)), descriptor })
    }

    fn close(&mut self, closes: &[Close]) -> NodeReply {
        for close in closes {
            if let Some(inode) = self.inodes.get_mut(&close.ino) {
                inode.opens.read &= !close.access.read;
                inode.opens.write &= !close.access.write;
            }
            self.collect(close.ino);
        }
        NodeReply::Done
    }
}

impl Inode {
    fn new(attr: Attr) -> Self {
        Self {
            attr,
            part: None,
            entries: BTreeMap::new(),
            target: Vec::new(),
            xattrs: BTreeMap::new(),
            opens: Access::default(),
            locks: Vec::new(),
            written_elsewhere: false,
        }
    }
}

fn duplicate(part: &File) -> Result<OwnedFd, Refused> {
    part.as_fd().try_clone_to_owned().map_err(|error| refused(&error))
}

fn refused(error: &std::io::Error) -> Refused {
    Refused::new(error.raw_os_error().unwrap_or(libc::EIO))
}

fn variant(request: &NodeRequest) -> &'static str {
    match request {
        NodeRequest::Once { request, .. } => variant(request),
        NodeRequest::Hello { .. } => "Hello",
        NodeRequest::Lookup { .. } => "Lookup",
        NodeRequest::GetAttr { .. } => "GetAttr",
        NodeRequest::SetAttr { .. } => "SetAttr",
        NodeRequest::Create(_) => "Create",
        NodeRequest::Link { .. } => "Link",
        NodeRequest::Remove { .. } => "Remove",
        NodeRequest::Rename { .. } => "Rename",
        NodeRequest::ReadDir { .. } => "ReadDir",
        NodeRequest::Open { .. } => "Open",
        NodeRequest::Close(_) => "Close",
        NodeRequest::Read { .. } => "Read",
        NodeRequest::Write { .. } => "Write",
        NodeRequest::Gather { .. } => "Gather",
        NodeRequest::WriteGathered { .. } => "WriteGathered",
        NodeRequest::Append { .. } => "Append",
        NodeRequest::Fsync { .. } => "Fsync",
        NodeRequest::Lock { .. } => "Lock",
        NodeRequest::Unlock { .. } => "Unlock",
        NodeRequest::GetXattr { .. } => "GetXattr",
        _ => "other",
    }
}
