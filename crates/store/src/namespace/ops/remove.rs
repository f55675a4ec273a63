//! Remove: an inode that nobody needs any more goes with everything that is known about it.

use hayase_layout::InodeId;

use super::{bad_key, clear_dir_shards, forget_durability};
use crate::namespace::{FileKind, Inode, NamespaceError, Txn, keys};

/// Removes the record of `ino` with its attributes, back pointers, shards and orphan mark; nothing
/// when it is gone. Not its parts: a part that a crash leaves behind is found by comparing
/// [`crate::part::Parts::list`] with [`super::inodes`].
pub fn remove_inode(txn: &mut Txn<'_>, ino: InodeId) -> Result<(), NamespaceError> {
    let Some(inode) = txn.inode(ino)? else { return Ok(()) };
    if inode.nlink == 0 && inode.kind != FileKind::Directory {
        txn.delete(keys::orphan(ino));
    }
    remove_record(txn, &inode)
}

/// The same for one that is no orphan. Scans cost more than all the rest, and most inodes have
/// nothing that they would find.
pub(super) fn remove_record(txn: &mut Txn<'_>, inode: &Inode) -> Result<(), NamespaceError> {
    let ino = inode.ino;
    let kinds =
        [(inode.nlink > 1, keys::back_pointers(ino)), (inode.has_xattrs, keys::xattrs(ino))];
    for (_, prefix) in kinds.into_iter().filter(|(has, _)| *has) {
        for (key, _) in txn.scan(&prefix, &[], usize::MAX)? {
            txn.delete(key);
        }
    }
    match inode.kind {
        FileKind::Directory => clear_dir_shards(txn, ino)?,
        FileKind::Regular if !ino.is_cached() => forget_durability(txn, ino)?,
        _ => {}
    }
    txn.set_inode(ino, None);
    Ok(())
}

/// Inodes without names, ascending, `limit` at most.
pub fn orphans(txn: &Txn<'_>, limit: usize) -> Result<Vec<InodeId>, NamespaceError> {
    let pairs = txn.scan(&keys::orphans(), &[], limit)?;
    pairs
        .iter()
        .map(|(key, _)| keys::parse_number(key).map(InodeId).ok_or_else(|| bad_key(key)))
        .collect()
}

#[cfg(test)]
mod tests {
    use hayase_layout::ServerId;

    use super::super::testing::{at, file, namespace};
    use super::super::{
        Nameless, XattrMode, add_dir_shard, create, dir_shards, get_inode, link, names_of,
        set_xattr, unlink,
    };
    use super::*;

    #[test]
    fn nothing_is_left_of_a_removed_inode() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        create(&mut txn, &file(7, 1, b"a"), None).unwrap();
        create(&mut txn, &file(8, 1, b"other"), None).unwrap();
        link(&mut txn, InodeId(7), InodeId(1), b"b", at(2)).unwrap();
        set_xattr(&mut txn, InodeId(7), b"user.a", b"1", XattrMode::Set, at(2)).unwrap();
        let dir = Inode { kind: FileKind::Directory, ..file(9, 1, b"dir") };
        create(&mut txn, &dir, None).unwrap();
        add_dir_shard(&mut txn, InodeId(9), ServerId(2)).unwrap();
        unlink(&mut txn, InodeId(7), InodeId(1), b"a", at(3), Nameless::Orphan).unwrap();
        unlink(&mut txn, InodeId(7), InodeId(1), b"b", at(3), Nameless::Orphan).unwrap();
        assert_eq!(orphans(&txn, 10).unwrap(), [InodeId(7)]);
        txn.commit().unwrap();
        let mut txn = namespace.begin();
        for ino in [7, 7, 9] {
            remove_inode(&mut txn, InodeId(ino)).unwrap();
        }
        txn.commit().unwrap();
        let txn = namespace.begin();
        assert_eq!(get_inode(&txn, InodeId(7)).unwrap(), None);
        assert!(names_of(&txn, InodeId(7)).unwrap().is_empty());
        for left in [keys::xattrs(InodeId(7)), keys::back_pointers(InodeId(7))] {
            assert!(txn.scan(&left, &[], 10).unwrap().is_empty());
        }
        assert!(dir_shards(&txn, InodeId(9)).unwrap().is_empty());
        assert!(orphans(&txn, 10).unwrap().is_empty());
        assert!(get_inode(&txn, InodeId(8)).unwrap().is_some());
        assert_eq!(names_of(&txn, InodeId(8)).unwrap().len(), 1);
    }
}
