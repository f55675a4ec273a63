//! New inodes: files (opened at once), directories, links, devices.

use std::sync::Arc;

use fuser::{BackingId, OpenFlags, ReplyCreate, ReplyEntry};
use hayase_client::open_file::Class;
use hayase_client::volume::{FileOpen, Found};
use hayase_layout::{Acls, InodeId};
use hayase_wire::message::{Access, FileKind, Name, NewNode, ParentPolicy, Refused};

use super::{GENERATION, Shared};
use crate::attributes::file_attr;
use crate::errno::errno;
use crate::limits::TARGET_BYTES_MAX;
use crate::open_class::OpenClass;

/// Who asks for a new inode, and which.
#[derive(Debug)]
pub(crate) struct NewInode {
    pub(crate) parent: InodeId,
    pub(crate) name: Name,
    pub(crate) kind: FileKind,
    /// Permission bits, as the kernel hands them over.
    pub(crate) mode: u32,
    /// Counts where the directory has no default list.
    pub(crate) umask: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) target: Option<Vec<u8>>,
}

impl Shared {
    /// mknod, mkdir, symlink.
    pub(crate) fn make(&self, new: NewInode, reply: ReplyEntry) {
        let parent = new.parent;
        match self.inherit(new).and_then(|node| self.volume.make(node)) {
            Ok(found) => self.reply_entry(parent, &found, reply),
            Err(refused) => reply.error(errno(&refused)),
        }
    }

    /// open(2) of a name that was not there. If another node made it meanwhile, the kernel is sent
    /// back to look (`ESTALE`), so that rights are checked and the open is an ordinary one.
    pub(crate) fn create(&self, new: NewInode, flags: OpenFlags, reply: ReplyCreate) {
        let parent = new.parent;
        let wish = self.wish(flags);
        let created = self.inherit(new).and_then(|node| self.volume.create(node, wish));
        match created {
            Ok((found, open)) => self.reply_created(parent, wish.access, &found, &open, reply),
            Err(refused) if refused.errno == libc::EEXIST && flags.0 & libc::O_EXCL == 0 => {
                reply.error(fuser::Errno::ESTALE);
            }
            Err(refused) => reply.error(errno(&refused)),
        }
    }

    fn reply_created(
        &self,
        parent: InodeId,
        access: Access,
        found: &Found,
        open: &FileOpen,
        reply: ReplyCreate,
    ) {
        let ino = found.attr.ino;
        let backing = self.backing(ino, open, |part| reply.open_backing(part));
        let class = OpenClass::of(open, backing.is_some());
        let (handle, closes) = self.closes.open(access);
        let (handle, flags) = (class.handle(handle), class.flags() | closes);
        self.kernel.inodes.remember(ino, parent);
        let _begun = self.kernel.replies.begin(ino);
        self.kernel.set_ids.told(&found.attr);
        let ttl = self.shared_ttl(found);
        let attr = file_attr(&found.attr);
        match backing.filter(|_| class == OpenClass::Passthrough) {
            Some(id) => {
                reply.created_passthrough(&ttl, &attr, GENERATION, handle, flags, &id);
            }
            None => reply.created(&ttl, &attr, GENERATION, handle, flags),
        }
    }

    /// The part as the kernel knows it, for an open of class L.
    pub(super) fn backing(
        &self,
        ino: InodeId,
        open: &FileOpen,
        register: impl FnOnce(std::os::fd::BorrowedFd<'_>) -> std::io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        if open.class != Class::Local {
            return None;
        }
        self.kernel.backings.get(ino, open.descriptor.as_deref(), register)
    }

    /// Owner and rights as a local file system gives them: in a set-gid directory new inodes have
    /// its group, and new directories its bit; a default list counts instead of the umask.
    fn inherit(&self, new: NewInode) -> Result<NewNode, Refused> {
        if new.target.as_ref().is_some_and(|target| target.len() > TARGET_BYTES_MAX) {
            return Err(Refused::new(libc::ENAMETOOLONG));
        }
        let parent = self.volume.lasting_attributes(new.parent)?;
        let (mode, gid) = inherited(parent.mode, parent.gid, &new);
        let (mode, acls) = match new.kind {
            FileKind::Symlink => (mode, None),
            kind => {
                let is_directory = kind == FileKind::Directory;
                Acls::of_new(parent.acls.as_deref(), is_directory, mode, new.umask)
            }
        };
        Ok(NewNode {
            parent: new.parent,
            name: new.name,
            kind: new.kind,
            mode,
            uid: new.uid,
            gid,
            rdev: new.rdev,
            target: new.target,
            policy: ParentPolicy::Known(parent.policy),
            acls,
            exclusive: true,
            open: None,
        })
    }
}

fn inherited(parent_mode: u32, parent_gid: u32, new: &NewInode) -> (u32, u32) {
    let mode = new.mode & 0o7777;
    if parent_mode & libc::S_ISGID == 0 {
        return (mode, new.gid);
    }
    match new.kind {
        FileKind::Directory => (mode | libc::S_ISGID, parent_gid),
        _ => (mode, parent_gid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_gid_directories_pass_on_their_group() {
        let check = |parent_mode, kind, expected: (u32, u32)| {
            let new = NewInode {
                parent: InodeId::ROOT,
                name: b"n".to_vec(),
                kind,
                mode: 0o755,
                umask: 0,
                uid: 1,
                gid: 100,
                rdev: 0,
                target: None,
            };
            assert_eq!(inherited(parent_mode, 7, &new), expected);
        };
        check(0o755, FileKind::Regular, (0o755, 100));
        check(0o755, FileKind::Directory, (0o755, 100));
        check(0o2755, FileKind::Regular, (0o755, 7));
        check(0o2755, FileKind::Directory, (0o2755, 7));
        check(0o2755, FileKind::Symlink, (0o755, 7));
    }
}
