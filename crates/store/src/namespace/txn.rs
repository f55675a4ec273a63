//! Transactions: changes that become visible together or not at all.
//!
//! Here: reading through one's own changes, scanning, committing.
//! Not here: what the records mean ([`super::ops`]).
//!
//! Invariants: `inodes` holds every inode changed here, and no key of an inode is in `batch` before
//! the commit, so an inode is encoded once, however often it changes; `entries` holds what becomes of
//! every name changed here, in the order of the changes.

use std::cell::{RefCell, RefMut};
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::MutexGuard;

use hayase_layout::InodeId;

use super::{EntryRecord, Inode, Namespace, NamespaceError, State, codec, keys};
use crate::meta::{Batch, Pair};

/// An open transaction of a [`Namespace`]. It reads its own changes; dropped without
/// [`Txn::commit`], nothing has happened.
pub struct Txn<'a> {
    namespace: &'a Namespace,
    /// `None` only while being dropped.
    state: Option<RefCell<MutexGuard<'a, State>>>,
    batch: Batch,
    inodes: HashMap<InodeId, Option<Inode>>,
    entries: Vec<(Vec<u8>, Option<EntryRecord>)>,
}

impl<'a> Txn<'a> {
    pub(super) fn new(namespace: &'a Namespace, state: MutexGuard<'a, State>) -> Self {
        Self {
            namespace,
            state: Some(RefCell::new(state)),
            batch: Batch::new(),
            inodes: HashMap::new(),
            entries: Vec::new(),
        }
    }

    /// Its batch is taken also where there is no room for new names ([`Batch::mark_essential`]).
    pub(super) fn mark_essential(&mut self) {
        self.batch.mark_essential();
    }

    /// Makes the changes, all of them in one batch; they survive kill -9 when this returns.
    pub fn commit(mut self) -> Result<(), NamespaceError> {
        let mut batch = std::mem::take(&mut self.batch);
        for (ino, inode) in &self.inodes {
            match inode {
                Some(inode) => batch.put(keys::inode(*ino), codec::encode(inode)),
                None => batch.delete(keys::inode(*ino)),
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.namespace.store.commit(batch)?;
        let (inodes, entries) =
            (std::mem::take(&mut self.inodes), std::mem::take(&mut self.entries));
        let mut state = self.state();
        for (ino, inode) in inodes {
            match inode {
                Some(inode) => state.inodes.put(ino, inode),
                None => state.inodes.remove(&ino),
            }
        }
        for (key, entry) in entries {
            match entry {
                Some(entry) => state.entries.put(key, entry),
                None => state.entries.remove(&key),
            }
        }
        Ok(())
    }

    fn state(&self) -> RefMut<'_, MutexGuard<'a, State>> {
        self.state.as_ref().expect("held until the transaction is dropped").borrow_mut()
    }

    pub(super) fn inode(&self, ino: InodeId) -> Result<Option<Inode>, NamespaceError> {
        if let Some(changed) = self.inodes.get(&ino) {
            return Ok(changed.clone());
        }
        if let Some(inode) = self.state().inodes.get(&ino) {
            return Ok(Some(inode.clone()));
        }
        let key = keys::inode(ino);
        let Some(bytes) = self.namespace.store.get(&key)? else { return Ok(None) };
        let inode: Inode = codec::decode(&key, &bytes)?;
        self.state().inodes.put(ino, inode.clone());
        Ok(Some(inode))
    }

    pub(super) fn set_inode(&mut self, ino: InodeId, inode: Option<Inode>) {
        self.inodes.insert(ino, inode);
    }

    /// What `name` in `parent` stands for.
    pub(super) fn entry(
        &self,
        parent: InodeId,
        name: &[u8],
    ) -> Result<Option<EntryRecord>, NamespaceError> {
        let key = keys::entry(parent, name);
        let decode = |bytes: &[u8]| codec::decode(&key, bytes);
        if let Some(changed) = self.batch.changes().get(&key) {
            return changed.as_deref().map(decode).transpose();
        }
        if let Some(entry) = self.state().entries.get(&key) {
            return Ok(Some(*entry));
        }
        let Some(bytes) = self.namespace.store.get(&key)? else { return Ok(None) };
        let entry = decode(&bytes)?;
        self.state().entries.put(key, entry);
        Ok(Some(entry))
    }

    pub(super) fn set_entry(&mut self, parent: InodeId, name: &[u8], entry: Option<EntryRecord>) {
        let key = keys::entry(parent, name);
        match &entry {
            Some(entry) => self.batch.put(key.clone(), codec::encode(entry)),
            None => self.batch.delete(key.clone()),
        }
        self.entries.push((key, entry));
    }

    /// The value of a key that is neither an inode's nor a name's.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, NamespaceError> {
        match self.batch.changes().get(key) {
            Some(changed) => Ok(changed.clone()),
            None => Ok(self.namespace.store.get(key)?),
        }
    }

    pub(super) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.batch.put(key, value);
    }

    pub(super) fn delete(&mut self, key: Vec<u8>) {
        self.batch.delete(key);
    }

    /// As [`crate::meta::MetaStore::scan`], with the changes of this transaction, but not for inodes.
    pub(super) fn scan(
        &self,
        prefix: &[u8],
        from: &[u8],
        limit: usize,
    ) -> Result<Vec<Pair>, NamespaceError> {
        let start = Bound::Included(from.max(prefix).to_vec());
        let changes: Vec<_> = self
            .batch
            .changes()
            .range((start, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .collect();
        // Each change hides at most one stored pair, so this many are enough to fill the page.
        let stored =
            self.namespace.store.scan(prefix, from, limit.saturating_add(changes.len()))?;
        if changes.is_empty() {
            return Ok(stored);
        }
        let mut merged: std::collections::BTreeMap<_, _> = stored.into_iter().collect();
        for (key, value) in changes {
            match value {
                Some(value) => merged.insert(key.clone(), value.clone()),
                None => merged.remove(key),
            };
        }
        Ok(merged.into_iter().take(limit).collect())
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            self.namespace.release(state.into_inner());
        }
    }
}
