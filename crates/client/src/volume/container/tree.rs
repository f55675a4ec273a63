//! The directory behind the mount: names, inode numbers, listings, what is open.
//!
//! An inode number is a hash of device and inode below, so that it is the same whenever and however an
//! inode is found, and nothing has to be remembered for inodes that nobody uses. A node is remembered from
//! its lookup (or listing with attributes) until the kernel forgets it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use hayase_container::{Container, ContainerError, ContainerId, STUB, is_hidden_name, is_mark};
use hayase_layout::{InodeId, Layout};
use hayase_wire::message::{AreaUse, Attr, DirEntry, Entry, FileKind, Grants, Refused, TimeSpec};
use xxhash_rust::xxh3::xxh3_64;

use super::Opened;
use super::shown::{self, Shown};
use crate::limits::CONTAINERS_KEPT_MAX;

/// 0 is the start of a listing, 1 `.`, 2 `..`.
const COOKIE_MIN: u64 = 3;

/// See the module.
#[derive(Debug)]
pub(super) struct Tree {
    root: PathBuf,
    nodes: Mutex<HashMap<InodeId, Node>>,
}

/// An inode that the kernel may ask for.
#[derive(Debug)]
struct Node {
    /// Below the root, as it was found last.
    path: PathBuf,
    is_container: bool,
    /// Of a container that was looked at.
    shown: Option<Arc<Shown>>,
    /// Of a plain file that is open.
    file: Option<Arc<File>>,
    opens: u64,
    /// Of a plain file: what the kernel's pages were read from.
    opened_as: Option<(SystemTime, u64)>,
}

/// What is at a path.
struct Seen {
    metadata: Metadata,
    is_container: bool,
}

impl Tree {
    pub(super) fn new(root: PathBuf) -> io::Result<Self> {
        fs::read_dir(&root)?; // it is a directory, and ours to read
        let tree = Self { root, nodes: Mutex::default() };
        tree.remember(InodeId::ROOT, Path::new(""), false);
        Ok(tree)
    }

    pub(super) fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Attr, Refused> {
        if is_ours(name) {
            return Err(Refused::new(libc::ENOENT));
        }
        let path = self.path(parent)?.join(OsStr::from_bytes(name));
        let seen = self.see(&path).map_err(|error| refused(&error))?;
        let ino = inode(&seen.metadata);
        self.remember(ino, &path, seen.is_container);
        self.attr(ino, &path, &seen)
    }

    pub(super) fn attributes(&self, ino: InodeId) -> Result<Attr, Refused> {
        let path = self.path(ino)?;
        let seen = self.see(&path).map_err(|error| stale(&error))?;
        if ino != InodeId::ROOT && inode(&seen.metadata) != ino {
            return Err(Refused::new(libc::ESTALE)); // another one has the name by now
        }
        self.attr(ino, &path, &seen)
    }

    pub(super) fn forget(&self, ino: InodeId) {
        let mut nodes = self.nodes();
        if ino != InodeId::ROOT && nodes.get(&ino).is_some_and(|node| node.opens == 0) {
            nodes.remove(&ino);
        }
    }

    pub(super) fn read_link(&self, ino: InodeId) -> Result<Vec<u8>, Refused> {
        let target = fs::read_link(self.root.join(self.path(ino)?));
        Ok(target.map_err(|error| stale(&error))?.into_os_string().into_vec())
    }

    pub(super) fn container_id(&self, ino: InodeId) -> Result<Option<ContainerId>, Refused> {
        let path = self.path(ino)?;
        if !self.node(ino, |node| node.is_container)? {
            return Ok(None);
        }
        Ok(Some(self.shown(ino, &path)?.id()))
    }

