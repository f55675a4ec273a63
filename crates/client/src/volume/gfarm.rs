//! A directory of Gfarm, shown as it is: names from the metadata server, bytes on this host by the kernel alone.
//!
//! Here: the contract [`Volume`] for it. Each part owns its state, and knows only parts above it in this list:
//!
//! - [`nodes`]: inodes and paths; [`open_file`]: what is open of a file (decisions); [`shown`]: attributes;
//! - [`listings`]; [`look_ahead`]: many looks in one directory; [`bursts`]: many files without bytes;
//! - [`metadata`]: what the metadata server is asked;
//! - [`opens`]: opening, closing, telling, with the threads of [`closer`];
//! - [`data`]: bytes; [`names`]: names and attributes.
//!
//! Not here: libgfarm (`hayase_tier::gfarm_lane`), FUSE (`hayase_fuse`).
//!
//! Close-to-open between hosts: close(2) of a writer returns when the metadata server knows size and time, and open(2)
//! asks it. Between two opens the kernel may keep names and attributes for a second; those that came with many others
//! may be half a second old before.
//! A file whose bytes, or a copy of them, lie on this host is of class L: its plain file in the spool of Gfarm's server is
//! what the kernel reads and writes.
//! Source: paper 004 (a FUSE mount of Gfarm that leaves local files to the kernel).

mod bursts;
mod closer;
mod data;
#[cfg(test)]
mod fake;
mod listings;
mod look_ahead;
mod metadata;
mod names;
mod nodes;
mod open_file;
mod opens;
mod shown;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use hayase_layout::InodeId;
use hayase_tier::gfarm_lane::{Answer, Lanes, Lost, Request};
use hayase_wire::message::{
    Access, AreaUse, Attr, DirEntry, Entry, Explained, Grants, MetaChange, Name, NewNode, Refused,
    XattrMode,
};

use self::data::Data;
use self::metadata::Metadata;
use self::names::Names;
use self::opens::Opens;
use super::{FileOpen, Found, KernelCaches, Listed, LocalUse, OpenWish, Volume};
use crate::grants::Stamp;
use crate::open_file::Class;

/// Largest read: the kernel's largest request.
const TRANSFER_BYTES: usize = 1 << 20;

const SEEK_DATA: u8 = 3;
const SEEK_HOLE: u8 = 4;

/// See the module.
#[derive(Debug)]
pub struct GfarmVolume(Arc<Parts>);

/// The parts.
struct Parts {
    metadata: Arc<Metadata>,
    opens: Arc<Opens>,
    data: Arc<Data>,
    names: Names,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("lanes", self.metadata.lanes()).finish_non_exhaustive()
    }
}

impl GfarmVolume {
    /// The directory `path`, as libgfarm takes it.
    ///
    /// # Errors
    /// What Gfarm says of the directory; `EAGAIN` when no thread can be started.
    pub fn new(lanes: Lanes, path: &[u8]) -> Result<Self, Refused> {
        let stat = Request::Stat { path: path.to_vec() };
        let (Answer::Stat(root), _) = lanes.call(&stat, &[]).map_err(refused)? else {
            return Err(Refused::because(libc::EIO, "no attributes came"));
        };
        let metadata = Arc::new(Metadata::new(lanes, path, root));
        let opens = Opens::start(Arc::clone(&metadata)).map_err(|error| opens::system(&error))?;
        let data = Arc::new(Data { metadata: Arc::clone(&metadata), opens: Arc::clone(&opens) });
        let names = Names {
            metadata: Arc::clone(&metadata),
            opens: Arc::clone(&opens),
            data: Arc::clone(&data),
        };
        Ok(Self(Arc::new(Parts { metadata, opens, data, names })))
    }

    /// Returns when everything that was released is closed. Nothing may be asked afterwards.
    pub fn drain(&self) {
        self.0.opens.drain();
    }
}

impl Clone for GfarmVolume {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

fn refused(lost: Lost) -> Refused {
    Refused::because(lost.errno, lost.text)
}

impl Volume for GfarmVolume {
    fn attach(&self, kernel: Arc<dyn KernelCaches>) {
        self.0.opens.attach(kernel);
    }

    fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        self.0.names.lookup(parent, name)
    }

    fn attributes(&self, ino: InodeId) -> Result<Found, Refused> {
        self.0.names.attributes(ino)
    }

    fn lasting_attributes(&self, ino: InodeId) -> Result<Attr, Refused> {
        let node = self.0.metadata.nodes().get(ino)?;
        Ok(self.0.metadata.found(&node).attr)
    }

    fn may_keep(&self, _ino: InodeId, stamp: Stamp) -> bool {
        stamp != Stamp::NEVER
    }

    fn forgotten(&self, ino: InodeId) {
        self.0.metadata.nodes().forget(ino);
    }

    fn set_attributes(&self, ino: InodeId, change: &MetaChange) -> Result<Found, Refused> {
        self.0.names.set_attributes(ino, change)
    }

    fn make(&self, node: NewNode) -> Result<Found, Refused> {
        self.0.names.make(&node)
    }

    fn create(&self, node: NewNode, wish: OpenWish) -> Result<(Found, FileOpen), Refused> {
        self.0.opens.create(&node, wish)
    }

    fn link(&self, ino: InodeId, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        self.0.names.link(ino, parent, name)
    }

    fn remove(&self, parent: InodeId, name: &[u8], directory: bool) -> Result<(), Refused> {
        self.0.names.remove(parent, name, directory)
    }

