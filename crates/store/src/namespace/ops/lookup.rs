//! Lookup and insert: what a name stands for, and giving it a meaning.

use hayase_layout::InodeId;

use crate::namespace::{EntryRecord, NamespaceError, Txn};

/// What `name` in `parent` stands for at this shard.
pub fn lookup(
    txn: &Txn<'_>,
    parent: InodeId,
    name: &[u8],
) -> Result<Option<EntryRecord>, NamespaceError> {
    txn.entry(parent, name)
}

/// The name is taken; by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exists(pub EntryRecord);

/// Gives `name` in `parent` a meaning, unless it has one.
pub fn insert(
    txn: &mut Txn<'_>,
    parent: InodeId,
    name: &[u8],
    entry: EntryRecord,
) -> Result<Result<(), Exists>, NamespaceError> {
    if let Some(taken) = txn.entry(parent, name)? {
        return Ok(Err(Exists(taken)));
    }
    txn.set_entry(parent, name, Some(entry));
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::namespace;
    use super::*;
    use crate::namespace::FileKind;

    #[test]
    fn a_name_is_given_once() {
        let namespace = namespace();
        let (first, second) = (
            EntryRecord { ino: InodeId(7), kind: FileKind::Regular },
            EntryRecord { ino: InodeId(8), kind: FileKind::Directory },
        );
        let mut txn = namespace.begin();
        insert(&mut txn, InodeId(1), b"a", first).unwrap().unwrap();
        let taken = insert(&mut txn, InodeId(1), b"a", second).unwrap();
        assert_eq!(taken, Err(Exists(first)));
        insert(&mut txn, InodeId(2), b"a", second).unwrap().unwrap();
        txn.commit().unwrap();
        let mut txn = namespace.begin();
        let taken = insert(&mut txn, InodeId(1), b"a", second).unwrap();
        assert_eq!(taken, Err(Exists(first)), "also when committed");
        assert_eq!(lookup(&txn, InodeId(1), b"a").unwrap(), Some(first));
        assert_eq!(lookup(&txn, InodeId(2), b"a").unwrap(), Some(second));
        assert_eq!(lookup(&txn, InodeId(1), b"b").unwrap(), None);
    }
}
