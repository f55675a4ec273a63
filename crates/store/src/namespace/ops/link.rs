//! Link: one more name for an inode; the names that an inode has.

use hayase_layout::InodeId;

use super::bad_key;
use crate::namespace::{Inode, NamespaceError, Time, Txn, keys};

/// Names of one inode.
pub const LINKS_MAX: u32 = 65_000;

/// Counts one more name; returns the inode as it is now. An orphan becomes a file again. When
/// `ino` has this name already, nothing changes.
pub fn link(
    txn: &mut Txn<'_>,
    ino: InodeId,
    parent: InodeId,
    name: &[u8],
    now: Time,
) -> Result<Inode, NamespaceError> {
    let mut inode = require_inode(txn, ino)?;
    if has_name(txn, &inode, parent, name)? {
        return Ok(inode);
    }
    if inode.nlink >= LINKS_MAX {
        return Err(NamespaceError::TooManyLinks { ino, max: LINKS_MAX });
    }
    if inode.nlink == 0 {
        txn.delete(keys::orphan(ino));
    }
    match inode.name {
        None => inode.name = Some((parent, name.to_vec())),
        Some(_) => txn.put(keys::back_pointer(ino, parent, name), Vec::new()),
    }
    inode.nlink += 1;
    inode.ctime = now;
    txn.set_inode(ino, Some(inode.clone()));
    Ok(inode)
}

/// All names of `ino`, as its home knows them: directory and name, ascending.
/// One read, and a scan when it has more than one.
pub fn names_of(txn: &Txn<'_>, ino: InodeId) -> Result<Vec<(InodeId, Vec<u8>)>, NamespaceError> {
    let Some(inode) = txn.inode(ino)? else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    if inode.nlink > 1 {
        names = back_pointers(txn, ino, LINKS_MAX as usize)?;
    }
    names.extend(inode.name);
    names.sort();
    Ok(names)
}

/// The names of `ino` that are not in its own record, at most `limit`. Costs a scan.
pub(super) fn back_pointers(
    txn: &Txn<'_>,
    ino: InodeId,
    limit: usize,
) -> Result<Vec<(InodeId, Vec<u8>)>, NamespaceError> {
    let pairs = txn.scan(&keys::back_pointers(ino), &[], limit)?;
    pairs
        .iter()
        .map(|(key, _)| {
            let (parent, name) = keys::parse_back_pointer(key).ok_or_else(|| bad_key(key))?;
            Ok((parent, name.to_vec()))
        })
        .collect()
}

/// Whether `inode` has this name; back pointers are read only when it has several.
pub(super) fn has_name(
    txn: &Txn<'_>,
    inode: &Inode,
    parent: InodeId,
    name: &[u8],
) -> Result<bool, NamespaceError> {
    Ok(inode.is_named(parent, name)
        || inode.nlink > 1 && txn.get(&keys::back_pointer(inode.ino, parent, name))?.is_some())
}

/// The inode, or the error that there is none.
pub(super) fn require_inode(txn: &Txn<'_>, ino: InodeId) -> Result<Inode, NamespaceError> {
    txn.inode(ino)?.ok_or(NamespaceError::NoInode { ino })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{at, file, namespace};
    use super::super::{create, put_inode};
    use super::*;

    #[test]
    fn a_name_is_counted_once() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        create(&mut txn, &file(7, 1, b"a"), None).unwrap();
        for _ in 0..2 {
            let inode = link(&mut txn, InodeId(7), InodeId(2), b"b", at(5)).unwrap();
            assert_eq!((inode.nlink, inode.ctime), (2, at(5)));
        }
        let names = names_of(&txn, InodeId(7)).unwrap();
        assert_eq!(names, [(InodeId(1), b"a".to_vec()), (InodeId(2), b"b".to_vec())]);
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        put_inode(&mut txn, &Inode { nlink: LINKS_MAX, ..file(7, 1, b"a") }).unwrap();
        let full = link(&mut txn, InodeId(7), InodeId(2), b"b", at(5));
        assert!(matches!(full, Err(NamespaceError::TooManyLinks { .. })));
        assert!(matches!(
            link(&mut txn, InodeId(8), InodeId(2), b"b", at(5)),
            Err(NamespaceError::NoInode { ino: InodeId(8) })
        ));
    }
}