    fn rename(
        &self,
        from: (InodeId, Name),
        to: (InodeId, Name),
        no_replace: bool,
        exchange: bool,
    ) -> Result<(), Refused> {
        self.0.names.rename(&from, &to, no_replace || exchange)
    }

    fn read_link(&self, ino: InodeId) -> Result<Vec<u8>, Refused> {
        self.0.names.read_link(ino)
    }

    fn list(
        &self,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<Vec<Listed>, Refused> {
        let metadata = &self.0.metadata;
        let fetch = || metadata.entries(dir, usize::MAX);
        let entries = metadata.listings().get(dir, cookie, fetch)?;
        let start = entries.partition_point(|(at, ..)| *at <= cookie);
        let (mut used, mut listed, mut last) = (0, Vec::new(), None);
        for (at, name, stat) in &entries[start..] {
            if used >= bytes as usize && last != Some(*at) {
                break;
            }
            (used, last) = (used + name.len(), Some(*at));
            let (ino, attr) = match plus {
                true => {
                    let node = metadata.nodes().seen(dir, name, *stat);
                    (node.ino, metadata.found(&node).attr)
                }
                false => (InodeId(stat.ino), shown::attr(InodeId(stat.ino), stat)),
            };
            let kind = attr.kind;
            let entry = plus.then_some(Entry { attr, grants: Grants::NONE });
            let entry = DirEntry { cookie: *at, name: name.clone(), ino, kind, entry };
            listed.push(Listed { entry, stamp: metadata.stamp() });
        }
        Ok(listed)
    }

    fn open(&self, ino: InodeId, wish: OpenWish) -> Result<FileOpen, Refused> {
        self.0.opens.open(ino, wish)
    }

    fn has_layouts(&self) -> bool {
        false
    }

    fn wants_closes(&self) -> bool {
        true
    }

    fn closed(&self, ino: InodeId) -> Result<(), Refused> {
        self.0.opens.closed(ino)
    }

    fn release(&self, ino: InodeId, access: Access) {
        self.0.opens.release(ino, access);
    }

    fn read(
        &self,
        ino: InodeId,
        offset: u64,
        len: u32,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refused> {
        sink(&self.0.data.read(ino, offset, len)?);
        Ok(())
    }

    fn write(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<u32, Refused> {
        self.0.data.write(ino, offset, data)
    }

    fn append(&self, ino: InodeId, data: &[u8]) -> Result<u32, Refused> {
        self.0.data.append(ino, data)
    }

    fn transfer_bytes(&self) -> usize {
        TRANSFER_BYTES
    }

    fn allocate(&self, ino: InodeId, mode: i32, offset: u64, len: u64) -> Result<(), Refused> {
        self.0.data.allocate(ino, mode, offset, len)
    }

    /// Holes are told of no file.
    fn seek(&self, ino: InodeId, offset: u64, whence: u8) -> Result<u64, Refused> {
        let size = self.lasting_attributes(ino)?.size;
        match whence {
            _ if offset >= size => Err(Refused::new(libc::ENXIO)),
            SEEK_DATA => Ok(offset),
            SEEK_HOLE => Ok(size),
            _ => Err(Refused::new(libc::EINVAL)),
        }
    }

    fn copy_range(
        &self,
        _from: (InodeId, u64),
        _to: (InodeId, u64),
        _len: u64,
    ) -> Result<u32, Refused> {
        Err(Refused::new(libc::EOPNOTSUPP)) // the kernel copies by reads and writes
    }

    fn sync(&self, ino: InodeId, _data_only: bool) -> Result<(), Refused> {
        self.0.data.sync(ino)
    }

    fn xattr(&self, ino: InodeId, name: &[u8]) -> Result<Vec<u8>, Refused> {
        self.0.names.xattr(ino, name)
    }

    fn set_xattr(
        &self,
        ino: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Refused> {
        self.0.names.set_xattr(ino, name, value, mode)
    }

    fn list_xattrs(&self, ino: InodeId) -> Result<Vec<Name>, Refused> {
        self.0.names.xattrs(ino)
    }

    fn remove_xattr(&self, ino: InodeId, name: &[u8]) -> Result<(), Refused> {
        self.0.names.remove_xattr(ino, name)
    }

    fn usage(&self) -> Result<AreaUse, Refused> {
        self.0.names.usage()
    }

    fn explain(&self, ino: InodeId) -> Result<(Explained, LocalUse), Refused> {
        let node = self.0.metadata.nodes().get(ino)?;
        let attr = self.0.metadata.found(&node).attr;
        let state = node.lock();
        let count = |write| {
            let slots = state.file.slots.iter().filter(|slot| slot.access.write == write);
            u32::try_from(slots.count()).unwrap_or(u32::MAX)
        };
        let (readers, writers, class) = (count(false), count(true), state.file.class);
        let place = match (class, state.file.reads.is_some()) {
            (None, _) => "a file of Gfarm",
            (Some(_), true) => "a file of Gfarm; its bytes, or a copy, are on this host",
            (Some(_), false) if state.file.placed_late => {
                "a new file of Gfarm; its bytes get their place with the first of them"
            }
            (Some(_), false) => "a file of Gfarm; its bytes are on another host",
        };
        let explained = Explained {
            attr,
            state: place.to_owned(),
            opens: Vec::new(),
            parts: Vec::new(),
            cache: None,
        };
        let cache = class == Some(Class::Remote);
        Ok((explained, LocalUse { class, readers, writers, cache }))
    }
}
