//! Attributes: read and replace inode records.

use hayase_layout::InodeId;

use super::bad_key;
use crate::namespace::{Inode, NamespaceError, Txn, codec, keys};

/// The inode `ino` of this home.
pub fn get_inode(txn: &Txn<'_>, ino: InodeId) -> Result<Option<Inode>, NamespaceError> {
    txn.inode(ino)
}

/// Makes `inode` the record of its number.
pub fn put_inode(txn: &mut Txn<'_>, inode: &Inode) -> Result<(), NamespaceError> {
    txn.set_inode(inode.ino, Some(inode.clone()));
    Ok(())
}

/// Committed inodes of this home with numbers above `after`, ascending, `limit` at most; for
/// recovery and checks. Changes of this transaction are not seen.
pub fn inodes(
    txn: &Txn<'_>,
    after: Option<InodeId>,
    limit: usize,
) -> Result<Vec<Inode>, NamespaceError> {
    let from = after.map_or_else(keys::inodes, |ino| keys::inode(InodeId(ino.0.saturating_add(1))));
    let pairs = txn.scan(&keys::inodes(), &from, limit)?;
    pairs
        .iter()
        .map(|(key, value)| {
            keys::parse_number(key).ok_or_else(|| bad_key(key))?;
            codec::decode(key, value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{file, namespace};
    use super::*;

    #[test]
    fn inodes_are_replaced_and_listed() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        for ino in [9, 5, 7] {
            put_inode(&mut txn, &file(ino, 1, b"a")).unwrap();
        }
        put_inode(&mut txn, &Inode { mode: 0o600, ..file(7, 1, b"a") }).unwrap();
        assert_eq!(get_inode(&txn, InodeId(7)).unwrap().unwrap().mode, 0o600);
        txn.commit().unwrap();
        let txn = namespace.begin();
        assert_eq!(get_inode(&txn, InodeId(7)).unwrap().unwrap().mode, 0o600);
        assert_eq!(get_inode(&txn, InodeId(8)).unwrap(), None);
        let check = |after: Option<u64>, limit, expected: &[u64]| {
            let found = inodes(&txn, after.map(InodeId), limit).unwrap();
            assert_eq!(found.iter().map(|inode| inode.ino.0).collect::<Vec<_>>(), expected);
        };
        check(None, 10, &[1, 5, 7, 9]);
        check(Some(5), 1, &[7]);
        check(Some(9), 10, &[]);
    }
}