    /// Entries behind `cookie`, in order of cookies; those of one cookie together.
    pub(super) fn list(
        &self,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<Vec<DirEntry>, Refused> {
        let path = self.path(dir)?;
        let mut names = self.names(&path, cookie).map_err(|error| stale(&error))?;
        names.sort_unstable();
        let mut entries = Vec::new();
        let (mut used, mut last) = (0, cookie);
        for (cookie, name) in names {
            if used >= bytes as usize && cookie != last {
                break;
            }
            (used, last) = (used + name.len(), cookie);
            // What was removed meanwhile is left out.
            entries.extend(self.entry(&path.join(OsStr::from_bytes(&name)), cookie, name, plus));
        }
        Ok(entries)
    }

    fn names(&self, path: &Path, behind: u64) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.root.join(path))? {
            let name = entry?.file_name().into_vec();
            let cookie = (xxh3_64(&name) >> 1).max(COOKIE_MIN);
            if cookie > behind && !is_ours(&name) {
                names.push((cookie, name));
            }
        }
        Ok(names)
    }

    fn entry(&self, path: &Path, cookie: u64, name: Vec<u8>, plus: bool) -> Option<DirEntry> {
        let seen = self.see(path).ok()?;
        let ino = inode(&seen.metadata);
        let kind = seen.kind();
        let entry = match plus {
            false => None,
            true => {
                self.remember(ino, path, seen.is_container);
                // A container that can not be read is listed all the same, without attributes.
                let attr = self.attr(ino, path, &seen).ok();
                attr.map(|attr| Entry { attr, grants: Grants::NONE })
            }
        };
        Some(DirEntry { cookie, name, ino, kind, entry })
    }

    /// Opens for reading; whether the kernel's pages are as good as new.
    pub(super) fn open(&self, ino: InodeId) -> Result<bool, Refused> {
        let path = self.path(ino)?;
        if self.node(ino, |node| node.is_container)? {
            let shown = self.shown(ino, &path)?;
            shown.follow(true).map_err(|error| shown::refused(&error))?;
            self.change(ino, |node| node.opens += 1)?;
            return Ok(shown.open());
        }
        let file = File::open(self.root.join(&path)).map_err(|error| stale(&error))?;
        let metadata = file.metadata().map_err(|error| stale(&error))?;
        let version = metadata.modified().ok().map(|modified| (modified, metadata.len()));
        self.change(ino, |node| {
            node.opens += 1;
            node.file = Some(Arc::new(file));
            version.is_some() && std::mem::replace(&mut node.opened_as, version) == version
        })
    }

    pub(super) fn release(&self, ino: InodeId) {
        // It may be forgotten by now: then there is nothing to give up.
        let _ = self.change(ino, |node| {
            node.opens = node.opens.saturating_sub(1);
            if node.opens == 0 {
                node.file = None;
            }
        });
    }

    pub(super) fn opened(&self, ino: InodeId) -> Option<Opened> {
        let nodes = self.nodes();
        let node = nodes.get(&ino)?;
        match &node.file {
            Some(file) => Some(Opened::Plain(Arc::clone(file))),
            None => node.shown.clone().map(Opened::Container),
        }
    }

    pub(super) fn usage(&self) -> Result<AreaUse, Refused> {
        let stat =
            rustix::fs::statvfs(&self.root).map_err(|errno| Refused::new(errno.raw_os_error()))?;
        Ok(AreaUse {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            inodes: stat.f_files,
            inodes_free: stat.f_ffree,
        })
    }

    fn see(&self, path: &Path) -> io::Result<Seen> {
        let path = self.root.join(path);
        let metadata = fs::symlink_metadata(&path)?;
        // A container whose mark is damaged is one too: reading it says what is wrong.
        let is_container = metadata.is_dir() && !matches!(Container::is_at(&path), Ok(false));
        Ok(Seen { metadata, is_container })
    }

    fn attr(&self, ino: InodeId, path: &Path, seen: &Seen) -> Result<Attr, Refused> {
        match seen.is_container && ino != InodeId::ROOT {
            true => self.container_attr(ino, path, seen),
            false => Ok(plain_attr(ino, &seen.metadata)),
        }
    }

    fn container_attr(&self, ino: InodeId, path: &Path, seen: &Seen) -> Result<Attr, Refused> {
        let mut shown = self.shown(ino, path)?;
        if let Err(ContainerError::NotFound { .. }) = shown.follow(false) {
            // Removed, and this is another one of the same number.
            self.change(ino, |node| node.shown = None)?;
            shown = self.shown(ino, path)?;
        }
        let meta = shown.follow(false).and_then(|()| shown.meta());
        let (size, modified) = meta.map_err(|error| shown::refused(&error))?;
        // Owner and rights are those of a file that the same open made.
        let stub = fs::symlink_metadata(self.root.join(path).join(STUB));
        let mut attr = plain_attr(ino, stub.as_ref().unwrap_or(&seen.metadata));
        (attr.kind, attr.nlink) = (FileKind::Regular, 1);
        attr.mode &= 0o666;
        attr.size = size.get();
        attr.blocks = size.get().div_ceil(512);
        attr.mtime = time(modified.max(seen.metadata.modified().unwrap_or(UNIX_EPOCH)));
        attr.ctime = attr.mtime;
        Ok(attr)
    }

    /// The container of a node, opened when it is not.
    fn shown(&self, ino: InodeId, path: &Path) -> Result<Arc<Shown>, Refused> {
        if let Some(shown) = self.node(ino, |node| node.shown.clone())? {
            return Ok(shown);
        }
        let shown = Shown::new(&self.root.join(path)).map_err(|error| shown::refused(&error))?;
        let shown = Arc::new(shown);
        self.drop_unused();
        self.change(ino, |node| Arc::clone(node.shown.get_or_insert(shown)))
    }

    /// Beyond the limit, containers that nobody has open are opened anew when they are asked for.
    fn drop_unused(&self) {
        let mut nodes = self.nodes();
        if nodes.values().filter(|node| node.shown.is_some()).count() >= CONTAINERS_KEPT_MAX {
            nodes.values_mut().filter(|node| node.opens == 0).for_each(|node| node.shown = None);
        }
    }

    fn path(&self, ino: InodeId) -> Result<PathBuf, Refused> {
        self.node(ino, |node| node.path.clone())
    }

    fn remember(&self, ino: InodeId, path: &Path, is_container: bool) {
        let new = || Node {
            path: path.to_owned(),
            is_container,
            shown: None,
            file: None,
            opens: 0,
            opened_as: None,
        };
        let mut nodes = self.nodes();
        let node = nodes.entry(ino).or_insert_with(new);
        if node.path != path {
            path.clone_into(&mut node.path);
        }
        if node.is_container != is_container {
            *node = new(); // the number of one that is gone
        }
    }

    fn node<T>(&self, ino: InodeId, ask: impl FnOnce(&Node) -> T) -> Result<T, Refused> {
        self.nodes().get(&ino).map(ask).ok_or_else(|| Refused::new(libc::ESTALE))
    }

    fn change<T>(&self, ino: InodeId, change: impl FnOnce(&mut Node) -> T) -> Result<T, Refused> {
        self.nodes().get_mut(&ino).map(change).ok_or_else(|| Refused::new(libc::ESTALE))
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<InodeId, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn kind(&self) -> FileKind {
        if self.is_container { FileKind::Regular } else { kind(&self.metadata) }
    }
}

