//! Access control lists of inodes, which programs read and set as extended attributes.
//!
//! They are kept with the inode and travel with its attributes: so the mode changes with them in one transaction, a mount
//! that may keep the attributes answers its kernel by itself, and a file without lists costs no message. Checked they are
//! by the kernels (`FUSE_POSIX_ACL`).
//! Not here: what a list says ([`hayase_layout::acl`]), its ways to a tier and from there ([`crate::cache::xattrs`]).

use hayase_layout::acl::{ACCESS_NAME, DEFAULT_NAME, is_acl};
use hayase_layout::{Acl, AclError, Acls, InodeId};
use hayase_store::namespace::{FileKind, Inode, Time, Txn};
use hayase_store::ops;
use hayase_wire::message::{FileKind as NewKind, Name, NewNode, Refused};
use rustix::io::Errno;

use crate::convert::meta_refused;
use crate::limits::ACL_ENTRIES_PER_MESSAGE;

/// A list that is to be set or, without entries, taken away.
pub(crate) struct AclChange {
    is_default: bool,
    acl: Option<Acl>,
}

impl AclChange {
    /// Of an extended attribute; `value` `None` takes it away. The outer `None`: it is no list.
    pub(crate) fn of(name: &Name, value: Option<&[u8]>) -> Option<Result<Self, Refused>> {
        let parsed = match value {
            _ if !is_acl(name) => return None,
            None => Ok(None),
            Some(value) => Acl::parse(value),
        };
        let is_default = name == DEFAULT_NAME;
        Some(parsed.map(|acl| Self { is_default, acl }).map_err(refused))
    }

    /// Makes it, and the mode that it amounts to.
    pub(crate) fn store(self, txn: &mut Txn<'_>, ino: InodeId, now: Time) -> Result<(), Refused> {
        let found = ops::get_inode(txn, ino).map_err(meta_refused)?;
        let mut inode = found.ok_or_else(|| Refused::new(Errno::STALE.raw_os_error()))?;
        self.make(&mut inode)?;
        ops::put_inode(txn, &Inode { ctime: now, ..inode }).map_err(meta_refused)
    }

    /// A list that says no more than a mode becomes the mode; one that is taken away leaves the mode as it is. A
    /// list that is not there is as good as taken away, as on a local file system.
    pub(crate) fn make(&self, inode: &mut Inode) -> Result<(), Refused> {
        let mut acls = inode.acls.take().map_or_else(Acls::default, |acls| *acls);
        match (self.is_default, inode.kind) {
            (_, FileKind::Symlink) => return Err(Refused::new(Errno::OPNOTSUPP.raw_os_error())),
            (true, FileKind::Directory) => acls.default.clone_from(&self.acl),
            (true, _) if self.acl.is_some() => {
                return Err(Refused::new(Errno::ACCESS.raw_os_error()));
            }
            (true, _) => {}
            (false, _) => {
                if let Some(acl) = &self.acl {
                    inode.mode = inode.mode & !0o777 | acl.mode();
                }
                acls.access = self.acl.clone().filter(|acl| !acl.is_mode());
            }
        }
        inode.acls = acls.kept();
        Ok(())
    }
}

/// chmod(2): the lists that decide follow the mode.
pub(crate) fn chmod(inode: &mut Inode, mode: u32) {
    inode.mode = mode & 0o7777;
    if let Some(acl) = inode.acls.as_mut().and_then(|acls| acls.access.as_mut()) {
        acl.chmod(mode);
    }
}

/// The value of a list's attribute, if the inode has one.
pub(crate) fn acl_value(inode: &Inode, name: &Name) -> Option<Vec<u8>> {
    inode.acls.as_ref()?.get(name).map(Acl::to_value)
}

/// The attributes that its lists are to programs.
pub(crate) fn acl_names(inode: &Inode) -> impl Iterator<Item = Name> {
    let has = |name: &&[u8]| inode.acls.as_ref().is_some_and(|acls| acls.get(name).is_some());
    [ACCESS_NAME, DEFAULT_NAME].into_iter().filter(has).map(<[u8]>::to_vec)
}

/// A new inode of an asker that knows nothing of the directory, which has these lists.
pub(crate) fn inherit(node: NewNode, directory: Option<&Acls>) -> NewNode {
    if node.kind == NewKind::Symlink {
        return node;
    }
    let (mode, acls) = Acls::of_new(directory, node.kind == NewKind::Directory, node.mode, 0);
    NewNode { mode, acls, ..node }
}

/// How much of the attributes of several inodes one message carries.
pub(crate) struct AclRoom(usize);

impl AclRoom {
    pub(crate) fn new() -> Self {
        Self(ACL_ENTRIES_PER_MESSAGE)
    }

