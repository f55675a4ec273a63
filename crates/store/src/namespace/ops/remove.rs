//! Remove: an inode that nobody needs any more goes with everything that is known about it.

use hayase_layout::InodeId;

use super::{bad_key, clear_dir_shards};
use crate::namespace::{FileKind, NamespaceError, Txn, keys};

/// Removes the record of `ino`, its extended attributes, back pointers, shards and orphan mark. Not
/// its parts: a part that a crash leaves behind is found by comparing [`crate::part::Parts::list`]
/// with [`super::inodes`].
pub fn remove_inode(txn: &mut Txn<'_>, ino: InodeId) -> Result<(), NamespaceError> {
    let inode = txn.inode(ino)?;
    // Scans cost more than all the rest, and most inodes have none of these.
    let has_names = inode.as_ref().is_none_or(|inode| inode.nlink > 0);
    let has_shards = inode.is_none_or(|inode| inode.kind == FileKind::Directory);
    let has_xattrs = txn.get(&keys::xattrs(ino))?.is_some();
    let kinds = [(has_names, keys::back_pointers(ino)), (has_xattrs, keys::xattrs(ino))];
    for (_, prefix) in kinds.into_iter().filter(|(has, _)| *has) {
        for (key, _) in txn.scan(&prefix, &[], usize::MAX)? {
            txn.delete(key);
        }
    }
    if has_shards {
        clear_dir_shards(txn, ino)?;
    }
    // The mark is looked for first: a batch should not grow by deletes of what is not there.
    if txn.get(&keys::orphan(ino))?.is_some() {
        txn.delete(keys::orphan(ino));
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
        XattrMode, add_dir_shard, back_pointers, create, dir_shards, get_inode, link, list_xattr,
        set_xattr, unlink,
    };
    use super::*;

    #[test]
    fn nothing_is_left_of_a_removed_inode() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        create(&mut txn, &file(7), Some((InodeId(1), b"a")), None).unwrap();
        create(&mut txn, &file(8), Some((InodeId(1), b"other")), None).unwrap();
        link(&mut txn, InodeId(7), InodeId(1), b"b", at(2)).unwrap();
        set_xattr(&mut txn, InodeId(7), b"user.a", b"1", XattrMode::Set).unwrap();
        add_dir_shard(&mut txn, InodeId(7), ServerId(2)).unwrap();
        unlink(&mut txn, InodeId(7), InodeId(1), b"a", at(3)).unwrap();
        unlink(&mut txn, InodeId(7), InodeId(1), b"b", at(3)).unwrap();
        assert_eq!(orphans(&txn, 10).unwrap(), [InodeId(7)]);
        txn.commit().unwrap();
        let mut txn = namespace.begin();
        remove_inode(&mut txn, InodeId(7)).unwrap();
        remove_inode(&mut txn, InodeId(7)).unwrap();
        txn.commit().unwrap();
        let txn = namespace.begin();
        assert_eq!(get_inode(&txn, InodeId(7)).unwrap(), None);
        assert!(back_pointers(&txn, InodeId(7)).unwrap().is_empty());
        assert!(list_xattr(&txn, InodeId(7)).unwrap().is_empty());
        assert!(dir_shards(&txn, InodeId(7)).unwrap().is_empty());
        assert!(orphans(&txn, 10).unwrap().is_empty());
        assert!(get_inode(&txn, InodeId(8)).unwrap().is_some());
        assert_eq!(back_pointers(&txn, InodeId(8)).unwrap().len(), 1);
    }
}
