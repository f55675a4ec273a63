//! How many bytes of a file were made durable, and whether its storage has lost some: notes at the home of a part or an index
//! of a container; of other whole files of `shared`, only whether bytes are lost.
//!
//! Programs write such a file without any server, so nobody can note durably that a write is about to come. Noted is the
//! opposite: how long the file was when it was last synced. It grows, except where a writer cuts off what it could not publish, and what was published of it is not written
//! again, so after a power cut the bytes up to there are those that were written. No note says that nothing is known.

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};

use crate::namespace::{NamespaceError, Txn, codec, keys};

/// What is known of the bytes of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durability {
    /// So many bytes, from the first one on, survive a power cut.
    pub bytes: u64,
    /// The storage has lost some of its bytes: no later sync tells that.
    pub is_broken: bool,
}

/// Of a file of this home; nothing is durable where there is no note.
pub fn durability(txn: &Txn<'_>, ino: InodeId) -> Result<Durability, NamespaceError> {
    let key = keys::durability(ino);
    let noted = txn.get(&key)?.map(|bytes| codec::decode(&key, &bytes)).transpose()?;
    Ok(noted.unwrap_or_default())
}

/// Notes that the first `bytes` bytes of a file were made durable, which has `len` bytes now: where a writer has cut off
/// what it could not publish, no more than these are. Whether that is anything new.
pub fn note_durable(
    txn: &mut Txn<'_>,
    ino: InodeId,
    bytes: u64,
    len: u64,
) -> Result<bool, NamespaceError> {
    let known = durability(txn, ino)?;
    let bytes = known.bytes.max(bytes).min(len);
    if known.bytes == bytes {
        return Ok(false);
    }
    txn.mark_essential();
    txn.put(keys::durability(ino), codec::encode(&Durability { bytes, ..known }));
    Ok(true)
}

/// Notes that the storage has lost bytes of a file.
pub fn note_broken(txn: &mut Txn<'_>, ino: InodeId) -> Result<(), NamespaceError> {
    let known = durability(txn, ino)?;
    txn.mark_essential();
    txn.put(keys::durability(ino), codec::encode(&Durability { is_broken: true, ..known }));
    Ok(())
}

/// Nothing of its bytes is left.
pub fn forget_durability(txn: &mut Txn<'_>, ino: InodeId) -> Result<(), NamespaceError> {
    let key = keys::durability(ino);
    if txn.get(&key)?.is_some() {
        txn.delete(key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{file, namespace};
    use super::super::{create, remove_inode};
    use super::*;

    #[test]
    fn what_is_durable_grows_with_the_file_and_what_is_broken_stays() {
        let namespace = namespace();
        let ino = InodeId(7);
        let mut txn = namespace.begin();
        assert_eq!(durability(&txn, ino).unwrap(), Durability::default());
        assert!(note_durable(&mut txn, ino, 10, 10).unwrap());
        assert!(!note_durable(&mut txn, ino, 9, 10).unwrap(), "an earlier sync that ends later");
        note_broken(&mut txn, ino).unwrap();
        assert!(note_durable(&mut txn, ino, 11, 12).unwrap());
        txn.commit().unwrap();
        let mut txn = namespace.begin();
        assert_eq!(durability(&txn, ino).unwrap(), Durability { bytes: 11, is_broken: true });
        assert_eq!(durability(&txn, InodeId(8)).unwrap(), Durability::default());
        assert!(note_durable(&mut txn, ino, 4, 4).unwrap(), "it was cut");
        assert_eq!(durability(&txn, ino).unwrap(), Durability { bytes: 4, is_broken: true });
        forget_durability(&mut txn, ino).unwrap();
        assert_eq!(durability(&txn, ino).unwrap(), Durability::default());
    }

    #[test]
    fn a_note_goes_with_its_inode() {
        let namespace = namespace();
        let mut txn = namespace.begin();
        create(&mut txn, &file(7, 1, b"a"), None).unwrap();
        note_durable(&mut txn, InodeId(7), 10, 10).unwrap();
        remove_inode(&mut txn, InodeId(7)).unwrap();
        assert_eq!(durability(&txn, InodeId(7)).unwrap(), Durability::default());
    }
}