    /// Whether these lists still fit; the inode is asked for alone otherwise.
    pub(crate) fn takes(&mut self, acls: Option<&Acls>) -> bool {
        let rest = self.0.checked_sub(acls.map_or(0, Acls::len));
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}

pub(crate) fn refused(error: AclError) -> Refused {
    let errno = match error {
        AclError::Invalid => Errno::INVAL.raw_os_error(),
        AclError::TooLong => Errno::TOOBIG.raw_os_error(),
    };
    Refused::because(errno, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time { seconds: 1, nanos: 0 };

    fn inode(kind: FileKind, mode: u32) -> Inode {
        Inode { mode, ..Inode::new(InodeId(7), kind, NOW) }
    }

    /// `(tag, id, bits)` of each entry.
    fn value(entries: &[(u16, u32, u16)]) -> Vec<u8> {
        let mut value = 2_u32.to_le_bytes().to_vec();
        for (tag, id, bits) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(bits.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    const NONE: u32 = u32::MAX;
    const MINIMAL: [(u16, u32, u16); 3] = [(1, NONE, 6), (4, NONE, 4), (32, NONE, 0)];
    const NAMED: [(u16, u32, u16); 5] =
        [(1, NONE, 7), (2, 1000, 6), (4, NONE, 4), (16, NONE, 6), (32, NONE, 1)];

    fn change(inode: &mut Inode, name: &[u8], value: Option<&[u8]>) -> Result<(), i32> {
        let change = AclChange::of(&name.to_vec(), value).expect("the name of a list");
        change.and_then(|change| change.make(inode)).map_err(|refused| refused.errno)
    }

    #[test]
    fn a_list_and_the_mode_change_together() {
        let mut file = inode(FileKind::Regular, 0o4644);
        change(&mut file, ACCESS_NAME, Some(&value(&NAMED))).unwrap();
        assert_eq!(file.mode, 0o4761);
        assert_eq!(acl_value(&file, &ACCESS_NAME.to_vec()), Some(value(&NAMED)));
        assert_eq!(acl_names(&file).collect::<Vec<_>>(), [ACCESS_NAME]);
        chmod(&mut file, 0o750);
        let masked = [(1, NONE, 7), (2, 1000, 6), (4, NONE, 4), (16, NONE, 5), (32, NONE, 0)];
        assert_eq!(acl_value(&file, &ACCESS_NAME.to_vec()), Some(value(&masked)));
        assert_eq!(file.mode, 0o750);
        change(&mut file, ACCESS_NAME, None).unwrap();
        assert_eq!((file.mode, &file.acls), (0o750, &None), "the mode stays");
        change(&mut file, ACCESS_NAME, None).unwrap();
        change(&mut file, ACCESS_NAME, Some(&value(&NAMED))).unwrap();
        change(&mut file, ACCESS_NAME, Some(&value(&MINIMAL))).unwrap();
        assert_eq!((file.mode, &file.acls), (0o640, &None), "a minimal list is a mode");
        assert_eq!(acl_names(&file).count(), 0);
    }

    #[test]
    fn default_lists_are_those_of_directories() {
        let mut directory = inode(FileKind::Directory, 0o755);
        change(&mut directory, DEFAULT_NAME, Some(&value(&MINIMAL))).unwrap();
        assert_eq!(directory.mode, 0o755);
        assert_eq!(acl_value(&directory, &DEFAULT_NAME.to_vec()), Some(value(&MINIMAL)));
        let mut file = inode(FileKind::Regular, 0o644);
        assert_eq!(
            change(&mut file, DEFAULT_NAME, Some(&value(&MINIMAL))),
            Err(Errno::ACCESS.raw_os_error())
        );
        assert_eq!(change(&mut file, DEFAULT_NAME, None), Ok(()));
        let mut link = inode(FileKind::Symlink, 0o777);
        let refused = change(&mut link, ACCESS_NAME, Some(&value(&NAMED)));
        assert_eq!(refused, Err(Errno::OPNOTSUPP.raw_os_error()));
        assert!(AclChange::of(&b"user.x".to_vec(), None).is_none());
        assert_eq!(change(&mut file, ACCESS_NAME, Some(b"x")), Err(Errno::INVAL.raw_os_error()));
        let users = (0..200).map(|id| (2, id, 4));
        let many: Vec<_> = [(1, NONE, 7)].into_iter().chain(users).collect();
        assert_eq!(
            change(&mut file, ACCESS_NAME, Some(&value(&many))),
            Err(Errno::TOOBIG.raw_os_error())
        );
    }

    #[test]
    fn one_message_carries_so_many_entries() {
        let acl = Acl::parse(&value(&NAMED)).unwrap();
        let acls = Acls { access: acl.clone(), default: acl, in_tier: false };
        let mut room = AclRoom::new();
        let fit = (0..5000).filter(|_| room.takes(Some(&acls))).count();
        assert_eq!(fit, ACL_ENTRIES_PER_MESSAGE / 10);
        assert!(room.takes(None));
    }
}
