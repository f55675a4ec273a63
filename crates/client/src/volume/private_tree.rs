//! The private tree of a node without storage as a volume of its own: its `local`, kept by its group's server.
//!
//! A tree below a directory that no name leads to ([`InodeId::private_root`]). Whoever shows the volume calls that
//! directory [`InodeId::ROOT`], as every mount calls its root; all else is the area's.
//! Not here: where such a tree lies, and why nobody else sees it (`hayase_server`).

use std::sync::Arc;
use std::time::Duration;

use hayase_layout::{InodeId, NodeId, ServerId};
use hayase_wire::message::{
    Access, AreaUse, Attr, Explained, Lock, LockHeld, LockRange, MetaChange, Name, NewNode,
    Refused, XattrMode,
};

use super::area::AreaVolume;
use super::{Drops, FileOpen, Found, KernelCaches, Listed, LocalUse, LockTold, OpenWish, Volume};
use crate::grants::Stamp;

/// A [`Volume`] whose root is the private root of a node.
pub struct PrivateTree {
    area: AreaVolume,
    root: InodeId,
}

impl PrivateTree {
    /// The tree that `owner` has on `server`.
    pub fn new(area: AreaVolume, server: ServerId, owner: NodeId) -> Self {
        Self { area, root: InodeId::private_root(server, owner) }
    }

    fn inside(&self, ino: InodeId) -> InodeId {
        if ino == InodeId::ROOT { self.root } else { ino }
    }

    fn outside(&self, attr: Attr) -> Attr {
        Attr { ino: shown(self.root, attr.ino), ..attr }
    }

    /// Of the root alone the number differs.
    fn found(&self, found: Found) -> Found {
        Found { attr: self.outside(found.attr), ..found }
    }

    fn node(&self, node: NewNode) -> NewNode {
        NewNode { parent: self.inside(node.parent), ..node }
    }
}

fn shown(root: InodeId, ino: InodeId) -> InodeId {
    if ino == root { InodeId::ROOT } else { ino }
}

/// The kernel knows the root by another number.
struct ShownCaches {
    kernel: Arc<dyn KernelCaches>,
    root: InodeId,
}

impl KernelCaches for ShownCaches {
    fn invalidate(&self, ino: InodeId, drops: Drops) {
        self.kernel.invalidate(shown(self.root, ino), drops);
    }

    fn forget_name(&self, parent: InodeId, name: &[u8], wait: Duration) {
        self.kernel.forget_name(shown(self.root, parent), name, wait);
    }

    fn release_descriptor(&self, ino: InodeId) {
        self.kernel.release_descriptor(shown(self.root, ino));
    }
}

impl Volume for PrivateTree {
    fn attach(&self, kernel: Arc<dyn KernelCaches>) {
        self.area.attach(Arc::new(ShownCaches { kernel, root: self.root }));
    }

    fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        self.area.lookup(self.inside(parent), name)
    }

    fn attributes(&self, ino: InodeId) -> Result<Found, Refused> {
        self.area.attributes(self.inside(ino)).map(|found| self.found(found))
    }

    fn keeps_acls(&self) -> bool {
        true
    }

    fn lasting_attributes(&self, ino: InodeId) -> Result<Attr, Refused> {
        self.area.lasting_attributes(self.inside(ino)).map(|attr| self.outside(attr))
    }

    fn may_keep(&self, ino: InodeId, stamp: Stamp) -> bool {
        self.area.may_keep(self.inside(ino), stamp)
    }

    fn forgotten(&self, ino: InodeId) {
        self.area.forgotten(self.inside(ino));
    }

    fn set_attributes(&self, ino: InodeId, change: &MetaChange) -> Result<Found, Refused> {
        self.area.set_attributes(self.inside(ino), change).map(|found| self.found(found))
    }

    fn make(&self, node: NewNode) -> Result<Found, Refused> {
        self.area.make(self.node(node))
    }

    fn create(&self, node: NewNode, wish: OpenWish) -> Result<(Found, FileOpen), Refused> {
        self.area.create(self.node(node), wish)
    }

    fn link(&self, ino: InodeId, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        self.area.link(self.inside(ino), self.inside(parent), name)
    }

    fn remove(&self, parent: InodeId, name: &[u8], directory: bool) -> Result<(), Refused> {
        self.area.remove(self.inside(parent), name, directory)
    }

    fn rename(
        &self,
        from: (InodeId, Name),
        to: (InodeId, Name),
        no_replace: bool,
        exchange: bool,
    ) -> Result<(), Refused> {
        let (from, to) = ((self.inside(from.0), from.1), (self.inside(to.0), to.1));
        self.area.rename(from, to, no_replace, exchange)
    }

    fn read_link(&self, ino: InodeId) -> Result<Vec<u8>, Refused> {
        self.area.read_link(self.inside(ino))
    }

    fn list(
        &self,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<Vec<Listed>, Refused> {
        self.area.list(self.inside(dir), cookie, bytes, plus)
    }

    fn open(&self, ino: InodeId, wish: OpenWish) -> Result<FileOpen, Refused> {
        self.area.open(self.inside(ino), wish)
    }

    fn release(&self, ino: InodeId, access: Access) {
        self.area.release(self.inside(ino), access);
    }

    fn gathers_now(&self) -> bool {
        self.area.gathers_now()
    }

    fn read(
        &self,
        ino: InodeId,
        offset: u64,
        len: u32,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refused> {
        self.area.read(self.inside(ino), offset, len, sink)
    }

    fn write(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<u32, Refused> {
        self.area.write(self.inside(ino), offset, data)
    }

    fn append(&self, ino: InodeId, data: &[u8]) -> Result<u32, Refused> {
        self.area.append(self.inside(ino), data)
    }

    fn transfer_bytes(&self) -> usize {
        self.area.transfer_bytes()
    }

    fn lock(&self, ino: InodeId, lock: Lock, waiter: Option<u32>, told: LockTold) {
        self.area.lock(self.inside(ino), lock, waiter, told);
    }

    fn unlock(&self, ino: InodeId, owner: u64, range: LockRange) -> Result<(), Refused> {
        self.area.unlock(self.inside(ino), owner, range)
    }

    fn test_lock(&self, ino: InodeId, lock: Lock) -> Result<Option<LockHeld>, Refused> {
        self.area.test_lock(self.inside(ino), lock)
    }

    fn may_hold_locks(&self, ino: InodeId, owner: u64) -> bool {
        self.area.may_hold_locks(self.inside(ino), owner)
    }

    fn allocate(&self, ino: InodeId, mode: i32, offset: u64, len: u64) -> Result<(), Refused> {
        self.area.allocate(self.inside(ino), mode, offset, len)
    }

    fn seek(&self, ino: InodeId, offset: u64, whence: u8) -> Result<u64, Refused> {
        self.area.seek(self.inside(ino), offset, whence)
    }

    fn copy_range(
        &self,
        from: (InodeId, u64),
        to: (InodeId, u64),
        len: u64,
    ) -> Result<u32, Refused> {
        self.area.copy_range((self.inside(from.0), from.1), (self.inside(to.0), to.1), len)
    }

    fn sync(&self, ino: InodeId, data_only: bool) -> Result<(), Refused> {
        self.area.sync(self.inside(ino), data_only)
    }

    fn xattr(&self, ino: InodeId, name: &[u8]) -> Result<Vec<u8>, Refused> {
        self.area.xattr(self.inside(ino), name)
    }

    fn set_xattr(
        &self,
        ino: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Refused> {
        self.area.set_xattr(self.inside(ino), name, value, mode)
    }

    fn list_xattrs(&self, ino: InodeId) -> Result<Vec<Name>, Refused> {
        self.area.list_xattrs(self.inside(ino))
    }

    fn remove_xattr(&self, ino: InodeId, name: &[u8]) -> Result<(), Refused> {
        self.area.remove_xattr(self.inside(ino), name)
    }

    /// Of the one server that keeps the tree.
    fn usage(&self) -> Result<AreaUse, Refused> {
        self.area.usage_of(self.root)
    }

    fn explain(&self, ino: InodeId) -> Result<(Explained, LocalUse), Refused> {
        self.area.explain(self.inside(ino))
    }
}
