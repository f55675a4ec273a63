//! An area of a job as a volume: every question goes to the node's own server, unless a grant or
//! an open that the home already counts answers it here.
//!
//! Each part owns its state and knows only parts above it in this list; what it decides is in [`crate::grants`],
//! [`crate::attributes`], [`crate::open_file`] and [`crate::gathered`]:
//!
//! - [`requests`]: the connection; [`lost`]: files of which something was lost; [`inodes`]: the table of inodes;
//! - [`known`]: what is known of inodes, and what the kernel was given of them, but not while removals are under way
//!   ([`handed`]) and of pages as long as they are [`validated`];
//! - [`opens`]: opening, creating, releasing, and when closes are due ([`closer`]);
//! - [`sending`]: bytes that are written; [`locks`]: locks;
//! - [`gathering`]: small writes that are kept back;
//! - [`attributes`], [`names`], [`data`]: what programs ask for;
//! - [`recalls`]: what the server asks of this node.
//!
//! Invariants: no lock is held during a call to the server or to the caches above (except the
//! short [`KernelCaches::release_descriptor`], and each file's own of [`gathering`]); locks of two shards are never
//! held together.

mod attributes;
mod closer;
mod data;
mod gathering;
mod handed;
mod inodes;
mod known;
mod locks;
mod lost;
mod names;
mod opens;
mod recalls;
mod requests;
mod sending;
mod validated;

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use hayase_layout::InodeId;
use hayase_layout::acl::ACCESS_NAME;
use hayase_wire::message::{
    Access, AreaUse, Attr, Explained, Lock, LockHeld, LockRange, MetaChange, Name, NewNode,
    NodeReply, NodeRequest, RecordedStep, Refused, XattrMode,
};

use super::{Awaited, FileOpen, Found, KernelCaches, Listed, LocalUse, LockTold, OpenWish, Volume};
use crate::grants::Stamp;
use crate::limits::{NAMELESS_LINGER, READ_LINGER, WRITE_LINGER};
use crate::link::{Callbacks, Link, LinkError};
use crate::made_names::MadeNames;
use crate::open_file::Linger;
use attributes::Attributes;
use data::Data;
use gathering::{Gatherer, Windows};
use known::Known;
use locks::Locks;
use lost::LostFiles;
use names::Names;
use opens::Opens;
use recalls::Recalls;
use requests::Requests;
use sending::Sending;

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
    requests: Requests,
    known: Arc<Known>,
    opens: Arc<Opens>,
    gatherer: Arc<Gatherer>,
    attributes: Arc<Attributes>,
    names: Arc<Names>,
    data: Data,
    locks: Arc<Locks>,
    recalls: Arc<Recalls>,
    threads: Vec<JoinHandle<()>>,
}