/// Marks, and what is being made or removed.
fn is_ours(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| is_mark(name) || is_hidden_name(name))
}

/// Never the number of the root.
fn inode(metadata: &Metadata) -> InodeId {
    let (device, below) = (metadata.dev().to_le_bytes(), metadata.ino().to_le_bytes());
    InodeId(xxh3_64(&[device, below].concat()).max(InodeId::ROOT.0 + 1))
}

fn kind(metadata: &Metadata) -> FileKind {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () if kind.is_char_device() => FileKind::CharDevice,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () => FileKind::Regular,
    }
}

fn plain_attr(ino: InodeId, metadata: &Metadata) -> Attr {
    let of = |seconds, nanos| TimeSpec { seconds, nanos: u32::try_from(nanos).unwrap_or(0) };
    Attr {
        ino,
        kind: kind(metadata),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: u32::try_from(metadata.rdev()).unwrap_or(0),
        nlink: u32::try_from(metadata.nlink()).unwrap_or(u32::MAX),
        size: metadata.len(),
        blocks: metadata.blocks(),
        atime: of(metadata.atime(), metadata.atime_nsec()),
        mtime: of(metadata.mtime(), metadata.mtime_nsec()),
        ctime: of(metadata.ctime(), metadata.ctime_nsec()),
        crtime: of(metadata.ctime(), metadata.ctime_nsec()),
        layout: Layout::None,
        layout_epoch: 0,
        trunc_epoch: 0,
        policy: None,
        acls: None,
    }
}

fn time(at: SystemTime) -> TimeSpec {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    TimeSpec { seconds, nanos: since.subsec_nanos() }
}

pub(super) fn refused(error: &io::Error) -> Refused {
    Refused::new(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Of an inode that was known: without its name it is gone.
fn stale(error: &io::Error) -> Refused {
    match error.kind() {
        io::ErrorKind::NotFound => Refused::new(libc::ESTALE),
        _ => refused(error),
    }
}
