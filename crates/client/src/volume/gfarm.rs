//! A directory of Gfarm, shown as it is: names from the metadata server, bytes on this host by the kernel alone.
//!
//! Here: the contract [`Volume`] for it. Rooms: [`nodes`] (inodes and paths), [`open_file`] (what is open of a file; decisions),
//! [`opens`] (opening, closing, telling), [`data`] (bytes), [`names`] (names and attributes), [`listings`], [`look_ahead`] (many looks
//! in one directory), [`bursts`] (many files without bytes), [`closer`].
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
mod names;
mod nodes;
mod open_file;
mod opens;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use hayase_layout::InodeId;
use hayase_tier::gfarm_lane::{Answer, Lanes, Lost, Request, Time};
use hayase_wire::message::{
    Access, AreaUse, Attr, DirEntry, Entry, Explained, Grants, MetaChange, Name, NewNode, Refused,
    XattrMode,
};

use self::bursts::Bursts;
use self::closer::Closer;
use self::listings::Listings;
use self::look_ahead::LookAhead;
use self::nodes::Nodes;
use super::{FileOpen, Found, KernelCaches, Listed, LocalUse, OpenWish, Volume};
use crate::grants::{Moments, Stamp};
use crate::open_file::Class;

/// Largest read: the kernel's largest request.
const TRANSFER_BYTES: usize = 1 << 20;

const SEEK_DATA: u8 = 3;
const SEEK_HOLE: u8 = 4;

/// See the module.
#[derive(Debug)]
pub struct GfarmVolume(Arc<Inner>);

