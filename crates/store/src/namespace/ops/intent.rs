//! Intents: operations over several servers that a restarted server has to finish or undo.

use hayase_layout::InodeId;
use serde::{Deserialize, Serialize};

use super::bad_key;
use crate::namespace::{EntryRecord, NamespaceError, Time, Txn, codec, keys};

/// An operation that is not finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Chosen by the server; unique among its intents.
    pub id: u64,
    /// What is to be done.
    pub what: IntentKind,
}

/// What is to be done. On disk: add variants at the end, change none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IntentKind {
    /// At a home: `ino` was made and its name may not have been inserted yet. Ask the shard of
    /// the name: when it does not stand for `ino`, remove the inode.
    Create {
        /// The new inode.
        ino: InodeId,
        /// The directory that its name is to be in.
        parent: InodeId,
        /// Its name.
        name: Vec<u8>,
    },
    /// At a home: `ino` counts a further name, which may not have been inserted yet.
    Link {
        /// The inode.
        ino: InodeId,
        /// The directory that the name is to be in.
        parent: InodeId,
        /// The name.
        name: Vec<u8>,
    },
    /// At a shard: the name was removed; the inode's home may still count it.
    Remove {
        /// What the name stood for.
        entry: EntryRecord,
        /// The directory that it was in.
        parent: InodeId,
        /// The name.
        name: Vec<u8>,
        /// When.
        time: Time,
    },
    /// At the shard of `to`, the coordinator: `to` stands for `entry` (the commit point); the old
    /// name, the back pointer and the count of the victim may not have followed yet.
    Rename {
        /// What is moved.
        entry: EntryRecord,
        /// Its old directory and name.
        from: (InodeId, Vec<u8>),
        /// Its new directory and name.
        to: (InodeId, Vec<u8>),
        /// What `to` stood for before.
        victim: Option<EntryRecord>,
        /// When.
        time: Time,
    },
    /// At the shard of `from`: a rename was prepared by the coordinator; ask it how it went.
    Prepared {
        /// What is moved.
        entry: EntryRecord,
        /// The directory and name that are locked here.
        from: (InodeId, Vec<u8>),
        /// Where it goes; the shard of this name is the coordinator.
        to: (InodeId, Vec<u8>),
    },
    /// At a shard: the directory is being removed by its home; when it is gone, so is its name.
    RemoveDirectory {
        /// What the name stands for.
        entry: EntryRecord,
        /// The directory that it is in.
        parent: InodeId,
        /// The name.
        name: Vec<u8>,
        /// Which request of which process and slot is answered with that, if it happens once: process,
        /// slot, number.
        once: Option<(u64, u32, u64)>,
    },
    /// At the shard of `from`: a rename was committed and the old name unbound; the inode may still
    /// believe in it. Ask the coordinator whether that is over.
    Renamed {
        /// What was moved.
        entry: EntryRecord,
        /// The directory and name that it had here.
        from: (InodeId, Vec<u8>),
        /// The shard of this name is the coordinator.
        to: (InodeId, Vec<u8>),
    },
}

impl IntentKind {
    /// Whether finishing the operation tells something to the inode `of`.
    pub fn speaks_of(&self, of: InodeId) -> bool {
        match self {
            Self::Create { ino, .. } | Self::Link { ino, .. } => *ino == of,
            Self::Rename { entry, victim, .. } => {
                entry.ino == of || victim.as_ref().is_some_and(|victim| victim.ino == of)
            }
            Self::Remove { entry, .. }
            | Self::Prepared { entry, .. }
            | Self::RemoveDirectory { entry, .. }
            | Self::Renamed { entry, .. } => entry.ino == of,
        }
    }

    /// Whether it is left to be done where a name in `dir` is, or was.
    pub fn is_at_a_name_in(&self, dir: InodeId) -> bool {
        match self {
            // At the home of the inode, which asks whoever has the name.
            Self::Create { .. } | Self::Link { .. } => false,
            Self::Remove { parent, .. } | Self::RemoveDirectory { parent, .. } => *parent == dir,
            Self::Rename { from, to, .. }
            | Self::Prepared { from, to, .. }
            | Self::Renamed { from, to, .. } => from.0 == dir || to.0 == dir,
        }
    }
}

/// Records `intent`, in the place of one with the same id.
pub fn put_intent(txn: &mut Txn<'_>, intent: &Intent) -> Result<(), NamespaceError> {
    txn.put(keys::intent(intent.id), codec::encode(&intent.what));
    Ok(())
}

/// The operation is finished, or undone.
pub fn drop_intent(txn: &mut Txn<'_>, id: u64) -> Result<(), NamespaceError> {
    if txn.get(&keys::intent(id))?.is_some() {
        txn.delete(keys::intent(id));
    }
    Ok(())
}

/// What is to be done of operation `id`, if it is not finished.
pub fn intent(txn: &Txn<'_>, id: u64) -> Result<Option<IntentKind>, NamespaceError> {
    let key = keys::intent(id);
    txn.get(&key)?.map(|bytes| codec::decode(&key, &bytes)).transpose()
}

/// All unfinished operations, ascending by id.
pub fn intents(txn: &Txn<'_>) -> Result<Vec<Intent>, NamespaceError> {
    let pairs = txn.scan(&keys::intents(), &[], usize::MAX)?;
    pairs
        .iter()
        .map(|(key, value)| {
            let id = keys::parse_number(key).ok_or_else(|| bad_key(key))?;
            Ok(Intent { id, what: codec::decode(key, value)? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{at, namespace};
    use super::*;
    use crate::namespace::FileKind;

    #[test]
    fn intents_are_kept_until_dropped() {
        let namespace = namespace();
        let place = |name: &[u8]| (InodeId(1), name.to_vec());
        let (ino, parent, name) = (InodeId(7), InodeId(1), b"a".to_vec());
        let entry = EntryRecord { ino: InodeId(7), kind: FileKind::Regular };
        let kinds = [
            IntentKind::Create { ino, parent, name: name.clone() },
            IntentKind::Link { ino, parent, name: name.clone() },
            IntentKind::Remove { entry, parent, name, time: at(4) },
            IntentKind::Rename {
                entry,
                from: place(b"d"),
                to: place(b"e"),
                victim: Some(entry),
                time: at(5),
            },
            IntentKind::Prepared { entry, from: place(b"d"), to: place(b"e") },
            IntentKind::RemoveDirectory {
                entry,
                parent: InodeId(1),
                name: b"f".to_vec(),
                once: Some((1, 2, 3)),
            },
            IntentKind::Renamed { entry, from: place(b"d"), to: place(b"e") },
        ];
        let mut txn = namespace.begin();
        for (id, what) in kinds.iter().cloned().enumerate() {
            put_intent(&mut txn, &Intent { id: id as u64, what }).unwrap();
        }
        txn.commit().unwrap();
        let mut txn = namespace.begin();
        let found: Vec<_> = intents(&txn).unwrap().into_iter().map(|i| i.what).collect();
        assert_eq!(found, kinds);
        (0..6).for_each(|id| drop_intent(&mut txn, id).unwrap());
        drop_intent(&mut txn, 77).unwrap();
        assert_eq!(intents(&txn).unwrap(), [Intent { id: 6, what: kinds[6].clone() }]);
    }
}
