//! Unlink: a name goes at its shard, and is counted down at the inode's home.

use hayase_layout::InodeId;

use super::link::{back_pointers, has_name, require_inode};
use super::remove::{remove_inode, remove_record};
use crate::namespace::{Inode, NamespaceError, Time, Txn, keys};

/// Removes `name` from `parent`; what it stands for the caller has looked up. Costs no read.
pub fn remove_entry(txn: &mut Txn<'_>, parent: InodeId, name: &[u8]) {
    txn.set_entry(parent, name, None);
}

/// What becomes of an inode when its last name goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nameless {
    /// It is still open: it is marked an orphan ([`super::orphans`]) and lives on.
    Orphan,
    /// It goes, as by [`super::remove_inode`].
    Removed,
}

/// Counts one name less; returns the inode as it is now, or was before it went.
/// When `ino` does not have this name, none is counted.
pub fn unlink(
    txn: &mut Txn<'_>,
    ino: InodeId,
    parent: InodeId,
    name: &[u8],
    now: Time,
    nameless: Nameless,
) -> Result<Inode, NamespaceError> {
    let mut inode = require_inode(txn, ino)?;
    if !has_name(txn, &inode, parent, name)? {
        if inode.nlink == 0 && nameless == Nameless::Removed {
            remove_inode(txn, ino)?;
        }
        return Ok(inode);
    }
    if !inode.is_named(parent, name) {
        txn.delete(keys::back_pointer(ino, parent, name));
    } else {
        inode.name = take_back_pointer(txn, &inode)?;
    }
    inode.nlink = inode.nlink.saturating_sub(1);
    inode.ctime = now;
    match nameless {
        Nameless::Removed if inode.nlink == 0 => remove_record(txn, &inode)?,
        Nameless::Orphan if inode.nlink == 0 => {
            txn.put(keys::orphan(ino), Vec::new());
            txn.set_inode(ino, Some(inode.clone()));
        }
        _ => txn.set_inode(ino, Some(inode.clone())),
    }
    Ok(inode)
}

/// Another name for the record of `inode`, whose own is going.
fn take_back_pointer(
    txn: &mut Txn<'_>,
    inode: &Inode,
) -> Result<Option<(InodeId, Vec<u8>)>, NamespaceError> {
    if inode.nlink < 2 {
        return Ok(None);
    }
    let other = back_pointers(txn, inode.ino, 1)?.pop();
    if let Some((parent, name)) = &other {
        txn.delete(keys::back_pointer(inode.ino, *parent, name));
    }
    Ok(other)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{at, file, namespace};
    use super::super::{create, get_inode, insert, link, lookup, orphans};
    use super::*;
    use crate::namespace::{EntryRecord, FileKind};

    #[test]
    fn the_last_name_makes_an_orphan_and_a_new_one_saves_it() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        create(&mut txn, &file(7, 1, b"a"), None).unwrap();
        link(&mut txn, InodeId(7), InodeId(1), b"b", at(2)).unwrap();
        let mut check = |name: &[u8], nlink, orphaned: &[InodeId]| {
            let inode =
                unlink(&mut txn, InodeId(7), InodeId(1), name, at(3), Nameless::Orphan).unwrap();
            assert_eq!(inode.nlink, nlink);
            assert_eq!(orphans(&txn, 10).unwrap(), orphaned);
        };
        check(b"a", 1, &[]);
        check(b"a", 1, &[]); // again: nothing happens
        check(b"b", 0, &[InodeId(7)]);
        check(b"b", 0, &[InodeId(7)]);
        assert_eq!(link(&mut txn, InodeId(7), InodeId(1), b"c", at(4)).unwrap().nlink, 1);
        assert!(orphans(&txn, 10).unwrap().is_empty());
    }

    #[test]
    fn a_file_that_nobody_needs_goes_with_its_last_name() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        create(&mut txn, &file(7, 1, b"a"), None).unwrap();
        link(&mut txn, InodeId(7), InodeId(1), b"b", at(2)).unwrap();
        txn.commit().unwrap();
        let mut txn = namespace.begin();
        let mut less = |name: &[u8]| {
            unlink(&mut txn, InodeId(7), InodeId(1), name, at(3), Nameless::Removed).unwrap().nlink
        };
        assert_eq!([less(b"a"), less(b"a"), less(b"b")], [1, 1, 0]);
        txn.commit().unwrap();
        assert_eq!(get_inode(&namespace.begin(), InodeId(7)).unwrap(), None);
        assert!(orphans(&namespace.begin(), 10).unwrap().is_empty());
    }

    #[test]
    fn a_removed_entry_is_gone() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        let entry = EntryRecord { ino: InodeId(7), kind: FileKind::Fifo };
        insert(&mut txn, InodeId(1), b"a", entry).unwrap().unwrap();
        txn.commit().unwrap();
        let mut txn = namespace.begin();
        remove_entry(&mut txn, InodeId(1), b"a");
        remove_entry(&mut txn, InodeId(1), b"a");
        assert_eq!(lookup(&txn, InodeId(1), b"a").unwrap(), None);
        insert(&mut txn, InodeId(1), b"a", entry).unwrap().unwrap();
    }
}
