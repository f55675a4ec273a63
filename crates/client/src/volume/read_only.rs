//! Volumes in which nothing is ever changed: what is left of the contract when everything that changes
//! answers `EROFS`.

use std::sync::Arc;

use hayase_layout::InodeId;
use hayase_wire::message::{
    Access, AreaUse, Attr, Explained, MetaChange, Name, NewNode, Refused, XattrMode,
};

use super::{FileOpen, Found, KernelCaches, Listed, LocalUse, OpenWish, Volume};
use crate::grants::Stamp;
use crate::open_file::Class;

/// A tree to be looked at. Each method is that of [`Volume`] with the same name, where there is one.
///
/// The kernel may keep what it was told for [`crate::limits::ATTR_TTL`], and pages of a file until its size
/// or time change.
pub trait ReadOnly: Send + Sync + 'static {
    /// Why nothing can be changed, for the log.
    const WHAT: &'static str;

    /// For everything that is told: it may be kept.
    fn stamp(&self) -> Stamp;

    /// See [`Volume::lookup`].
    fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Attr, Refused>;

    /// See [`Volume::attributes`].
    fn attributes(&self, ino: InodeId) -> Result<Attr, Refused>;

    /// See [`Volume::forgotten`].
    fn forgotten(&self, ino: InodeId) {
        let _ = ino;
    }

    /// See [`Volume::read_link`].
    fn read_link(&self, ino: InodeId) -> Result<Vec<u8>, Refused>;

    /// See [`Volume::list`].
    fn list(
        &self,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<Vec<Listed>, Refused>;

    /// Opens a file; whether the kernel's pages of it are as good as new.
    fn open(&self, ino: InodeId) -> Result<bool, Refused>;

    /// Ends an open.
    fn release(&self, ino: InodeId) {
        let _ = ino;
    }

    /// See [`Volume::read`].
    fn read(
        &self,
        ino: InodeId,
        offset: u64,
        len: u32,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refused>;

    /// See [`Volume::transfer_bytes`].
    fn transfer_bytes(&self) -> usize;

    /// See [`Volume::seek`].
    fn seek(&self, ino: InodeId, offset: u64, whence: u8) -> Result<u64, Refused>;

    /// See [`Volume::xattr`].
    fn xattr(&self, ino: InodeId, name: &[u8]) -> Result<Vec<u8>, Refused> {
        let _ = (ino, name);
        Err(Refused::new(libc::ENODATA))
    }

    /// See [`Volume::list_xattrs`].
    fn list_xattrs(&self, ino: InodeId) -> Result<Vec<Name>, Refused> {
        let _ = ino;
        Ok(Vec::new())
    }

    /// See [`Volume::usage`].
    fn usage(&self) -> Result<AreaUse, Refused>;

    /// See [`Volume::explain`].
    fn explain(&self, ino: InodeId) -> Result<Explained, Refused>;
}

fn refused<T, V: ReadOnly>(_: &V) -> Result<T, Refused> {
    Err(Refused::because(libc::EROFS, V::WHAT))
}

impl<V: ReadOnly> Volume for V {
    fn attach(&self, _kernel: Arc<dyn KernelCaches>) {
        // The kernel drops pages when size or time change: nothing else has to be told.
    }

    fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        Ok(Found { attr: ReadOnly::lookup(self, parent, name)?, stamp: self.stamp() })
    }

    fn attributes(&self, ino: InodeId) -> Result<Found, Refused> {
        Ok(Found { attr: ReadOnly::attributes(self, ino)?, stamp: self.stamp() })
    }

    fn lasting_attributes(&self, ino: InodeId) -> Result<Attr, Refused> {
        ReadOnly::attributes(self, ino)
    }

    fn may_keep(&self, _ino: InodeId, stamp: Stamp) -> bool {
        stamp != Stamp::NEVER
    }

    fn forgotten(&self, ino: InodeId) {
        ReadOnly::forgotten(self, ino);
    }

    fn set_attributes(&self, _ino: InodeId, _change: &MetaChange) -> Result<Found, Refused> {
        refused(self)
    }

    fn make(&self, _node: NewNode) -> Result<Found, Refused> {
        refused(self)
    }

    fn create(&self, _node: NewNode, _wish: OpenWish) -> Result<(Found, FileOpen), Refused> {
        refused(self)
    }

    fn link(&self, _ino: InodeId, _parent: InodeId, _name: &[u8]) -> Result<Found, Refused> {
        refused(self)
    }

    fn remove(&self, _parent: InodeId, _name: &[u8], _directory: bool) -> Result<(), Refused> {
        refused(self)
    }

    fn rename(
        &self,
        _from: (InodeId, Name),
        _to: (InodeId, Name),
        _no_replace: bool,
        _exchange: bool,
    ) -> Result<(), Refused> {
        refused(self)
    }

    fn read_link(&self, ino: InodeId) -> Result<Vec<u8>, Refused> {
        ReadOnly::read_link(self, ino)
    }

    fn list(
        &self,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<Vec<Listed>, Refused> {
        ReadOnly::list(self, dir, cookie, bytes, plus)
    }

    fn open(&self, ino: InodeId, wish: OpenWish) -> Result<FileOpen, Refused> {
        if wish.access.write || wish.truncate {
            return refused(self);
        }
        let keep_pages = ReadOnly::open(self, ino)?;
        Ok(FileOpen {
            class: Class::Remote,
            descriptor: None,
            cache: !wish.uncached,
            keep_pages,
            striped: true,
        })
    }

    fn release(&self, ino: InodeId, _access: Access) {
        ReadOnly::release(self, ino);
    }

    fn read(
        &self,
        ino: InodeId,
        offset: u64,
        len: u32,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refused> {
        ReadOnly::read(self, ino, offset, len, sink)
    }

    fn write(&self, _ino: InodeId, _offset: u64, _data: &[u8]) -> Result<u32, Refused> {
        refused(self)
    }

    fn append(&self, _ino: InodeId, _data: &[u8]) -> Result<u32, Refused> {
        refused(self)
    }

    fn transfer_bytes(&self) -> usize {
        ReadOnly::transfer_bytes(self)
    }

    fn allocate(&self, _ino: InodeId, _mode: i32, _offset: u64, _len: u64) -> Result<(), Refused> {
        refused(self)
    }

    fn seek(&self, ino: InodeId, offset: u64, whence: u8) -> Result<u64, Refused> {
        ReadOnly::seek(self, ino, offset, whence)
    }

    fn copy_range(
        &self,
        _from: (InodeId, u64),
        _to: (InodeId, u64),
        _len: u64,
    ) -> Result<u32, Refused> {
        refused(self)
    }

    fn sync(&self, _ino: InodeId, _data_only: bool) -> Result<(), Refused> {
        Ok(()) // nothing is written here
    }

    fn xattr(&self, ino: InodeId, name: &[u8]) -> Result<Vec<u8>, Refused> {
        ReadOnly::xattr(self, ino, name)
    }

    fn set_xattr(
        &self,
        _ino: InodeId,
        _name: &[u8],
        _value: &[u8],
        _mode: XattrMode,
    ) -> Result<(), Refused> {
        refused(self)
    }

    fn list_xattrs(&self, ino: InodeId) -> Result<Vec<Name>, Refused> {
        ReadOnly::list_xattrs(self, ino)
    }

    fn remove_xattr(&self, _ino: InodeId, _name: &[u8]) -> Result<(), Refused> {
        refused(self)
    }

    fn usage(&self) -> Result<AreaUse, Refused> {
        ReadOnly::usage(self)
    }

    fn explain(&self, ino: InodeId) -> Result<(Explained, LocalUse), Refused> {
        Ok((ReadOnly::explain(self, ino)?, LocalUse::default()))
    }
}
