//! Unlink: a name goes at its shard, and is counted down at the inode's home.

use hayase_layout::InodeId;

use super::link::require_inode;
use crate::namespace::{EntryRecord, Inode, NamespaceError, Time, Txn, codec, keys};

/// Removes `name` from `parent`; returns what it stood for.
pub fn remove_entry(
    txn: &mut Txn<'_>,
    parent: InodeId,
    name: &[u8],
) -> Result<Option<EntryRecord>, NamespaceError> {
    let key = keys::entry(parent, name);
    let Some(bytes) = txn.get(&key)? else { return Ok(None) };
    let entry = codec::decode(&key, &bytes)?;
    txn.delete(key);
    Ok(Some(entry))
}

/// Counts one name less; returns the inode as it is now. Without names it is marked an orphan
/// ([`super::orphans`]) and lives on. When `ino` does not have this name, nothing changes.
pub fn unlink(
    txn: &mut Txn<'_>,
    ino: InodeId,
    parent: InodeId,
    name: &[u8],
    now: Time,
) -> Result<Inode, NamespaceError> {
    let mut inode = require_inode(txn, ino)?;
    let pointer = keys::back_pointer(ino, parent, name);
    if txn.get(&pointer)?.is_none() {
        return Ok(inode);
    }
    txn.delete(pointer);
    inode.nlink = inode.nlink.saturating_sub(1);
    if inode.nlink == 0 {
        txn.put(keys::orphan(ino), Vec::new());
    }
    inode.ctime = now;
    txn.set_inode(ino, Some(inode.clone()));
    Ok(inode)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{at, file, namespace};
    use super::super::{create, insert, link, lookup, orphans};
    use super::*;
    use crate::namespace::FileKind;

    #[test]
    fn the_last_name_makes_an_orphan_and_a_new_one_saves_it() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        create(&mut txn, &file(7), Some((InodeId(1), b"a")), None).unwrap();
        link(&mut txn, InodeId(7), InodeId(1), b"b", at(2)).unwrap();
        let mut check = |name: &[u8], nlink, orphaned: &[InodeId]| {
            let inode = unlink(&mut txn, InodeId(7), InodeId(1), name, at(3)).unwrap();
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
    fn a_removed_entry_is_gone() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        let entry = EntryRecord { ino: InodeId(7), kind: FileKind::Fifo };
        insert(&mut txn, InodeId(1), b"a", entry).unwrap().unwrap();
        txn.commit().unwrap();
        let mut txn = namespace.begin();
        assert_eq!(remove_entry(&mut txn, InodeId(1), b"a").unwrap(), Some(entry));
        assert_eq!(remove_entry(&mut txn, InodeId(1), b"a").unwrap(), None);
        assert_eq!(lookup(&txn, InodeId(1), b"a").unwrap(), None);
        insert(&mut txn, InodeId(1), b"a", entry).unwrap().unwrap();
    }
}
