//! A directory of containers, shown as the plain files that they stand for; read-only.
//!
//! Here: the contract [`ReadOnly`] for it. Rooms: [`tree`] (names, inode numbers, listings), [`shown`] (one
//! container that is looked at, following what its writers publish).
//! Not here: how a container is read (`hayase_container`), FUSE (`hayase_fuse`).
//!
//! Everything else in the directory is shown as it is, so that the mount is the directory as its programs
//! mean it. Paper 001 calls this mpiio-gfarm2fs (section 6).
//!
//! What writers publish is seen within [`crate::limits::PUBLICATION_LOOK`] plus the time that the kernel keeps attributes:
//! size and time of a file change with it, and then the kernel drops its pages of the file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hayase_layout::{ByteCount, GlobalOffset, InodeId};
use hayase_wire::message::{AreaUse, Attr, Explained, FileKind, Name, Refused};
use rustix::fs::SeekFrom;

use crate::grants::{Moments, Stamp};
use crate::volume::{Listed, ReadOnly};

mod shown;
mod tree;

use shown::Shown;
use tree::Tree;

/// Most bytes of one read: the kernel's largest.
const TRANSFER_BYTES: ByteCount = ByteCount::mib(1);

const SEEK_DATA: u8 = 3;
const SEEK_HOLE: u8 = 4;

/// See the module.
#[derive(Debug)]
pub struct ContainerVolume {
    tree: Tree,
    /// Answers may be kept for a while: nothing is ever recalled.
    stamp: Stamp,
}

/// What an inode is when it is opened.
#[derive(Clone, Debug)]
enum Opened {
    Container(Arc<Shown>),
    Plain(Arc<File>),
}

impl ContainerVolume {
    /// The directory `root`, which must exist.
    pub fn new(root: &Path) -> std::io::Result<Self> {
        let root: PathBuf = root.canonicalize()?;
        Ok(Self { tree: Tree::new(root)?, stamp: Moments::default().now() })
    }

    fn opened(&self, ino: InodeId) -> Result<Opened, Refused> {
        self.tree.opened(ino).ok_or_else(|| Refused::new(libc::EBADF))
    }
}

impl ReadOnly for ContainerVolume {
    const WHAT: &'static str = "a mount of containers is read-only";

    fn stamp(&self) -> Stamp {
        self.stamp
    }

    fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Attr, Refused> {
        self.tree.lookup(parent, name)
    }

    fn attributes(&self, ino: InodeId) -> Result<Attr, Refused> {
        self.tree.attributes(ino)
    }

    fn forgotten(&self, ino: InodeId) {
        self.tree.forget(ino);
    }

    fn read_link(&self, ino: InodeId) -> Result<Vec<u8>, Refused> {
        self.tree.read_link(ino)
    }

