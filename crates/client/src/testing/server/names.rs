//! Names and xattrs of the fake.

use hayase_layout::acl::{ACCESS_NAME, is_acl};
use hayase_layout::{Acl, Acls};
use hayase_wire::message::DirEntry;

use super::{
    Access, Entry, File, FileKind, Inode, InodeId, Layout, NewNode, NodeReply, NodeRequest,
    Refused, State, XattrMode, attr, now, refused,
};

impl State {
    pub(super) fn find(&self, parent: InodeId, name: &[u8]) -> Result<InodeId, Refused> {
        let dir = self.inodes.get(&parent).ok_or_else(|| Refused::new(libc::ESTALE))?;
        if dir.attr.kind != FileKind::Directory {
            return Err(Refused::new(libc::ENOTDIR));
        }
        let bound = dir.entries.get(&place(dir, name)).filter(|(known, _)| known == name);
        bound.map(|(_, ino)| *ino).ok_or_else(|| Refused::new(libc::ENOENT))
    }

    pub(super) fn make(&mut self, node: &NewNode) -> Result<InodeId, Refused> {
        if self.inode(node.parent)?.attr.nlink == 0 {
            return Err(Refused::new(libc::ENOENT));
        }
        let ino = InodeId(self.next);
        self.next += 1;
        let mut inode = Inode::new(attr(ino.0));
        inode.attr.kind = node.kind;
        inode.attr.mode = node.mode;
        inode.attr.uid = node.uid;
        inode.attr.gid = node.gid;
        inode.attr.rdev = node.rdev;
        inode.attr.layout = Layout::None;
        inode.attr.policy = node.policy.known().filter(|_| node.kind == FileKind::Directory);
        inode.attr.acls = node.acls.clone();
        inode.target = node.target.clone().unwrap_or_default();
        inode.attr.size = inode.target.len() as u64;
        if node.kind == FileKind::Regular {
            inode.attr.layout = Layout::Whole;
            let path = self.directory.join(format!("{:016x}", ino.0));
            let part = File::options().read(true).write(true).create_new(true).open(&path);
            inode.part = Some(part.map_err(|error| refused(&error))?);
        }
        self.inodes.insert(ino, inode);
        self.bind(node.parent, &node.name, ino)?;
        Ok(ino)
    }

    fn bind(&mut self, parent: InodeId, name: &[u8], ino: InodeId) -> Result<(), Refused> {
        let dir = self.inode(parent)?;
        dir.entries.insert(place(dir, name), (name.to_vec(), ino));
        dir.touch();
        Ok(())
    }

    fn unbind(&mut self, parent: InodeId, name: &[u8]) -> Result<(), Refused> {
        let dir = self.inode(parent)?;
        dir.entries.remove(&place(dir, name));
        dir.touch();
        Ok(())
    }

    fn drop_name(&mut self, ino: InodeId) -> Result<(), Refused> {
        let inode = self.inode(ino)?;
        inode.attr.nlink -= 1;
        inode.attr.ctime = now();
        self.collect(ino);
        Ok(())
    }

    /// An inode without names and opens is gone.
    pub(super) fn collect(&mut self, ino: InodeId) {
        let unused = Access::default();
        if self.inodes.get(&ino).is_some_and(|i| i.attr.nlink == 0 && i.opens == unused) {
            self.inodes.remove(&ino);
            let path = self.directory.join(format!("{:016x}", ino.0));
            if path.exists() {
                std::fs::remove_file(path).expect("the directory of the parts is ours");
            }
        }
    }

    pub(super) fn serve_names(&mut self, request: &NodeRequest) -> Result<NodeReply, Refused> {
        match request {
            NodeRequest::Lookup { parent, name } => {
                let ino = self.find(*parent, name)?;
                Ok(NodeReply::Entry(self.entry(ino)?))
            }
            NodeRequest::Link { ino, parent, name } => {
                if self.find(*parent, name).is_ok() {
                    return Err(Refused::new(libc::EEXIST));
                }
                self.bind(*parent, name, *ino)?;
                let inode = self.inode(*ino)?;
                inode.attr.nlink += 1;
                inode.attr.ctime = now();
                Ok(NodeReply::Entry(self.entry(*ino)?))
            }
            NodeRequest::Remove { parent, name, directory } => {
                let ino = self.find(*parent, name)?;
                self.check_removable(ino, *directory)?;
                self.unbind(*parent, name)?;
                self.drop_name(ino)?;
                Ok(NodeReply::Removed { ino })
            }
            NodeRequest::Rename { exchange: true, .. } => Err(Refused::new(libc::EINVAL)),
            NodeRequest::Rename { from, to, no_replace, .. } => self.rename(from, to, *no_replace),
            NodeRequest::ReadLink { ino } => {
                Ok(NodeReply::Target(self.inode(*ino)?.target.clone()))
            }
            NodeRequest::ReadDir { dir, cookie, bytes, plus } => {
                self.list(*dir, *cookie, *bytes, *plus)
            }
            _ => Err(Refused::new(libc::ENOSYS)),
        }
    }

