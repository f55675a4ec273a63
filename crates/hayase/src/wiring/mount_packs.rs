//! A set of packs, shown by FUSE as the tree that was packed.
//!
//! Here: nodes as inodes, and errors as errno. Not here: how packs are read (`hayase_stage::PackVolume`).

use std::io;
use std::path::Path;

use hayase_client::ReadOnly;
use hayase_client::grants::{Moments, Stamp};
use hayase_client::volume::Listed;
use hayase_layout::{InodeId, Layout};
use hayase_stage::limits::WHOLE_BYTES_MAX;
use hayase_stage::pack::{MasterKey, PackError};
use hayase_stage::{Kind, Mtime, Node, PackVolume, Place, Shown};
use hayase_wire::message::{
    AreaUse, Attr, DirEntry, Entry, Explained, FileKind, Grants, Refused, TimeSpec,
};

use super::mount_containers::show;

/// 0 is the start of a listing, 1 `.`, 2 `..`.
const COOKIE_MIN: u64 = 3;

const SEEK_DATA: u8 = 3;
const SEEK_HOLE: u8 = 4;

/// Mounts and serves until it is unmounted or a signal ends it; calls `ready` once.
pub(crate) fn mount_packs(
    place: &Place,
    master: Option<&MasterKey>,
    mount_point: &Path,
    ready: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let packs = PackVolume::open(place, master)?;
    tracing::info!(entries = packs.entries(), place = place.describe(), "showing packs");
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    show(
        PackMount { packs, stamp: Moments::default().now(), uid, gid },
        "hayase-packs",
        mount_point,
        ready,
    )
}

/// The set as a volume: node n is inode n + 1, and everything is owned by whoever mounts it.
#[derive(Debug)]
struct PackMount {
    packs: PackVolume,
    stamp: Stamp,
    uid: u32,
    gid: u32,
}

fn inode(node: Node) -> InodeId {
    InodeId(u64::from(node.0) + InodeId::ROOT.0)
}

fn node(ino: InodeId) -> Result<Node, Refused> {
    let number = ino.0.checked_sub(InodeId::ROOT.0).and_then(|number| u32::try_from(number).ok());
    number.map(Node).ok_or_else(|| Refused::new(libc::ESTALE))
}

/// Nothing about a set that is looked at is the fault of who reads: it is logged, and `EIO`.
fn refused(error: &PackError) -> Refused {
    let chain = anyhow::Chain::new(error).map(ToString::to_string).collect::<Vec<_>>();
    let why = chain.join(": ");
    tracing::warn!(why, "failed to read a file from the packs");
    let ours = std::error::Error::source(error).and_then(|e| e.downcast_ref::<io::Error>());
    Refused::because(ours.and_then(io::Error::raw_os_error).unwrap_or(libc::EIO), &why)
}

fn kind_of(kind: &Kind) -> FileKind {
    match kind {
        Kind::File { .. } => FileKind::Regular,
        Kind::Directory => FileKind::Directory,
        Kind::Link { .. } => FileKind::Symlink,
    }
}

impl PackMount {
    fn shown(&self, ino: InodeId) -> Result<(Node, Shown<'_>), Refused> {
        let node = node(ino)?;
        let shown = self.packs.shown(node).ok_or_else(|| Refused::new(libc::ESTALE))?;
        Ok((node, shown))
    }

    fn attr(&self, node: Node, shown: &Shown<'_>) -> Attr {
        let size = match shown.kind {
            Kind::File { bytes } => *bytes,
            Kind::Directory => 0,
            Kind::Link { target } => target.len() as u64,
        };
        let time = time(shown.mtime);
        Attr {
            ino: inode(node),
            kind: kind_of(shown.kind),
            mode: shown.mode,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            nlink: 1,
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            layout: self.packs.packed(node).map_or(Layout::None, Layout::Packed),
            layout_epoch: 0,
            trunc_epoch: 0,
            policy: None,
            acls: None,
        }
    }
}

fn time(mtime: Mtime) -> TimeSpec {
    TimeSpec { seconds: mtime.seconds(), nanos: mtime.nanos() }
}

impl ReadOnly for PackMount {
    const WHAT: &'static str = "a mount of packs is read-only";

    fn stamp(&self) -> Stamp {
        self.stamp
    }

    fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Attr, Refused> {
        let found = self.packs.find(node(parent)?, name);
        let found = found.ok_or_else(|| Refused::new(libc::ENOENT))?;
        self.attributes(inode(found))
    }

    fn attributes(&self, ino: InodeId) -> Result<Attr, Refused> {
        let (node, shown) = self.shown(ino)?;
        Ok(self.attr(node, &shown))
    }

    fn read_link(&self, ino: InodeId) -> Result<Vec<u8>, Refused> {
        match self.shown(ino)?.1.kind {
            Kind::Link { target } => Ok(target.to_vec()),
            _ => Err(Refused::new(libc::EINVAL)),
        }
    }

    fn list(
        &self,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<Vec<Listed>, Refused> {
        let behind = (cookie + 1).saturating_sub(COOKIE_MIN);
        let children = self.packs.children(node(dir)?).enumerate();
        let mut used = 0;
        let mut entries = Vec::new();
        for (number, (name, child)) in children.skip(usize::try_from(behind).unwrap_or(usize::MAX))
        {
            if used >= bytes as usize {
                break;
            }
            used += name.len();
            let shown = self.packs.shown(child).expect("a child is a node");
            let entry = Entry { attr: self.attr(child, &shown), grants: Grants::NONE };
            let entry = DirEntry {
                cookie: number as u64 + COOKIE_MIN,
                name: name.to_vec(),
                ino: inode(child),
                kind: kind_of(shown.kind),
                entry: plus.then_some(entry),
            };
            entries.push(Listed { entry, stamp: self.stamp });
        }
        Ok(entries)
    }

    /// A file is always what it was: all pages that the kernel has are good.
    fn open(&self, ino: InodeId) -> Result<bool, Refused> {
        self.shown(ino).map(|_| true)
    }

    fn read(
        &self,
        ino: InodeId,
        offset: u64,
        len: u32,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refused> {
        self.packs.read(node(ino)?, offset, len as usize, sink).map_err(|error| refused(&error))
    }

    fn transfer_bytes(&self) -> usize {
        WHOLE_BYTES_MAX
    }

    fn seek(&self, ino: InodeId, offset: u64, whence: u8) -> Result<u64, Refused> {
        let size = ReadOnly::attributes(self, ino)?.size;
        match whence {
            _ if offset >= size => Err(Refused::new(libc::ENXIO)),
            SEEK_DATA => Ok(offset),
            SEEK_HOLE => Ok(size),
            _ => Err(Refused::new(libc::EINVAL)),
        }
    }

    fn usage(&self) -> Result<AreaUse, Refused> {
        let inodes = self.packs.entries() as u64;
        Ok(AreaUse { total: self.packs.bytes(), free: 0, inodes, inodes_free: 0 })
    }

    fn explain(&self, ino: InodeId) -> Result<Explained, Refused> {
        let (node, shown) = self.shown(ino)?;
        let attr = self.attr(node, &shown);
        let state = self.packs.object(node).unwrap_or_else(|| "a directory of packs".to_owned());
        Ok(Explained { attr, state, opens: Vec::new(), parts: Vec::new(), cache: None })
    }
}