impl AreaVolume {
    /// Starts three threads (closing, refreshing, waiting for locks), and one more where small writes are gathered,
    /// that sleep while there is nothing to do.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn new(link: Arc<dyn Link>, settings: AreaSettings) -> std::io::Result<Self> {
        let mut volume = Self::of_parts(Requests::new(link), settings);
        let recalls = Arc::clone(&volume.recalls) as Arc<dyn Callbacks>;
        volume.requests.link().held_by(Arc::downgrade(&recalls));
        let opens = Arc::clone(&volume.opens);
        volume.spawn("hayase-close", move || opens.close_lingering())?;
        let opens = Arc::clone(&volume.opens);
        volume.spawn("hayase-refresh", move || opens.refresh_mappings())?;
        let locks = Arc::clone(&volume.locks);
        volume.spawn("hayase-locks", move || locks.look_after_waiters())?;
        if settings.gathers {
            let gatherer = Arc::clone(&volume.gatherer);
            volume.spawn("hayase-gather", move || gatherer.hand_on_late())?;
        }
        Ok(volume)
    }

    fn of_parts(requests: Requests, settings: AreaSettings) -> Self {
        let AreaSettings { linger, gathers } = settings;
        let (windows, made) = (Arc::<Windows>::default(), Arc::<MadeNames>::default());
        let lost = Arc::<LostFiles>::default();
        let known = Arc::new(Known::new(Arc::clone(&windows)));
        let opens = Arc::new(Opens::new(
            Arc::clone(&known),
            requests.clone(),
            Arc::clone(&made),
            Arc::clone(&lost),
            linger,
        ));
        let sending = Arc::new(Sending { known: Arc::clone(&known), requests: requests.clone() });
        let locks = Arc::new(Locks::new(requests.clone()));
        let gatherer = Arc::new(Gatherer {
            known: Arc::clone(&known),
            requests: requests.clone(),
            lost: Arc::clone(&lost),
            opens: Arc::clone(&opens),
            sending: Arc::clone(&sending),
            windows,
            gathers,
        });
        let attributes = Arc::new(Attributes {
            known: Arc::clone(&known),
            requests: requests.clone(),
            gatherer: Arc::clone(&gatherer),
        });
        let names = Arc::new(Names {
            known: Arc::clone(&known),
            requests: requests.clone(),
            made: Arc::clone(&made),
            opens: Arc::clone(&opens),
            gatherer: Arc::clone(&gatherer),
            attributes: Arc::clone(&attributes),
        });
        let data = Data {
            known: Arc::clone(&known),
            requests: requests.clone(),
            lost: Arc::clone(&lost),
            sending,
            gatherer: Arc::clone(&gatherer),
        };
        let recalls = Arc::new(Recalls {
            known: Arc::clone(&known),
            made,
            lost,
            opens: Arc::clone(&opens),
            gatherer: Arc::clone(&gatherer),
            locks: Arc::clone(&locks),
        });
        let threads = Vec::new();
        Self { requests, known, opens, gatherer, attributes, names, data, locks, recalls, threads }
    }

    /// Has the connection answer what the server asks.
    fn answer_callbacks(&self) {
        let recalls: Weak<Recalls> = Arc::downgrade(&self.recalls);
        self.requests.link().answer(recalls);
    }

    /// Room on the one server that keeps a private tree.
    pub(super) fn usage_of(&self, tree: InodeId) -> Result<AreaUse, Refused> {
        self.usage_by(&NodeRequest::StatFsOf { tree })
    }

    fn usage_by(&self, question: &NodeRequest) -> Result<AreaUse, Refused> {
        match self.requests.call(question)?.message {
            NodeReply::StatFs(usage) => Ok(usage),
            other => Err(LinkError::unexpected("StatFs", &other).into()),
        }
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let builder = std::thread::Builder::new().name(name.to_owned());
        self.threads.push(builder.spawn(run)?);
        Ok(())
    }
}

impl Drop for AreaVolume {
    fn drop(&mut self) {
        self.gatherer.hand_on_all();
        self.opens.stop();
        self.gatherer.stop();
        self.locks.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread of the volume panicked");
            }
        }
    }
}

impl Volume for AreaVolume {
    fn attach(&self, kernel: Arc<dyn KernelCaches>) {
        if self.known.attach(kernel) {
            self.answer_callbacks();
            if let Some(device) = self.known.kernel().and_then(|kernel| kernel.device()) {
                self.requests.link().answer_kernel_at(device);
            }
        }
    }

    fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        self.names.lookup(parent, name)
    }

    fn attributes(&self, ino: InodeId) -> Result<Found, Refused> {
        self.attributes.attributes(ino)
    }

    fn keeps_acls(&self) -> bool {
        true
    }

    fn lasting_attributes(&self, ino: InodeId) -> Result<Attr, Refused> {
        let attr = match self.known.lasting(ino) {
            Some(attr) => attr,
            None => self.attributes.attributes(ino)?.attr,
        };
        if !attr.acls.as_ref().is_some_and(|acls| acls.in_tier) {
            return Ok(attr);
        }
        // The home asks the tier for both lists, and knows them from then on.
        match self.xattr(ino, ACCESS_NAME) {
            Err(refused) if refused.errno != libc::ENODATA => return Err(refused),
            _ => self.known.changed(ino),
        }
        Ok(self.attributes.attributes(ino)?.attr)
    }

    fn may_keep(&self, ino: InodeId, stamp: Stamp) -> bool {
        self.known.may_keep(ino, stamp)
    }

    fn answers(&self, attr: &Attr, asker: u32) -> bool {
        self.known.answers(attr, asker)
    }

    fn forgotten(&self, ino: InodeId) {
        self.known.forget(ino);
    }

    fn set_attributes(&self, ino: InodeId, change: &MetaChange) -> Result<Found, Refused> {
        self.attributes.set_attributes(ino, change)
    }

    fn make(&self, node: NewNode) -> Result<Found, Refused> {
        self.names.make(node)
    }

    fn create(&self, node: NewNode, wish: OpenWish) -> Result<(Found, FileOpen), Refused> {
        self.opens.create(node, wish)
    }

    fn link(&self, ino: InodeId, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        self.names.link_name(ino, parent, name)
    }

    fn remove(&self, parent: InodeId, name: &[u8], directory: bool) -> Result<(), Refused> {
        self.names.remove(parent, name, directory)
    }

    fn hand_over_removal(&self, parent: InodeId, name: &[u8], awaited: Awaited) {
        self.names.hand_over_removal(parent, name, awaited);
    }

    fn rename(
        &self,
        from: (InodeId, Name),
        to: (InodeId, Name),
        no_replace: bool,
        exchange: bool,
    ) -> Result<(), Refused> {
        self.names.rename(from, to, no_replace, exchange)
    }

    fn read_link(&self, ino: InodeId) -> Result<Vec<u8>, Refused> {
        match self.requests.call(&NodeRequest::ReadLink { ino })?.message {
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
        self.names.list(dir, cookie, bytes, plus)
    }

    fn open(&self, ino: InodeId, wish: OpenWish) -> Result<FileOpen, Refused> {
        let _cuts = wish.truncate.then(|| self.gatherer.cuts());
        self.gatherer.hand_on_untold(ino)?;
        self.opens.open(ino, wish)
    }

    fn release(&self, ino: InodeId, access: Access) {
        // What was gathered is handed on first; while its home does not take it, the close waits.
        if !(access.write && self.gatherer.delays_close(ino, access)) {
            self.opens.release(ino, access);
        }
    }

    fn gathers_now(&self) -> bool {
        self.gatherer.is_any()
    }

    fn read(
        &self,
        ino: InodeId,
        offset: u64,
        len: u32,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refused> {
        self.data.read(ino, offset, len, sink)
    }

    fn write(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<u32, Refused> {
        self.data.write(ino, offset, data)
    }

    fn append(&self, ino: InodeId, data: &[u8]) -> Result<u32, Refused> {
        self.data.append(ino, data)
    }

    fn transfer_bytes(&self) -> usize {
        self.requests.link().slot_bytes()
    }

    fn lock(&self, ino: InodeId, lock: Lock, waiter: Option<u32>, told: LockTold) {
        self.locks.lock(ino, lock, waiter, told);
    }

    fn unlock(&self, ino: InodeId, owner: u64, range: LockRange) -> Result<(), Refused> {
        self.locks.unlock(ino, owner, range)
    }

    fn test_lock(&self, ino: InodeId, lock: Lock) -> Result<Option<LockHeld>, Refused> {
        self.locks.test(ino, lock)
    }

    fn may_hold_locks(&self, ino: InodeId, owner: u64) -> bool {
        self.locks.may_hold(ino, owner)
    }

    fn allocate(&self, ino: InodeId, mode: i32, offset: u64, len: u64) -> Result<(), Refused> {
        self.data.allocate(ino, mode, (offset, len))
    }

    fn seek(&self, ino: InodeId, offset: u64, whence: u8) -> Result<u64, Refused> {
        self.data.seek(ino, offset, whence)
    }

    fn copy_range(
        &self,
        from: (InodeId, u64),
        to: (InodeId, u64),
        len: u64,
    ) -> Result<u32, Refused> {
        self.data.copy_range(from, to, len)
    }

    fn sync(&self, ino: InodeId, data_only: bool) -> Result<(), Refused> {
        self.data.sync(ino, data_only)
    }

    fn xattr(&self, ino: InodeId, name: &[u8]) -> Result<Vec<u8>, Refused> {
        match self.requests.call(&NodeRequest::GetXattr { ino, name: name.to_vec() })?.message {
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
        let result = self.requests.call_done("SetXattr", &request);
        self.known.changed(ino);
        result
    }

    fn list_xattrs(&self, ino: InodeId) -> Result<Vec<Name>, Refused> {
        match self.requests.call(&NodeRequest::ListXattr { ino })?.message {
            NodeReply::Names(names) => Ok(names),
            other => Err(LinkError::unexpected("ListXattr", &other).into()),
        }
    }

    fn remove_xattr(&self, ino: InodeId, name: &[u8]) -> Result<(), Refused> {
        let request = NodeRequest::RemoveXattr { ino, name: name.to_vec() };
        let result = self.requests.call_done("RemoveXattr", &request);
        self.known.changed(ino);
        result
    }

    fn usage(&self) -> Result<AreaUse, Refused> {
        self.usage_by(&NodeRequest::StatFs)
    }

    fn recorded(&self, ino: InodeId, step: RecordedStep) -> Result<(), Refused> {
        self.gatherer.hand_on(ino)?;
        let request = NodeRequest::Recorded { ino, step };
        let result = self.requests.call_done("Recorded", &request);
        self.known.changed(ino);
        result
    }

    fn explain(&self, ino: InodeId) -> Result<(Explained, LocalUse), Refused> {
        let _kept = self.gatherer.hand_on_untold(ino);
        match self.requests.call(&NodeRequest::Explain { ino })?.message {
            NodeReply::Explained(explained) => Ok((*explained, self.known.local_use(ino))),
            other => Err(LinkError::unexpected("Explain", &other).into()),
        }
    }
}
