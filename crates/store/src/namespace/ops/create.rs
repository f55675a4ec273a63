//! Create: a new inode, with its first name and what finishes the rest.

use hayase_layout::InodeId;

use super::{Intent, put_intent};
use crate::namespace::{Inode, NamespaceError, Txn, keys};

/// Adds `inode`, its back pointer when it has a `name` already, and the `intent` that a restarted
/// server uses when the name's shard is another server.
pub fn create(
    txn: &mut Txn<'_>,
    inode: &Inode,
    name: Option<(InodeId, &[u8])>,
    intent: Option<&Intent>,
) -> Result<(), NamespaceError> {
    txn.set_inode(inode.ino, Some(inode.clone()));
    if let Some((parent, name)) = name {
        txn.put(keys::back_pointer(inode.ino, parent, name), Vec::new());
    }
    if let Some(intent) = intent {
        put_intent(txn, intent)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hayase_layout::InodeId;

    use super::super::testing::{file, namespace};
    use super::super::{IntentKind, back_pointers, get_inode, intents};
    use super::*;

    #[test]
    fn a_created_inode_has_its_name_and_intent() {
        let namespace = namespace();
        let (ino, parent, name) = (InodeId(7), InodeId(1), b"f".to_vec());
        let intent = Intent { id: 4, what: IntentKind::Create { ino, parent, name } };
        let mut txn = namespace.begin();
        create(&mut txn, &file(7), Some((InodeId(1), b"f")), Some(&intent)).unwrap();
        txn.commit().unwrap();
        let txn = namespace.begin();
        assert_eq!(get_inode(&txn, InodeId(7)).unwrap(), Some(file(7)));
        assert_eq!(back_pointers(&txn, InodeId(7)).unwrap(), [(InodeId(1), b"f".to_vec())]);
        assert_eq!(intents(&txn).unwrap(), [intent]);
    }

    #[test]
    fn a_dropped_transaction_did_nothing() {
        let namespace = namespace();
        create(&mut namespace.begin(), &file(7), Some((InodeId(1), b"f")), None).unwrap();
        let txn = namespace.begin();
        assert_eq!(get_inode(&txn, InodeId(7)).unwrap(), None);
        assert!(back_pointers(&txn, InodeId(7)).unwrap().is_empty());
    }
}
