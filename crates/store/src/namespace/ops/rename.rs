//! Rename: a name takes another meaning at its shard, an inode another name at its home.

use hayase_layout::InodeId;

use super::link::{has_name, require_inode};
use crate::namespace::{EntryRecord, Inode, NamespaceError, Time, Txn, keys};

/// Makes `name` in `parent` stand for `entry`; returns what it stood for.
pub fn replace(
    txn: &mut Txn<'_>,
    parent: InodeId,
    name: &[u8],
    entry: EntryRecord,
) -> Result<Option<EntryRecord>, NamespaceError> {
    let before = txn.entry(parent, name)?;
    txn.set_entry(parent, name, Some(entry));
    Ok(before)
}

/// Rename `op` gives `ino` another name for one that it has; returns the inode as it is now.
/// Done before, it changes nothing, also where the old name was linked anew since.
pub fn relink(
    txn: &mut Txn<'_>,
    (ino, op): (InodeId, u64),
    from: (InodeId, &[u8]),
    to: (InodeId, &[u8]),
    now: Time,
) -> Result<Inode, NamespaceError> {
    let mut inode = require_inode(txn, ino)?;
    if inode.renamed_by == op || from == to || !has_name(txn, &inode, from.0, from.1)? {
        return Ok(inode);
    }
    inode.renamed_by = op;
    if inode.is_named(from.0, from.1) {
        inode.name = Some((to.0, to.1.to_vec()));
    } else {
        txn.delete(keys::back_pointer(ino, from.0, from.1));
        txn.put(keys::back_pointer(ino, to.0, to.1), Vec::new());
    }
    inode.ctime = now;
    txn.set_inode(ino, Some(inode.clone()));
    Ok(inode)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{at, file, namespace};
    use super::super::{create, insert, link, lookup, names_of};
    use super::*;
    use crate::namespace::FileKind;

    #[test]
    fn what_was_linked_anew_is_not_moved_again() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        create(&mut txn, &file(7, 1, b"a"), None).unwrap();
        let (from, to) = ((InodeId(1), &b"a"[..]), (InodeId(1), &b"b"[..]));
        relink(&mut txn, (InodeId(7), 5), from, to, at(5)).unwrap();
        link(&mut txn, InodeId(7), InodeId(1), b"a", at(6)).unwrap();
        relink(&mut txn, (InodeId(7), 5), from, to, at(7)).unwrap();
        let mut names = names_of(&txn, InodeId(7)).unwrap();
        names.sort();
        assert_eq!(names, [(InodeId(1), b"a".to_vec()), (InodeId(1), b"b".to_vec())]);
    }

    #[test]
    fn a_directory_moves_once() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        let dir = Inode { kind: FileKind::Directory, ..file(7, 1, b"a") };
        create(&mut txn, &dir, None).unwrap();
        for _ in 0..2 {
            let (from, to) = ((InodeId(1), &b"a"[..]), (InodeId(9), &b"b"[..]));
            let inode = relink(&mut txn, (InodeId(7), 1), from, to, at(5)).unwrap();
            assert_eq!(inode.name, Some((InodeId(9), b"b".to_vec())));
            assert_eq!(inode.ctime, at(5));
        }
        assert_eq!(names_of(&txn, InodeId(7)).unwrap(), [(InodeId(9), b"b".to_vec())]);
        let missing =
            relink(&mut txn, (InodeId(8), 1), (InodeId(1), b"a"), (InodeId(1), b"b"), at(5));
        assert!(matches!(missing, Err(NamespaceError::NoInode { ino: InodeId(8) })));
    }

    #[test]
    fn a_replaced_name_tells_what_it_was() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        let entry = |ino| EntryRecord { ino: InodeId(ino), kind: FileKind::Regular };
        assert_eq!(replace(&mut txn, InodeId(1), b"n", entry(5)).unwrap(), None);
        assert_eq!(replace(&mut txn, InodeId(1), b"n", entry(6)).unwrap(), Some(entry(5)));
        assert_eq!(lookup(&txn, InodeId(1), b"n").unwrap(), Some(entry(6)));
        assert!(insert(&mut txn, InodeId(1), b"n", entry(7)).unwrap().is_err());
    }
}
