//! Create: a new inode, and what finishes the rest.

use super::{Intent, put_intent};
use crate::namespace::{Inode, NamespaceError, Txn};

/// Adds `inode`, and the `intent` that a restarted server uses when the shard of its name is another
/// server.
pub fn create(
    txn: &mut Txn<'_>,
    inode: &Inode,
    intent: Option<&Intent>,
) -> Result<(), NamespaceError> {
    txn.set_inode(inode.ino, Some(inode.clone()));
    if let Some(intent) = intent {
        put_intent(txn, intent)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hayase_layout::InodeId;

    use super::super::testing::{file, namespace};
    use super::super::{IntentKind, get_inode, intents, names_of};
    use super::*;

    #[test]
    fn a_created_inode_has_its_name_and_intent() {
        let namespace = namespace();
        let (ino, parent, name) = (InodeId(7), InodeId(1), b"f".to_vec());
        let intent = Intent { id: 4, what: IntentKind::Create { ino, parent, name } };
        let mut txn = namespace.begin();
        create(&mut txn, &file(7, 1, b"f"), Some(&intent)).unwrap();
        txn.commit().unwrap();
        let txn = namespace.begin();
        assert_eq!(get_inode(&txn, InodeId(7)).unwrap(), Some(file(7, 1, b"f")));
        assert_eq!(names_of(&txn, InodeId(7)).unwrap(), [(InodeId(1), b"f".to_vec())]);
        assert_eq!(intents(&txn).unwrap(), [intent]);
    }

    #[test]
    fn a_dropped_transaction_did_nothing() {
        let namespace = namespace();
        create(&mut namespace.begin(), &file(7, 1, b"f"), None).unwrap();
        let txn = namespace.begin();
        assert_eq!(get_inode(&txn, InodeId(7)).unwrap(), None);
        assert!(names_of(&txn, InodeId(7)).unwrap().is_empty());
    }
}