struct Inner {
    lanes: Lanes,
    nodes: Nodes,
    listings: Listings,
    look_ahead: LookAhead,
    bursts: Bursts,
    closer: Arc<Closer>,
    kernel: OnceLock<Arc<dyn KernelCaches>>,
    /// What is told may be kept for a while; opens look whether it is still so.
    stamp: Stamp,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("lanes", &self.lanes).finish_non_exhaustive()
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
        let inner = Arc::new(Inner {
            lanes,
            nodes: Nodes::new(path, root),
            listings: Listings::default(),
            look_ahead: LookAhead::default(),
            bursts: Bursts::default(),
            closer: Arc::default(),
            kernel: OnceLock::new(),
            stamp: Moments::default().now(),
        });
        Closer::start(&inner).map_err(|error| opens::system(&error))?;
        Ok(Self(inner))
    }

    /// Returns when everything that was released is closed. Nothing may be asked afterwards.
    pub fn drain(&self) {
        self.0.closer.drain();
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

impl Inner {
    /// Of an inode whose name is gone, on another host: the kernel looks the name up again, and is told what is true
    /// then.
    fn gone(&self, why: Refused) -> Refused {
        if why.errno != libc::ENOENT {
            return why;
        }
        self.look_ahead.changed();
        Refused { errno: libc::ESTALE, ..why }
    }

    /// Another host put something else under the name of an inode: the same.
    fn replaced(&self, why: &str) -> Refused {
        self.look_ahead.changed();
        Refused::because(libc::ESTALE, why)
    }

    fn names_changed(&self, directories: &[InodeId]) {
        for dir in directories {
            self.listings.changed(*dir);
            if let Ok(dir) = self.nodes.get(*dir) {
                dir.lock().changed();
            }
        }
        self.look_ahead.changed();
    }

    /// A new file in `dir`, which has changed at the same moment, by the metadata server's clock.
    fn file_was_made(&self, dir: InodeId, when: Time) {
        self.listings.changed(dir);
        if let Ok(dir) = self.nodes.get(dir) {
            dir.lock().file_was_made(when);
        }
        self.look_ahead.changed();
    }
}

impl Volume for GfarmVolume {
    fn attach(&self, kernel: Arc<dyn KernelCaches>) {
        // Once per mount.
        let _ = self.0.kernel.set(kernel);
    }

    fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        self.0.lookup(parent, name)
    }

    fn attributes(&self, ino: InodeId) -> Result<Found, Refused> {
        self.0.attributes(ino)
    }

    fn lasting_attributes(&self, ino: InodeId) -> Result<Attr, Refused> {
        let node = self.0.nodes.get(ino)?;
        Ok(self.0.found(&node).attr)
    }

    fn may_keep(&self, _ino: InodeId, stamp: Stamp) -> bool {
        stamp != Stamp::NEVER
    }

    fn forgotten(&self, ino: InodeId) {
        self.0.nodes.forget(ino);
    }

    fn set_attributes(&self, ino: InodeId, change: &MetaChange) -> Result<Found, Refused> {
        self.0.set_attributes(ino, change)
    }

    fn make(&self, node: NewNode) -> Result<Found, Refused> {
        self.0.make(&node)
    }

    fn create(&self, node: NewNode, wish: OpenWish) -> Result<(Found, FileOpen), Refused> {
        self.0.create(&node, wish)
    }

    fn link(&self, ino: InodeId, parent: InodeId, name: &[u8]) -> Result<Found, Refused> {
        self.0.link(ino, parent, name)
    }

    fn remove(&self, parent: InodeId, name: &[u8], directory: bool) -> Result<(), Refused> {
        self.0.remove(parent, name, directory)
    }

    fn rename(
        &self,
        from: (InodeId, Name),
        to: (InodeId, Name),
        no_replace: bool,
        exchange: bool,
    ) -> Result<(), Refused> {
        self.0.rename(&from, &to, no_replace || exchange)
    }

    fn read_link(&self, ino: InodeId) -> Result<Vec<u8>, Refused> {
        self.0.read_link(ino)
    }

    fn list(
        &self,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<Vec<Listed>, Refused> {
        let inner = &self.0;
        let entries = inner.listings.get(dir, cookie, || inner.entries(dir, usize::MAX))?;
        let start = entries.partition_point(|(at, ..)| *at <= cookie);
        let (mut used, mut listed, mut last) = (0, Vec::new(), None);
        for (at, name, stat) in &entries[start..] {
            if used >= bytes as usize && last != Some(*at) {
                break;
            }
            (used, last) = (used + name.len(), Some(*at));
            let (ino, attr) = match plus {
                true => {
                    let node = inner.nodes.seen(dir, name, *stat);
                    (node.ino, inner.found(&node).attr)
                }
                false => (InodeId(stat.ino), names::attr(InodeId(stat.ino), stat)),
            };
            let kind = attr.kind;
            let entry = plus.then_some(Entry { attr, grants: Grants::NONE });
            let entry = DirEntry { cookie: *at, name: name.clone(), ino, kind, entry };
            listed.push(Listed { entry, stamp: inner.stamp });
        }
        Ok(listed)
    }

    fn open(&self, ino: InodeId, wish: OpenWish) -> Result<FileOpen, Refused> {
        self.0.open(ino, wish)
    }

    fn has_layouts(&self) -> bool {
        false
    }

    fn wants_closes(&self) -> bool {
        true
    }

    fn closed(&self, ino: InodeId) -> Result<(), Refused> {
        self.0.closed(ino)
    }

    fn release(&self, ino: InodeId, access: Access) {
        self.0.release(ino, access);
    }

    fn read(
        &self,
        ino: InodeId,
        offset: u64,
        len: u32,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refused> {
        sink(&self.0.read(ino, offset, len)?);
        Ok(())
    }

    fn write(&self, ino: InodeId, offset: u64, data: &[u8]) -> Result<u32, Refused> {
        self.0.write(ino, offset, data)
    }

    fn append(&self, ino: InodeId, data: &[u8]) -> Result<u32, Refused> {
        self.0.append(ino, data)
    }

    fn transfer_bytes(&self) -> usize {
        TRANSFER_BYTES
    }

    fn allocate(&self, ino: InodeId, mode: i32, offset: u64, len: u64) -> Result<(), Refused> {
        self.0.allocate(ino, mode, offset, len)
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
        self.0.sync(ino)
    }

    fn xattr(&self, ino: InodeId, name: &[u8]) -> Result<Vec<u8>, Refused> {
        self.0.xattr(ino, name)
    }

    fn set_xattr(
        &self,
        ino: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Refused> {
        self.0.set_xattr(ino, name, value, mode)
    }

    fn list_xattrs(&self, ino: InodeId) -> Result<Vec<Name>, Refused> {
        self.0.xattrs(ino)
    }

    fn remove_xattr(&self, ino: InodeId, name: &[u8]) -> Result<(), Refused> {
        self.0.remove_xattr(ino, name)
    }

    fn usage(&self) -> Result<AreaUse, Refused> {
        self.0.usage()
    }

    fn explain(&self, ino: InodeId) -> Result<(Explained, LocalUse), Refused> {
        let node = self.0.nodes.get(ino)?;
        let attr = self.0.found(&node).attr;
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