    fn list(
        &self,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<Vec<Listed>, Refused> {
        let entries = self.tree.list(dir, cookie, bytes, plus)?;
        Ok(entries.into_iter().map(|entry| Listed { entry, stamp: self.stamp }).collect())
    }

    fn open(&self, ino: InodeId) -> Result<bool, Refused> {
        self.tree.open(ino)
    }

    fn release(&self, ino: InodeId) {
        self.tree.release(ino);
    }

    fn read(
        &self,
        ino: InodeId,
        offset: u64,
        len: u32,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Refused> {
        let mut buffer = vec![0; (len as usize).min(TRANSFER_BYTES.get() as usize)];
        let count = match self.opened(ino)? {
            Opened::Container(shown) => shown.read(GlobalOffset(offset), &mut buffer)?,
            Opened::Plain(file) => read_plain(&file, offset, &mut buffer)?,
        };
        sink(&buffer[..count]);
        Ok(())
    }

    fn transfer_bytes(&self) -> usize {
        TRANSFER_BYTES.get() as usize
    }

    fn seek(&self, ino: InodeId, offset: u64, whence: u8) -> Result<u64, Refused> {
        let beyond = || Refused::new(libc::ENXIO);
        let is_data = match whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return Err(Refused::new(libc::EINVAL)),
        };
        match self.opened(ino)? {
            Opened::Container(shown) => {
                shown.seek(GlobalOffset(offset), is_data).map(|at| at.0).ok_or_else(beyond)
            }
            Opened::Plain(file) => {
                let to = if is_data { SeekFrom::Data(offset) } else { SeekFrom::Hole(offset) };
                // The descriptor is shared, its position is not used: every read says where.
                rustix::fs::seek(&*file, to).map_err(|errno| Refused::new(errno.raw_os_error()))
            }
        }
    }

    fn xattr(&self, ino: InodeId, name: &[u8]) -> Result<Vec<u8>, Refused> {
        let id = self.tree.container_id(ino)?;
        match id.filter(|_| name == hayase_container::CONTAINER_XATTR.as_bytes()) {
            Some(id) => Ok(id.to_string().into_bytes()),
            None => Err(Refused::new(libc::ENODATA)),
        }
    }

    fn list_xattrs(&self, ino: InodeId) -> Result<Vec<Name>, Refused> {
        let name = hayase_container::CONTAINER_XATTR.as_bytes().to_vec();
        Ok(self.tree.container_id(ino)?.map(|_| name).into_iter().collect())
    }

    fn usage(&self) -> Result<AreaUse, Refused> {
        self.tree.usage()
    }

    fn explain(&self, ino: InodeId) -> Result<Explained, Refused> {
        let attr = self.tree.attributes(ino)?;
        let state = match (self.tree.container_id(ino)?, attr.kind) {
            (Some(id), _) => format!("container {id}"),
            (None, FileKind::Regular) => "plain file".to_owned(),
            (None, _) => "as it is".to_owned(),
        };
        Ok(Explained { attr, state, opens: Vec::new(), parts: Vec::new(), cache: None })
    }
}

/// As much as there is.
fn read_plain(file: &File, offset: u64, buffer: &mut [u8]) -> Result<usize, Refused> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(tree::refused(&error)),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use hayase_container::{ContainerFile, Creation, Durability, Identity};
    use hayase_layout::{NodeId, Rank};
    use hayase_wire::message::{Access, MetaChange};

    use super::*;
    use crate::open_file::Serving;
    use crate::volume::{OpenWish, Volume};

    const READ: Access = Access { read: true, write: false };

    fn container(path: &Path, bytes: &[u8]) {
        let made = hayase_container::Container::open(path, Creation::Exclusive).unwrap();
        let who = Identity { node: NodeId(0), process: 1, opening: 0, rank: Rank(0) };
        let access = hayase_container::Access::ReadWrite;
        let file = ContainerFile::open(made, access, who, None).unwrap();
        file.write_at(GlobalOffset(0), bytes).unwrap();
        file.close(Durability::Written).unwrap();
    }

    fn mounted(path: &Path) -> Arc<dyn Volume> {
        Arc::new(ContainerVolume::new(path).unwrap())
    }

    fn wish(access: Access) -> OpenWish {
        OpenWish { access, truncate: false, serving: Serving::Descriptor, uncached: false }
    }

    fn read(volume: &Arc<dyn Volume>, ino: InodeId, offset: u64, len: u32) -> Vec<u8> {
        let mut read = Vec::new();
        volume.read(ino, offset, len, &mut |bytes| read.extend_from_slice(bytes)).unwrap();
        read
    }