    fn check_removable(&mut self, ino: InodeId, directory: bool) -> Result<(), Refused> {
        let inode = self.inode(ino)?;
        match (inode.attr.kind == FileKind::Directory, directory) {
            (true, false) => Err(Refused::new(libc::EISDIR)),
            (false, true) => Err(Refused::new(libc::ENOTDIR)),
            (true, true) if !inode.entries.is_empty() => Err(Refused::new(libc::ENOTEMPTY)),
            _ => Ok(()),
        }
    }

    fn rename(
        &mut self,
        from: &(InodeId, Vec<u8>),
        to: &(InodeId, Vec<u8>),
        no_replace: bool,
    ) -> Result<NodeReply, Refused> {
        let moved = self.find(from.0, &from.1)?;
        let replaced = self.find(to.0, &to.1).ok();
        if replaced == Some(moved) {
            return Ok(NodeReply::Renamed { moved, replaced: None });
        }
        if let Some(victim) = replaced {
            if no_replace {
                return Err(Refused::new(libc::EEXIST));
            }
            let directory = self.inode(moved)?.attr.kind == FileKind::Directory;
            self.check_removable(victim, directory)?;
            self.unbind(to.0, &to.1)?;
            self.drop_name(victim)?;
        }
        self.unbind(from.0, &from.1)?;
        self.bind(to.0, &to.1, moved)?;
        self.inode(moved)?.attr.ctime = now();
        Ok(NodeReply::Renamed { moved, replaced })
    }

    fn list(
        &mut self,
        dir: InodeId,
        cookie: u64,
        bytes: u32,
        plus: bool,
    ) -> Result<NodeReply, Refused> {
        let after: Vec<_> = self
            .inode(dir)?
            .entries
            .range(cookie.saturating_add(1)..)
            .map(|(cookie, (name, ino))| (*cookie, name.clone(), *ino))
            .collect();
        let (mut entries, mut room) = (Vec::new(), i64::from(bytes));
        for (cookie, name, ino) in after {
            room -= name.len() as i64;
            if room < 0 && !entries.is_empty() {
                break;
            }
            let Entry { attr, grants } = self.entry(ino)?;
            let (kind, entry) = (attr.kind, plus.then_some(Entry { attr, grants }));
            entries.push(DirEntry { cookie, name, ino, kind, entry });
        }
        Ok(NodeReply::Entries(entries))
    }

    pub(super) fn serve_xattrs(&mut self, request: &NodeRequest) -> Result<NodeReply, Refused> {
        match request {
            NodeRequest::GetXattr { ino, name } => {
                let value = self.inode(*ino)?.xattrs.get(name).cloned();
                value.map(NodeReply::Value).ok_or_else(|| Refused::new(libc::ENODATA))
            }
            NodeRequest::SetXattr { ino, name, value, .. } if is_acl(name) => {
                let attr = &mut self.inode(*ino)?.attr;
                let acl = Acl::parse(value).map_err(|_| Refused::new(libc::EINVAL))?;
                let mut acls = attr.acls.take().map_or_else(Acls::default, |acls| *acls);
                match name == ACCESS_NAME {
                    true => {
                        attr.mode =
                            acl.as_ref().map_or(attr.mode, |acl| attr.mode & !0o777 | acl.mode());
                        acls.access = acl.filter(|acl| !acl.is_mode());
                    }
                    false => acls.default = acl,
                }
                attr.acls = acls.kept();
                Ok(NodeReply::Done)
            }
            NodeRequest::SetXattr { ino, name, value, mode } => {
                let inode = self.inode(*ino)?;
                match (inode.xattrs.contains_key(name), mode) {
                    (true, XattrMode::Create) => return Err(Refused::new(libc::EEXIST)),
                    (false, XattrMode::Replace) => return Err(Refused::new(libc::ENODATA)),
                    _ => inode.xattrs.insert(name.clone(), value.clone()),
                };
                inode.attr.ctime = now();
                Ok(NodeReply::Done)
            }
            NodeRequest::ListXattr { ino } => {
                Ok(NodeReply::Names(self.inode(*ino)?.xattrs.keys().cloned().collect()))
            }
            NodeRequest::RemoveXattr { ino, name } => {
                let removed = self.inode(*ino)?.xattrs.remove(name);
                removed.map(|_| NodeReply::Done).ok_or_else(|| Refused::new(libc::ENODATA))
            }
            _ => Err(Refused::new(libc::ENOSYS)),
        }
    }
}

impl Inode {
    fn touch(&mut self) {
        self.attr.mtime = now();
        self.attr.ctime = self.attr.mtime;
    }
}

/// Where a name is or would be among the entries of `dir`: its hash, or the next free place.
/// (Two names of one hash are not separated again when the first is removed; the tests have none.)
fn place(dir: &Inode, name: &[u8]) -> u64 {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut place = (hash >> 1).max(3);
    while dir.entries.get(&place).is_some_and(|(known, _)| known != name) {
        place += 1;
    }
    place
}