    #[test]
    fn containers_are_files_and_the_rest_is_as_it_is() {
        let top = tempfile::tempdir().unwrap();
        container(&top.path().join("a"), b"0123456789");
        fs::write(top.path().join("plain"), "as it is").unwrap();
        fs::create_dir(top.path().join("below")).unwrap();
        let volume = mounted(top.path());
        let lookup = |name: &[u8]| volume.lookup(InodeId::ROOT, name).map(|found| found.attr);
        let a = lookup(b"a").unwrap();
        assert_eq!((a.kind, a.size, a.nlink), (FileKind::Regular, 10, 1));
        assert_eq!(lookup(b"a").unwrap().ino, a.ino);
        assert_eq!(volume.attributes(a.ino).unwrap().attr, a);
        assert_eq!(lookup(b"below").unwrap().kind, FileKind::Directory);
        assert_eq!(lookup(b"none").unwrap_err().errno, libc::ENOENT);
        let plain = lookup(b"plain").unwrap();
        for (ino, bytes) in [(a.ino, &b"0123456789"[..]), (plain.ino, b"as it is")] {
            assert!(!volume.open(ino, wish(READ)).unwrap().keep_pages, "nothing was read before");
            assert!(volume.open(ino, wish(READ)).unwrap().keep_pages, "nothing has changed");
            assert_eq!(read(&volume, ino, 0, 100), bytes);
            assert_eq!(read(&volume, ino, 7, 100), &bytes[7..]);
            assert_eq!(read(&volume, ino, 70, 100), b"");
            volume.release(ino, READ);
            assert_eq!(read(&volume, ino, 0, 1), &bytes[..1], "open once more");
            volume.release(ino, READ);
        }
        let id = volume.xattr(a.ino, b"user.hayase.container").unwrap();
        assert_eq!((id.len(), volume.list_xattrs(plain.ino).unwrap().len()), (32, 0));
        assert_eq!(volume.seek(a.ino, 3, SEEK_DATA).unwrap(), 3);
        assert_eq!(volume.seek(a.ino, 3, SEEK_HOLE).unwrap(), 10);
    }

    #[test]
    fn listings_continue_behind_their_cookies() {
        let top = tempfile::tempdir().unwrap();
        let mut expected = BTreeSet::new();
        for nth in 0..40 {
            let name = format!("file-{nth}");
            match nth % 4 {
                0 => container(&top.path().join(&name), b"x"),
                _ => fs::write(top.path().join(&name), "x").unwrap(),
            }
            expected.insert(name.into_bytes());
        }
        hayase_container::enable(top.path()).unwrap();
        fs::write(top.path().join("file-4/.hayase-container"), "damaged").unwrap();
        let volume = mounted(top.path());
        for plus in [false, true] {
            let (mut found, mut cookie, mut without) = (BTreeSet::new(), 0, 0);
            loop {
                let part = volume.list(InodeId::ROOT, cookie, 50, plus).unwrap();
                let Some(last) = part.last() else { break };
                assert!(part.len() < 20, "about 50 bytes of names");
                cookie = last.entry.cookie;
                for Listed { entry, .. } in part {
                    assert_eq!(entry.kind, FileKind::Regular);
                    without += usize::from(entry.entry.is_none());
                    assert!(found.insert(entry.name), "twice");
                }
            }
            assert_eq!(found, expected);
            assert_eq!(without, if plus { 1 } else { 40 }, "the damaged one is listed too");
        }
        let damaged = volume.lookup(InodeId::ROOT, b"file-4").unwrap_err();
        assert_eq!(damaged.errno, libc::EIO);
        assert!(damaged.why.unwrap().contains("damaged"));
    }

    #[test]
    fn nothing_can_be_changed() {
        let top = tempfile::tempdir().unwrap();
        container(&top.path().join("a"), b"0123456789");
        let volume = mounted(top.path());
        let ino = volume.lookup(InodeId::ROOT, b"a").unwrap().attr.ino;
        let write = Access { read: true, write: true };
        let name = || b"a".to_vec();
        let root = InodeId::ROOT;
        for errno in [
            volume.open(ino, wish(write)).map(|_| ()).unwrap_err().errno,
            volume.write(ino, 0, b"x").map(|_| ()).unwrap_err().errno,
            volume.remove(root, b"a", false).unwrap_err().errno,
            volume.rename((root, name()), (root, b"b".to_vec()), false, false).unwrap_err().errno,
            volume.allocate(ino, 0, 0, 1).unwrap_err().errno,
            volume.set_attributes(ino, &MetaChange::default()).map(|_| ()).unwrap_err().errno,
        ] {
            assert_eq!(errno, libc::EROFS);
        }
    }
}
